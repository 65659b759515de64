package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds of an API key in bytes: shorter ones can be guessed, longer ones do not fit a header.
const (
	minAPIKey = 16
	maxAPIKey = 1024
)

// maxSecretFile bounds a file with a key or a password, in bytes.
const maxSecretFile = 64 << 10

// ClientKey is the API key of one client.
type ClientKey struct {
	Name string
	Key  Secret // 16 to 1024 characters of visible ASCII, no two alike
}

// ReadAPIKeys reads the API keys that the configuration names, from environ ("NAME=text", as os.Environ gives them) and from files,
// whose paths are relative to the working directory. White space around a key is left out. A configuration without API keys gives
// none and no problem. Keys are of use only if there is no problem.
func (r *Relayer) ReadAPIKeys(environ []string) ([]ClientKey, []Problem) {
	var (
		keys []ClientKey
		list []Problem
	)
	first := make(map[string]string)
	for i, k := range r.APIKeys {
		path := index("relayer.apiKeys", i)
		key, problem := readSecret(environ, k.Env, k.File)
		switch {
		case problem != "":
		case len(key) < minAPIKey || len(key) > maxAPIKey:
			problem = fmt.Sprintf("this key has %d characters; use one of %d to %d", len(key), minAPIKey, maxAPIKey)
		case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }):
			problem = "this key has characters that no header can carry; use letters, digits and punctuation of ASCII"
		case first[key] != "":
			problem = "this key is also that of " + first[key] + "; give each client its own"
		default:
			first[key] = shownText(k.Name)
			keys = append(keys, ClientKey{k.Name, Secret(key)})
			continue
		}
		member := ".keyEnv"
		if k.File != "" {
			member = ".keyFile"
		}
		list = append(list, Problem{Path: path + member, Text: problem})
	}
	return keys, list
}

// CheckSecrets reports the keys and passwords of an enabled relayer that cannot be used: a variable that is not set, a file that
// cannot be read, a file with the signer's key or password that others can use. Whether the signer's key is one is for the signer to
// find out. As with CheckFiles the problems have no position, and an empty list means that all is well at this moment.
func (c *Config) CheckSecrets(environ []string) []Problem {
	r := &c.Relayer
	if !r.Enabled {
		return nil
	}
	_, list := r.ReadAPIKeys(environ)
	check := func(member, env, file string) {
		if problem := signerSecret(environ, env, file, member != "keystore"); problem != "" {
			list = append(list, Problem{Path: "relayer.signer." + member, Text: problem})
		}
	}
	check("keystore", "", r.Signer.Keystore)
	check("keyFile", "", r.Signer.KeyFile)
	check("keyEnv", r.Signer.KeyEnv, "")
	if r.Signer.Keystore != "" {
		check("passwordFile", "", r.Signer.PasswordFile)
		check("passwordEnv", r.Signer.PasswordEnv, "")
	}
	return list
}

// signerSecret says what is wrong with a secret of the signer, which is for its owner alone where private says so. A pipe can be read
// once and is left to the one who needs it.
func signerSecret(environ []string, env, file string, private bool) (problem string) {
	info, err := os.Stat(file)
	switch regular := err == nil && info.Mode().IsRegular(); {
	case file != "" && err == nil && !regular && !info.IsDir():
		return ""
	case private && regular && info.Mode().Perm()&0o077 != 0:
		return fmt.Sprintf("other users can use %s (mode %04o); run: chmod 600 on it", shownText(file), info.Mode().Perm())
	}
	_, problem = readSecret(environ, env, file)
	return problem
}

// readSecret reads the variable env or the file, "" where neither is named. What it reads is in no problem.
func readSecret(environ []string, env, file string) (secret, problem string) {
	switch {
	case env != "":
		for _, entry := range environ {
			if name, text, _ := strings.Cut(entry, "="); name == env {
				secret = strings.TrimSpace(text)
			}
		}
		if secret == "" {
			return "", "the variable " + env + " is not set"
		}
	case file != "":
		data, err := readAtMost(file, maxSecretFile)
		if err != nil {
			return "", unreadable(file, err)
		}
		if secret = string(bytes.TrimSpace(data)); secret == "" {
			return "", shownText(file) + " is empty"
		}
	}
	return secret, ""
}

func readAtMost(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return data, err
}
