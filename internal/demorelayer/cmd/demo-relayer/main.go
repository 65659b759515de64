// Command demo-relayer shows the relayer at work: a simulated chain in this process, and a gateway that is killed and started again.
// Its argument is the path of the gateway program. The exit code is 1 when anything was not as expected.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"dongate/internal/console"
	"dongate/internal/demorelayer"
	"dongate/internal/simchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := run(ctx, os.Args[1:])
	if ctx.Err() != nil {
		os.Exit(130)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo-relayer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) != 1 {
		return errors.New("usage: demo-relayer PATH-OF-GATEWAY")
	}
	chain, err := simchain.Start(ctx, demorelayer.ChainOptions)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chain.Close()) }()
	return demorelayer.Run(ctx, demorelayer.Options{
		Chain: chain.Control, Gateway: args[0], Out: os.Stdout, Style: console.StyleFor(os.Stdout, os.Getenv),
	})
}
