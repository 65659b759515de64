package store

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// clock is a clock that only moves by hand.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.ms.Store(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC).UnixMilli())
	return c
}

func (c *clock) now() time.Time          { return time.UnixMilli(c.ms.Load()).UTC() }
func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// each runs a test with a store on every driver.
func each(t *testing.T, o Options, test func(t *testing.T, s *Store, c *clock)) {
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		c := newClock()
		o := o
		o.Now = c.now
		test(t, fresh(t, open(t), o), c)
	})
}

func hashOf(parts ...any) Hash { return sha256.Sum256(fmt.Append(nil, parts...)) }

func newJob(k Kind, n int) NewJob {
	j := NewJob{Kind: k, ExtJobID: uuid.NewString(), IntJobID: hashOf(k, n), Request: []byte(`{"a":1}`)}
	if k == fhevm.KindUserDecrypt {
		j.ReqType = "unified"
	}
	return j
}

func attempt(nonce int64, n int) Attempt {
	return Attempt{Signer: common.Address{1}, Nonce: nonce, FeeCap: storage.Uint64Amount(uint64(n)), TipCap: storage.Uint64Amount(2), Hash: hashOf("tx", nonce, n), Raw: []byte{2, byte(n)}}
}

func inserted(t testing.TB, s *Store, j NewJob) Job {
	t.Helper()
	id, isNew, err := s.Insert(t.Context(), j)
	require.NoError(t, err)
	require.True(t, isNew)
	require.Equal(t, j.ExtJobID, id)
	got, err := s.Job(t.Context(), j.Kind, id)
	require.NoError(t, err)
	return got
}

func epoch(t testing.TB, s *Store) int64 {
	t.Helper()
	e, err := s.NextEpoch(t.Context())
	require.NoError(t, err)
	return e
}

// moved fails the test unless a move was made.
func moved(t testing.TB) func(bool, error) {
	return func(ok bool, err error) { t.Helper(); require.NoError(t, err); require.True(t, ok) }
}

func stayed(t testing.TB) func(bool, error) {
	return func(ok bool, err error) { t.Helper(); require.NoError(t, err); require.False(t, ok) }
}

func stateOf(t testing.TB, s *Store, o Owner) State {
	t.Helper()
	j, err := s.JobByID(t.Context(), o.Kind, o.ID)
	require.NoError(t, err)
	return j.State
}

// walked inserts the n-th request of a kind and takes it to a state, with the nonce n and the reference id of n.
func walked(t testing.TB, s *Store, k Kind, n int, e int64, to State) Owner {
	t.Helper()
	o := Owner{k, inserted(t, s, newJob(k, n)).ID, e}
	_, err := s.Claim(t.Context(), k, e, 100)
	require.NoError(t, err)
	for _, st := range path(k, to) {
		switch st {
		case fhevm.StateProcessing:
			moved(t)(s.Ready(t.Context(), o))
		case fhevm.StateTxInFlight:
			moved(t)(s.BeginSend(t.Context(), o, attempt(int64(n), n)))
		case fhevm.StateReceiptReceived:
			ok, _, err := s.Receipt(t.Context(), k, o.ID, attempt(int64(n), n).Hash, Block{1, hashOf("block")}, hashOf("ref", n))
			moved(t)(ok, err)
		default:
			t.Fatal("not walked to", st)
		}
	}
	require.Equal(t, to, stateOf(t, s, o))
	return o
}

func TestInsertOnce(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, c *clock) {
		for i, k := range fhevm.Kinds {
			n := []int{20, 20, 1000}[i]
			var wg sync.WaitGroup
			var news atomic.Int64
			ids := make([]string, n)
			for i := range n {
				wg.Go(func() {
					id, isNew, err := s.Insert(t.Context(), newJob(k, 1))
					if err != nil {
						t.Error(err)
					}
					if isNew {
						news.Add(1)
					}
					ids[i] = id
				})
			}
			wg.Wait()
			require.EqualValues(t, 1, news.Load())
			for _, id := range ids {
				require.Equal(t, ids[0], id)
			}
			counts, err := s.Counts(t.Context(), k)
			require.NoError(t, err)
			require.Equal(t, []StateCount{{fhevm.FirstState(k), 1}}, counts)
			j, err := s.Job(t.Context(), k, ids[0])
			require.NoError(t, err)
			require.JSONEq(t, `{"a":1}`, string(j.Request))
			require.Equal(t, hashOf(k, 1), j.IntJobID)
			require.Equal(t, c.now(), j.StateSince)
			require.Equal(t, newJob(k, 1).ReqType, j.ReqType)
			require.Zero(t, j.OwnerEpoch)
		}
	})
}

func TestInsertAgainAfterTheEnd(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, c *clock) {
		e := epoch(t, s)
		first := walked(t, s, fhevm.KindPublicDecrypt, 1, e, fhevm.StateQueued)
		moved(t)(s.Fail(t.Context(), first, fhevm.StateQueued, Cause{"host_acl_failed", "no"}))
		_, err := s.Find(t.Context(), fhevm.KindPublicDecrypt, hashOf(fhevm.KindPublicDecrypt, 1))
		require.ErrorIs(t, err, ErrNotFound)
		second := walked(t, s, fhevm.KindPublicDecrypt, 1, e, fhevm.StateQueued)
		require.NotEqual(t, first.ID, second.ID)
		moved(t)(s.NotReady(t.Context(), second, Cause{"readiness_check_timed_out", "late"}))
		j, err := s.JobByID(t.Context(), fhevm.KindPublicDecrypt, second.ID)
		require.NoError(t, err)
		require.Equal(t, []string{"readiness_check_timed_out", "late"}, []string{j.ErrCode, j.ErrReason})
		third := walked(t, s, fhevm.KindPublicDecrypt, 1, e, fhevm.StateReceiptReceived)
		out, err := s.Complete(t.Context(), fhevm.KindPublicDecrypt, hashOf("ref", 1), Response{Result: []byte(`{"v":"1"}`), TxHash: "0x1"}, Event{})
		require.NoError(t, err)
		require.Equal(t, Completes, out)
		j, err = s.JobByReference(t.Context(), fhevm.KindPublicDecrypt, hashOf("ref", 1))
		require.NoError(t, err)
		require.Equal(t, third.ID, j.ID)
		require.JSONEq(t, `{"v":"1"}`, string(j.Result))
		id, isNew, err := s.Insert(t.Context(), newJob(fhevm.KindPublicDecrypt, 1))
		require.NoError(t, err)
		require.False(t, isNew, "completed")
		require.Equal(t, j.ExtJobID, id)
	})
}

// Every fenced move of every kind: refused to an epoch that is not the row's, and to one that is no longer the newest, even before the
// new dispatcher has claimed anything.
func TestFence(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, c *clock) {
		n := 0
		for _, k := range fhevm.Kinds {
			for _, edge := range Edges {
				if !edge.Fenced || !HasEdge(k, edge.From, edge.To) {
					continue
				}
				n++
				e := epoch(t, s)
				o := walked(t, s, k, n, e, edge.From)
				try := func(o Owner) (bool, error) {
					switch edge.To {
					case fhevm.StateProcessing:
						return s.Ready(t.Context(), o)
					case fhevm.StateTimedOut:
						return s.NotReady(t.Context(), o, Cause{})
					case fhevm.StateTxInFlight:
						return s.BeginSend(t.Context(), o, attempt(int64(n), n))
					default:
						return s.Fail(t.Context(), o, edge.From, Cause{})
					}
				}
				if edge.From == fhevm.StateTxInFlight {
					stayed(t)(try(o)) // its attempt is pending
					moved(t)(s.NonceLost(t.Context(), o, common.Address{1}, int64(n)))
				}
				stayed(t)(try(Owner{k, o.ID, e - 1}))
				stayed(t)(try(Owner{k, o.ID, e + 1}))
				next := epoch(t, s)
				stayed(t)(try(o))
				jobs, err := s.Claim(t.Context(), k, e, 100)
				require.NoError(t, err)
				require.Empty(t, jobs, "claimed by an epoch that is over")
				jobs, err = s.Claim(t.Context(), k, next, 100)
				require.NoError(t, err)
				require.NotEmpty(t, jobs)
				stayed(t)(try(o))
				o.Epoch = next
				moved(t)(try(o))
				require.Equal(t, edge.To, stateOf(t, s, o))
				stayed(t)(try(o))
			}
		}
		require.Equal(t, 2*6+3, n)
	})
}

func TestClaim(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, c *clock) {
		var all []int64
		for n := range 25 {
			all = append(all, inserted(t, s, newJob(fhevm.KindUserDecrypt, n)).ID)
		}
		e, seen := epoch(t, s), []int64{}
		before, err := s.JobByID(t.Context(), fhevm.KindUserDecrypt, all[0])
		require.NoError(t, err)
		c.advance(time.Minute)
		for _, want := range []int{10, 10, 5, 0} {
			jobs, err := s.Claim(t.Context(), fhevm.KindUserDecrypt, e, 10)
			require.NoError(t, err)
			require.Len(t, jobs, want)
			for _, j := range jobs {
				require.Equal(t, e, j.OwnerEpoch)
				seen = append(seen, j.ID)
			}
		}
		require.Equal(t, all, seen, "oldest first")
		after, err := s.JobByID(t.Context(), fhevm.KindUserDecrypt, all[0])
		require.NoError(t, err)
		before.OwnerEpoch = e
		require.Equal(t, before, after, "nothing else changes")
		owned, err := s.Owned(t.Context(), fhevm.KindUserDecrypt, e, all[3], 3)
		require.NoError(t, err)
		require.Equal(t, all[4:7], []int64{owned[0].ID, owned[1].ID, owned[2].ID})
		_, err = s.Claim(t.Context(), fhevm.KindUserDecrypt, e, storage.MaxPage+1)
		require.ErrorIs(t, err, storage.ErrPageSize)
	})
}

// Workers of one epoch that claim at the same time share the rows between them.
func TestClaimsDoNotMeet(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		const rows, workers = 60, 4
		for n := range rows {
			inserted(t, s, newJob(fhevm.KindInputProof, n))
		}
		e := epoch(t, s)
		var mu sync.Mutex
		got := map[int64]int{}
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range rows {
					jobs, err := s.Claim(t.Context(), fhevm.KindInputProof, e, 7)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					for _, j := range jobs {
						got[j.ID]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Len(t, got, rows)
		for _, times := range got {
			require.Equal(t, 1, times)
		}
	})
}

func TestTimeoutAndExpiry(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, c *clock) {
		for i, k := range fhevm.Kinds {
			e := epoch(t, s)
			o := walked(t, s, k, 10*i, e, fhevm.StateReceiptReceived)
			begun := c.now()
			c.advance(time.Minute)
			young := walked(t, s, k, 10*i+1, e, fhevm.StateReceiptReceived)
			waiting := walked(t, s, k, 10*i+2, e, fhevm.FirstState(k))
			jobs, err := s.TimeOut(t.Context(), k, begun, 10, Cause{"response_timed_out", "late"})
			require.NoError(t, err)
			require.Empty(t, jobs, "not older")
			jobs, err = s.TimeOut(t.Context(), k, begun.Add(time.Millisecond), 10, Cause{"response_timed_out", "late"})
			require.NoError(t, err)
			require.Len(t, jobs, 1)
			require.Equal(t, o.ID, jobs[0].ID)
			require.Equal(t, fhevm.StateTimedOut, jobs[0].State)
			require.Equal(t, "response_timed_out", jobs[0].ErrCode)
			require.Equal(t, c.now(), jobs[0].StateSince)
			require.Equal(t, fhevm.StateReceiptReceived, stateOf(t, s, young))

			if k == fhevm.KindUserDecrypt {
				out, err := s.AddShare(t.Context(), Share{Reference: hashOf("ref", 10*i), Index: 1}, Event{}, 1)
				require.NoError(t, err)
				require.Equal(t, Late, out)
			}
			n, err := s.Expire(t.Context(), k, c.now(), 10)
			require.NoError(t, err)
			require.Zero(t, n)
			c.advance(time.Hour)
			n, err = s.Expire(t.Context(), k, c.now(), 10)
			require.NoError(t, err)
			require.Equal(t, 1, n, "only what is final")
			_, err = s.JobByID(t.Context(), k, o.ID)
			require.ErrorIs(t, err, ErrNotFound)
			attempts, err := s.Attempts(t.Context(), k, o.ID)
			require.NoError(t, err)
			require.Empty(t, attempts)
			shares, err := s.Shares(t.Context(), o.ID)
			require.NoError(t, err)
			require.Empty(t, shares)
			require.Equal(t, fhevm.FirstState(k), stateOf(t, s, waiting))
		}
		// In batches.
		e := epoch(t, s)
		for n := range 5 {
			moved(t)(s.Fail(t.Context(), walked(t, s, fhevm.KindInputProof, 100+n, e, fhevm.StateProcessing), fhevm.StateProcessing, Cause{}))
		}
		c.advance(time.Second)
		for _, want := range []int{2, 2, 1, 0} {
			n, err := s.Expire(t.Context(), fhevm.KindInputProof, c.now(), 2)
			require.NoError(t, err)
			require.Equal(t, want, n)
		}
	})
}

func TestQueue(t *testing.T) {
	t.Parallel()
	each(t, Options{}, func(t *testing.T, s *Store, _ *clock) {
		e := epoch(t, s)
		var jobs []Owner
		for n := range 5 {
			jobs = append(jobs, walked(t, s, fhevm.KindUserDecrypt, n, e, fhevm.StateQueued))
		}
		moved(t)(s.Ready(t.Context(), jobs[1]))
		ids := func(of ...int) (out []int64) {
			for _, i := range of {
				out = append(out, jobs[i].ID)
			}
			return out
		}
		q, err := s.Queue(t.Context(), fhevm.KindUserDecrypt)
		require.NoError(t, err)
		require.Equal(t, Queue{Queued: ids(0, 2, 3, 4), Processing: ids(1)}, q)
		for between, want := range map[[2]int64]int{{0, jobs[4].ID}: 3, {jobs[0].ID, jobs[4].ID}: 2, {jobs[2].ID, jobs[3].ID}: 0, {jobs[4].ID, 1 << 62}: 0} {
			n, err := s.Between(t.Context(), fhevm.KindUserDecrypt, fhevm.StateQueued, between[0], between[1], 100)
			require.NoError(t, err)
			require.Equal(t, want, n, "%v", between)
		}
		n, err := s.Between(t.Context(), fhevm.KindUserDecrypt, fhevm.StateQueued, 0, 1<<62, 3)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		walked(t, s, fhevm.KindUserDecrypt, 5, e, fhevm.StateTxInFlight)
		walked(t, s, fhevm.KindUserDecrypt, 6, e, fhevm.StateReceiptReceived)
		q, err = s.Queue(t.Context(), fhevm.KindUserDecrypt)
		require.NoError(t, err)
		require.Len(t, q.TxInFlight, 1)
		require.Len(t, q.Queued, 4)
		empty, err := s.Queue(t.Context(), fhevm.KindInputProof)
		require.NoError(t, err)
		require.Zero(t, empty)
		listed, err := s.List(t.Context(), fhevm.KindUserDecrypt, fhevm.StateQueued, jobs[0].ID, 2)
		require.NoError(t, err)
		require.Len(t, listed, 2)
		require.Equal(t, jobs[2].ID, listed[0].ID)
		if s.postgres() {
			return
		}
		// The rows in other states are not looked at.
		for _, state := range fhevm.States {
			ids, waits := q.In(state)
			require.True(t, waits || ids == nil)
			if !waits {
				continue
			}
			plan, err := storage.Collect(storage.Query(t.Context(), s.db.Read(), func(rows *sql.Rows) (step string, err error) {
				var discard any
				return step, rows.Scan(&discard, &discard, &discard, &step)
			}, "EXPLAIN QUERY PLAN SELECT id FROM user_decrypt_req WHERE "+isState(state, "$1")+" AND id > $2 ORDER BY id LIMIT 10", string(state), 5))
			require.NoError(t, err)
			require.Equal(t, []string{"SEARCH user_decrypt_req USING COVERING INDEX user_decrypt_req_active (req_status=? AND id>?)"}, plan)
		}
	})
}

// Two processes on one PostgreSQL, or two handles on one file, see the same queue.
func TestTwoHandles(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		if strings.HasSuffix(t.Name(), storage.DriverMemory) {
			t.Skip("its handles have a database each")
		}
		a, b := fresh(t, open(t), Options{}), fresh(t, open(t), Options{})
		job := inserted(t, a, newJob(fhevm.KindInputProof, 1))
		old := epoch(t, a)
		_, err := a.Claim(t.Context(), fhevm.KindInputProof, old, 1)
		require.NoError(t, err)
		taken, err := b.Claim(t.Context(), fhevm.KindInputProof, epoch(t, b), 1)
		require.NoError(t, err)
		require.Equal(t, job.ID, taken[0].ID)
		stayed(t)(a.BeginSend(t.Context(), Owner{fhevm.KindInputProof, job.ID, old}, attempt(0, 0)))
		moved(t)(b.BeginSend(t.Context(), Owner{fhevm.KindInputProof, job.ID, taken[0].OwnerEpoch}, attempt(0, 0)))
	})
}
