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
// cannot be read, a signer's key file that others can read. It looks at no signer's key itself. As with CheckFiles the problems have
// no position, and an empty list means that all is well at this moment.
func (c *Config) CheckSecrets(environ []string) []Problem {
	r := &c.Relayer
	if !r.Enabled {
		return nil
	}
	_, list := r.ReadAPIKeys(environ)
	for _, s := range []struct{ member, env, file string }{
		{"keystore", "", r.Signer.Keystore},
		{"keyFile", "", r.Signer.KeyFile},
		{"keyEnv", r.Signer.KeyEnv, ""},
	} {
		if _, problem := readSecret(environ, s.env, s.file); problem != "" {
			list = append(list, Problem{Path: "relayer.signer." + s.member, Text: problem})
		} else if s.member == "keyFile" && s.file != "" {
			list = append(list, privateFile("relayer.signer.keyFile", s.file)...)
		}
	}
	if r.Signer.Keystore != "" {
		member := "passwordEnv"
		if r.Signer.PasswordFile != "" {
			member = "passwordFile"
		}
		if _, problem := readSecret(environ, r.Signer.PasswordEnv, r.Signer.PasswordFile); problem != "" {
			list = append(list, Problem{Path: "relayer.signer." + member, Text: "the keystore's password: " + problem})
		}
	}
	return list
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

// privateFile reports a file that others than its owner can use.
func privateFile(path, file string) []Problem {
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return []Problem{{Path: path, Text: fmt.Sprintf("other users can use %s (mode %04o); run: chmod 600 on it", shownText(file), info.Mode().Perm())}}
}
