package main

import (
	"bytes"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ethereum/go-ethereum/accounts/keystore"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/spf13/cobra"

	"dongate/auth"
)

// Where a key and a keystore's password may come from besides files. Never from a
// flag's value: other users of the machine can read the command line.
const (
	envPrivateKey       = "DONGATE_PRIVATE_KEY"
	envKeystorePassword = "DONGATE_KEYSTORE_PASSWORD"
)

// maxSecretBytes bounds a key, keystore or password file.
const maxSecretBytes = 64 << 10

// keyFlags say where the private key is.
type keyFlags struct{ file, keystore, passwordFile string }

func (k *keyFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&k.file, "key-file", "", "a `file` with the private key: 64 hex digits (default: $"+envPrivateKey+")")
	f.StringVar(&k.keystore, "keystore", "", "an Ethereum keystore `file`")
	f.StringVar(&k.passwordFile, "password-file", "", "a `file` with the keystore's password (default: $"+envKeystorePassword+")")
}

// signer returns the signer of the key that the flags or the environment name.
func (k *keyFlags) signer(w *world) (auth.Signer, error) {
	key, err := k.key(w)
	if err != nil {
		return nil, err
	}
	return auth.NewKeySigner(key), nil
}

func (k *keyFlags) key(w *world) (*ecdsa.PrivateKey, error) {
	switch {
	case k.keystore != "" && k.file != "":
		return nil, fail(exitUsage, "two keys: give --key-file or --keystore, not both")
	case k.keystore != "":
		return k.fromKeystore(w)
	case k.passwordFile != "":
		return nil, fail(exitUsage, "--password-file is the password of a keystore: give --keystore too")
	case k.file != "":
		data, err := readSecret(w, k.file)
		if err != nil {
			return nil, err
		}
		return keyFromHex(k.file, string(data))
	case w.env(envPrivateKey) != "":
		return keyFromHex(envPrivateKey, w.env(envPrivateKey))
	}
	return nil, fail(exitLocal, "which key signs? none was given").
		withHint("Use --key-file FILE, --keystore FILE or the variable %s.", envPrivateKey)
}

// keyFromHex never repeats any of the text: it may be a key with a slip.
func keyFromHex(source, text string) (*ecdsa.PrivateKey, error) {
	text = strings.TrimSpace(text)
	key, err := crypto.HexToECDSA(strings.TrimPrefix(strings.TrimPrefix(text, "0x"), "0X"))
	if err != nil {
		return nil, fail(exitLocal, "%s does not hold a private key: want 64 hex digits, with or without 0x", source)
	}
	return key, nil
}

func (k *keyFlags) fromKeystore(w *world) (*ecdsa.PrivateKey, error) {
	data, err := readSecret(w, k.keystore)
	if err != nil {
		return nil, err
	}
	password := w.env(envKeystorePassword)
	switch {
	case k.passwordFile != "":
		b, err := readSecret(w, k.passwordFile)
		if err != nil {
			return nil, err
		}
		password = strings.TrimRight(string(b), "\r\n")
	case password == "":
		return nil, fail(exitLocal, "the keystore %s needs its password", k.keystore).
			withHint("Use --password-file FILE or the variable %s.", envKeystorePassword)
	}
	key, err := keystore.DecryptKey(data, password)
	switch {
	case errors.Is(err, keystore.ErrDecrypt):
		return nil, fail(exitLocal, "%s: the password is wrong", k.keystore)
	case err != nil:
		return nil, fail(exitLocal, "%s is not an Ethereum keystore that can be read: %w", k.keystore, err)
	}
	return key.PrivateKey, nil
}

// readSecret reads a small file, which may be a pipe, and warns when other users
// can read it too.
func readSecret(w *world, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fail(exitLocal, "%w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		fmt.Fprintf(w.stderr, "gateway: warning: other users can read %s (mode %04o); run: chmod 600 %s\n",
			path, info.Mode().Perm(), shellQuote(path))
	}
	return readBounded(f, path, maxSecretBytes)
}

func readBounded(r io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, fail(exitLocal, "read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fail(exitLocal, "%s is longer than %d bytes", name, limit)
	}
	return bytes.TrimPrefix(data, []byte("\ufeff")), nil
}

// shellQuote makes text one word of a POSIX shell.
func shellQuote(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
