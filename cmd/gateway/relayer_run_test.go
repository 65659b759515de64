package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"dongate/config"
	"dongate/internal/simchain"
	"dongate/relayer"
	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	relayerstore "dongate/relayer/store"
	"dongate/storage"
)

// halfRun is a relayer that was made but not started, with nodes that do not answer.
func halfRun(t *testing.T, draining func() bool) *relayerRun {
	t.Helper()
	tree := relayerTree(t)
	set(t, tree, "relayer.signer", map[string]any{"keyEnv": "RELAYER_KEY"})
	set(t, tree, "relayer.apiKeys", nil)
	set(t, tree, "relayer.quotas", nil)
	set(t, tree, "relayer.hostChains[0].chainId", simchain.ChainID)
	set(t, tree, "relayer.contracts.protocolChainId", nil)
	set(t, tree, "storage.dsn", filepath.Join(t.TempDir(), "relayer.db"))
	data, err := json.Marshal(tree)
	require.NoError(t, err)
	c, err := config.Parse("relayer.json", data, nil)
	require.NoError(t, err)
	w := &world{environ: []string{"RELAYER_KEY=" + strings.Repeat("01", 32)}}
	l := &loaded{file: "relayer.json", config: c}
	db, err := storage.Open(t.Context(), storageConfig(w, l, nil))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context(), domains(c)...))
	r, err := newRelayerRun(t.Context(), w, l, db, zap.NewNop(), prometheus.NewRegistry(), draining, func() *config.Config { return l.config })
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.halt()) })
	return r
}

// While it drains new requests are refused, and those that are there already are still told.
func TestRelayerDrains(t *testing.T) {
	t.Parallel()
	var draining atomic.Bool
	r := halfRun(t, draining.Load)
	post := func(n uint64) *httptest.ResponseRecorder {
		request := simchain.Config{ChainID: simchain.ChainID}.NewRequest(fhevm.EndpointInputProof, n, time.Now())
		w := httptest.NewRecorder()
		r.api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", string(request.Endpoint), bytes.NewReader(request.Body)))
		return w
	}
	got := post(1)
	require.Equal(t, http.StatusAccepted, got.Code, got.Body)
	draining.Store(true)
	require.Equal(t, http.StatusAccepted, post(1).Code)
	got = post(2)
	require.Equal(t, http.StatusServiceUnavailable, got.Code)
	require.Contains(t, got.Body.String(), string(fhevm.LabelGatewayNotReachable))
	require.NotEmpty(t, got.Header().Get("Retry-After"))
}

func TestRelayerOverloaded(t *testing.T) {
	t.Parallel()
	r := halfRun(t, func() bool { return false })
	for origin, allowed := range map[string]string{"": "", "https://app.example.com": "https://app.example.com", "https://evil.example": ""} {
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/v2/keyurl", nil)
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		w := httptest.NewRecorder()
		r.served().Overloaded.ServeHTTP(w, req)
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Contains(t, w.Body.String(), `"label":"rate_limited"`)
		require.NotEmpty(t, w.Header().Get("Retry-After"))
		require.Equal(t, allowed, w.Header().Get("Access-Control-Allow-Origin"))
	}
}

// The process ends with an error when the dispatcher does, and not before.
func TestRelayerEnds(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{relayer.ErrStuck, errors.New("the lock's file is gone")} {
		r := &relayerRun{ended: make(chan struct{}), err: cause}
		close(r.ended)
		err := await(t.Context(), make(chan os.Signal), nil, r)
		require.ErrorIs(t, err, cause)
		require.Equal(t, exitFailure, report(&bytes.Buffer{}, err))
	}
}

// A database that can be read and not written is no healthy one: no request would be accepted.
func TestRelayerHealthWithoutWrites(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "relayer.db")
	db, err := storage.Open(t.Context(), storage.Config{Driver: storage.DriverSQLite, DSN: file})
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	require.NoError(t, db.Migrate(t.Context(), relayerstore.Domain))
	pool, err := chain.NewPool(chain.PoolOptions{Name: "gateway chain", ChainID: 1, URLs: []string{"http://127.0.0.1:1"}})
	require.NoError(t, err)
	r := &relayerRun{relayerParts: &relayerParts{read: pool}, db: db, store: relayerstore.New(db, relayerstore.Options{})}
	require.Equal(t, map[string]bool{"database": true, "gateway_http": false}, r.health(t.Context()))
	require.NoError(t, os.Remove(file))
	_, err = r.store.Paused(t.Context())
	require.NoError(t, err, "it can still be read")
	require.Equal(t, map[string]bool{"database": false, "gateway_http": false}, r.health(t.Context()))
}
