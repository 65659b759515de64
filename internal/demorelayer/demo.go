package demorelayer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"dongate/internal/console"
	"dongate/internal/simchain"
)

// ErrUnexpected is returned when the demo ran to its end and something was not as it promises. The output says what.
var ErrUnexpected = errors.New("the demo was not as expected")

// ChainOptions are those of the chain that the demo is made for: a block whenever something waits, ten times a second, and nodes
// that answer.
var ChainOptions = simchain.Options{Interval: 100 * time.Millisecond, Accounts: 1, KMS: &simchain.KMSOptions{}}

// Options say what the demo needs. All are required but Style.
type Options struct {
	// Chain is a fresh chain with [ChainOptions], for the demo alone.
	Chain *simchain.Control
	// Gateway is the path of the gateway program.
	Gateway string
	Out     io.Writer
	Style   console.Style
}

// patience is how long the demo waits for what should take milliseconds.
const patience = 30 * time.Second

// demo is one run; one goroutine uses it.
type demo struct {
	Options
	net     simchain.Config
	gateway *server
	scenes  int
	bad     int       // scenes that were not as expected
	posted  []*posted // in the order of the first post
}

// posted is one content that was posted.
type posted struct {
	what    string
	request simchain.Request
	times   int // how often it was posted
	want    int // how often the chain must have it
}

// Run plays the demo. It starts the gateway in a temporary folder and ends it in every case.
func Run(ctx context.Context, o Options) (err error) {
	start := time.Now()
	d := &demo{Options: o, net: o.Chain.Config()}
	s, err := newServer(o.Gateway, d.net)
	if err != nil {
		return err
	}
	d.gateway = s
	defer func() {
		if err != nil && !errors.Is(err, ErrUnexpected) && ctx.Err() == nil {
			err = fmt.Errorf("%w\nthe gateway said at last:\n%s", err, s.lastWords())
		}
		s.close()
	}()
	if err := s.start(ctx); err != nil {
		return err
	}
	d.head()
	if err := d.play(ctx); err != nil {
		return err
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	return d.end(ctx, time.Since(start))
}

func (d *demo) head() {
	fmt.Fprintf(d.Out, "%s\n\n", d.Style.Bold("dongate demo: the relayer"))
	row := func(name, text string) { fmt.Fprintf(d.Out, "   %-9s %s\n", name, text) }
	row("clients", "http://"+d.gateway.address)
	row("gateway", fmt.Sprintf("process %d, its requests in a SQLite file", d.gateway.pid()))
	row("chain", fmt.Sprintf("%s, id %d, in the demo's own process; a block every %v when something waits", d.net.HTTP, d.net.ChainID, ChainOptions.Interval))
	row("contracts", fmt.Sprintf("decryption %s, input verification %s", short(d.net.Decryption.Hex()), short(d.net.InputVerification.Hex())))
	row("signer", d.net.Accounts[0].Address.Hex())
	row("KMS", fmt.Sprintf("%d nodes; %d shares complete a user decryption", d.net.Nodes, d.net.Threshold))
}

// scene is one scene while it is played.
type scene struct {
	*demo
	start time.Time
	wrong []string
}

// scene plays one scene and tells how it ended.
func (d *demo) scene(title string, about []string, play func(s *scene) error) error {
	d.scenes++
	fmt.Fprint(d.Out, d.Style.Heading(d.scenes, title, about))
	s := &scene{demo: d, start: time.Now()}
	if err := play(s); err != nil {
		return fmt.Errorf("scene %d: %w", d.scenes, err)
	}
	fmt.Fprint(d.Out, d.Style.Verdict(s.wrong))
	if len(s.wrong) > 0 {
		d.bad++
	}
	return nil
}

// word is how a line begins that tells an answer; the texts after it stand below each other.
func word(paint func(string) string, answer string) string {
	const width = len("202 receipt_received")
	return paint(answer) + strings.Repeat(" ", max(0, width-len(answer))+2)
}

// tell says what happened just now. first is a [word] or nothing.
func (s *scene) tell(name, first, format string, args ...any) {
	s.print(name, console.Elapsed(time.Since(s.start)), first, fmt.Sprintf(format, args...))
}

// add says more about it.
func (s *scene) add(name, format string, args ...any) {
	s.print(name, console.Blank, "", fmt.Sprintf(format, args...))
}

func (s *scene) print(name string, at console.Elapsed, first, text string) {
	text = strings.Join(console.Wrap(console.Shorten(text), 80), "\n"+strings.Repeat(" ", console.Indent))
	fmt.Fprint(s.Out, console.Line(name, at, first+text))
}

// expect notes a difference from what the demo promises.
func (s *scene) expect(ok bool, format string, args ...any) {
	if !ok {
		s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
	}
}

// end tells what the chain holds.
func (d *demo) end(ctx context.Context, took time.Duration) error {
	verdict, err := d.Chain.Judge(ctx)
	if err != nil {
		return fmt.Errorf("ask the chain: %w", err)
	}
	rows, sum, wrong := tally(d.posted, verdict)
	fmt.Fprintf(d.Out, "\n%s\n\n", d.Style.Bold("What the chain holds"))
	t := console.NewTable(d.Out)
	for _, cells := range rows {
		t.Row(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	took = took.Round(10 * time.Millisecond)
	if d.bad > 0 || len(wrong) > 0 {
		text := d.Style.Red(fmt.Sprintf("%d of %d scenes not as expected", d.bad, d.scenes))
		fmt.Fprintf(d.Out, "\n%s after %v; %s. %s\n", text, took, sum, strings.Join(wrong, "; "))
		return ErrUnexpected
	}
	_, err = fmt.Fprintf(d.Out, "\n%s in %v; %s.\n", d.Style.Green(fmt.Sprintf("All %d scenes as expected", d.scenes)), took, sum)
	return err
}

// tally compares what was posted with what the chain has accepted. The first row is the heading.
func tally(list []*posted, v simchain.Verdict) (rows [][]string, sum string, wrong []string) {
	rows = append(rows, []string{"   request", "posted", "on the chain"})
	posts, known := 0, 0
	for _, p := range list {
		times := v.Times(p.request.Content)
		posts, known = posts+p.times, known+times
		rows = append(rows, []string{"   " + p.what, often(p.times), often(times)})
		if times != p.want {
			wrong = append(wrong, fmt.Sprintf("%s is on the chain %s, not %s", p.what, often(times), often(p.want)))
		}
	}
	if n := len(v.Accepted) - known; n != 0 {
		wrong = append(wrong, fmt.Sprintf("the chain has %s that nobody posted", console.Count(n, "request")))
	}
	each := ", each once"
	if len(v.Twice()) > 0 {
		each = ", not each once"
	}
	return rows, fmt.Sprintf("%s, %s on the chain%s", console.Count(posts, "post"), console.Count(len(v.Accepted), "request"), each), wrong
}

// often is how many times something happened, in words.
func often(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// short is the beginning of a hexadecimal text.
func short(hex string) string { return hex[:min(len(hex), 10)] + ".." }
