package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"strings"
)

// CheckFiles reports the files the configuration names that cannot be used:
// missing, unreadable, not PEM, or a key that is not its certificate's. Paths
// are relative to the working directory. The problems carry no position, as
// Parse opens no file; an empty list means that all is well at this moment.
func (c *Config) CheckFiles() []Problem {
	var list []Problem
	report := func(path, text string) { list = append(list, Problem{Path: path, Text: text}) }
	for _, l := range []struct {
		path string
		*Listener
	}{{"userServerConfig", &c.UserServer.Listener}, {"nodeServerConfig", &c.NodeServer.Listener}} {
		if l.TLSEnabled {
			checkKeyPair(l.path, l.Listener, report)
		}
	}
	if name := c.NodeServer.ClientCAPath; name != "" {
		checkAuthorities("nodeServerConfig.clientCAPath", name, report)
	}
	if name := c.HTTPClient.CAPath; name != "" {
		checkAuthorities("httpClientConfig.caPath", name, report)
	}
	if _, err := c.Admin.Token(); err != nil {
		report("admin.tokenFile", err.Error())
	}
	return list
}

// Bounds of the admin listener's token, in bytes: a shorter one can be guessed,
// a longer one does not fit a header.
const (
	minToken = 16
	maxToken = 1024
)

// Token reads the token that changing requests to the admin listener must
// carry; "" where none is configured. It reads the file every time, so that a
// token can be replaced while running.
func (a Admin) Token() (Secret, error) {
	if a.TokenFile == "" {
		return "", nil
	}
	text, problem := readSecret(nil, "", a.TokenFile)
	switch {
	case problem != "":
		return "", errors.New(problem)
	case len(text) < minToken || len(text) > maxToken || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", errors.New(shownText(a.TokenFile) + " does not hold a token: write 16 to 1024 letters, digits and punctuation of ASCII")
	}
	return Secret(text), nil
}

func checkKeyPair(path string, l *Listener, report func(path, text string)) {
	cert, certErr := os.ReadFile(l.TLSCertPath)
	if certErr != nil {
		report(path+".tlsCertPath", unreadable(l.TLSCertPath, certErr))
	}
	key, keyErr := os.ReadFile(l.TLSKeyPath)
	if keyErr != nil {
		report(path+".tlsKeyPath", unreadable(l.TLSKeyPath, keyErr))
	}
	if certErr != nil || keyErr != nil {
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		report(path+".tlsCertPath", "the certificate and tlsKeyPath do not work together: "+err.Error())
	}
}

func checkAuthorities(path, name string, report func(path, text string)) {
	pem, err := os.ReadFile(name)
	if err != nil {
		report(path, unreadable(name, err))
		return
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		report(path, shownText(name)+" holds no PEM certificate; write a file with at least one")
	}
}

// unreadable says why a file cannot be read, naming it once.
func unreadable(name string, err error) string {
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		err = pathError.Err
	}
	return "cannot read " + shownText(name) + ": " + err.Error()
}
