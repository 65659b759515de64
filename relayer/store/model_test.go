package store

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/relayer/fhevm"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// twin does what a Store does, in memory and without any cleverness.
type twin struct {
	now    time.Time
	epoch  int64
	jobs   []*twinJob
	early  map[earlyKey]bool
	nonces map[int64]*twinJob
}

type twinJob struct {
	ext      string
	kind     Kind
	content  Hash
	state    State
	since    time.Time
	owner    int64
	ref      Hash
	known    bool
	attempts []*twinAttempt
	shares   map[int64]twinShare // by index
	gone     bool
}

type twinShare struct{ ref, block Hash }

type twinAttempt struct {
	nonce  int64
	hash   Hash
	result Result
}

// earlyKey is what makes an early event one.
type earlyKey struct {
	Kind  Kind
	Ref   Hash
	Block Hash
	Index int64
}

func (w *twin) insert(k Kind, content Hash, ext string) (string, bool) {
	for _, j := range w.jobs {
		if j.kind == k && j.content == content && !j.gone && j.state != fhevm.StateFailure && j.state != fhevm.StateTimedOut {
			return j.ext, false
		}
	}
	w.jobs = append(w.jobs, &twinJob{ext: ext, kind: k, content: content, state: fhevm.FirstState(k), since: w.now})
	return ext, true
}

// fenced tells whether the caller may decide about the job.
func (w *twin) fenced(j *twinJob, epoch int64) bool {
	return !j.gone && j.owner == epoch && epoch == w.epoch
}

func (w *twin) move(j *twinJob, from, to State, allowed bool) bool {
	if !allowed || j.gone || j.state != from {
		return false
	}
	j.state, j.since = to, w.now
	return true
}

func (w *twin) claim(k Kind, epoch int64, limit int) (out []string) {
	if epoch != w.epoch {
		return nil
	}
	rows := []*twinJob{}
	for _, j := range w.jobs {
		if j.kind == k && !j.gone && j.owner < epoch && (j.state == fhevm.StateQueued || j.state == fhevm.StateProcessing || j.state == fhevm.StateTxInFlight) {
			rows = append(rows, j)
		}
	}
	slices.SortStableFunc(rows, func(a, b *twinJob) int { return cmp.Compare(a.owner, b.owner) })
	rows = rows[:min(limit, len(rows))]
	for _, j := range w.jobs {
		if slices.Contains(rows, j) {
			j.owner = epoch
			out = append(out, j.ext)
		}
	}
	return out
}

func (j *twinJob) pending() bool {
	return slices.ContainsFunc(j.attempts, func(a *twinAttempt) bool { return a.result == Pending })
}

func (w *twin) settle(j *twinJob, nonce int64, r Result) {
	for _, a := range j.attempts {
		if a.nonce == nonce {
			a.result = r
		}
	}
}

// addAttempt returns whether it was added and whether the nonce was the reason why not.
func (w *twin) addAttempt(j *twinJob, epoch, nonce int64, hash Hash) (added, refused bool) {
	if !w.fenced(j, epoch) || j.state != fhevm.StateTxInFlight {
		return false, false
	}
	for _, a := range j.attempts {
		if a.nonce == nonce && a.result != Pending || a.nonce != nonce && a.result != Lost {
			return false, true
		}
	}
	if holder := w.nonces[nonce]; holder != nil && holder != j {
		return false, true
	}
	w.nonces[nonce] = j
	j.attempts = append(j.attempts, &twinAttempt{nonce, hash, Pending})
	return true, false
}

func (w *twin) referred(k Kind, ref Hash) (found *twinJob) {
	for _, j := range slices.Backward(w.jobs) {
		if j.kind == k && !j.gone && j.known && j.ref == ref {
			if j.state == fhevm.StateReceiptReceived {
				return j
			}
			if found == nil {
				found = j
			}
		}
	}
	return found
}

func (w *twin) share(ref, block Hash, index, threshold int64) Outcome {
	j := w.referred(fhevm.KindUserDecrypt, ref)
	if j == nil {
		w.keep(earlyKey{fhevm.KindUserDecrypt, ref, block, index})
		return Early
	}
	if j.shares == nil {
		j.shares = map[int64]twinShare{}
	}
	if j.state.Final() {
		for _, s := range j.shares {
			if s.ref != ref {
				return Late
			}
		}
		if _, have := j.shares[index]; !have {
			j.shares[index] = twinShare{ref, block}
		}
		return Late
	}
	if j.shares[index].block != block {
		j.shares[index] = twinShare{ref, block}
	}
	if int64(len(j.shares)) < threshold {
		return Stored
	}
	w.move(j, fhevm.StateReceiptReceived, fhevm.StateCompleted, true)
	return Completes
}

func (w *twin) keep(e earlyKey) {
	for have := range w.early {
		if have.Block == e.Block && have.Index == e.Index {
			return
		}
	}
	w.early[e] = true
}

func (w *twin) complete(k Kind, ref, block Hash, index int64) Outcome {
	j := w.referred(k, ref)
	if j == nil {
		w.keep(earlyKey{k, ref, block, index})
		return Early
	}
	if w.move(j, fhevm.StateReceiptReceived, fhevm.StateCompleted, true) {
		return Completes
	}
	return Late
}

// pair is a request in both worlds.
type pair struct {
	t  *twinJob
	id int64
}

// Random operations in random order, with every answer and, after each, every row compared.
func TestModel(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
	c := newClock()
	s := fresh(t, db, Options{Now: c.now})
	rapid.Check(t, func(rt *rapid.T) {
		for _, q := range []string{"DELETE FROM tx_attempt", "DELETE FROM early_event", "DELETE FROM user_decrypt_share"} {
			_, err := db.Write().Exec(q)
			require.NoError(rt, err)
		}
		for _, k := range fhevm.Kinds { // rows of the run before, to the end and away
			for _, st := range fhevm.States {
				if !st.Final() {
					_, err := db.Write().Exec("UPDATE "+table(k)+" SET req_status = 'failure' WHERE req_status = $1", string(st))
					require.NoError(rt, err)
				}
			}
			_, err := db.Write().Exec("DELETE FROM " + table(k))
			require.NoError(rt, err)
		}
		m := &machine{s: s, c: c, w: &twin{early: map[earlyKey]bool{}, nonces: map[int64]*twinJob{}}}
		m.NewEpoch(rt)
		rt.Repeat(rapid.StateMachineActions(m))
	})
}

type machine struct {
	s     *Store
	c     *clock
	w     *twin
	pairs []pair
}

func (m *machine) tick() {
	m.c.advance(time.Millisecond)
	m.w.now = m.c.now()
}

// pick returns one of the requests, and an owner with an epoch that is mostly the newest.
func (m *machine) pick(t *rapid.T) (*twinJob, Owner) {
	if len(m.pairs) == 0 {
		t.Skip("no requests")
	}
	p := rapid.SampledFrom(m.pairs).Draw(t, "request")
	return p.t, Owner{p.t.kind, p.id, m.w.epoch - int64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "behind"))}
}

func ref(t *rapid.T) Hash   { return hashOf("ref", rapid.IntRange(0, 3).Draw(t, "ref")) }
func block(t *rapid.T) Hash { return hashOf("block", rapid.IntRange(0, 2).Draw(t, "block")) }

func (m *machine) Insert(t *rapid.T) {
	m.tick()
	j := newJob(rapid.SampledFrom(fhevm.Kinds).Draw(t, "kind"), rapid.IntRange(0, 3).Draw(t, "content"))
	j.ExtJobID = uuid.NewString()
	want, wantNew := m.w.insert(j.Kind, j.IntJobID, j.ExtJobID)
	got, isNew, err := m.s.Insert(t.Context(), j)
	require.NoError(t, err)
	require.Equal(t, wantNew, isNew)
	require.Equal(t, want, got)
	if isNew {
		row, err := m.s.Job(t.Context(), j.Kind, got)
		require.NoError(t, err)
		m.pairs = append(m.pairs, pair{m.w.jobs[len(m.w.jobs)-1], row.ID})
	}
}

func (m *machine) NewEpoch(t *rapid.T) {
	e, err := m.s.NextEpoch(t.Context())
	require.NoError(t, err)
	require.Greater(t, e, m.w.epoch)
	m.w.epoch = e
}

func (m *machine) Claim(t *rapid.T) {
	k, limit := rapid.SampledFrom(fhevm.Kinds).Draw(t, "kind"), rapid.IntRange(1, 4).Draw(t, "limit")
	e := m.w.epoch - int64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "behind"))
	jobs, err := m.s.Claim(t.Context(), k, e, limit)
	require.NoError(t, err)
	got := []string(nil)
	for _, j := range jobs {
		got = append(got, j.ExtJobID)
	}
	require.Equal(t, m.w.claim(k, e, limit), got)
}

func (m *machine) Ready(t *rapid.T) {
	m.tick()
	j, o := m.pick(t)
	if o.Kind == fhevm.KindInputProof {
		t.Skip()
	}
	got, err := m.s.Ready(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, m.w.move(j, fhevm.StateQueued, fhevm.StateProcessing, m.w.fenced(j, o.Epoch)), got)
}

func (m *machine) NotReady(t *rapid.T) {
	m.tick()
	j, o := m.pick(t)
	if o.Kind == fhevm.KindInputProof || rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		t.Skip()
	}
	got, err := m.s.NotReady(t.Context(), o, Cause{})
	require.NoError(t, err)
	require.Equal(t, m.w.move(j, fhevm.StateQueued, fhevm.StateTimedOut, m.w.fenced(j, o.Epoch)), got)
}

func (m *machine) Fail(t *rapid.T) {
	m.tick()
	j, o := m.pick(t)
	from := rapid.SampledFrom([]State{j.state, j.state, fhevm.StateQueued, fhevm.StateProcessing, fhevm.StateTxInFlight, fhevm.StateReceiptReceived}).Draw(t, "from")
	early := from == fhevm.StateQueued || from == fhevm.StateProcessing
	if !HasEdge(o.Kind, from, fhevm.StateFailure) || early && rapid.IntRange(0, 3).Draw(t, "seldom") > 0 {
		t.Skip()
	}
	allowed := from == fhevm.StateReceiptReceived || m.w.fenced(j, o.Epoch)
	if from == fhevm.StateTxInFlight || from == fhevm.StateReceiptReceived {
		allowed = allowed && !j.pending()
	}
	got, err := m.s.Fail(t.Context(), o, from, Cause{})
	require.NoError(t, err)
	require.Equal(t, m.w.move(j, from, fhevm.StateFailure, allowed), got)
}

func (m *machine) BeginSend(t *rapid.T) {
	m.tick()
	j, o := m.pick(t)
	a := attempt(int64(rapid.IntRange(0, 5).Draw(t, "nonce")), len(m.w.jobs))
	a.Hash = Hash(newHash())
	taken := m.w.nonces[a.Nonce] != nil
	got, err := m.s.BeginSend(t.Context(), o, a)
	if taken && err != nil {
		require.ErrorIs(t, err, ErrNonce)
		require.True(t, m.w.fenced(j, o.Epoch) && j.state == fhevm.StateProcessing)
		return
	}
	require.NoError(t, err)
	want := m.w.move(j, fhevm.StateProcessing, fhevm.StateTxInFlight, m.w.fenced(j, o.Epoch) && !taken)
	require.Equal(t, want, got)
	if want {
		m.w.nonces[a.Nonce] = j
		j.attempts = append(j.attempts, &twinAttempt{a.Nonce, a.Hash, Pending})
	}
}

func newHash() []byte {
	a, b := uuid.New(), uuid.New()
	return append(a[:], b[:]...)
}

func (m *machine) AddAttempt(t *rapid.T) {
	j, o := m.pick(t)
	a := attempt(int64(rapid.IntRange(0, 5).Draw(t, "nonce")), 0)
	if len(j.attempts) > 0 && rapid.Bool().Draw(t, "replaces") {
		a.Nonce = rapid.SampledFrom(j.attempts).Draw(t, "attempt").nonce
	}
	a.Hash = Hash(newHash())
	want, refused := m.w.addAttempt(j, o.Epoch, a.Nonce, a.Hash)
	got, err := m.s.AddAttempt(t.Context(), o, a)
	require.Equal(t, want, got)
	if refused {
		require.ErrorIs(t, err, ErrNonce)
	} else {
		require.NoError(t, err)
	}
}

// Advance takes a request along its way by as many steps as drawn, so that the other operations meet requests that are far along.
func (m *machine) Advance(t *rapid.T) {
	j, o := m.pick(t)
	o.Epoch = m.w.epoch
	nonce := int64(0)
	for m.w.nonces[nonce] != nil {
		nonce++
	}
	for range rapid.IntRange(1, 4).Draw(t, "steps") {
		m.tick()
		if j.owner != m.w.epoch && !j.gone && !j.state.Final() && j.state != fhevm.StateReceiptReceived {
			jobs, err := m.s.Claim(t.Context(), j.kind, m.w.epoch, 1000)
			require.NoError(t, err)
			require.Len(t, jobs, len(m.w.claim(j.kind, m.w.epoch, 1000)))
		}
		var got bool
		var err error
		switch {
		case j.gone:
			return
		case j.state == fhevm.StateQueued:
			m.w.move(j, fhevm.StateQueued, fhevm.StateProcessing, true)
			got, err = m.s.Ready(t.Context(), o)
		case j.state == fhevm.StateProcessing:
			a := attempt(nonce, 0)
			a.Hash = Hash(newHash())
			m.w.move(j, fhevm.StateProcessing, fhevm.StateTxInFlight, true)
			m.w.nonces[nonce] = j
			j.attempts = append(j.attempts, &twinAttempt{nonce, a.Hash, Pending})
			got, err = m.s.BeginSend(t.Context(), o, a)
		case j.state == fhevm.StateTxInFlight && rapid.Bool().Draw(t, "mined"):
			m.receipt(t, j, o, j.attempts[len(j.attempts)-1])
			return
		default:
			return
		}
		require.NoError(t, err)
		require.True(t, got)
	}
}

// attemptOf returns an attempt of some request.
func (m *machine) attemptOf(t *rapid.T) (*twinJob, Owner, *twinAttempt) {
	j, o := m.pick(t)
	if len(j.attempts) == 0 || j.gone {
		t.Skip("no attempts")
	}
	return j, o, rapid.SampledFrom(j.attempts).Draw(t, "attempt")
}

func (m *machine) Mined(t *rapid.T) {
	j, _, a := m.attemptOf(t)
	m.w.settle(j, a.nonce, Lost)
	reverted := rapid.Bool().Draw(t, "reverted")
	a.result = map[bool]Result{false: Mined, true: Reverted}[reverted]
	_, err := m.s.Mined(t.Context(), a.hash, Block{}, reverted)
	require.NoError(t, err)
}

func (m *machine) Unmined(t *rapid.T) {
	j, _, a := m.attemptOf(t)
	m.w.settle(j, a.nonce, Pending)
	j.ref, j.known = Hash{}, false
	require.NoError(t, m.s.Unmined(t.Context(), a.hash))
}

func (m *machine) NonceLost(t *rapid.T) {
	j, o, a := m.attemptOf(t)
	want := m.w.fenced(j, o.Epoch) && j.state == fhevm.StateTxInFlight
	if want {
		m.w.settle(j, a.nonce, Lost)
	}
	got, err := m.s.NonceLost(t.Context(), o, attempt(0, 0).Signer, a.nonce)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func (m *machine) Receipt(t *rapid.T) {
	m.tick()
	j, o, a := m.attemptOf(t)
	m.receipt(t, j, o, a)
}

func (m *machine) receipt(t *rapid.T, j *twinJob, o Owner, a *twinAttempt) {
	r := ref(t)
	if other := m.w.referred(o.Kind, r); other != nil && other != j {
		t.Skip("the contract gives each id once")
	}
	m.w.settle(j, a.nonce, Lost)
	a.result = Mined
	want := m.w.move(j, fhevm.StateTxInFlight, fhevm.StateReceiptReceived, true)
	switch j.state {
	case fhevm.StateQueued, fhevm.StateProcessing, fhevm.StateTxInFlight:
	case fhevm.StateReceiptReceived:
		for index, s := range j.shares {
			if s.ref != r {
				delete(j.shares, index)
			}
		}
		fallthrough
	default:
		j.ref, j.known = r, true
	}
	got, early, err := m.s.Receipt(t.Context(), o.Kind, o.ID, a.hash, Block{}, r)
	require.NoError(t, err)
	require.Equal(t, want, got)
	n := 0
	for e := range m.w.early {
		if e.Kind == o.Kind && e.Ref == r {
			n++
		}
	}
	require.Len(t, early, n)
	for _, e := range early {
		require.True(t, m.w.early[earlyKey{e.Kind, e.Reference, e.BlockHash, e.LogIndex}])
		if rapid.Bool().Draw(t, "applied") {
			delete(m.w.early, earlyKey{e.Kind, e.Reference, e.BlockHash, e.LogIndex})
			require.NoError(t, m.s.DropEarly(t.Context(), e.ID))
		}
	}
}

func (m *machine) AddShare(t *rapid.T) {
	m.tick()
	r, b := ref(t), block(t)
	index, threshold := int64(rapid.IntRange(0, 4).Draw(t, "index")), int64(rapid.IntRange(1, 3).Draw(t, "threshold"))
	want := m.w.share(r, b, index, threshold)
	got, err := m.s.AddShare(t.Context(), Share{Reference: r, Index: index}, Event{BlockHash: b, LogIndex: index}, threshold)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func (m *machine) Complete(t *rapid.T) {
	m.tick()
	k, r, b := rapid.SampledFrom([]Kind{fhevm.KindInputProof, fhevm.KindPublicDecrypt}).Draw(t, "kind"), ref(t), block(t)
	index := int64(rapid.IntRange(5, 7).Draw(t, "index"))
	want := m.w.complete(k, r, b, index)
	got, err := m.s.Complete(t.Context(), k, r, Response{}, Event{BlockHash: b, LogIndex: index})
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func (m *machine) DropBlock(t *rapid.T) {
	b := block(t)
	for e := range m.w.early {
		if e.Block == b {
			delete(m.w.early, e)
		}
	}
	for _, j := range m.w.jobs {
		for index, s := range j.shares {
			if s.block == b && j.state != fhevm.StateCompleted {
				delete(j.shares, index)
			}
		}
	}
	require.NoError(t, m.s.DropBlock(t.Context(), b))
}

func (m *machine) TimeOut(t *rapid.T) {
	m.tick()
	k := rapid.SampledFrom(fhevm.Kinds).Draw(t, "kind")
	before := m.c.now().Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "ms")) * time.Millisecond)
	n := 0
	for _, j := range m.w.jobs {
		if j.kind == k && j.since.Before(before) && m.w.move(j, fhevm.StateReceiptReceived, fhevm.StateTimedOut, true) {
			n++
		}
	}
	jobs, err := m.s.TimeOut(t.Context(), k, before, 1000, Cause{})
	require.NoError(t, err)
	require.Len(t, jobs, n)
}

func (m *machine) Expire(t *rapid.T) {
	k := rapid.SampledFrom(fhevm.Kinds).Draw(t, "kind")
	before := m.c.now().Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "ms")) * time.Millisecond)
	n := 0
	for _, j := range m.w.jobs {
		if j.kind == k && !j.gone && j.state.Final() && j.since.Before(before) {
			n++
			j.gone = true
			for _, a := range j.attempts {
				if m.w.nonces[a.nonce] == j {
					delete(m.w.nonces, a.nonce)
				}
			}
		}
	}
	got, err := m.s.Expire(t.Context(), k, before, 1000)
	require.NoError(t, err)
	require.Equal(t, n, got)
}

// Check compares every row.
func (m *machine) Check(t *rapid.T) {
	for _, p := range m.pairs {
		j, err := m.s.JobByID(t.Context(), p.t.kind, p.id)
		if p.t.gone {
			require.ErrorIs(t, err, ErrNotFound)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, p.t.state, j.State)
		require.Equal(t, p.t.since, j.StateSince)
		require.Equal(t, p.t.owner, j.OwnerEpoch)
		require.Equal(t, p.t.known, j.Reference != nil)
		if p.t.known {
			require.Equal(t, p.t.ref, *j.Reference)
		}
		if p.t.kind == fhevm.KindUserDecrypt {
			shares, err := m.s.Shares(t.Context(), p.id)
			require.NoError(t, err)
			require.Len(t, shares, len(p.t.shares))
			for _, s := range shares {
				require.Equal(t, p.t.shares[s.Index].ref, s.Reference)
			}
		}
		attempts, err := m.s.Attempts(t.Context(), p.t.kind, p.id)
		require.NoError(t, err)
		require.Len(t, attempts, len(p.t.attempts))
		for i, a := range attempts {
			require.Equal(t, *p.t.attempts[i], twinAttempt{a.Nonce, a.Hash, a.Result})
		}
	}
}
