package simchain

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// childVariable makes a program that calls [RunIfChild] a chain.
const childVariable = "DONGATE_SIMCHAIN"

const (
	startTimeout = 60 * time.Second // a loaded machine under the race detector
	stopTimeout  = 20 * time.Second
)

// Process is a chain in a process of its own, which outlives whatever a test kills.
type Process struct {
	*Control
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when the process has ended
	err   error         // how; to be read after done
	once  sync.Once
}

// StartProcess runs this program once more as a chain. The program must call [RunIfChild] first in its main function or TestMain.
// The child ends with Close, and also when this process ends, however that happens. ctx bounds the start alone.
func StartProcess(ctx context.Context, o Options) (*Process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("simchain: find this program: %w", err)
	}
	return StartCommand(ctx, o, exe)
}

// StartCommand is [StartProcess] with another program that calls [RunIfChild], such as internal/simchain/cmd/simchain.
func StartCommand(ctx context.Context, o Options, name string, args ...string) (*Process, error) {
	options, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("simchain: options: %w", err)
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), childVariable+"="+string(options))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("simchain: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("simchain: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("simchain: start: %w", err)
	}
	p := &Process{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	ready := make(chan Config, 1)
	go func() {
		var c Config
		reader := bufio.NewReader(stdout)
		if err := json.NewDecoder(reader).Decode(&c); err == nil {
			ready <- c
		}
		_, _ = io.Copy(io.Discard, reader)
		p.err = cmd.Wait()
		close(p.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case c := <-ready:
		if p.Control, err = Dial(ctx, c.HTTP); err == nil {
			return p, nil
		}
	case <-p.done:
		err = fmt.Errorf("simchain: the process ended before it was ready: %w", p.err)
	case <-ctx.Done():
		err = fmt.Errorf("simchain: the process was not ready: %w", ctx.Err())
	}
	p.kill()
	return nil, err
}

// Close ends the process and waits for it. A second call does nothing.
func (p *Process) Close() error {
	var err error
	p.once.Do(func() {
		p.rpc.Close()
		_ = p.stdin.Close() // what the child waits for
		select {
		case <-p.done:
			err = p.err
		case <-time.After(stopTimeout):
			p.kill()
			err = errors.New("simchain: the process did not stop and was killed")
		}
	})
	return err
}

func (p *Process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// RunIfChild makes this program a chain and ends it where [StartProcess] started it; otherwise it does nothing.
func RunIfChild() {
	text := os.Getenv(childVariable)
	if text == "" {
		return
	}
	var o Options
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = Serve(context.Background(), o, os.Stdin, func(c Config) error { return json.NewEncoder(os.Stdout).Encode(c) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve runs a chain until ctx ends or in does. When it is ready it calls ready, whose error ends it.
func Serve(ctx context.Context, o Options, in io.Reader, ready func(Config) error) error {
	c, err := Start(ctx, o)
	if err != nil {
		return err
	}
	if err := ready(c.Config()); err != nil {
		return errors.Join(fmt.Errorf("simchain: tell that the chain is ready: %w", err), c.Close())
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, in)
		close(ended)
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	return c.Close()
}
