package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"dongate/config"
	"dongate/internal/console"
	"dongate/internal/simdon"
	"dongate/workflow"
)

// propsDir is a folder with what the commands to try need. Only its owner can
// read it.
type propsDir struct {
	path string
	log  *os.File
}

func newProps() (*propsDir, error) {
	path, err := os.MkdirTemp("", "dongate-demo-") // mode 0700
	if err != nil {
		return nil, fmt.Errorf("a folder for the keys: %w", err)
	}
	return &propsDir{path: path}, nil
}

func (p *propsDir) remove() {
	if p.log != nil {
		_ = p.log.Close()
	}
	_ = os.RemoveAll(p.path)
}

// logger writes the gateway's log into the folder.
func (p *propsDir) logger() (log *zap.Logger, err error) {
	if p.log, err = os.OpenFile(p.file("gateway.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	return newLogger(config.Log{Level: "info", Format: "console"}, p.log)
}

func (p *propsDir) file(name string) string { return filepath.Join(p.path, name) }

// tryCommand is a command to try by hand.
type tryCommand struct {
	About   string `json:"about"`
	Command string `json:"command"`
}

// commands writes the files and returns the commands that use them. The last node
// of the second shard is freed for whoever wants to be it.
func (p *propsDir) commands(s *stage) ([]tryCommand, error) {
	free := s.don.Node(demoShards-1, demoNodes-1)
	free.Set(simdon.Behaviour{Kind: simdon.Absent})
	freeKey := simdon.Key(s.seed, fmt.Sprintf("%s/%d/%d", demoDON, demoShards-1, demoNodes-1))
	if simdon.Address(freeKey) != free.Address() {
		return nil, errors.New("this is not the free node's key")
	}
	workflows, err := json.Marshal([]workflow.Metadata{s.workflow}, jsontext.WithIndent("  "))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"client.hex":     []byte(hex.EncodeToString(crypto.FromECDSA(s.clientKey)) + "\n"),
		"node.hex":       []byte(hex.EncodeToString(crypto.FromECDSA(freeKey)) + "\n"),
		"workflows.json": append(workflows, '\n'),
		"gateway.json":   append(s.configFile, '\n'),
	}
	for name, data := range files {
		if err := os.WriteFile(p.file(name), data, 0o600); err != nil {
			return nil, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		self = "gateway"
	}
	command := func(words ...string) string {
		for i := range words {
			words[i] = shellQuote(words[i])
		}
		return strings.Join(words, " ")
	}
	selector := []string{"--owner", s.workflow.Selector.WorkflowOwner, "--name", demoName, "--tag", demoTag,
		"--input", demoInput, "--key-file", p.file("client.hex"), "--url", s.url()}
	token := command(append([]string{self, "token"}, selector...)...)
	return []tryCommand{
		{"trigger the workflow", command(append([]string{self, "trigger"}, selector...)...)},
		{"only sign, and see what would be sent", token},
		{"sign, and send it with curl", token + " | tail -n 1 | sh; echo"},
		{"be the free node of the second shard, and lie", command(self, "node", "--gateway", s.nodeURL(), "--gateway-id", demoGatewayID,
			"--don", free.ShardID(), "--key-file", p.file("node.hex"), "--workflows", p.file("workflows.json"), "--behaviour", "conflict")},
		{"or be it and need the web page, now and whenever the workflow runs", command(self, "node", "--gateway", s.nodeURL(), "--gateway-id", demoGatewayID,
			"--don", free.ShardID(), "--key-file", p.file("node.hex"), "--workflows", p.file("workflows.json"),
			"--action-url", s.origin.url(), "--action-max-age", "1m", "--action-store", "--action-now")},
		{"is it ready?", command("curl", "-sS", s.adminURL()+"readyz")},
		{"what it has counted", command("curl", "-sS", s.adminURL()+"metrics")},
		{"the gateway's log", command("tail", "-f", p.file("gateway.log"))},
		{"check its configuration", command(self, "check", "--config", p.file("gateway.json"))},
	}, nil
}

// tellTry shows the commands.
func tellTry(w *world, st console.Style, list []tryCommand) {
	fmt.Fprintf(w.stdout, "\n%s\n", st.Bold("Now try it by hand, in another terminal"))
	for _, t := range list {
		fmt.Fprintf(w.stdout, "\n   %s\n   %s\n", st.Dim("# "+t.About), t.Command)
	}
	fmt.Fprintf(w.stdout, "\nEverything stays up until Ctrl-C. What the simulated nodes say:\n\n")
}

// keep shows what nodes say until ctx ends or the terminal is gone.
func (s *stage) keep(ctx context.Context, w *world, st console.Style, quiet bool) {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP) // so that the files are removed
	defer stop()
	if !quiet {
		s.mu.Lock()
		s.onTold = func(n *simdon.Node, a act) {
			if !a.answered.IsZero() {
				fmt.Fprintf(w.stdout, "   %-8s %-10s %9s   %-17s %s\n", n.ShardID(), n.Name(), console.Elapsed(a.answered.Sub(a.asked)), a.said, st.Dim(a.requestID))
			}
		}
		s.mu.Unlock()
	}
	<-ctx.Done()
}
