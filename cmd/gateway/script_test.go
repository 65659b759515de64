package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"dongate/internal/simchain"
)

func TestMain(m *testing.M) {
	simchain.RunIfChild()
	testscript.Main(leakChecked{m}, map[string]func(){"gateway": main, leakCheckedGateway: leakCheckedMain})
}

// leakCheckedGateway is the name of a gateway that exits with exitLeak when it is done and goroutines are left.
const (
	leakCheckedGateway = "leak-checked-gateway"
	exitLeak           = 99
)

func leakCheckedMain() {
	ctx := untilSignal()
	code := report(os.Stderr, run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	if err := goleak.Find(goleak.IgnoreAnyFunction("dongate/cmd/gateway.untilSignal.func1")); err != nil && code == exitOK {
		fmt.Fprintln(os.Stderr, err)
		code = exitLeak
	}
	os.Exit(code)
}

// leakChecked fails when goroutines outlive the tests.
type leakChecked struct{ *testing.M }

func (m leakChecked) Run() int {
	code := m.M.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// patience ends a script that would hang; none waits for it to pass.
const patience = 30 * time.Second

// TestScript runs the command lines of testdata/script, each script in a folder
// of its own and parallel to the others. Besides testscript's commands there are:
//
//	code N prog args...         run prog, which must exit with N
//	start NAME prog args...     run prog in the background
//	await NAME regexp           wait for a line of its output (both streams)
//	listening NAME              wait for the log entry "listening"; sets $USER, $NODE, $ADMIN
//	capture NAME VAR regexp     wait for a line and set $VAR to its first group
//	get URL STATUS regexp       fetch it; the body must match
//	until URL STATUS regexp     fetch it until it is so
//	signal NAME TERM|INT|HUP    send a signal
//	ended NAME N                wait for its exit, with code N
//	jobs FILE                   put requests of the relayer into a database file
func TestScript(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Values[processKey{}] = map[string]*process{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": scriptCode, "start": scriptStart, "await": scriptAwait, "listening": scriptListening,
			"capture": scriptCapture, "get": scriptGet, "until": scriptUntil, "signal": scriptSignal, "ended": scriptEnded,
			"jobs": scriptJobs,
		},
	})
}

func arguments(ts *testscript.TestScript, neg bool, args []string, n int, usage string) {
	if neg || len(args) < n {
		ts.Fatalf("usage: %s", usage)
	}
}

func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "code N prog args...")
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%s: %v", args[1], err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("%s exited with %d, not %s", args[1], code, args[0])
	}
}

// process is a program in the background and what it has printed so far.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and its output was read
	err  error         // of Wait, once done

	mu    sync.Mutex
	lines []string
	more  chan struct{} // closed and replaced with every line
}

type processKey struct{}

func processes(ts *testscript.TestScript) map[string]*process {
	return ts.Value(processKey{}).(map[string]*process)
}

func processNamed(ts *testscript.TestScript, name string) *process {
	p := processes(ts)[name]
	if p == nil {
		ts.Fatalf("no process %q; there are %v", name, slices.Collect(maps.Keys(processes(ts))))
	}
	return p
}

func scriptStart(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "start NAME prog args...")
	path := args[1]
	for _, dir := range strings.Split(ts.Getenv("PATH"), string(os.PathListSeparator)) {
		if f := dir + "/" + args[1]; !strings.Contains(args[1], "/") {
			if _, err := os.Stat(f); err == nil {
				path = f
				break
			}
		}
	}
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.Getenv("WORK")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "NO_COLOR", "TERM", "DONGATE_PRIVATE_KEY", "DONGATE_URL", "DONGATE_CONFIG", "DONGATE_STORAGE_DSN", "DONGATE_STORAGE_DRIVER", "DONGATE_STORAGE_MIGRATE", "STATE_DIRECTORY", "GOCOVERDIR"} {
		if v := ts.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	ts.Check(cmd.Start())
	p := &process{cmd: cmd, done: make(chan struct{}), more: make(chan struct{})}
	go func() { p.err = cmd.Wait(); _ = w.Close() }()
	go p.read(r)
	processes(ts)[args[0]] = p
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		<-p.done
		p.mu.Lock()
		defer p.mu.Unlock()
		ts.Logf("[%s]\n%s", args[0], strings.Join(p.lines, "\n"))
	})
}

func (p *process) read(r io.Reader) {
	defer close(p.done)
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
}

// await returns the groups of the first line, from the beginning of the output,
// that matches.
func (p *process) await(ts *testscript.TestScript, pattern string) []string {
	re, err := regexp.Compile(pattern)
	ts.Check(err)
	timeout := time.After(patience)
	for seen := 0; ; {
		p.mu.Lock()
		lines, more := p.lines, p.more
		p.mu.Unlock()
		for ; seen < len(lines); seen++ {
			if m := re.FindStringSubmatch(lines[seen]); m != nil {
				return m
			}
		}
		select {
		case <-more:
		case <-p.done:
			p.mu.Lock()
			left := len(p.lines) > seen
			p.mu.Unlock()
			if !left {
				ts.Fatalf("ended without a line that matches %q", pattern)
			}
		case <-timeout:
			ts.Fatalf("no line that matches %q", pattern)
		}
	}
}

func scriptAwait(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "await NAME regexp")
	processNamed(ts, args[0]).await(ts, args[1])
}

func scriptCapture(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "capture NAME VAR regexp")
	m := processNamed(ts, args[0]).await(ts, args[2])
	if len(m) < 2 {
		ts.Fatalf("%q has no group", args[2])
	}
	ts.Setenv(args[1], m[1])
}

func scriptListening(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 1, "listening NAME")
	line := processNamed(ts, args[0]).await(ts, `^.*"msg":"listening".*$`)
	var entry struct {
		User  string `json:"user"`
		Node  string `json:"node"`
		Admin string `json:"admin"`
	}
	ts.Check(json.Unmarshal([]byte(line[0]), &entry))
	for name, value := range map[string]string{"USER": entry.User, "NODE": entry.Node, "ADMIN": entry.Admin} {
		ts.Setenv(name, value)
	}
}

func scriptGet(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "get URL STATUS regexp")
	if ok, got := fetch(ts, args); !ok {
		ts.Fatalf("got %s", got)
	}
}

func scriptUntil(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 3, "until URL STATUS regexp")
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); ; <-tick.C {
		ok, got := fetch(ts, args)
		if ok {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("still %s", got)
		}
	}
}

func fetch(ts *testscript.TestScript, args []string) (ok bool, got string) {
	client := http.Client{Timeout: patience}
	resp, err := client.Get(args[0])
	ts.Check(err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	ok, err = regexp.Match("(?m)"+args[2], body)
	ts.Check(err)
	return ok && strconv.Itoa(resp.StatusCode) == args[1], fmt.Sprintf("status %d, body %s", resp.StatusCode, body)
}

func scriptSignal(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "signal NAME TERM|INT|HUP")
	signals := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP}
	ts.Check(processNamed(ts, args[0]).cmd.Process.Signal(signals[args[1]]))
}

func scriptEnded(ts *testscript.TestScript, neg bool, args []string) {
	arguments(ts, neg, args, 2, "ended NAME N")
	p := processNamed(ts, args[0])
	select {
	case <-p.done:
	case <-time.After(patience):
		ts.Fatalf("still running")
	}
	if code := p.cmd.ProcessState.ExitCode(); strconv.Itoa(code) != args[1] {
		ts.Fatalf("%s exited with %d (%v), not %s", args[0], code, p.err, args[1])
	}
}
