package sqlclaims

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/auth/claimstest"
	"dongate/storage"
	"dongate/storage/storagetest"
)

// migrate brings an empty database up to date.
func migrate(t testing.TB, db *storage.DB) {
	t.Helper()
	require.NoError(t, db.Migrate(t.Context(), Domain))
}

// opened returns claims that are closed when the test ends.
func opened(t testing.TB, db *storage.DB, o Options) *Claims {
	t.Helper()
	c, err := Open(t.Context(), db, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// conformance: 3.replay.once
func TestClaims(t *testing.T) {
	t.Parallel()
	for _, driver := range storagetest.Drivers {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			claimstest.Run(t, func(t *testing.T, now func() time.Time) auth.Claims {
				db := storagetest.Open(t, storagetest.Config(t, driver))
				migrate(t, db)
				return opened(t, db, Options{Now: now, alwaysCount: true})
			})
		})
	}
}

// example is a claim of the n-th token and request.
func example(now time.Time, n int) auth.Claim {
	c := claimstest.Example(now)
	c.TokenID, c.RequestID = fmt.Sprint("jti ", n), fmt.Sprint("request ", n)
	return c
}

func claimed(t testing.TB, c auth.Claims, claim auth.Claim) {
	t.Helper()
	outcome, _, err := c.Claim(context.Background(), claim)
	require.NoError(t, err)
	require.Equal(t, auth.Claimed, outcome)
}

// ended ends and waits for what became of it.
func ended(c auth.Claims, claim auth.Claim, s auth.State, answer []byte, until time.Time) error {
	done := make(chan error, 1)
	c.End(claim.WorkflowID, claim.RequestID, s, answer, until, func(err error) { done <- err })
	return <-done
}

// Two gateways, as two handles, claim the same things at the same instant: each goes to one of them.
//
// conformance: 3.replay.shared
func TestTwoGatewaysOneClaim(t *testing.T) {
	t.Parallel()
	const rounds, copies = 200, 4
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		db := open(t)
		other := db
		if !strings.HasSuffix(t.Name(), storage.DriverMemory) { // whose handles have a database each
			other = open(t)
		}
		migrate(t, db)
		gateways := []*Claims{opened(t, db, Options{}), opened(t, other, Options{alwaysCount: true})}
		var mu sync.Mutex
		won := map[string]int{}
		for round := range rounds {
			var wg sync.WaitGroup
			start := make(chan struct{})
			for _, c := range gateways {
				for i := range copies {
					wg.Go(func() {
						claim := example(time.Now(), round)
						if round%2 == 1 { // another token for the same request
							claim.TokenID = fmt.Sprintf("%s %d %p", claim.TokenID, i, c)
						}
						<-start
						outcome, previous, err := c.Claim(context.Background(), claim)
						mu.Lock()
						defer mu.Unlock()
						if err != nil || (outcome == auth.Conflict) != (previous != nil) {
							t.Errorf("%v %v %v", outcome, previous, err)
						}
						won[fmt.Sprint(round, outcome)]++
					})
				}
			}
			close(start)
			wg.Wait()
			require.Equal(t, 1, won[fmt.Sprint(round, auth.Claimed)], "round %d: %v", round, won)
			require.Equal(t, 2*copies-1, won[fmt.Sprint(round, [2]auth.Outcome{auth.Replayed, auth.Conflict}[round%2])])
		}
		tokens, ids, err := gateways[1].Stats(t.Context())
		require.NoError(t, err)
		require.Equal(t, [2]int{rounds, rounds}, [2]int{tokens, ids}, "nothing is left of those that lost")
	})
}

// Claims outlive the handle, and so do ends and their answers.
//
// conformance: 3.replay.shared
func TestReopen(t *testing.T) {
	t.Parallel()
	for _, driver := range []string{storage.DriverSQLite, storage.DriverPostgres} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			config := storagetest.Config(t, driver)
			now := time.Now()
			first := storagetest.Open(t, config)
			migrate(t, first)
			c, err := Open(t.Context(), first, Options{})
			require.NoError(t, err)
			claimed(t, c, example(now, 1))
			claimed(t, c, example(now, 2))
			c.End("0x01", "request 2", auth.StateAnswered, []byte(`{"a":1}`), now.Add(time.Hour), nil)
			require.NoError(t, c.Close(), "writes what waits")
			require.NoError(t, first.Close())

			again := opened(t, storagetest.Open(t, config), Options{})
			for n := 1; n <= 2; n++ {
				outcome, _, err := again.Claim(t.Context(), example(now, n))
				require.NoError(t, err)
				require.Equal(t, auth.Replayed, outcome)
			}
			fresh := example(now, 1)
			fresh.TokenID = "fresh"
			_, previous, err := again.Claim(t.Context(), fresh)
			require.NoError(t, err)
			require.Equal(t, &auth.Previous{Signer: fresh.Signer, State: auth.StateOpen}, previous)
			fresh.RequestID = "request 2"
			_, previous, err = again.Claim(t.Context(), fresh)
			require.NoError(t, err)
			require.Equal(t, &auth.Previous{Signer: fresh.Signer, State: auth.StateAnswered, Answer: []byte(`{"a":1}`)}, previous)
		})
	}
}

// A token is remembered for KeepUntil, and what has expired is deleted as claims come in.
//
// conformance: 3.replay.period
func TestKeepAndPurge(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		db, clock := open(t), claimstest.NewClock()
		migrate(t, db)
		c := opened(t, db, Options{Now: clock.Now})
		claim := example(clock.Now(), 0)
		claim.KeepUntil = clock.Now().Add(24 * time.Hour)
		claimed(t, c, claim)
		for n := range 3 * purgeEvery {
			claimed(t, c, example(clock.Now(), 1+n))
		}
		clock.Add(24*time.Hour - time.Millisecond)
		again := example(clock.Now(), 999)
		again.TokenID = claim.TokenID
		outcome, _, err := c.Claim(t.Context(), again)
		require.NoError(t, err)
		require.Equal(t, auth.Replayed, outcome)
		rows := func() (n int) {
			require.NoError(t, db.Read().QueryRow("SELECT (SELECT COUNT(*) FROM claimed_tokens) + (SELECT COUNT(*) FROM request_ids)").Scan(&n))
			return n
		}
		require.Equal(t, 2*(1+3*purgeEvery), rows())
		for n := range 4 * purgeEvery {
			claimed(t, c, example(clock.Now(), 1000+n))
		}
		require.LessOrEqual(t, rows(), 2*4*purgeEvery+1, "the last claims, and the token that is kept")
		clock.Add(time.Millisecond)
		again.KeepUntil = clock.Now().Add(time.Hour)
		claimed(t, c, again)
	})
}

// An answer past the bound leaves the end of its request.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	db, clock := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory)), claimstest.NewClock()
	migrate(t, db)
	c := opened(t, db, Options{Now: clock.Now, MaxAnswerBytes: 100, AnswerPeriod: time.Minute})
	stored := func(n, size int) int {
		claim := example(clock.Now(), n)
		claimed(t, c, claim)
		require.NoError(t, ended(c, claim, auth.StateAnswered, []byte(strings.Repeat("x", size)), clock.Now().Add(time.Hour)))
		claim.TokenID += " again"
		_, previous, err := c.Claim(t.Context(), claim)
		require.NoError(t, err)
		require.Equal(t, auth.StateAnswered, previous.State)
		return len(previous.Answer)
	}
	require.Equal(t, 60, stored(1, 60))
	require.Equal(t, 0, stored(2, 60))
	require.Equal(t, 40, stored(3, 40))
	require.Equal(t, 0, stored(4, 1))
	clock.Add(time.Minute)
	require.Equal(t, 0, stored(5, 101))
	require.Equal(t, 100, stored(6, 100))
}

// Closed claims refuse, and closing twice is harmless.
func TestClosed(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
	migrate(t, db)
	c := opened(t, db, Options{})
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	_, _, err := c.Claim(t.Context(), example(time.Now(), 1))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, ended(c, example(time.Now(), 1), auth.StateFailed, nil, time.Now()), ErrClosed)
}

// A database without the tables is refused when it is opened.
func TestNoSchema(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(*testing.T) *storage.DB) {
		_, err := Open(t.Context(), open(t), Options{})
		require.ErrorContains(t, err, "opening the claims")
	})
}

// What was seen is forgotten after its time or for room, never early within one generation.
func TestSeen(t *testing.T) {
	t.Parallel()
	now := claimstest.NewClock().Now()
	var s seen
	require.False(t, s.has(key{1}, now))
	s.add(key{1}, now.Add(time.Minute), now)
	s.add(key{2}, now.Add(time.Hour), now)
	require.True(t, s.has(key{1}, now.Add(time.Minute-time.Millisecond)))
	require.False(t, s.has(key{1}, now.Add(time.Minute)))
	s.add(key{3}, now.Add(time.Hour), now.Add(seenPeriod))
	require.True(t, s.has(key{2}, now.Add(seenPeriod)), "one generation back")
	s.add(key{4}, now.Add(time.Hour), now.Add(2*seenPeriod))
	require.False(t, s.has(key{2}, now.Add(2*seenPeriod)))
	for n := range 2 * maxSeen {
		s.add(key{5, byte(n), byte(n >> 8), byte(n >> 16)}, now.Add(time.Hour), now.Add(2*seenPeriod))
	}
	require.LessOrEqual(t, len(s.young)+len(s.old), 2*maxSeen)
	require.True(t, s.has(key{5, 255, 255, 7}, now.Add(2*seenPeriod)), "the last one")
	s.remove(key{5, 255, 255, 7})
	require.False(t, s.has(key{5, 255, 255, 7}, now.Add(2*seenPeriod)))
}

// Each step of the schema is the one that was reviewed, and all of them at once come to the same.
func TestSchemas(t *testing.T) {
	t.Parallel()
	storagetest.Schemas(t, Domain, "testdata")
}

// A flush of the disk that does not happen cannot be seen from outside: the setting is read where claims are written.
func TestClaimsAreFlushed(t *testing.T) {
	t.Parallel()
	db := storagetest.Open(t, storagetest.Config(t, storage.DriverSQLite))
	tx, err := db.Write().Begin()
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	var synchronous int
	require.NoError(t, tx.QueryRow("PRAGMA synchronous").Scan(&synchronous))
	require.Equal(t, 2, synchronous, "FULL")
}
