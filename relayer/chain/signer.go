package chain

import (
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// maxKeyFile bounds, in bytes, the files that a key is read from.
const maxKeyFile = 64 << 10

// SignerOptions say where the key is: exactly one of Keystore, KeyFile and KeyEnv is set.
type SignerOptions struct {
	Keystore string // file: an encrypted key in the form of Ethereum's clients (version 3)
	// The keystore's password: exactly one of them is set, with Keystore alone.
	PasswordFile string // file, readable by its owner alone; a line's end after the password is ignored
	PasswordEnv  string // name of an environment variable

	KeyFile string // file: 64 hex digits, with or without 0x; readable by its owner alone
	KeyEnv  string // name of an environment variable with the same

	LookupEnv func(name string) (string, bool) // nil: os.LookupEnv
}

// Signer holds the key that pays for the relayer's transactions. Nothing prints it: text, JSON and every verb of fmt show the address.
type Signer struct {
	key     *ecdsa.PrivateKey
	address common.Address
}

// LoadSigner reads the key. Errors name the file or variable and what to do, never what is in it.
func LoadSigner(o SignerOptions) (*Signer, error) {
	if o.LookupEnv == nil {
		o.LookupEnv = os.LookupEnv
	}
	if count(o.Keystore, o.KeyFile, o.KeyEnv) != 1 {
		return nil, errors.New("the signer needs exactly one of keystore, keyFile and keyEnv")
	}
	key, err := o.load()
	if err != nil {
		return nil, err
	}
	return &Signer{key, crypto.PubkeyToAddress(key.PublicKey)}, nil
}

func (o SignerOptions) load() (*ecdsa.PrivateKey, error) {
	switch {
	case o.KeyFile != "":
		text, err := readSecret(o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("the signer's key file: %w", err)
		}
		return parseKey(string(text), o.KeyFile)
	case o.KeyEnv != "":
		text, ok := o.LookupEnv(o.KeyEnv)
		if !ok || text == "" {
			return nil, fmt.Errorf("the signer's key: the environment variable %s is not set", o.KeyEnv)
		}
		return parseKey(text, "the environment variable "+o.KeyEnv)
	}
	password, err := o.password()
	if err != nil {
		return nil, err
	}
	text, err := readFile(o.Keystore)
	if err != nil {
		return nil, fmt.Errorf("the signer's keystore: %w", err)
	}
	key, err := keystore.DecryptKey(text, password)
	if errors.Is(err, keystore.ErrDecrypt) {
		return nil, fmt.Errorf("the signer's keystore %s: the password is wrong", o.Keystore)
	}
	if err != nil {
		return nil, fmt.Errorf("the signer's keystore %s is not an encrypted key of version 3", o.Keystore)
	}
	return key.PrivateKey, nil
}

func (o SignerOptions) password() (string, error) {
	switch {
	case count(o.PasswordFile, o.PasswordEnv) != 1:
		return "", errors.New("the signer's keystore needs exactly one of a password file and a password variable")
	case o.PasswordFile != "":
		text, err := readSecret(o.PasswordFile)
		if err != nil {
			return "", fmt.Errorf("the keystore's password file: %w", err)
		}
		return strings.TrimRight(string(text), "\r\n"), nil
	}
	password, ok := o.LookupEnv(o.PasswordEnv)
	if !ok {
		return "", fmt.Errorf("the keystore's password: the environment variable %s is not set", o.PasswordEnv)
	}
	return password, nil
}

// parseKey leaves out the cause: it would say which character of the key is no digit.
func parseKey(text, where string) (*ecdsa.PrivateKey, error) {
	text = strings.TrimPrefix(strings.TrimSpace(text), "0x")
	key, err := crypto.HexToECDSA(text)
	if err != nil {
		return nil, fmt.Errorf("%s does not hold a private key: 64 hex digits are expected", where)
	}
	return key, nil
}

// readSecret reads a file that its owner alone may read.
func readSecret(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others (mode %04o): run chmod 600 %[1]s", path, mode.Perm())
	}
	return readBounded(f, path)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, path)
}

func readBounded(f *os.File, path string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxKeyFile)
	}
	return text, nil
}

func count(values ...string) (n int) {
	for _, v := range values {
		if v != "" {
			n++
		}
	}
	return n
}

// Address returns the account of the key.
func (s *Signer) Address() common.Address { return s.address }

// Sign returns the transaction signed for its chain, as it is sent, and its hash. Equal transactions get equal bytes.
func (s *Signer) Sign(tx *types.DynamicFeeTx) (raw []byte, hash common.Hash, err error) {
	if tx.ChainID == nil || tx.ChainID.Sign() <= 0 {
		return nil, common.Hash{}, errors.New("signing a transaction: the chain id is missing")
	}
	signed, err := types.SignNewTx(s.key, types.LatestSignerForChainID(tx.ChainID), tx)
	if err != nil {
		return nil, common.Hash{}, fmt.Errorf("signing a transaction: %w", err)
	}
	if raw, err = signed.MarshalBinary(); err != nil {
		return nil, common.Hash{}, fmt.Errorf("encoding a transaction: %w", err)
	}
	return raw, signed.Hash(), nil
}

// String returns the address.
func (s Signer) String() string { return "signer " + s.address.Hex() }

// GoString returns the address.
func (s Signer) GoString() string { return s.String() }

// Format writes the address, whatever the verb.
func (s Signer) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// MarshalText returns the address, for JSON too.
func (s Signer) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
