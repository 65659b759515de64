package simchain_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/stretchr/testify/require"

	"dongate/config"
	"dongate/internal/simchain"
	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	p, err := simchain.StartProcess(t.Context(), simchain.Options{Nodes: 2, Threshold: 1, KMS: &simchain.KMSOptions{}})
	require.NoError(t, err)
	ctx := t.Context()
	require.EqualValues(t, 1, p.Config().Threshold)
	require.Len(t, p.Config().Accounts, 4)
	require.NoError(t, p.Pause(ctx, true))
	head, err := p.CommitN(ctx, 3)
	require.NoError(t, err)
	require.Positive(t, head)
	replaced, err := p.Reorg(ctx, 2, true)
	require.NoError(t, err)
	require.Equal(t, 2, replaced)
	v, err := p.Judge(ctx)
	require.NoError(t, err)
	require.Empty(t, v.Accepted)
	require.Equal(t, head+1, v.Head)
	sent, err := p.Answer(ctx)
	require.NoError(t, err)
	require.Zero(t, sent)
	require.ErrorContains(t, p.SetKMS(ctx, &simchain.KMSOptions{Missing: -1}), "out of range")
	require.NoError(t, p.Close())
	require.NoError(t, p.Close())
	_, err = p.Commit(ctx)
	require.Error(t, err)
}

// The chain says where it is once it is ready, and ends with its input.
func TestServe(t *testing.T) {
	t.Parallel()
	in, hold := io.Pipe()
	ready := make(chan simchain.Config, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- simchain.Serve(t.Context(), simchain.Options{Nodes: 1}, in, func(c simchain.Config) error { ready <- c; return nil })
	}()
	c := <-ready
	eth, err := ethclient.DialContext(t.Context(), c.HTTP)
	require.NoError(t, err)
	id, err := eth.ChainID(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, simchain.ChainID, id.Int64())
	eth.Close()
	require.NoError(t, hold.Close())
	require.NoError(t, <-ended)
}

func TestServeEndsWhereNobodyIsReady(t *testing.T) {
	t.Parallel()
	in, hold := io.Pipe()
	t.Cleanup(func() { hold.Close() })
	err := simchain.Serve(t.Context(), simchain.Options{Nodes: 1}, in, func(simchain.Config) error { return io.ErrShortWrite })
	require.ErrorIs(t, err, io.ErrShortWrite)
}

// What is written for a gateway is a configuration without a problem, and only the owner can read the key.
func TestWriteGateway(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 1, Threshold: 1}).Config()
	folder := filepath.Join(t.TempDir(), "try")
	require.NoError(t, c.WriteGateway(folder))
	got, err := config.Load(filepath.Join(folder, "gateway.json"), nil)
	require.NoError(t, err)
	require.True(t, got.Relayer.Enabled)
	require.Equal(t, c.Decryption, got.Relayer.Contracts.Decryption)
	require.EqualValues(t, 1, got.Relayer.Threshold)
	signer, err := chain.LoadSigner(chain.SignerOptions{KeyFile: got.Relayer.Signer.KeyFile})
	require.NoError(t, err)
	require.Equal(t, c.Accounts[0].Address, signer.Address())
	require.ErrorIs(t, c.WriteGateway(folder), os.ErrExist)
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []simchain.Options{{Nodes: 65}, {Nodes: -1}, {Accounts: 65}, {Threshold: -1}, {Interval: -1}, {KMS: &simchain.KMSOptions{Duplicates: 17}}} {
		_, err := simchain.Start(t.Context(), o)
		require.Error(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := simchain.Start(ctx, simchain.Options{})
	require.ErrorIs(t, err, context.Canceled)
}

// Requests are told apart by what they ask for, not by signature and time.
func TestContent(t *testing.T) {
	t.Parallel()
	c := simchain.Config{Decryption: simchain.AccountOf(1).Address, Wallet: simchain.AccountOf(2).Address}
	now := time.Unix(1_800_000_000, 0)
	seen := map[[32]byte]bool{}
	for _, e := range fhevm.Endpoints {
		for n := range uint64(3) {
			r := c.NewRequest(e, n, now)
			require.False(t, seen[r.Content])
			seen[r.Content] = true
			require.Equal(t, r, c.NewRequest(e, n, now))
			later := c.NewRequest(e, n, now.Add(time.Hour))
			require.Equal(t, r.Content, later.Content)
			require.Equal(t, r.Decoded.JobID(), later.Decoded.JobID())
		}
	}
	for _, bad := range [][]byte{nil, {1, 2, 3, 4}, append(c.NewRequest(fhevm.EndpointPublicDecrypt, 1, now).Decoded.Calldata()[:4], 1)} {
		_, err := simchain.Content(bad)
		require.Error(t, err)
	}
	require.EqualValues(t, simchain.ChainID, simchain.Handle(3).ChainID())
	require.Panics(t, func() { simchain.Account{Key: "x"}.Private() })
}
