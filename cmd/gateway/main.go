// Command gateway is the one binary of dongate: the server, the tools that check
// and try it, and the command-line clients of its protocol.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// net/http writes pieces of misbehaving endpoints' answers to the standard logger,
	// where secrets would show; the gateway's own log is another.
	log.SetOutput(io.Discard)
	ctx := untilSignal()
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())
	os.Exit(report(os.Stderr, err))
}

// stopSignal is the cause of a context that a signal ended.
type stopSignal struct{ os.Signal }

func (s stopSignal) Error() string { return "stopped by signal: " + s.String() }

// untilSignal returns a context that ends with the first SIGINT or SIGTERM. The
// second one ends the process at once, so that nobody has to wait for a drain.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		cancel(stopSignal{<-signals})
		<-signals
		os.Exit(exitInterrupted)
	}()
	return ctx
}
