package main

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"dongate/internal/console"
	"dongate/internal/simdon"
)

func ms(n float64) console.Elapsed { return console.Elapsed(n * float64(time.Millisecond)) }

// splitStory is a scene of one shard of four and one of one.
func splitStory() *story {
	node := func(shard, name, role string, asked, answered console.Elapsed, said string) *nodeStory {
		return &nodeStory{Shard: shard, Node: name, Role: role, Asked: asked, Answered: answered, Said: said, vote: said}
	}
	return &story{
		Title: "A scene", About: []string{"What it shows."},
		Nodes: []*nodeStory{
			node("demo", "n0", "", ms(0.5), ms(30), "ACCEPTED 1"),
			node("demo", "n1", "lies", ms(0.4), ms(1), "ACCEPTED 2"),
			node("demo", "n2", "", ms(0.6), ms(10), "ACCEPTED 1"),
			node("demo", "n3", "", ms(0.6), ms(20), "ACCEPTED 1"),
			node("demo_1", "n4", "frozen", console.Never, console.Never, ""),
		},
		Answers: []answerStory{{Status: 200, Reason: "result", Text: "ACCEPTED 1", At: ms(30.5)}},
	}
}

func TestStoryCountsQuorums(t *testing.T) {
	t.Parallel()
	s := splitStory()
	s.countQuorums(3)
	require.Equal(t, []quorumStory{{Shard: "demo", Node: "n0", Nodes: 3, Of: 4, At: ms(30)}}, s.Quorums)

	s = splitStory()
	s.countQuorums(4)
	require.Empty(t, s.Quorums, "a vote for something else does not count")

	s = splitStory()
	s.Nodes[1].Shard = "demo_1"
	s.Nodes[1].vote = s.Nodes[0].vote
	s.countQuorums(4)
	require.Empty(t, s.Quorums, "a vote of another shard does not count")
}

func TestStoryIsTold(t *testing.T) {
	t.Parallel()
	s := splitStory()
	s.countQuorums(3)
	s.Answers = append(s.Answers, answerStory{What: "altered", Status: 401, Reason: "unauthorized", At: ms(1.25),
		Text: "Auth failure: JWT digest 0x5157c3bd4a2d64d5f62548013fb79cb2b489b6845d91f39e02cd7f25e2180d61 does not match the request, whose digest is another"})
	var out bytes.Buffer
	require.NoError(t, s.tell(&out, console.Style{}, 7))
	require.Equal(t, `
7  A scene
   What it shows.

   shard    node           asked    answered   said
   demo     n1            0.4 ms      1.0 ms   ACCEPTED 2          lies
   demo     n2            0.6 ms     10.0 ms   ACCEPTED 1
   demo     n3            0.6 ms     20.0 ms   ACCEPTED 1
   demo     n0            0.5 ms     30.0 ms   ACCEPTED 1          makes the quorum
   demo_1   n4                 -           -                       frozen

   quorum      30.0 ms   demo: 3 of 4 nodes have said the same
   answer      30.5 ms   200 result  ACCEPTED 1
   altered      1.2 ms   401 unauthorized  Auth failure: JWT digest 0x5157c3bd.. does not match the request, whose
                         digest is another
   verdict               as expected
`, out.String())

	s.expect(true, "never said")
	s.expect(false, "the answer was %d", 42)
	out.Reset()
	require.NoError(t, s.tell(&out, console.Style{Colour: true}, 7))
	require.Contains(t, out.String(), "\x1b[31mNOT AS EXPECTED: \x1b[0mthe answer was 42\n")
}

func TestActionsAreTold(t *testing.T) {
	t.Parallel()
	calls := int64(1)
	s := &story{Title: "A scene", About: []string{"What it shows."}, Calls: &calls, Actions: []*actionStory{
		{Shard: "demo", Node: "n0", URL: "http://h/", Asked: ms(0.1), Answered: ms(41), Status: 200, Body: `{"a":1}`},
		{Shard: "demo", Node: "n1", URL: "http://h/", Asked: ms(0.2), Answered: ms(0.5), Status: 200, Body: `{"a":1}`, Cached: true},
		{Shard: "demo", Node: "n2", URL: "http://169.254.169.254/", Asked: ms(0), Answered: ms(0.5), Refused: true,
			Error: "the address 169.254.169.254 is a cloud metadata address; actions can reach public addresses only"},
		{Shard: "demo", Node: "n3", URL: "http://h/", Asked: ms(0), Answered: ms(7), Error: "connection refused"},
	}}
	var out bytes.Buffer
	require.NoError(t, s.tell(&out, console.Style{}, 6))
	require.Equal(t, `
6  A scene
   What it shows.

   shard    node           asked    answered   got
   demo     n0            0.1 ms     41.0 ms   200 {"a":1}
   demo     n1            0.2 ms      0.5 ms   200 {"a":1}   from the cache
   demo     n2            0.0 ms      0.5 ms   http://169.254.169.254/
                                               refused: the address 169.254.169.254 is a cloud metadata
                                               address; actions can reach public addresses only
   demo     n3            0.0 ms      7.0 ms   http://h/
                                               failed: connection refused

   endpoint              called once for 4 requests
   verdict               as expected
`, out.String())
}

// The demo must notice when the cache does not do what it promises, and when
// something is fetched that must not be.
func TestDemoChecksItsActions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, err := newStage(ctx, zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()

	cold, err := s.sceneCached(ctx)
	require.NoError(t, err)
	require.Contains(t, cold.Wrong, "the endpoint was called once, not not called")
	require.Contains(t, cold.Wrong, "node-0-0 was not served from the cache")
	warm, err := s.sceneShared(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"the endpoint was not called, not called once"}, warm.Wrong)
	open, err := s.refused(ctx, s.origin.url()+"/other")
	require.NoError(t, err)
	require.Equal(t, []string{s.origin.url() + "/other was not refused", "the endpoint was called once"}, open.Wrong)

	warm.Wrong = nil
	warm.Actions[2].Body = "another"
	warm.Actions[3].Error = "connection refused"
	*warm.Calls = 2
	warm.expectSamePage(1)
	require.Equal(t, []string{"node-0-2 got another answer than node-0-0", "node-0-3 got 200 connection refused", "the endpoint was called 2 times, not called once"}, warm.Wrong)
}

// The demo must notice when the gateway's answer is not the one it promises.
func TestDemoChecksItself(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, err := newStage(ctx, zap.NewNop())
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()

	for shard := range demoShards {
		for node := range demoNodes {
			s.cast(shard, node, dissenting) // all agree, on something else
		}
	}
	st, signed, err := s.sceneHonest(ctx)
	require.NoError(t, err)
	require.Len(t, st.Wrong, 1)
	require.Contains(t, st.Wrong[0], "the answer is not that of the honest nodes")

	s.everybodyHonest()
	s.note(s.don.Node(0, 0), signed.ID, func(a *act) { a.times = 2 })
	require.Equal(t, 2, s.asked(s.don.Node(0, 0)))
	st = &story{}
	fresh, err := s.sign(demoInput)
	require.NoError(t, err)
	s.note(s.don.Node(1, 1), fresh.ID, func(a *act) { a.times = 1 })
	require.NoError(t, s.play(ctx, st, fresh, nil))
	require.Equal(t, []string{"node-1-1 was asked 2 times"}, st.Wrong)

	s.don.Node(0, 0).Set(simdon.Behaviour{Kind: simdon.Frozen})
	replayed, err := s.sceneReplay(ctx, fresh)
	require.NoError(t, err)
	require.Empty(t, replayed.Wrong)
	unused, err := s.sign(demoInput)
	require.NoError(t, err)
	replayed, err = s.sceneReplay(ctx, unused)
	require.NoError(t, err)
	require.Equal(t, []string{"it was answered with 200 result"}, replayed.Wrong)
}

func TestDemoCanBeStopped(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(stopSignal{})
	err := demo(ctx, &world{stdout: &bytes.Buffer{}}, false, false)
	require.ErrorAs(t, err, new(stopSignal))
}
