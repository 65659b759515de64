package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"dongate/internal/console"
)

// story is what happened in one scene of the demo; times count from the moment
// at which the client sent its request.
type story struct {
	Title string   `json:"title"`
	About []string `json:"about"`
	// Nodes is one entry per simulated node, in the order of the configuration;
	// none where no node may hear of the request.
	Nodes []*nodeStory `json:"nodes,omitzero"`
	// Quorums are the shards that agreed, earliest first, as the demo counts them.
	Quorums []quorumStory `json:"quorums,omitzero"`
	// Actions are the HTTP requests that nodes have had made; Calls is how many of
	// them reached the endpoint, as it counted.
	Actions []*actionStory `json:"actions,omitzero"`
	Calls   *int64         `json:"upstreamCalls,omitzero"`
	// Answers are what the client got, one per request it sent.
	Answers []answerStory `json:"answers"`
	// Wrong says what was not as expected; empty when all was.
	Wrong []string `json:"wrong"`
}

// nodeStory is one node's part.
type nodeStory struct {
	Shard    string          `json:"shard"`
	Node     string          `json:"node"`
	Role     string          `json:"role,omitzero"` // "" for an honest node
	Asked    console.Elapsed `json:"askedMs"`
	Answered console.Elapsed `json:"answeredMs"`
	Said     string          `json:"said"`
	vote     string          // all that it said
}

// quorumStory says that a shard agreed, and when.
type quorumStory struct {
	Shard string          `json:"shard"`
	Node  string          `json:"node"` // whose answer completed it
	Nodes int             `json:"nodes"`
	Of    int             `json:"of"`
	At    console.Elapsed `json:"atMs"`
}

// answerStory is what the client got for one request.
type answerStory struct {
	What   string          `json:"what,omitzero"` // what was sent, where a scene has several
	Status int             `json:"status"`
	Reason string          `json:"reason"` // "result", or data.reason of the error
	Text   string          `json:"text"`
	At     console.Elapsed `json:"atMs"`
}

// expect notes a difference from what the demo promises.
func (s *story) expect(ok bool, format string, args ...any) {
	if !ok {
		s.Wrong = append(s.Wrong, fmt.Sprintf(format, args...))
	}
}

// countQuorums finds, for every shard, the first moment at which threshold of its
// nodes had said the same: the demo's own count, independent of the gateway's.
func (s *story) countQuorums(threshold int) {
	type group struct{ shard, vote string }
	votes, size := map[group]int{}, map[string]int{}
	for _, n := range s.Nodes {
		size[n.Shard]++
	}
	for _, n := range s.byAnswer() {
		g := group{n.Shard, n.vote}
		if n.Answered < 0 {
			continue
		}
		if votes[g]++; votes[g] == threshold {
			s.Quorums = append(s.Quorums, quorumStory{Shard: n.Shard, Node: n.Node, Nodes: threshold, Of: size[n.Shard], At: n.Answered})
		}
	}
}

// byAnswer returns the nodes in the order of their answers, the silent ones last.
func (s *story) byAnswer() []*nodeStory {
	nodes := slices.Clone(s.Nodes)
	slices.SortStableFunc(nodes, func(a, b *nodeStory) int {
		if (a.Answered < 0) != (b.Answered < 0) {
			return cmp.Compare(b.Answered, a.Answered)
		}
		return cmp.Compare(a.Answered, b.Answered)
	})
	return nodes
}

// tell writes the scene as people read it.
func (s *story) tell(out io.Writer, st console.Style, number int) error {
	var b strings.Builder
	b.WriteString(st.Heading(number, s.Title, s.About))
	if len(s.Nodes) > 0 {
		s.tellNodes(&b, st)
		b.WriteByte('\n')
		s.tellQuorums(&b, st)
	}
	if len(s.Actions) > 0 {
		s.tellActions(&b, st)
	}
	for _, a := range s.Answers {
		paint := st.Green
		if a.Reason != "result" {
			paint = st.Yellow
		}
		text := strings.Join(console.Wrap(console.Shorten(a.Text), 75), "\n"+strings.Repeat(" ", console.Indent))
		b.WriteString(console.Line(cmp.Or(a.What, "answer"), a.At, paint(fmt.Sprintf("%d %s", a.Status, a.Reason))+"  "+text))
	}
	b.WriteString(st.Verdict(s.Wrong))
	_, err := io.WriteString(out, b.String())
	return err
}

func (s *story) tellQuorums(b *strings.Builder, st console.Style) {
	for i, q := range s.Quorums {
		text := fmt.Sprintf("%s: %d of %d nodes have said the same", q.Shard, q.Nodes, q.Of)
		if i == 0 {
			b.WriteString(console.Line("quorum", q.At, text))
		} else {
			fmt.Fprintf(b, "%s\n", st.Dim(strings.TrimSuffix(console.Line("", q.At, text+", too"), "\n")))
		}
	}
	if len(s.Quorums) == 0 {
		b.WriteString(console.Line("quorum", console.Never, fmt.Sprintf("no %d nodes of a shard have said the same", demoQuorum)))
	}
}

// tellNodes writes one line per node: shard by shard, in the order of answering.
func (s *story) tellNodes(b *strings.Builder, st console.Style) {
	order := map[string]int{}
	for _, n := range s.Nodes {
		if _, ok := order[n.Shard]; !ok {
			order[n.Shard] = len(order)
		}
	}
	nodes := s.byAnswer()
	slices.SortStableFunc(nodes, func(a, b *nodeStory) int { return cmp.Compare(order[a.Shard], order[b.Shard]) })
	line := func(shard, node, asked, answered, said, remark string) string {
		return strings.TrimRight(fmt.Sprintf("   %-8s %-10s %9s   %9s   %-17s   %s", shard, node, asked, answered, said, remark), " ")
	}
	fmt.Fprintf(b, "%s\n", st.Dim(line("shard", "node", "asked", "answered", "said", "")))
	for _, n := range nodes {
		remark := st.Yellow(n.Role)
		switch {
		case n.Role != "" || n.Answered < 0:
		case len(s.Quorums) > 0 && n.Shard == s.Quorums[0].Shard && n.Node == s.Quorums[0].Node:
			remark = st.Green("makes the quorum")
		case n.Answered > s.Answers[0].At:
			remark = st.Dim("not waited for")
		}
		fmt.Fprintf(b, "%s\n", line(n.Shard, n.Node, n.Asked.String(), n.Answered.String(), n.Said, remark))
	}
}

// tellActions writes one line per action, and more for why one came to nothing.
func (s *story) tellActions(b *strings.Builder, st console.Style) {
	const indent = 47
	line := func(shard, node, asked, answered string) string {
		return fmt.Sprintf("   %-8s %-10s %9s   %9s   ", shard, node, asked, answered)
	}
	fmt.Fprintf(b, "%s\n", st.Dim(line("shard", "node", "asked", "answered")+"got"))
	for _, a := range s.Actions {
		got := fmt.Sprintf("%d %s", a.Status, a.Body)
		switch {
		case a.Error != "":
			what := "failed:"
			if a.Refused {
				what = "refused:"
			}
			got = a.URL + "\n" + strings.Repeat(" ", indent) +
				strings.Join(console.Wrap(st.Yellow(what)+" "+a.Error, 60), "\n"+strings.Repeat(" ", indent))
		case a.Cached:
			got += "   " + st.Dim("from the cache")
		}
		fmt.Fprintf(b, "%s%s\n", line(a.Shard, a.Node, a.Asked.String(), a.Answered.String()), got)
	}
	b.WriteString("\n" + console.Line("endpoint", console.Blank, called(*s.Calls)+" for "+console.Count(len(s.Actions), "request")))
}
