package selector_test

import (
	"context"
	"errors"
	"iter"
	"math/big"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/selector"
	"dongate/token/tokendb"
	"dongate/token/tokenlock"
)

const prefix = "n__c__s__"

func id(txID string, index uint64) token.ID { return token.ID{TxID: txID, Index: index} }

// wallet is a wallet of one type in memory, and the locks on its tokens.
type wallet struct {
	mu      sync.Mutex // guards holders
	amounts map[token.ID]int64
	holders map[token.ID]string
	fail    error
	hook    func(ids []token.ID) // before a batch is locked
	windows int
	batches int
}

func newWallet(amounts ...int64) *wallet {
	w := &wallet{amounts: map[token.ID]int64{}, holders: map[token.ID]string{}}
	for i, a := range amounts {
		w.amounts[id("tx", uint64(i))] = a
	}
	return w
}

func (w *wallet) QuerySpendableTokens(_ context.Context, q token.SpendableQuery) iter.Seq2[token.Spendable, error] {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.windows++
	var all []token.Spendable
	for id, a := range w.amounts {
		if w.holders[id] == "" {
			all = append(all, token.Spendable{ID: id, Amount: big.NewInt(a)})
		}
	}
	compare := func(a, b token.Spendable) int {
		if c := a.Amount.Cmp(b.Amount); c != 0 {
			return c
		}
		return int(a.Index) - int(b.Index)
	}
	slices.SortFunc(all, compare)
	return func(yield func(token.Spendable, error) bool) {
		n := 0
		for _, v := range all {
			if q.After != nil && compare(v, *q.After) <= 0 {
				continue
			}
			if n++; n > q.Limit || !yield(v, nil) {
				return
			}
		}
	}
}

func (w *wallet) HasEnoughSpendableTokens(_ context.Context, _, _ string, target *big.Int) (bool, error) {
	sum := new(big.Int)
	for _, a := range w.amounts {
		sum.Add(sum, big.NewInt(a))
	}
	return sum.Cmp(target) >= 0, nil
}

func (w *wallet) LockBatch(_ context.Context, consumer, _ string, ids ...token.ID) (won []token.ID, err error) {
	w.batches++
	if w.hook != nil {
		w.hook(ids)
	}
	won, err = w.take(consumer, ids...)
	if w.fail != nil {
		return nil, w.fail
	}
	return won, err
}

func (w *wallet) take(consumer string, ids ...token.ID) (won []token.ID, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if w.holders[id] == "" {
			w.holders[id] = consumer
			won = append(won, id)
		}
	}
	return won, nil
}

func (w *wallet) Unlock(ctx context.Context, consumer string, ids ...token.ID) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		if w.holders[id] == consumer {
			delete(w.holders, id)
		}
	}
	return nil
}

func (w *wallet) UnlockByTxID(_ context.Context, consumer string) (n int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, holder := range w.holders {
		if holder == consumer {
			delete(w.holders, id)
			n++
		}
	}
	return n, nil
}

func (w *wallet) held(consumer string) (ids []token.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, holder := range w.holders {
		if holder == consumer {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b token.ID) int { return int(a.Index) - int(b.Index) })
	return ids
}

func TestSmallestFirst(t *testing.T) {
	t.Parallel()
	w := newWallet(50, 10, 30, 20, 40)
	s := selector.New(w, w, selector.Options{})
	ids, sum, err := s.Select(t.Context(), "x", "alice", "USD", big.NewInt(55))
	require.NoError(t, err)
	require.Equal(t, []token.ID{id("tx", 1), id("tx", 3), id("tx", 2)}, ids)
	require.Equal(t, "60", sum.String())
	require.Equal(t, 1, w.batches, "all at once")
	require.Equal(t, 1, w.windows)

	ids, sum, err = s.Select(t.Context(), "y", "alice", "USD", big.NewInt(90))
	require.NoError(t, err)
	require.Equal(t, []token.ID{id("tx", 4), id("tx", 0)}, ids)
	require.Equal(t, "90", sum.String())
	require.NoError(t, s.Unselect(t.Context(), "x"))
	require.Empty(t, w.held("x"))
	require.Len(t, w.held("y"), 2)
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	w := newWallet(1)
	s := selector.New(w, w, selector.Options{})
	for _, target := range []*big.Int{nil, new(big.Int), big.NewInt(-1)} {
		_, _, err := s.Select(t.Context(), "x", "alice", "USD", target)
		require.ErrorIs(t, err, selector.ErrTarget)
	}
	for _, a := range [][3]string{{"", "w", "t"}, {"x", "", "t"}, {"x", "w", ""}} {
		_, _, err := s.Select(t.Context(), a[0], a[1], a[2], big.NewInt(1))
		require.ErrorIs(t, err, token.ErrEmptyArgument)
	}
}

// A wallet that cannot pay says so at once and holds nothing; a large one is not locked for it.
func TestInsufficientFunds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var amounts []int64
		for range 1000 {
			amounts = append(amounts, 1)
		}
		w := newWallet(amounts...)
		most := 0
		w.hook = func([]token.ID) { most = max(most, len(w.held("x"))) }
		s := selector.New(w, w, selector.Options{})
		start := time.Now()
		_, _, err := s.Select(t.Context(), "x", "alice", "USD", big.NewInt(1001))
		require.ErrorIs(t, err, selector.ErrInsufficientFunds)
		require.Equal(t, start, time.Now(), "no pause")
		require.Empty(t, w.holders)
		require.Equal(t, 1, w.batches)
		require.LessOrEqual(t, most, 64)

		ids, sum, err := s.Select(t.Context(), "x", "alice", "USD", big.NewInt(1000))
		require.NoError(t, err)
		require.Len(t, ids, 1000)
		require.Equal(t, "1000", sum.String())
	})
}

// What is locked counts as funds: the error says so, after the retries, and nothing stays held.
func TestSufficientButLocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWallet(10, 20)
		w.holders[id("tx", 1)] = "other"
		s := selector.New(w, w, selector.Options{Int64N: func(n int64) int64 { return n - 1 }})
		start := time.Now()
		_, _, err := s.Select(t.Context(), "x", "alice", "USD", big.NewInt(25))
		require.ErrorIs(t, err, selector.ErrSufficientButLockedFunds)
		require.NotErrorIs(t, err, selector.ErrInsufficientFunds)
		require.Equal(t, 3*selector.DefaultRetryInterval-3, time.Since(start))
		require.Empty(t, w.held("x"))
		require.EqualValues(t, 3, s.Stats().Pauses)
	})
}

// What others give back during the pause is found, though it was lost before; nothing is held meanwhile.
func TestRetryAfterPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWallet(10, 20)
		s := selector.New(w, w, selector.Options{Int64N: func(n int64) int64 { return n - 1 }})
		once := true
		w.hook = func([]token.ID) { // another is quicker
			if once {
				once = false
				_, err := w.take("other", id("tx", 1))
				require.NoError(t, err)
				time.AfterFunc(time.Second, func() { _ = w.Unlock(t.Context(), "other", id("tx", 1)) })
			}
		}
		done := make(chan error)
		go func() {
			ids, _, err := s.Select(t.Context(), "x", "alice", "USD", big.NewInt(25))
			if err == nil && len(ids) != 2 {
				err = errors.New("not both")
			}
			done <- err
		}()
		synctest.Wait()
		require.Empty(t, w.held("x"), "in the pause")
		require.NoError(t, <-done)
		require.EqualValues(t, 1, s.Stats().Pauses)
		require.EqualValues(t, 1, s.Stats().Conflicts)
	})
}

// A lost race costs the token lost, not the selection.
func TestLostRace(t *testing.T) {
	t.Parallel()
	w := newWallet(10, 20, 30, 40)
	once := true
	w.hook = func(ids []token.ID) {
		if once {
			once = false
			w.holders[ids[0]] = "other"
		}
	}
	s := selector.New(w, w, selector.Options{})
	ids, sum, err := s.Select(t.Context(), "x", "alice", "USD", big.NewInt(30))
	require.NoError(t, err)
	require.Equal(t, []token.ID{id("tx", 1), id("tx", 2)}, ids)
	require.Equal(t, "50", sum.String())
	require.Equal(t, ids, w.held("x"))
	require.Equal(t, selector.Stats{Selections: 1, Attempts: 3, Conflicts: 1}, s.Stats())
}

// A failure of the database is no conflict: it ends the selection, and what may be held is given back.
func TestStorageError(t *testing.T) {
	t.Parallel()
	w := newWallet(10, 20)
	w.fail = errors.New("disk on fire")
	s := selector.New(w, w, selector.Options{})
	_, _, err := s.Select(t.Context(), "x", "alice", "USD", big.NewInt(25))
	require.ErrorIs(t, err, w.fail)
	require.NotErrorIs(t, err, selector.ErrSufficientButLockedFunds)
	require.Empty(t, w.holders)
	require.Equal(t, 1, w.batches)
}

// An earlier selection of the same transaction is left alone when a later one fails.
func TestEarlierSelectionStays(t *testing.T) {
	t.Parallel()
	w := newWallet(10, 20)
	s := selector.New(w, w, selector.Options{})
	first, _, err := s.Select(t.Context(), "x", "alice", "USD", big.NewInt(10))
	require.NoError(t, err)
	_, _, err = s.Select(t.Context(), "x", "alice", "USD", big.NewInt(1000))
	require.ErrorIs(t, err, selector.ErrInsufficientFunds)
	require.Equal(t, first, w.held("x"))
}

// The end of the context gives back what was held.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWallet(10, 20)
		w.holders[id("tx", 1)] = "other"
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		s := selector.New(w, w, selector.Options{Int64N: func(n int64) int64 { return n - 1 }})
		_, _, err := s.Select(ctx, "x", "alice", "USD", big.NewInt(25))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, w.held("x"))
	})
}

// Tokens of equal amount are not taken in the same order by everybody; those of different amounts are.
func TestShuffleWithinEqualAmounts(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		amounts := rapid.SliceOfN(rapid.Int64Range(1, 4), 1, 200).Draw(t, "amounts")
		w := newWallet(amounts...)
		s := selector.New(w, w, selector.Options{Int64N: func(n int64) int64 { return rapid.Int64Range(0, n-1).Draw(t, "random") }})
		total := int64(0)
		for _, a := range amounts {
			total += a
		}
		target := rapid.Int64Range(1, total).Draw(t, "target")
		ids, sum, err := s.Select(context.Background(), "x", "alice", "USD", big.NewInt(target))
		require.NoError(t, err)
		got, last := int64(0), int64(0)
		for _, id := range ids {
			require.LessOrEqual(t, last, w.amounts[id])
			last = w.amounts[id]
			require.Less(t, got, target, "nothing more than needed")
			got += last
		}
		require.Equal(t, got, sum.Int64())
		require.GreaterOrEqual(t, got, target)
		require.Len(t, w.held("x"), len(ids))
	})
}

// fixture is a selector on real stores.
type fixture struct {
	db     *storage.DB
	tokens *tokendb.Store
	locks  *tokenlock.Store
	*selector.Selector
}

func newFixture(t testing.TB, db *storage.DB, o selector.Options) fixture {
	require.NoError(t, db.Migrate(t.Context(), token.Tables(prefix)))
	f := fixture{db: db, tokens: tokendb.New(db, prefix, tokendb.Options{}), locks: tokenlock.New(db, prefix)}
	f.Selector = selector.New(f.tokens, f.locks, o)
	t.Cleanup(func() {
		require.NoError(t, f.tokens.Close())
		require.NoError(t, f.locks.Close())
	})
	return f
}

func (f fixture) issue(t testing.TB, txID string, amounts ...int64) {
	require.NoError(t, f.tokens.InTx(t.Context(), func(ctx context.Context, tx *tokendb.Tx) error {
		for i, a := range amounts {
			r := token.Record{ID: id(txID, uint64(i)), Type: "USD", Amount: big.NewInt(a), OwnerWalletID: "alice", Owner: true}
			if err := tx.StoreToken(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}))
}

func TestSelectOnTheStores(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		f := newFixture(t, open(t), selector.Options{Retries: -1})
		var amounts []int64
		for i := range int64(200) {
			amounts = append(amounts, 1+i%50)
		}
		f.issue(t, "tx", amounts...)
		ids, sum, err := f.Select(t.Context(), "x", "alice", "USD", big.NewInt(100))
		require.NoError(t, err)
		require.Equal(t, "105", sum.String())
		require.Len(t, ids, 27, "four each of 1 to 6 and three of 7")
		_, _, err = f.Select(t.Context(), "y", "alice", "USD", big.NewInt(5100))
		require.ErrorIs(t, err, selector.ErrSufficientButLockedFunds)
		_, _, err = f.Select(t.Context(), "y", "alice", "USD", big.NewInt(5101))
		require.ErrorIs(t, err, selector.ErrInsufficientFunds)
		_, _, err = f.Select(t.Context(), "y", "alice", "USD", big.NewInt(4995))
		require.NoError(t, err)
		require.NoError(t, f.Unselect(t.Context(), "x"))
		require.NoError(t, f.Unselect(t.Context(), "y"))
		locks, err := storage.Collect(f.locks.ListLocks(t.Context()))
		require.NoError(t, err)
		require.Empty(t, locks)
	})
}
