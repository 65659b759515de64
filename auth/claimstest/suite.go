// Package claimstest is the conformance suite of [auth.Claims]: every implementation passes it, whatever it keeps its claims in.
package claimstest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"dongate/auth"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"
)

// Clock is a clock that stands still until it is moved. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows a time in 2026.
func NewClock() *Clock { return &Clock{now: time.Unix(1_780_000_000, 0)} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Add moves the clock by d.
func (c *Clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Signer returns the n-th of some addresses.
func Signer(n byte) common.Address { return common.Address{19: n} }

// Example returns a claim of signer 1 that holds its token for 5 minutes and its id for 2.
func Example(now time.Time) auth.Claim {
	return auth.Claim{
		Signer: Signer(1), TokenID: "jti", TokenUntil: now.Add(5 * time.Minute),
		WorkflowID: "0x01", RequestID: "request", RequestUntil: now.Add(2 * time.Minute),
	}
}

// Run runs the suite. open returns an empty implementation that reads the given clock; it cleans up with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T, now func() time.Time) auth.Claims) {
	t.Helper()
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"ClaimOnce", (*suite).claimOnce},
		{"KeysAreSeparate", (*suite).keysAreSeparate},
		{"BothOrNeither", (*suite).bothOrNeither},
		{"TokenExpires", (*suite).tokenExpires},
		{"OpenIDEndsByItself", (*suite).openIDEndsByItself},
		{"EndReserves", (*suite).endReserves},
		{"EndOnce", (*suite).endOnce},
		{"ExpiredClaimIsRefused", (*suite).expiredClaim},
		{"CancelledContext", (*suite).cancelled},
		{"SameClaimConcurrently", (*suite).concurrentSame},
		{"SameTokenConcurrently", (*suite).concurrentToken},
		{"SameIDConcurrently", (*suite).concurrentID},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			clock := NewClock()
			c.test(&suite{T: t, clock: clock, claims: open(t, clock.Now)})
		})
	}
}

type suite struct {
	*testing.T
	clock  *Clock
	claims auth.Claims
}

// claim claims and checks the outcome.
func (s *suite) claim(c auth.Claim, want auth.Outcome) *auth.Previous {
	s.Helper()
	got, previous, err := s.claims.Claim(context.Background(), c)
	require.NoError(s, err)
	require.Equal(s, want, got, "%+v", c)
	require.Equal(s, want == auth.Conflict, previous != nil)
	return previous
}

func (s *suite) used(signer common.Address, id string, want bool) {
	s.Helper()
	got, err := s.claims.Used(context.Background(), signer, id)
	require.NoError(s, err)
	require.Equal(s, want, got)
}

func (s *suite) end(c auth.Claim, state auth.State, answer string, keep time.Duration) {
	s.Helper()
	require.NoError(s, s.tryEnd(c, state, answer, keep))
}

// tryEnd ends and waits for what became of it.
func (s *suite) tryEnd(c auth.Claim, state auth.State, answer string, keep time.Duration) error {
	done := make(chan error, 1)
	s.claims.End(c.WorkflowID, c.RequestID, state, []byte(answer), s.clock.Now().Add(keep), func(err error) { done <- err })
	return <-done
}

func (s *suite) stats(tokens, ids int) {
	s.Helper()
	gotTokens, gotIDs, err := s.claims.Stats(context.Background())
	require.NoError(s, err)
	require.Equal(s, [2]int{tokens, ids}, [2]int{gotTokens, gotIDs})
}

func (s *suite) claimOnce() {
	c := Example(s.clock.Now())
	s.stats(0, 0)
	s.used(c.Signer, c.TokenID, false)
	s.claim(c, auth.Claimed)
	s.used(c.Signer, c.TokenID, true)
	s.claim(c, auth.Replayed) // reported before the id, which is taken too
	s.stats(1, 1)
}

func (s *suite) keysAreSeparate() {
	base := Example(s.clock.Now())
	s.claim(base, auth.Claimed)
	for i, change := range []func(*auth.Claim){
		func(c *auth.Claim) { c.Signer, c.RequestID = Signer(2), "r1" },   // two signers may use one jti
		func(c *auth.Claim) { c.TokenID, c.WorkflowID = "j2", "0x02" },    // two workflows may use one request id
		func(c *auth.Claim) { c.TokenID, c.RequestID = "", "" },           // empty texts are texts
		func(c *auth.Claim) { c.TokenID, c.RequestID = "JTI", "REQUEST" }, // case counts
		func(c *auth.Claim) { c.TokenID, c.WorkflowID, c.RequestID = "j5", "0x01r", "equest" },
		func(c *auth.Claim) { c.TokenID, c.WorkflowID, c.RequestID = "j6", "", "0x01request" },
		func(c *auth.Claim) { c.TokenID, c.RequestID = "jti\x00", "request\x00" },
	} {
		c := base
		change(&c)
		s.claim(c, auth.Claimed)
		s.stats(i+2, i+2)
	}
}

func (s *suite) bothOrNeither() {
	base := Example(s.clock.Now())
	s.claim(base, auth.Claimed)

	sameID := base
	sameID.Signer, sameID.TokenID = Signer(2), "j2"
	previous := s.claim(sameID, auth.Conflict)
	require.Equal(s, &auth.Previous{Signer: base.Signer, State: auth.StateOpen}, previous)
	s.used(sameID.Signer, sameID.TokenID, false)
	sameID.RequestID = "r2"
	s.claim(sameID, auth.Claimed) // the conflict did not take the token

	sameToken := base
	sameToken.RequestID = "r3"
	s.claim(sameToken, auth.Replayed)
	sameToken.TokenID = "j3"
	s.claim(sameToken, auth.Claimed) // the replay did not take the id
}

func (s *suite) tokenExpires() {
	base := Example(s.clock.Now())
	s.claim(base, auth.Claimed)
	again := base
	again.RequestID, again.RequestUntil = "r2", s.clock.Now().Add(time.Hour)
	s.clock.Add(5*time.Minute - time.Millisecond)
	s.used(base.Signer, base.TokenID, true)
	s.claim(again, auth.Replayed)
	s.clock.Add(time.Millisecond)
	s.used(base.Signer, base.TokenID, false)
	again.TokenUntil, again.RequestUntil = s.clock.Now().Add(time.Hour), s.clock.Now().Add(time.Hour)
	s.claim(again, auth.Claimed)
	s.clock.Add(30 * time.Minute)
	s.used(base.Signer, base.TokenID, true) // what is left of the first claim does not end the second
	s.clock.Add(31 * time.Minute)
	s.stats(0, 0)
}

func (s *suite) openIDEndsByItself() {
	base := Example(s.clock.Now())
	s.claim(base, auth.Claimed)
	next := base
	next.TokenID = "j2"
	s.clock.Add(2*time.Minute - time.Millisecond)
	s.claim(next, auth.Conflict)
	s.clock.Add(time.Millisecond)
	require.ErrorIs(s, s.tryEnd(base, auth.StateAnswered, "", time.Hour), auth.ErrNotOpen)
	next.RequestUntil = s.clock.Now().Add(time.Minute)
	s.claim(next, auth.Claimed)
	s.clock.Add(time.Minute + time.Second)
	s.stats(2, 0)
}

func (s *suite) endReserves() {
	for _, c := range []struct {
		state        auth.State
		answer, want string
	}{{auth.StateAnswered, `{"a":1}`, `{"a":1}`}, {auth.StateFailed, "", ""}} {
		base := Example(s.clock.Now())
		base.TokenID = "first " + string(c.state)
		s.claim(base, auth.Claimed)
		s.clock.Add(time.Minute)
		s.end(base, c.state, c.answer, 10*time.Minute) // beyond RequestUntil
		next := base
		next.Signer, next.TokenID = Signer(2), "next "+string(c.state)
		next.TokenUntil, next.RequestUntil = s.clock.Now().Add(time.Hour), s.clock.Now().Add(time.Hour)
		for _, wait := range []time.Duration{0, 5 * time.Minute, 5*time.Minute - time.Millisecond} {
			s.clock.Add(wait)
			previous := s.claim(next, auth.Conflict)
			require.Equal(s, base.Signer, previous.Signer)
			require.Equal(s, c.state, previous.State)
			require.Equal(s, c.want, string(previous.Answer))
		}
		s.clock.Add(time.Millisecond)
		s.claim(next, auth.Claimed)
		s.end(next, auth.StateFailed, "", 0) // nothing is reserved
		next.TokenID = "last " + string(c.state)
		s.claim(next, auth.Claimed)
		s.end(next, auth.StateFailed, "", time.Second) // sooner than RequestUntil
		s.clock.Add(2 * time.Second)
		_, ids, err := s.claims.Stats(context.Background())
		require.NoError(s, err)
		require.Zero(s, ids)
	}
}

func (s *suite) endOnce() {
	base := Example(s.clock.Now())
	end := func(state auth.State) error { return s.tryEnd(base, state, "", time.Hour) }
	require.ErrorIs(s, end(auth.StateAnswered), auth.ErrNotOpen)
	s.claim(base, auth.Claimed)
	require.Error(s, end(auth.StateOpen))
	require.Error(s, end("other"))
	require.NoError(s, end(auth.StateAnswered))
	require.ErrorIs(s, end(auth.StateFailed), auth.ErrNotOpen)
	next := base
	next.TokenID = "j2"
	require.Equal(s, auth.StateAnswered, s.claim(next, auth.Conflict).State)
}

func (s *suite) expiredClaim() {
	for _, change := range []func(*auth.Claim){
		func(c *auth.Claim) { c.TokenUntil = s.clock.Now() },
		func(c *auth.Claim) { c.TokenUntil = s.clock.Now().Add(-time.Hour) },
		func(c *auth.Claim) { c.RequestUntil = s.clock.Now() },
		func(c *auth.Claim) { c.TokenUntil, c.RequestUntil = time.Time{}, time.Time{} },
	} {
		c := Example(s.clock.Now())
		change(&c)
		_, _, err := s.claims.Claim(context.Background(), c)
		require.ErrorIs(s, err, auth.ErrClaimExpired)
	}
	s.stats(0, 0)
}

func (s *suite) cancelled() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, _, err := s.claims.Claim(ctx, Example(s.clock.Now()))
	require.ErrorIs(s, err, context.Canceled)
	s.claim(Example(s.clock.Now()), auth.Claimed)
}

// copies is how many goroutines claim at the same instant, rounds how often.
const (
	copies = 64
	rounds = 20
)

// race claims copies times at once and returns how often each outcome came.
func (s *suite) race(claim func(i int) auth.Claim) map[auth.Outcome]int {
	var (
		mu    sync.Mutex
		count = map[auth.Outcome]int{}
		wg    sync.WaitGroup
		start = make(chan struct{})
	)
	for i := range copies {
		wg.Go(func() {
			<-start
			outcome, _, err := s.claims.Claim(context.Background(), claim(i))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.Errorf("claim %d: %v", i, err)
			}
			count[outcome]++
		})
	}
	close(start)
	wg.Wait()
	return count
}

func (s *suite) concurrentSame() {
	for round := range rounds {
		c := Example(s.clock.Now())
		c.TokenID, c.RequestID = fmt.Sprint("j", round), fmt.Sprint("r", round)
		require.Equal(s, map[auth.Outcome]int{auth.Claimed: 1, auth.Replayed: copies - 1}, s.race(func(int) auth.Claim { return c }))
	}
}

func (s *suite) concurrentToken() {
	for round := range rounds {
		c := Example(s.clock.Now())
		c.TokenID = fmt.Sprint("j", round)
		got := s.race(func(i int) auth.Claim {
			c := c
			c.RequestID = fmt.Sprint("r", round, "-", i)
			return c
		})
		require.Equal(s, map[auth.Outcome]int{auth.Claimed: 1, auth.Replayed: copies - 1}, got)
	}
	s.stats(rounds, rounds)
}

func (s *suite) concurrentID() {
	for round := range rounds {
		c := Example(s.clock.Now())
		c.RequestID = fmt.Sprint("r", round)
		got := s.race(func(i int) auth.Claim {
			c := c
			c.TokenID = fmt.Sprint("j", round, "-", i)
			return c
		})
		require.Equal(s, map[auth.Outcome]int{auth.Claimed: 1, auth.Conflict: copies - 1}, got)
	}
	s.stats(rounds, rounds) // the losers' tokens are not taken
}
