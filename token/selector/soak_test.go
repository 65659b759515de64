package selector_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/internal/soak"
	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/selector"
	"dongate/token/tokendb"
)

// Sixteen payers, over four handles where a database can have several, pay from one wallet whose tokens are scarce: some payments are
// confirmed, some are given up, some payers die with their locks, and a cleaner runs all the time. No token is ever in two payments, nobody
// is told that the funds do not suffice, the wallet keeps its worth, and at the end nothing is locked.
func TestSoakSelectors(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		c := &contest{t: t, spenders: map[token.ID]string{}}
		o := selector.Options{Retries: 20, RetryInterval: 20 * time.Millisecond}
		first := newFixture(t, db, o)
		payers := []fixture{first, first, first, first}
		if t.Name() != "TestSoakSelectors/memory" { // whose handles each have a database to themselves
			for i := 1; i < len(payers); i++ {
				payers[i] = newFixture(t, open(t), o)
			}
		}
		var amounts []int64
		random := rand.New(rand.NewPCG(seed, 0))
		for range 60 {
			a := 1 + random.Int64N(20)
			amounts, c.worth = append(amounts, a), c.worth+a
		}
		first.issue(t, "genesis", amounts...)
		until := time.Now().Add(soak.For(time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		var cleaner, wg sync.WaitGroup
		cleaner.Go(func() {
			for ctx.Err() == nil {
				if _, err := first.locks.Cleanup(ctx, 200*time.Millisecond); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
		for n := range 16 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(seed, uint64(n+1)))
				for i := 0; time.Now().Before(until) && !t.Failed(); i++ {
					c.pay(payers[n%len(payers)], fmt.Sprintf("tx-%d-%d", n, i), random)
				}
			})
		}
		wg.Wait()
		cancel()
		cleaner.Wait()

		_, err := first.locks.Cleanup(t.Context(), 0)
		require.NoError(t, err)
		held, err := storage.Collect(first.locks.ListLocks(t.Context()))
		require.NoError(t, err)
		require.Empty(t, held)
		worth, err := first.tokens.Balance(t.Context(), "alice", "USD")
		require.NoError(t, err)
		require.Equal(t, c.worth, worth.Int64())
		var stats selector.Stats
		for _, p := range payers {
			s := p.Stats()
			stats.Attempts, stats.Conflicts, stats.Pauses = stats.Attempts+s.Attempts, stats.Conflicts+s.Conflicts, stats.Pauses+s.Pauses
		}
		require.NotZero(t, c.paid.Load())
		t.Logf("%d paid, %d given up, %d left to die, %d lost their lease, %d found all locked; of %d tokens tried %d were lost, %d pauses",
			c.paid.Load(), c.givenUp.Load(), c.died.Load(), c.expired.Load(), c.locked.Load(), stats.Attempts, stats.Conflicts, stats.Pauses)
	})
}

type contest struct {
	t     *testing.T
	worth int64

	mu       sync.Mutex // guards spenders
	spenders map[token.ID]string

	paid, givenUp, died, expired, locked atomic.Int64
}

var errExpired = errors.New("the lease has ended")

func (c *contest) pay(f fixture, txID string, random *rand.Rand) {
	ctx := c.t.Context()
	target := 1 + random.Int64N(c.worth/20)
	inputs, sum, err := f.Select(ctx, txID, "alice", "USD", big.NewInt(target))
	switch {
	case errors.Is(err, selector.ErrSufficientButLockedFunds):
		c.locked.Add(1)
		return
	case err != nil:
		c.t.Errorf("%s: %v", txID, err)
		return
	}
	fate := random.IntN(10)
	if fate == 0 { // the lease frees them
		c.died.Add(1)
		return
	}
	// The request is stored while all of its locks are held.
	err = token.InTx(ctx, f.db, func(ctx context.Context, shared token.Tx) error {
		locks, err := f.locks.Continue(shared)
		if err != nil {
			return err
		}
		n, err := locks.Renew(ctx, txID)
		if err != nil {
			return err
		}
		if int(n) != len(inputs) {
			return errExpired
		}
		_, err = shared.ExecContext(ctx, "INSERT INTO "+prefix+"requests (tx_id, request, status, application_metadata, public_metadata, pp_hash, stored_at) "+
			"VALUES ($1, $2, 1, '{}', '{}', $2, '2026-01-01 00:00:00.000')", txID, []byte("r"))
		return err
	})
	switch {
	case errors.Is(err, errExpired):
		c.expired.Add(1)
		if err := f.Unselect(ctx, txID); err != nil {
			c.t.Error(err)
		}
		return
	case err != nil:
		c.t.Errorf("%s: %v", txID, err)
		return
	}
	c.claim(txID, inputs)
	if fate == 1 {
		c.unclaim(inputs)
		c.givenUp.Add(1)
		c.settle(ctx, f, txID, token.Deleted, nil, nil)
		return
	}
	outputs := []int64{sum.Int64()}
	if sum.Int64() > 1 {
		part := 1 + random.Int64N(sum.Int64()-1)
		outputs = []int64{part, sum.Int64() - part}
	}
	c.paid.Add(1)
	c.settle(ctx, f, txID, token.Confirmed, inputs, outputs)
}

// claim notes that the tokens are in a payment that is pending or confirmed.
func (c *contest) claim(txID string, inputs []token.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range inputs {
		if other := c.spenders[id]; other != "" {
			c.t.Errorf("token %s is in %s and in %s", id, other, txID)
		}
		c.spenders[id] = txID
	}
}

func (c *contest) unclaim(inputs []token.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range inputs {
		delete(c.spenders, id)
	}
}

// settle ends a payment; the cleaner, or the payer where it was confirmed, frees the locks.
func (c *contest) settle(ctx context.Context, f fixture, txID string, status token.TxStatus, inputs []token.ID, outputs []int64) {
	err := token.InTx(ctx, f.db, func(ctx context.Context, shared token.Tx) error {
		tx, err := f.tokens.Continue(shared)
		if err != nil {
			return err
		}
		if err := tx.DeleteTokens(ctx, txID, inputs...); err != nil {
			return err
		}
		if err := store(ctx, tx, txID, outputs); err != nil {
			return err
		}
		_, err = shared.ExecContext(ctx, "UPDATE "+prefix+"requests SET status = $1 WHERE tx_id = $2", int(status), txID)
		return err
	})
	if err == nil && status == token.Confirmed {
		err = f.Unselect(ctx, txID)
	}
	if err != nil {
		c.t.Errorf("%s: %v", txID, err)
	}
}

func store(ctx context.Context, tx *tokendb.Tx, txID string, amounts []int64) error {
	for i, a := range amounts {
		r := token.Record{ID: id(txID, uint64(i)), Type: "USD", Amount: big.NewInt(a), OwnerWalletID: "alice", Owner: true}
		if err := tx.StoreToken(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
