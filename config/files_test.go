package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// writePair writes a self-signed certificate and its key.
func writePair(t *testing.T, dir, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	require.NoError(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	require.NoError(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
	return certFile, keyFile
}

func TestCheckFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := writePair(t, dir, "a")
	_, otherKey := writePair(t, dir, "b")
	missing := filepath.Join(dir, "missing.pem")
	for name, c := range map[string]struct {
		set   map[string]any
		paths []string
		text  string
	}{
		"none named": {nil, nil, ""},
		"all well": {map[string]any{
			"userServerConfig.tlsEnabled": true, "userServerConfig.tlsCertPath": cert, "userServerConfig.tlsKeyPath": key,
			"nodeServerConfig.tlsEnabled": true, "nodeServerConfig.tlsCertPath": cert, "nodeServerConfig.tlsKeyPath": key,
			"nodeServerConfig.clientCAPath": cert, "httpClientConfig.caPath": cert,
		}, nil, ""},
		"not used": {map[string]any{"userServerConfig.tlsCertPath": missing, "userServerConfig.tlsKeyPath": missing}, nil, ""},
		"missing": {map[string]any{
			"userServerConfig.tlsEnabled": true, "userServerConfig.tlsCertPath": missing, "userServerConfig.tlsKeyPath": missing, "httpClientConfig.caPath": missing,
		}, []string{"userServerConfig.tlsCertPath", "userServerConfig.tlsKeyPath", "httpClientConfig.caPath"}, "no such file"},
		"another key": {map[string]any{
			"nodeServerConfig.tlsEnabled": true, "nodeServerConfig.tlsCertPath": cert, "nodeServerConfig.tlsKeyPath": otherKey,
		}, []string{"nodeServerConfig.tlsCertPath"}, "do not work together"},
		"no certificate": {map[string]any{"httpClientConfig.caPath": key}, []string{"httpClientConfig.caPath"}, "holds no PEM certificate"},
	} {
		d := read(t, "minimal.json")
		for path, v := range c.set {
			d.set(path, v)
		}
		var paths []string
		for _, p := range parse(t, d).CheckFiles() {
			paths = append(paths, p.Path)
			require.Contains(t, p.Text, c.text, name)
		}
		require.Equal(t, c.paths, paths, name)
	}
}

func TestAdminToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	admin := func() Admin { return parse(t, read(t, "minimal.json").set("admin.tokenFile", file)).Admin }
	token, err := Admin{}.Token()
	require.NoError(t, err)
	require.Empty(t, token)
	_, err = admin().Token()
	require.ErrorContains(t, err, "no such file")
	for text, problem := range map[string]string{"": "is empty", "short": "does not hold a token", "sixteen or more, but with spaces": "does not hold a token"} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := admin().Token()
		require.ErrorContains(t, err, problem)
	}
	require.NoError(t, os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600))
	token, err = admin().Token()
	require.NoError(t, err)
	require.Equal(t, "0123456789abcdef", token.Reveal())
	require.Empty(t, parse(t, read(t, "minimal.json").set("admin.tokenFile", file)).CheckFiles())
	require.Equal(t, "admin.tokenFile", parse(t, read(t, "minimal.json").set("admin.tokenFile", file+"x")).CheckFiles()[0].Path)
}
