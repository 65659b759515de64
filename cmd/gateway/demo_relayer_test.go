package main

import (
	"bytes"
	"context"
	"math/big"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"dongate/internal/demorelayer"
	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
)

// relayerDemo plays the demo of the relayer with this program as the gateway.
func relayerDemo(t *testing.T, o simchain.Options, before func(p *simchain.Process)) (told string, err error) {
	t.Helper()
	p, err := simchain.StartProcess(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.Close()) })
	before(p)
	self, err := os.Executable()
	require.NoError(t, err)
	var out bytes.Buffer
	err = demorelayer.Run(t.Context(), demorelayer.Options{Chain: p.Control, Gateway: self, Out: &out})
	return out.String(), err
}

func TestRelayerDemo(t *testing.T) {
	t.Parallel()
	told, err := relayerDemo(t, demorelayer.ChainOptions, func(p *simchain.Process) {
		var out bytes.Buffer
		err := demorelayer.Run(t.Context(), demorelayer.Options{Chain: p.Control, Gateway: "/bin/false", Out: &out})
		require.ErrorContains(t, err, "the gateway has ended")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err = demorelayer.Run(ctx, demorelayer.Options{Chain: p.Control, Gateway: "/bin/true", Out: &out})
		require.Error(t, err)
		require.Empty(t, out.String())
	})
	require.NoError(t, err, told)
	require.Contains(t, told, "SIGKILL")
	require.Contains(t, told, "503 protocol_paused")
	require.Contains(t, told, "400 not_allowed_on_host_acl")
	require.Contains(t, told, "All 8 scenes as expected")
	require.Contains(t, told, "9 posts, 7 requests on the chain, each once")
}

// The demo must notice when the nodes have said something else than the client got, and when the chain has a request twice.
func TestRelayerDemoChecksItself(t *testing.T) {
	t.Parallel()
	o := demorelayer.ChainOptions
	o.Accounts, o.KMS = 2, &simchain.KMSOptions{Bytes: 64, RejectEvery: 1}
	told, err := relayerDemo(t, o, func(p *simchain.Process) {
		c := p.Config()
		_, err := p.SendRequest(t.Context(), c.Accounts[1], c.NewRequest(fhevm.EndpointPublicDecrypt, 2, time.Now()).Decoded)
		require.NoError(t, err)
		require.NoError(t, p.Fund(t.Context(), c.Accounts[1].Address, big.NewInt(1))) // makes blocks
	})
	require.ErrorIs(t, err, demorelayer.ErrUnexpected, told)
	require.Contains(t, told, "NOT AS EXPECTED: a handle is not in the result")
	require.Contains(t, told, "NOT AS EXPECTED: the chain has it twice")
	require.Contains(t, told, "0 shares are too few")
	require.Contains(t, told, "7 of 8 scenes not as expected")
	require.Contains(t, told, "8 requests on the chain, not each once")
	require.Contains(t, told, "/v2/public-decrypt is on the chain twice, not once")
}
