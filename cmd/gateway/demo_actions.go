package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"dongate/connector"
	"dongate/internal/console"
	"dongate/internal/simdon"
)

// demoCache is what the demo's nodes ask of the gateway's cache.
var demoCache = connector.ActionCache{MaxAge: time.Minute, Store: true}

// actionStory is one HTTP request that a node has had made, or not.
type actionStory struct {
	Shard    string          `json:"shard"`
	Node     string          `json:"node"`
	URL      string          `json:"url"`
	Asked    console.Elapsed `json:"askedMs"`
	Answered console.Elapsed `json:"answeredMs"`
	Status   int             `json:"status,omitzero"`
	Body     string          `json:"body,omitzero"`
	Cached   bool            `json:"cached"`
	Refused  bool            `json:"refused"` // nothing was sent
	Error    string          `json:"error,omitzero"`
}

func (s *stage) sceneShared(ctx context.Context) (*story, error) {
	st := &story{Title: "Four nodes need the same page", About: []string{
		"A step of the workflow needs a price from the web. The nodes of the first shard ask the",
		"gateway for it at the same time. It calls the endpoint once, whose every answer is another",
		"one, and gives all four the same.",
	}}
	s.fetchAll(ctx, st)
	st.expectSamePage(1)
	return st, context.Cause(ctx)
}

func (s *stage) sceneCached(ctx context.Context) (*story, error) {
	st := &story{Title: "The next round", About: []string{
		"The same nodes need the price again and accept one that is less than a minute old.",
		"All four get the stored answer, and the endpoint hears nothing.",
	}}
	s.fetchAll(ctx, st)
	st.expectSamePage(0)
	for _, a := range st.Actions {
		st.expect(a.Cached, "%s was not served from the cache", a.Node)
	}
	return st, context.Cause(ctx)
}

func (s *stage) sceneRefused(ctx context.Context) (*story, error) {
	// The number is 127.0.0.1, which this gateway's configuration allows as the
	// demo's endpoint: it is refused for how it is written.
	return s.refused(ctx, "http://169.254.169.254/latest/meta-data/", "http://2130706433/")
}

func (s *stage) refused(ctx context.Context, urls ...string) (*story, error) {
	st := &story{Title: "A workflow asks for what is ours", About: []string{
		"The address at which clouds tell a machine its keys, and one that is written to hide what",
		"it is. The nodes are told why nothing is sent.",
	}}
	before := s.origin.calls.Load()
	for i, url := range urls {
		st.Actions = append(st.Actions, s.fetch(ctx, s.don.Node(0, i), url, time.Now()))
	}
	for _, a := range st.Actions {
		st.expect(a.Refused && a.Error != "", "%s was not refused", a.URL)
	}
	st.countCalls(s.origin, before)
	st.expect(*st.Calls == 0, "the endpoint was %s", called(*st.Calls))
	return st, context.Cause(ctx)
}

// fetchAll has every node of the first shard ask for the demo's page at once.
func (s *stage) fetchAll(ctx context.Context, st *story) {
	nodes := s.don.Shard(0)
	st.Actions = make([]*actionStory, len(nodes))
	before, start := s.origin.calls.Load(), time.Now()
	var asking sync.WaitGroup
	for i, n := range nodes {
		asking.Go(func() { st.Actions[i] = s.fetch(ctx, n, s.origin.url(), start) })
	}
	asking.Wait()
	st.countCalls(s.origin, before)
}

// fetch has the gateway make one request for a node.
func (s *stage) fetch(ctx context.Context, n *simdon.Node, url string, start time.Time) *actionStory {
	a := &actionStory{Shard: n.ShardID(), Node: n.Name(), URL: url, Asked: console.Elapsed(time.Since(start))}
	r, err := n.Act(ctx, connector.ActionRequest{URL: url, Timeout: demoPatience, Cache: demoCache})
	a.Answered = console.Elapsed(time.Since(start))
	var failed *connector.ActionError
	switch {
	case err == nil:
		a.Status, a.Body, a.Cached = r.StatusCode, string(r.Body), r.Latency == 0
	case errors.As(err, &failed):
		a.Refused, a.Error = failed.Validation, failed.Message
	default:
		a.Error = err.Error()
	}
	return a
}

// countCalls notes how often the endpoint was called, as it has counted itself.
func (s *story) countCalls(o *origin, before int64) {
	calls := o.calls.Load() - before
	s.Calls = &calls
}

// expectSamePage holds that all nodes got the same page, for this many calls.
func (s *story) expectSamePage(calls int64) {
	for _, a := range s.Actions {
		s.expect(a.Error == "" && a.Status == 200, "%s got %d %s", a.Node, a.Status, a.Error)
		s.expect(a.Body == s.Actions[0].Body, "%s got another answer than %s", a.Node, s.Actions[0].Node)
	}
	s.expect(*s.Calls == calls, "the endpoint was %s, not %s", called(*s.Calls), called(calls))
}

func called(times int64) string {
	switch times {
	case 0:
		return "not called"
	case 1:
		return "called once"
	}
	return fmt.Sprintf("called %d times", times)
}
