package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"dongate/auth"
	"dongate/internal/console"
)

func newDemo(w *world) *cobra.Command {
	var keep, asJSON bool
	cmd := &cobra.Command{
		Use:   "demo [--keep] [--json]",
		Short: "Show the gateway at work, with a simulated DON",
		Long: `Show the gateway at work: start one and a simulated DON of two shards of four
nodes on free local ports, trigger a workflow and tell what happened: who was
asked, who said what and when, when the quorum stood, what the answer was. Then the
same with a lying and a frozen node, a replayed token, forged ones and a split vote.
At the end nodes need a web page: one call for all that ask at once, none in the next
round, and none at all to an address that is not theirs to reach.

It needs no set-up and takes two seconds. It checks itself: the exit code is 1 when
anything was not as expected.

--keep stays up afterwards and prints commands to try by hand; the keys they need
are in files that only you can read, removed at the end.`,
		Example: `  gateway demo
  gateway demo --keep
  gateway demo --json | jq '.scenes[].answers'`,
		RunE: func(cmd *cobra.Command, _ []string) error { return demo(cmd.Context(), w, keep, asJSON) },
	}
	cmd.Flags().BoolVar(&keep, "keep", false, "stay up and print commands to try by hand")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead of a narration")
	return cmd
}

// demoReport is what `demo --json` prints.
type demoReport struct {
	OK        bool            `json:"ok"`
	Took      console.Elapsed `json:"tookMs"`
	User      string          `json:"user"`
	Node      string          `json:"node"`
	Admin     string          `json:"admin"`
	Origin    string          `json:"origin"` // the web page that nodes need
	Workflow  string          `json:"workflow"`
	Signer    string          `json:"signer"`
	Connected console.Elapsed `json:"connectedMs"` // every node
	Callable  console.Elapsed `json:"callableMs"`  // the workflow, on every node's word
	Scenes    []*story        `json:"scenes"`
	Wrong     []string        `json:"wrong"` // besides what the scenes say
	Try       []tryCommand    `json:"try,omitzero"`
}

// demo plays every scene. With keep it then waits for ctx to end.
func demo(ctx context.Context, w *world, keep, asJSON bool) (err error) {
	start := time.Now()
	log := zap.NewNop()
	var props *propsDir
	if keep {
		if props, err = newProps(); err != nil {
			return err
		}
		defer props.remove()
		if log, err = props.logger(); err != nil {
			return err
		}
	}
	s, err := newStage(ctx, log)
	if err != nil {
		return stopped(ctx, err)
	}
	defer func() { err = errors.Join(err, s.close()) }()

	st := console.StyleFor(w.stdout, w.env)
	r := &demoReport{
		User: s.url(), Node: s.nodeURL(), Admin: s.adminURL(), Origin: s.origin.url(), Workflow: s.workflow.Selector.WorkflowID,
		Signer: address(auth.NewKeySigner(s.clientKey)), Connected: s.connected, Callable: s.callable, Wrong: []string{},
	}
	if !asJSON {
		r.tellHead(w, st)
	}
	if err := r.play(ctx, s, func(number int, scene *story) error {
		if asJSON {
			return nil
		}
		return scene.tell(w.stdout, st, number)
	}); err != nil {
		return stopped(ctx, err)
	}
	r.Took = console.Elapsed(time.Since(start))
	if keep {
		if r.Try, err = props.commands(s); err != nil {
			return err
		}
	}
	if asJSON {
		err = w.printJSON(r)
	} else {
		r.tellEnd(w, st)
	}
	if err == nil && keep {
		if !asJSON {
			tellTry(w, st, r.Try)
		}
		s.keep(ctx, w, st, asJSON)
	}
	if err == nil && !r.OK {
		return &exitError{code: exitFailure, err: errors.New("the demo was not as expected"), told: true}
	}
	return err
}

// stopped is why a demo ended early.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// play plays every scene and checks what all of them together must have left.
func (r *demoReport) play(ctx context.Context, s *stage, tell func(int, *story) error) error {
	r.OK = true
	for i, scene := range s.scenes() {
		st, err := scene(ctx)
		if err != nil {
			return fmt.Errorf("scene %d: %w", i+1, err)
		}
		if st.Wrong == nil {
			st.Wrong = []string{}
		}
		r.Scenes = append(r.Scenes, st)
		r.OK = r.OK && len(st.Wrong) == 0
		if err := tell(i+1, st); err != nil {
			return err
		}
	}
	// Every node has seen three requests, each once: the thawed one too by now,
	// and nobody the refused ones.
	for _, n := range s.don.Nodes() {
		var asked int
		s.await(ctx, func() bool { asked = s.asked(n); return asked == 3 })
		if asked != 3 {
			r.OK = false
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s was asked %d times in all, not 3", n.Name(), asked))
		}
	}
	return context.Cause(ctx)
}

func (r *demoReport) tellHead(w *world, st console.Style) {
	fmt.Fprintf(w.stdout, "%s\n\n", st.Bold("dongate demo"))
	row := func(name, text string) { fmt.Fprintf(w.stdout, "   %-9s %s\n", name, text) }
	row("clients", r.User)
	row("nodes", r.Node)
	row("operators", r.Admin)
	row("endpoint", r.Origin+", a web page that nodes will need")
	row("DON", fmt.Sprintf("%s: %d shards of %d nodes; %d of a shard may be faulty, %d equal answers are a quorum", demoDON, demoShards, demoNodes, demoF, demoQuorum))
	row("workflow", fmt.Sprintf("%s %s, id %s..", demoName, demoTag, r.Workflow[:10]))
	row("signer", r.Signer+", which the nodes list as authorised")
	row("ready", fmt.Sprintf("%d nodes connected after %v, the workflow callable after %v", demoShards*demoNodes, r.Connected, r.Callable))
}

func (r *demoReport) tellEnd(w *world, st console.Style) {
	bad := 0
	for _, s := range r.Scenes {
		if len(s.Wrong) > 0 {
			bad++
		}
	}
	took := time.Duration(r.Took).Round(10 * time.Millisecond)
	if r.OK {
		fmt.Fprintf(w.stdout, "\n%s in %v; each node was asked 3 times, once per request that was accepted.\n",
			st.Green(fmt.Sprintf("All %d scenes as expected", len(r.Scenes))), took)
		return
	}
	fmt.Fprintf(w.stdout, "\n%s after %v. %s\n", st.Red(fmt.Sprintf("%d of %d scenes not as expected", bad, len(r.Scenes))), took, strings.Join(r.Wrong, "; "))
}
