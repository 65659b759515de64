package simdon

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"dongate/workflow"
)

// Key derives a private key from a seed and a label. Whoever knows both has the key: it protects nothing.
func Key(seed, label string) *ecdsa.PrivateKey {
	for sum := sha256.Sum256([]byte("simulated DON\x00" + seed + "\x00" + label)); ; sum = sha256.Sum256(sum[:]) {
		if key, err := crypto.ToECDSA(sum[:]); err == nil { // all but one in 2^128 are keys
			return key
		}
	}
}

// Address is the address of a key.
func Address(key *ecdsa.PrivateKey) common.Address { return crypto.PubkeyToAddress(key.PublicKey) }

// NewWorkflow returns the metadata of a workflow that the given signers may trigger. Its id is derived from the rest, so
// that equal arguments give equal workflows.
func NewWorkflow(owner common.Address, name, tag string, signers ...common.Address) workflow.Metadata {
	id := sha256.Sum256([]byte(owner.Hex() + "\x00" + name + "\x00" + tag))
	m := workflow.Metadata{Selector: workflow.Selector{
		WorkflowID: "0x" + hex.EncodeToString(id[:]), WorkflowOwner: strings.ToLower(owner.Hex()),
		WorkflowName: workflow.HashName(name), WorkflowTag: tag,
	}}
	for _, s := range signers {
		m.AuthorizedKeys = append(m.AuthorizedKeys, workflow.Key{KeyType: workflow.KeyTypeECDSAEVM, PublicKey: strings.ToLower(s.Hex())})
	}
	return m
}
