package simchain_test

import (
	"context"
	"math/big"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
)

func TestMain(m *testing.M) {
	simchain.RunIfChild()
	var ignored []goleak.Option
	for _, f := range simchain.Leftovers() {
		ignored = append(ignored, goleak.IgnoreTopFunction(f))
	}
	goleak.VerifyTestMain(m, ignored...)
}

func start(t *testing.T, o simchain.Options) *simchain.Chain {
	t.Helper()
	c, err := simchain.Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// target returns the contract that takes a request.
func target(c simchain.Config, r fhevm.Request) common.Address {
	if r.Kind() == fhevm.KindInputProof {
		return c.InputVerification
	}
	return c.Decryption
}

// send puts a request into the pool, as a relayer would.
func send(t *testing.T, c *simchain.Chain, r simchain.Request) *types.Transaction {
	t.Helper()
	tx, err := c.SendRequest(t.Context(), c.Config().Accounts[0], r.Decoded)
	require.NoError(t, err)
	return tx
}

func dial(t *testing.T, c *simchain.Chain) *ethclient.Client {
	t.Helper()
	eth, err := ethclient.DialContext(t.Context(), c.Config().HTTP)
	require.NoError(t, err)
	t.Cleanup(eth.Close)
	return eth
}

func responses(t *testing.T, c *simchain.Chain) []fhevm.Event {
	t.Helper()
	logs, err := c.Eth().FilterLogs(t.Context(), ethereum.FilterQuery{
		FromBlock: big.NewInt(c.Config().StartBlock), Addresses: []common.Address{c.Config().Decryption, c.Config().InputVerification},
		Topics: [][]common.Hash{fhevm.ResponseTopics()},
	})
	require.NoError(t, err)
	var out []fhevm.Event
	for _, l := range logs {
		e, err := fhevm.DecodeEvent(l.Topics, l.Data)
		require.NoError(t, err)
		out = append(out, e)
	}
	return out
}

// Every kind of request is accepted, numbered, announced and answered.
func TestRequests(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 4, Threshold: 3, Fee: 7, KMS: &simchain.KMSOptions{RejectEvery: 2}})
	eth := dial(t, c)
	require.NotEmpty(t, c.Config().WS)
	var sent []simchain.Request
	var txs []*types.Transaction
	for _, e := range fhevm.Endpoints {
		for n := range uint64(2) {
			r := c.Config().NewRequest(e, n, time.Now())
			sent, txs = append(sent, r), append(txs, send(t, c, r))
		}
	}
	_, err := c.Commit(t.Context())
	require.NoError(t, err)
	refs := map[fhevm.Reference]simchain.Request{}
	for i, tx := range txs {
		receipt, err := eth.TransactionReceipt(t.Context(), tx.Hash())
		require.NoError(t, err)
		require.EqualValues(t, 1, receipt.Status, "%s reverted", sent[i].Endpoint)
		ref, ok := fhevm.RequestReference(sent[i].Decoded.Kind(), target(c.Config(), sent[i].Decoded), receipt.Logs)
		require.True(t, ok)
		refs[ref] = sent[i]
	}
	require.Len(t, refs, len(txs))
	v, err := c.Judge(t.Context())
	require.NoError(t, err)
	require.Len(t, v.Accepted, len(sent))
	require.Empty(t, v.Twice())
	for _, a := range v.Accepted {
		require.Equal(t, refs[a.ID].Content, a.Content)
		require.Equal(t, refs[a.ID].Decoded.Kind(), a.Kind)
		require.Equal(t, c.Config().Accounts[0].Address, a.Sender)
	}
	for _, r := range sent {
		require.Equal(t, 1, v.Times(r.Content))
	}

	n, err := c.Answer(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2+2+6*4, n)
	again, err := c.Answer(t.Context())
	require.NoError(t, err)
	require.Zero(t, again, "what is sent is not sent again while it may be mined")
	_, err = c.Commit(t.Context())
	require.NoError(t, err)
	counts := map[string]int{}
	for _, e := range responses(t, c) {
		switch e := e.(type) {
		case fhevm.ProofResponse:
			counts["proof"]++
		case fhevm.ProofRejected:
			counts["rejected"]++
		case fhevm.PublicResponse:
			counts["public"]++
			require.Equal(t, (&simchain.KMSOptions{}).PublicResult(e.ID, 4, e.Result.ExtraData), e.Result)
		case fhevm.UserResponse:
			counts["share"]++
			id, ok, err := fhevm.ContextID(e.Share.ExtraData)
			require.NoError(t, err)
			require.True(t, ok)
			require.Equal(t, c.Config().Context, common.Hash(id))
		case fhevm.UserThresholdReached:
			counts["threshold"]++
		}
	}
	require.Equal(t, map[string]int{"proof": 1, "rejected": 1, "public": 2, "share": 24, "threshold": 6}, counts)
	again, err = c.Answer(t.Context())
	require.NoError(t, err)
	require.Zero(t, again)
}

func TestReorg(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		c := start(t, simchain.Options{Nodes: 4, KMS: &simchain.KMSOptions{}})
		eth, ctx := dial(t, c), t.Context()
		r := c.Config().NewRequest(fhevm.EndpointPublicDecrypt, 1, time.Now())
		tx := send(t, c, r)
		number, err := c.Commit(ctx)
		require.NoError(t, err)
		before, err := eth.TransactionReceipt(ctx, tx.Hash())
		require.NoError(t, err)
		_, err = c.Answer(ctx)
		require.NoError(t, err)
		_, err = c.CommitN(ctx, 2)
		require.NoError(t, err)
		require.Len(t, responses(t, c), 1)
		replaced, err := c.Reorg(ctx, 3, drop)
		require.NoError(t, err)
		require.Equal(t, 3, replaced)
		block, err := eth.HeaderByNumber(ctx, big.NewInt(number))
		require.NoError(t, err)
		require.NotEqual(t, before.BlockHash, block.Hash())
		v, err := c.Judge(ctx)
		require.NoError(t, err)
		require.Equal(t, number+3, v.Head)
		if drop {
			require.Empty(t, v.Accepted)
			_, err := eth.TransactionReceipt(ctx, tx.Hash())
			require.ErrorIs(t, err, ethereum.NotFound)
			require.Empty(t, responses(t, c))
			require.NoError(t, eth.SendTransaction(ctx, tx), "the same bytes are taken again")
			_, err = c.Commit(ctx)
			require.NoError(t, err)
		} else {
			require.Len(t, responses(t, c), 1)
		}
		v, err = c.Judge(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, v.Times(r.Content))
		_, err = c.Answer(ctx)
		require.NoError(t, err)
		_, err = c.Commit(ctx)
		require.NoError(t, err)
		require.Len(t, responses(t, c), 1, "answered again where the answer was lost")
	}
}

// A re-organisation goes no deeper than to the last final block.
func TestReorgFinal(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{})
	for {
		n, err := c.Commit(t.Context())
		require.NoError(t, err)
		if n == 34 {
			break
		}
	}
	replaced, err := c.Reorg(t.Context(), 10, true)
	require.NoError(t, err)
	require.Equal(t, 2, replaced)
	head, err := c.CommitN(t.Context(), 64-35)
	require.NoError(t, err)
	require.EqualValues(t, 64, head)
	replaced, err = c.Reorg(t.Context(), 1, false)
	require.NoError(t, err)
	require.Zero(t, replaced)
}

// Blocks come by themselves, and with them the answers.
func TestAutomatic(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Interval: 5 * time.Millisecond, Nodes: 3, Threshold: 2, KMS: &simchain.KMSOptions{Duplicates: 1, Shuffle: true, Missing: 1, Seed: 3}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	logs := make(chan types.Log, 100)
	ws, err := ethclient.DialContext(ctx, c.Config().WS)
	require.NoError(t, err)
	defer ws.Close()
	sub, err := ws.SubscribeFilterLogs(ctx, ethereum.FilterQuery{Addresses: []common.Address{c.Config().Decryption}, Topics: [][]common.Hash{fhevm.ResponseTopics()}}, logs)
	require.NoError(t, err)
	defer sub.Unsubscribe()
	send(t, c, c.Config().NewRequest(fhevm.EndpointUserDecrypt, 1, time.Now()))
	indexes := map[int32]int{}
	for thresholds := 0; indexes[0]+indexes[1] < 4 || thresholds < 1; {
		select {
		case l := <-logs:
			e, err := fhevm.DecodeEvent(l.Topics, l.Data)
			require.NoError(t, err)
			switch e := e.(type) {
			case fhevm.UserResponse:
				indexes[e.Index]++
			case fhevm.UserThresholdReached:
				thresholds++
			}
		case <-ctx.Done():
			t.Fatal("no answers")
		}
	}
	require.Equal(t, map[int32]int{0: 2, 1: 2}, indexes)
}

// Every transaction that was taken is in the next block, whatever the pool is busy with.
func TestCommitHoldsAll(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Nodes: 1})
	eth := dial(t, c)
	for n := range uint64(8) {
		send(t, c, c.Config().NewRequest(fhevm.EndpointPublicDecrypt, 2*n, time.Now()))
		send(t, c, c.Config().NewRequest(fhevm.EndpointInputProof, 2*n, time.Now()))
		head, err := c.Commit(t.Context())
		require.NoError(t, err)
		block, err := eth.BlockByNumber(t.Context(), big.NewInt(head))
		require.NoError(t, err)
		require.Len(t, block.Transactions(), 2)
	}
}

// Without blocks by themselves a chain stands still, also one that makes them until it is told not to.
func TestMining(t *testing.T) {
	t.Parallel()
	c := start(t, simchain.Options{Interval: time.Millisecond, Nodes: 1})
	ctx := t.Context()
	require.NoError(t, c.SetMining(ctx, false))
	tx := send(t, c, c.Config().NewRequest(fhevm.EndpointPublicDecrypt, 1, time.Now()))
	_, pending, err := c.Eth().TransactionByHash(ctx, tx.Hash())
	require.NoError(t, err)
	require.True(t, pending)
	require.NoError(t, c.Drop(ctx))
	_, _, err = c.Eth().TransactionByHash(ctx, tx.Hash())
	require.ErrorIs(t, err, ethereum.NotFound)
	removed, err := c.Rewind(ctx, 1, false)
	require.NoError(t, err)
	require.Zero(t, removed, "the deployment stays")
	head, err := c.CommitN(ctx, 2)
	require.NoError(t, err)
	removed, err = c.Rewind(ctx, 1, false)
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	again, err := c.Commit(ctx)
	require.NoError(t, err)
	require.Equal(t, head, again)
	require.NoError(t, c.Fund(ctx, common.Address{5}, big.NewInt(3)))
	balance, err := c.Eth().BalanceAt(ctx, common.Address{5}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 3, balance.Int64())
}
