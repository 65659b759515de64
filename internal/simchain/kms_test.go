package simchain_test

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
)

// round lets the nodes answer and makes a block.
func round(t *testing.T, c *simchain.Chain) (sent int) {
	t.Helper()
	sent, err := c.Answer(t.Context())
	require.NoError(t, err)
	_, err = c.Commit(t.Context())
	require.NoError(t, err)
	return sent
}

func TestKMSDelay(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 3, KMS: &simchain.KMSOptions{DelayBlocks: 2, Missing: 1, Duplicates: 1}})
	send(t, c, c.Config().NewRequest(fhevm.EndpointUserDecrypt, 1, time.Now()))
	require.Equal(t, []int{0, 0, 0, 4, 0}, []int{round(t, c), round(t, c), round(t, c), round(t, c), round(t, c)}, "two of three nodes, twice each")
	require.Len(t, responses(t, c), 4)
	require.NoError(t, c.SetKMS(t.Context(), &simchain.KMSOptions{}))
	require.Equal(t, 1, round(t, c), "the missing node")
	require.NoError(t, c.SetKMS(t.Context(), nil))
	send(t, c, c.Config().NewRequest(fhevm.EndpointUserDecrypt, 2, time.Now()))
	require.Equal(t, []int{0, 0}, []int{round(t, c), round(t, c)})
}

// An answer that the node forgot is sent again, and one to a request that is to have none is not.
func TestKMSLost(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 1, KMS: &simchain.KMSOptions{SilentEvery: 2}})
	for n := range uint64(2) {
		send(t, c, c.Config().NewRequest(fhevm.EndpointPublicDecrypt, n, time.Now()))
	}
	_, err := c.Commit(t.Context())
	require.NoError(t, err)
	sent, err := c.Answer(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, sent)
	require.NoError(t, c.Drop(t.Context()))
	_, err = c.CommitN(t.Context(), 7)
	require.NoError(t, err)
	require.Zero(t, round(t, c))
	require.Equal(t, 1, round(t, c))
	require.Zero(t, round(t, c))
	require.Len(t, responses(t, c), 1)
}

// The order of answers is the seed's.
func TestKMSShuffle(t *testing.T) {
	t.Parallel()
	order := func(seed uint64) (out []int32) {
		c := start(t, simchain.Options{Nodes: 8, KMS: &simchain.KMSOptions{Shuffle: true, Seed: seed}})
		send(t, c, c.Config().NewRequest(fhevm.EndpointUserDecryptV3, 1, time.Now()))
		round(t, c)
		require.Equal(t, 8, round(t, c))
		for _, e := range responses(t, c) {
			if share, ok := e.(fhevm.UserResponse); ok {
				out = append(out, share.Index)
			}
		}
		return out
	}
	first := order(1)
	require.Len(t, first, 8)
	require.Equal(t, first, order(1))
	require.NotEqual(t, []int32{0, 1, 2, 3, 4, 5, 6, 7}, first)
	require.NotEqual(t, first, order(2))
}

// What was accepted twice is found among many.
func TestJudge(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 1})
	const n = 110 // more than one page
	var again common.Hash
	for i := range uint64(n) {
		r := c.Config().NewRequest(fhevm.EndpointPublicDecrypt, i, time.Now())
		send(t, c, r)
		if i == 90 {
			again = r.Content
			_, err := c.SendRequest(t.Context(), c.Config().Accounts[1], r.Decoded)
			require.NoError(t, err)
		}
	}
	_, err := c.Commit(t.Context())
	require.NoError(t, err)
	v, err := c.Judge(t.Context())
	require.NoError(t, err)
	require.Equal(t, n+1, len(v.Accepted))
	require.Equal(t, n, len(v.ByContent()))
	require.Equal(t, 2, v.Times(again))
	require.Len(t, v.Twice(), 1)
	require.Equal(t, again, v.Twice()[0].Content)
	require.Len(t, v.ByContent()[again], 2)
}
