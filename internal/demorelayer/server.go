package demorelayer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"dongate/internal/simchain"
)

// server is the gateway: a process that can be killed and started again, with a configuration and a database that stay.
type server struct {
	program string
	folder  string
	key     string // of the signer
	client  *http.Client
	address string // of the client listener, since the last start

	cmd   *exec.Cmd // nil while it does not run
	ended chan struct{}
}

// newServer writes the configuration and starts nothing.
func newServer(program string, net simchain.Config) (*server, error) {
	folder, err := os.MkdirTemp("", "dongate-demo-relayer-")
	if err != nil {
		return nil, fmt.Errorf("a folder for the gateway: %w", err)
	}
	s := &server{program: program, folder: folder, key: net.Accounts[0].Key,
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}}
	text, err := json.Marshal(configuration(net, s.file("relayer.db")), jsontext.WithIndent("  "))
	if err == nil {
		err = os.WriteFile(s.config(), text, 0o600)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("the gateway's configuration: %w", err)
	}
	return s, nil
}

// signerVariable is where the gateway finds the signer's key.
const signerVariable = "RELAYER_KEY"

// configuration is that of a gateway whose relayer uses the chain, at free ports.
func configuration(net simchain.Config, database string) any {
	type object = map[string]any
	c := net.Gateway(database, object{"keyEnv": signerVariable})
	for _, listener := range []string{"userServerConfig", "nodeServerConfig", "admin"} {
		c[listener].(object)["port"] = 0
	}
	// One transaction each, however slow this machine is.
	c["relayer"].(object)["chain"].(object)["bumpAfter"] = "5m"
	return c
}

func (s *server) file(name string) string { return filepath.Join(s.folder, name) }
func (s *server) config() string          { return s.file("gateway.json") }
func (s *server) log() string             { return s.file("gateway.log") }
func (s *server) pid() int                { return s.cmd.Process.Pid }

// command is the gateway with arguments. Of our own environment it gets what it cannot do without: everything else could change its
// configuration.
func (s *server) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.program)
	cmd.Args = append([]string{"gateway"}, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.Getenv("TMPDIR"), signerVariable + "=" + s.key}
	return cmd
}

// start starts the process and waits until it listens. A new log begins.
func (s *server) start(ctx context.Context) error {
	log, err := os.Create(s.log())
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	cmd := s.command("serve", "--config", s.config(), "--ready-without-nodes")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the gateway: %w", err)
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	go func() { _ = cmd.Wait(); close(s.ended) }()
	err = eventually(ctx, "the gateway to listen", func() (bool, error) {
		select {
		case <-s.ended:
			return false, errors.New("the gateway has ended")
		default:
		}
		s.address, err = s.listening()
		return s.address != "", err
	})
	return err
}

// listening finds in the log where clients connect; "" while it does not say so yet.
func (s *server) listening() (string, error) {
	text, err := os.ReadFile(s.log())
	for line := range bytes.Lines(text) {
		var entry struct {
			Msg  string `json:"msg"`
			User string `json:"user"`
		}
		if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, &entry) == nil && entry.Msg == "listening" {
			return entry.User, nil
		}
	}
	return "", err
}

// kill ends the process as a crash would.
func (s *server) kill() error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the gateway: %w", err)
	}
	<-s.ended
	s.cmd = nil
	return nil
}

// stop lets the process end by itself.
func (s *server) stop(ctx context.Context) error {
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop the gateway: %w", err)
	}
	select {
	case <-s.ended:
	case <-time.After(patience):
		return errors.New("the gateway does not stop")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	state := s.cmd.ProcessState
	s.cmd = nil
	if !state.Success() {
		return fmt.Errorf("the gateway ended with %v", state)
	}
	return nil
}

// close leaves nothing behind.
func (s *server) close() {
	_ = s.kill()
	s.client.CloseIdleConnections()
	_ = os.RemoveAll(s.folder)
}

// lastWords is the end of the gateway's log.
func (s *server) lastWords() string {
	const lines = 10
	text, _ := os.ReadFile(s.log())
	all := strings.SplitAfter(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}

// maxReply bounds an answer; the longest one has a share of every node.
const maxReply = 4 << 20

// reply is an answer of the HTTP API.
type reply struct {
	code   int
	Status string `json:"status"`
	State  string `json:"state"`
	// Result is what the request asked for, or the job's id in the answer to a POST.
	Result jsontext.Value `json:"result"`
	Error  struct {
		Label   string `json:"label"`
		Message string `json:"message"`
	} `json:"error"`
}

// line is the answer's status and word.
func (r *reply) line() string { return fmt.Sprintf("%d %s", r.code, r.word()) }

// word is what the answer says, in a word.
func (r *reply) word() string {
	switch {
	case r.Error.Label != "":
		return r.Error.Label
	case r.State != "":
		return r.State
	}
	return r.Status
}

func (s *server) do(ctx context.Context, method, path string, body []byte) (*reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, err
	}
	r := &reply{code: resp.StatusCode}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s %s: %d %.200q: %w", method, path, resp.StatusCode, text, err)
	}
	return r, nil
}

// details are what `gateway relayer show` says about a job.
type details struct {
	Reference   string `json:"reference"` // 0x and 64 digits; "" before the receipt
	Transaction string `json:"transaction"`
	Attempts    []struct {
		Nonce  int64  `json:"nonce"`
		Hash   string `json:"hash"`
		Result string `json:"result"`
		Block  int64  `json:"block"`
	} `json:"attempts"`
	Shares []struct {
		Index int64 `json:"index"`
	} `json:"shares"`
}

// show asks the gateway program about a job, as an operator would.
func (s *server) show(job string) (*details, error) {
	cmd := s.command("relayer", "show", "--config", s.config(), "--json", job)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("gateway relayer show: %w: %s", err, said.String())
	}
	d := &details{}
	if err := json.Unmarshal(out.Bytes(), d); err != nil {
		return nil, fmt.Errorf("gateway relayer show: %w", err)
	}
	return d, nil
}

// eventually asks until something is so.
func eventually(ctx context.Context, what string, so func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("waited %v for %s", patience, what))
	defer cancel()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := so(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
