package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"dongate/auth"
	"dongate/client"
	"dongate/internal/console"
	"dongate/internal/simdon"
	"dongate/workflow"
)

// demoInput is what the client asks for.
const demoInput = `{"amount":"1000"}`

// scenes are played in this order on one stage.
func (s *stage) scenes() []func(context.Context) (*story, error) {
	var first *client.Signed
	return []func(context.Context) (*story, error){
		func(ctx context.Context) (st *story, err error) { st, first, err = s.sceneHonest(ctx); return st, err },
		s.sceneFaulty,
		func(ctx context.Context) (*story, error) { return s.sceneReplay(ctx, first) },
		s.sceneForged,
		s.sceneSplit,
		s.sceneShared,
		s.sceneCached,
		s.sceneRefused,
	}
}

func (s *stage) sceneHonest(ctx context.Context) (*story, *client.Signed, error) {
	st := &story{Title: "All nodes are honest", About: []string{
		"The client signs a request and sends it. The gateway hands it to every node of both",
		fmt.Sprintf("shards; the first shard in which %d nodes say the same answers the client.", demoQuorum),
	}}
	signed, err := s.sign(demoInput)
	if err != nil {
		return nil, nil, err
	}
	if err := s.play(ctx, st, signed, nil); err != nil {
		return nil, nil, err
	}
	st.expectResult(s, signed.ID)
	return st, signed, nil
}

func (s *stage) sceneFaulty(ctx context.Context) (*story, error) {
	st := &story{Title: "One node lies, one is frozen", About: []string{
		"A node of the first shard answers with something else, one of the second has stopped",
		"reading its socket. Each shard can have one such node, and neither costs the client anything.",
	}}
	liar, frozen := s.don.Node(0, 1), s.don.Node(1, 2)
	s.cast(0, 1, lying)
	frozen.Set(simdon.Behaviour{Kind: simdon.Frozen})
	defer s.everybodyHonest()
	signed, err := s.sign(demoInput)
	if err != nil {
		return nil, err
	}
	if err := s.play(ctx, st, signed, map[*simdon.Node]string{liar: "lies", frozen: "frozen"}); err != nil {
		return nil, err
	}
	st.expectResult(s, signed.ID)
	st.expect(len(st.Quorums) == demoShards, "%d shards had a quorum, not %d", len(st.Quorums), demoShards)
	return st, nil
}

func (s *stage) sceneReplay(ctx context.Context, first *client.Signed) (*story, error) {
	st := &story{Title: "The first request is sent again, byte for byte", About: []string{
		"Whoever has seen a request could repeat it. A token is good for one dispatch, so no node",
		"hears of the copy.",
	}}
	a, err := s.send(ctx, first)
	if err != nil {
		return nil, err
	}
	st.Answers = append(st.Answers, a)
	st.expect(a.Status == 401 && a.Reason == "token_replayed", "it was answered with %d %s", a.Status, a.Reason)
	return st, nil
}

func (s *stage) sceneForged(ctx context.Context) (*story, error) {
	st := &story{Title: "Forged requests", About: []string{
		"A good token with another amount in the body, and a request that a stranger has signed.",
		"No node hears of either.",
	}}
	signed, err := s.sign(demoInput)
	if err != nil {
		return nil, err
	}
	other, err := client.BuildRequest(client.Request{ID: signed.ID, Workflow: s.reference(), Input: []byte(strings.Replace(demoInput, "1000", "9000", 1))})
	if err != nil {
		return nil, err
	}
	altered := *signed
	altered.Prepared = *other
	strange, err := client.Sign(&signed.Prepared, auth.NewKeySigner(s.strangerKey), auth.TokenOptions{})
	if err != nil {
		return nil, err
	}
	for _, forged := range []struct {
		what string
		*client.Signed
	}{{"altered", &altered}, {"stranger", strange}} {
		a, err := s.send(ctx, forged.Signed)
		if err != nil {
			return nil, err
		}
		a.What = forged.what
		st.Answers = append(st.Answers, a)
		st.expect(a.Status == 401 && a.Reason == "unauthorized", "%s: it was answered with %d %s", a.What, a.Status, a.Reason)
	}
	return st, nil
}

func (s *stage) sceneSplit(ctx context.Context) (*story, error) {
	grace := time.Second // noQuorumGraceMs by default
	st := &story{Title: "A split vote", About: []string{
		"In each shard two nodes say one thing and two another, so no quorum is possible any more.",
		"The gateway gives them one second to change their minds and then says so, long before",
		"the deadline of a minute.",
	}}
	dissenters := map[*simdon.Node]string{}
	for shard := range demoShards {
		for _, node := range []int{1, 3} {
			s.cast(shard, node, dissenting)
			dissenters[s.don.Node(shard, node)] = "dissents"
		}
	}
	defer s.everybodyHonest()
	signed, err := s.sign(demoInput)
	if err != nil {
		return nil, err
	}
	if err := s.play(ctx, st, signed, dissenters); err != nil {
		return nil, err
	}
	a := st.Answers[0]
	st.expect(a.Status == 502 && a.Reason == "no_quorum", "it was answered with %d %s", a.Status, a.Reason)
	st.expect(strings.Contains(a.Text, "2 + 2"), "the answer does not tell of groups 2 + 2: %s", a.Text)
	st.expect(len(st.Quorums) == 0, "a shard had a quorum")
	last := st.byAnswer()[len(st.Nodes)-1].Answered
	st.expect(a.At >= last+console.Elapsed(grace), "the answer came at %v, before the grace had passed", a.At)
	return st, nil
}

// expectResult holds that the honest nodes' result was the answer, resting on a
// quorum that stood by then.
func (s *story) expectResult(stage *stage, requestID string) {
	a := s.Answers[0]
	id := stage.workflow.Selector.WorkflowID
	s.expect(a.Status == 200 && a.Reason == "result", "it was answered with %d %s", a.Status, a.Reason)
	s.expect(strings.Contains(a.Text, workflow.ExecutionID(id, requestID)[:8]), "the answer is not that of the honest nodes: %s", a.Text)
	s.expect(len(s.Quorums) > 0 && s.Quorums[0].At <= a.At, "the answer came before a quorum stood")
}

// reference is how the client names the workflow.
func (s *stage) reference() workflow.Reference {
	return workflow.Reference{Owner: s.workflow.Selector.WorkflowOwner, Name: demoName, Tag: demoTag}
}

func (s *stage) sign(input string) (*client.Signed, error) {
	return s.client.Sign(client.Request{Workflow: s.reference(), Input: []byte(input)})
}

// send sends a request and tells what came back. The error is the demo's own.
func (s *stage) send(ctx context.Context, signed *client.Signed) (answerStory, error) {
	start := time.Now()
	resp, err := s.client.Send(ctx, signed)
	a := answerStory{At: console.Elapsed(time.Since(start))}
	var refused *client.Error
	switch {
	case err == nil:
		e, err := resp.Execution()
		a.Status, a.Reason, a.Text = 200, "result", fmt.Sprintf("%s %.8s", e.Status, e.ExecutionID)
		return a, err
	case errors.As(err, &refused):
		a.Status, a.Reason, a.Text = refused.HTTPStatus, refused.Reason, refused.Message
		var groups []string
		for _, sh := range refused.Shards {
			groups = append(groups, strings.Trim(strings.ReplaceAll(fmt.Sprint(sh.Groups), " ", " + "), "[]"))
		}
		if len(groups) > 0 {
			a.Text = "equal answers per shard: " + strings.Join(groups, ", ")
		}
		return a, nil
	}
	return a, err
}

// play sends a request that nodes will see, waits until all that can answer have,
// and tells their parts.
func (s *stage) play(ctx context.Context, st *story, signed *client.Signed, roles map[*simdon.Node]string) error {
	start := time.Now()
	answer, err := s.send(ctx, signed)
	if err != nil {
		return err
	}
	st.Answers = append(st.Answers, answer)
	since := func(t time.Time) console.Elapsed {
		if t.IsZero() {
			return console.Never
		}
		return console.Elapsed(t.Sub(start))
	}
	for _, n := range s.don.Nodes() {
		frozen := n.Behaviour().Kind == simdon.Frozen
		all := s.await(ctx, func() bool { return frozen || !s.act(n, signed.ID).answered.IsZero() })
		a := s.act(n, signed.ID)
		st.expect(all, "%s did not answer", n.Name())
		st.expect(frozen || a.times == 1, "%s was asked %d times", n.Name(), a.times)
		st.Nodes = append(st.Nodes, &nodeStory{
			Shard: n.ShardID(), Node: n.Name(), Role: roles[n], Asked: since(a.asked), Answered: since(a.answered), Said: a.said, vote: a.vote,
		})
	}
	st.countQuorums(demoQuorum)
	return context.Cause(ctx)
}
