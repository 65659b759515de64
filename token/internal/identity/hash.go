// Package identity says under what an identity's rows are found.
package identity

import (
	"crypto/sha256"
	"encoding/hex"

	"dongate/storage"
	"dongate/token"
)

// Hash returns the key of an identity's rows: SHA-256 as hexadecimal digits. An empty identity is token.ErrEmptyIdentity, because all of them would
// share one row, and one that is too large storage.ErrPayloadSize.
func Hash(identity token.Identity) (string, error) {
	if len(identity) == 0 {
		return "", token.ErrEmptyIdentity
	}
	if err := storage.CheckPayload("identity", identity); err != nil {
		return "", err
	}
	sum := sha256.Sum256(identity)
	return hex.EncodeToString(sum[:]), nil
}
