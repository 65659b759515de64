// Command simchain runs a simulated chain with the test contracts until its standard input ends or it is interrupted. The first
// line of its output is the chain's configuration as JSON. With -gateway it also makes a folder with a gateway's configuration for it.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"dongate/internal/simchain"
)

func main() {
	simchain.RunIfChild()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := simchain.Options{KMS: &simchain.KMSOptions{}}
	flags := flag.NewFlagSet("simchain", flag.ContinueOnError)
	flags.DurationVar(&o.Interval, "interval", 200*time.Millisecond, "time between blocks")
	flags.IntVar(&o.Port, "port", 0, "TCP port on the loopback interface; 0: a free one")
	flags.Uint64Var(&o.Fee, "fee", 0, "fee of a request in the token's smallest unit")
	flags.IntVar(&o.Nodes, "nodes", 0, "KMS nodes; 0: 13")
	flags.Int64Var(&o.Threshold, "threshold", 0, "shares that a user decryption needs; 0: 9")
	folder := flags.String("gateway", "", "new folder for gateway.json, the configuration of a gateway whose relayer uses the chain, and its key")
	flags.Int64Var(&o.KMS.DelayBlocks, "delay", 0, "blocks between a request and its answer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return simchain.Serve(ctx, o, os.Stdin, func(c simchain.Config) error {
		if *folder != "" {
			if err := c.WriteGateway(*folder); err != nil {
				return err
			}
		}
		return json.NewEncoder(os.Stdout).Encode(c)
	})
}
