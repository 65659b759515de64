package auth_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"dongate/auth"
	"dongate/auth/claimstest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// conformance: 3.replay.once
// conformance: 2.order.claim
// conformance: 2.order.jti-first
func TestMemoryClaims(t *testing.T) {
	t.Parallel()
	claimstest.Run(t, func(_ *testing.T, now func() time.Time) auth.Claims {
		return auth.NewMemoryClaims(auth.MemoryOptions{Now: now})
	})
}

// claimN claims the n-th token and request id.
func claimN(m *auth.MemoryClaims, now time.Time, n int, life time.Duration) (auth.Outcome, *auth.Previous, error) {
	return m.Claim(context.Background(), auth.Claim{
		Signer: claimstest.Signer(1), TokenID: fmt.Sprint("j", n), TokenUntil: now.Add(life),
		WorkflowID: "0x01", RequestID: fmt.Sprint("r", n), RequestUntil: now.Add(life),
	})
}

// end ends and returns what became of it.
func end(m *auth.MemoryClaims, workflow, request string, s auth.State, answer []byte, until time.Time) (err error) {
	m.End(workflow, request, s, answer, until, func(e error) { err = e })
	return err
}

// conformance: 3.replay.memory
func TestMemoryClaimsAreBounded(t *testing.T) {
	t.Parallel()
	for _, o := range []auth.MemoryOptions{{MaxClaims: 3}, {MaxIDs: 3}} {
		clock := claimstest.NewClock()
		o.Now = clock.Now
		m := auth.NewMemoryClaims(o)
		for n := range 3 {
			outcome, _, err := claimN(m, clock.Now(), n, time.Minute)
			require.NoError(t, err)
			require.Equal(t, auth.Claimed, outcome)
		}
		_, _, err := claimN(m, clock.Now(), 3, time.Minute)
		require.ErrorIs(t, err, auth.ErrClaimsFull)
		tokens, ids, _ := m.Stats(context.Background())
		require.Equal(t, [2]int{3, 3}, [2]int{tokens, ids})
		outcome, _, err := claimN(m, clock.Now(), 0, time.Minute)
		require.NoError(t, err, "what is taken is still known")
		require.Equal(t, auth.Replayed, outcome)

		clock.Add(time.Minute + time.Second)
		outcome, _, err = claimN(m, clock.Now(), 3, time.Minute)
		require.NoError(t, err, "room again, without anyone having cleaned up")
		require.Equal(t, auth.Claimed, outcome)
		tokens, ids, _ = m.Stats(context.Background())
		require.Equal(t, [2]int{1, 1}, [2]int{tokens, ids})
	}
}

func TestMemoryClaimsAnswers(t *testing.T) {
	t.Parallel()
	clock := claimstest.NewClock()
	m := auth.NewMemoryClaims(auth.MemoryOptions{Now: clock.Now, MaxAnswerBytes: 100})
	end := func(n, size int) {
		_, _, err := claimN(m, clock.Now(), n, time.Minute)
		require.NoError(t, err)
		answer := []byte(strings.Repeat("x", size))
		require.NoError(t, end(m, "0x01", fmt.Sprint("r", n), auth.StateAnswered, answer, clock.Now().Add(time.Hour)))
		clear(answer) // the caller may use its buffer again
	}
	// answer is the length of what is stored for the n-th request, whose state stays whatever is dropped.
	answer := func(n int) int {
		c := claimstest.Example(clock.Now())
		c.TokenID, c.RequestID = "other", fmt.Sprint("r", n)
		outcome, previous, err := m.Claim(context.Background(), c)
		require.NoError(t, err)
		require.Equal(t, auth.Conflict, outcome)
		require.Equal(t, auth.StateAnswered, previous.State)
		require.Equal(t, strings.Repeat("x", len(previous.Answer)), string(previous.Answer))
		return len(previous.Answer)
	}
	end(0, 40)
	end(1, 60)
	require.EqualValues(t, 100, m.AnswerBytes())
	end(2, 1)
	require.Equal(t, []int{0, 60, 1}, []int{answer(0), answer(1), answer(2)}, "the oldest went first")
	end(3, 101)
	require.Equal(t, []int{60, 1, 0}, []int{answer(1), answer(2), answer(3)}, "what never fits drops nothing")
	end(4, 100)
	require.Equal(t, []int{0, 0, 100}, []int{answer(1), answer(2), answer(4)})
	require.EqualValues(t, 100, m.AnswerBytes())
	clock.Add(time.Hour + time.Second)
	require.Zero(t, m.AnswerBytes())
	end(5, 100)
	require.Equal(t, 100, answer(5))
}

// An id that is claimed anew within the second in which it expired leaves nothing of its answer behind.
func TestMemoryClaimsReclaimDropsAnswer(t *testing.T) {
	t.Parallel()
	clock := claimstest.NewClock()
	m := auth.NewMemoryClaims(auth.MemoryOptions{Now: clock.Now})
	c := claimstest.Example(clock.Now())
	_, _, err := m.Claim(context.Background(), c)
	require.NoError(t, err)
	require.NoError(t, end(m, c.WorkflowID, c.RequestID, auth.StateAnswered, []byte("12345"), clock.Now().Add(500*time.Millisecond)))
	require.EqualValues(t, 5, m.AnswerBytes())
	clock.Add(600 * time.Millisecond)
	c.TokenID = "j2"
	outcome, _, err := m.Claim(context.Background(), c)
	require.NoError(t, err)
	require.Equal(t, auth.Claimed, outcome)
	require.Zero(t, m.AnswerBytes())
}

// A clock that is set back does not bring a token to life whose claim was forgotten.
func TestMemoryClaimsClockSetBack(t *testing.T) {
	t.Parallel()
	clock := claimstest.NewClock()
	m := auth.NewMemoryClaims(auth.MemoryOptions{Now: clock.Now})
	start := clock.Now()
	outcome, _, err := claimN(m, start, 1, time.Minute)
	require.NoError(t, err)
	require.Equal(t, auth.Claimed, outcome)
	clock.Add(2 * time.Minute)
	tokens, ids, _ := m.Stats(context.Background())
	require.Equal(t, [2]int{0, 0}, [2]int{tokens, ids})
	clock.Add(-2 * time.Minute)
	_, _, err = claimN(m, start, 1, time.Minute)
	require.ErrorIs(t, err, auth.ErrClaimExpired)
	outcome, _, err = claimN(m, start, 2, time.Hour)
	require.NoError(t, err)
	require.Equal(t, auth.Claimed, outcome)
}

// twinClaims remembers everything for ever and looks through all of it.
type twinClaims struct{ claims []*twinClaim }

type twinClaim struct {
	auth.Claim
	state auth.State
}

func (w *twinClaims) claim(c auth.Claim, now time.Time) (auth.Outcome, error) {
	conflict := false
	for _, old := range w.claims {
		if old.Signer == c.Signer && old.TokenID == c.TokenID && old.TokenUntil.After(now) {
			return auth.Replayed, nil
		}
		conflict = conflict || old.WorkflowID == c.WorkflowID && old.RequestID == c.RequestID && old.RequestUntil.After(now)
	}
	if conflict {
		return auth.Conflict, nil
	}
	if !c.TokenUntil.After(now) || !c.RequestUntil.After(now) {
		return 0, auth.ErrClaimExpired
	}
	w.claims = append(w.claims, &twinClaim{Claim: c, state: auth.StateOpen})
	return auth.Claimed, nil
}

func (w *twinClaims) end(workflow, request string, s auth.State, now, until time.Time) error {
	for _, c := range w.claims {
		if c.WorkflowID == workflow && c.RequestID == request && c.state == auth.StateOpen && c.RequestUntil.After(now) {
			c.state, c.RequestUntil = s, until
			return nil
		}
	}
	return auth.ErrNotOpen
}

// alive counts the tokens and ids that are taken at now.
func (w *twinClaims) alive(now time.Time) (tokens, ids int) {
	for _, c := range w.claims {
		if c.TokenUntil.After(now) {
			tokens++
		}
		if c.RequestUntil.After(now) {
			ids++
		}
	}
	return tokens, ids
}

func TestMemoryClaimsTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock := claimstest.NewClock()
		m, twin := auth.NewMemoryClaims(auth.MemoryOptions{Now: clock.Now}), &twinClaims{}
		text := rapid.SampledFrom([]string{"a", "b", "c"})
		life := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(-500, 6000).Draw(t, "ms")) * time.Millisecond
		})
		t.Repeat(map[string]func(*rapid.T){
			"claim": func(t *rapid.T) {
				c := auth.Claim{
					Signer: claimstest.Signer(rapid.Byte().Draw(t, "signer") % 2), TokenID: text.Draw(t, "token"), TokenUntil: clock.Now().Add(life.Draw(t, "token life")),
					WorkflowID: text.Draw(t, "workflow"), RequestID: text.Draw(t, "request"), RequestUntil: clock.Now().Add(life.Draw(t, "request life")),
				}
				want, wantErr := twin.claim(c, clock.Now())
				got, _, err := m.Claim(context.Background(), c)
				require.ErrorIs(t, err, wantErr)
				require.Equal(t, want, got)
			},
			"end": func(t *rapid.T) {
				workflow, request, until := text.Draw(t, "workflow"), text.Draw(t, "request"), clock.Now().Add(life.Draw(t, "life"))
				want := twin.end(workflow, request, auth.StateFailed, clock.Now(), until)
				require.ErrorIs(t, end(m, workflow, request, auth.StateFailed, nil, until), want)
			},
			"wait": func(t *rapid.T) {
				clock.Add(time.Duration(rapid.SampledFrom([]int{1, 100, 999, 1000, 5000, 100_000}).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				tokens, ids, _ := m.Stats(context.Background())
				wantTokens, wantIDs := twin.alive(clock.Now())
				require.GreaterOrEqual(t, tokens, wantTokens)
				require.GreaterOrEqual(t, ids, wantIDs)
			},
		})
		clock.Add(10 * time.Second)
		tokens, ids, _ := m.Stats(context.Background())
		require.Equal(t, [2]int{0, 0}, [2]int{tokens, ids}, "everything is forgotten in the end")
	})
}

// BenchmarkMemoryClaims claims and ends one request per millisecond of its clock, so that claims also expire at that rate.
func BenchmarkMemoryClaims(b *testing.B) {
	clock := claimstest.NewClock()
	m := auth.NewMemoryClaims(auth.MemoryOptions{Now: clock.Now})
	answer := []byte(strings.Repeat("x", 200))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		clock.Add(time.Millisecond)
		if outcome, _, err := claimN(m, clock.Now(), n, time.Minute); err != nil || outcome != auth.Claimed {
			b.Fatal(outcome, err)
		}
		if err := end(m, "0x01", fmt.Sprint("r", n), auth.StateAnswered, answer, clock.Now().Add(time.Minute)); err != nil {
			b.Fatal(err)
		}
	}
}
