package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"dongate/connector"
	"dongate/internal/simdon"
)

// actionFlags describe the HTTP request that a simulated node has made for it.
type actionFlags struct {
	url        string
	maxAge     time.Duration
	store, now bool
}

func (a *actionFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.url, "action-url", "", "an `URL` to have the gateway fetch each time the node runs a workflow")
	f.DurationVar(&a.maxAge, "action-max-age", 0, "accept a stored response that is younger, and share a call; 0: neither")
	f.BoolVar(&a.store, "action-store", false, "have the response stored in the gateway's cache")
	f.BoolVar(&a.now, "action-now", false, "also fetch it once, as soon as a gateway is connected")
}

// request is nil when the node has nothing to ask for. workflows is how many it
// supports.
func (a *actionFlags) request(workflows int) (*connector.ActionRequest, error) {
	switch {
	case a.url == "" && *a != actionFlags{}:
		return nil, errors.New("which URL is the gateway to fetch? give --action-url")
	case a.url == "":
		return nil, nil
	case a.maxAge < 0:
		return nil, errors.New("--action-max-age is negative")
	case a.now && workflows == 0:
		return nil, errors.New("--action-now needs a workflow to fetch for: name one, or give --workflows")
	}
	return &connector.ActionRequest{URL: a.url, Cache: connector.ActionCache{MaxAge: a.maxAge, Store: a.store}}, nil
}

// runNode runs the node until ctx ends, and makes its action when it is due.
func (a *actionFlags) runNode(ctx context.Context, log *zap.Logger, n *simdon.Node, r *connector.ActionRequest, gateways []connector.Gateway) error {
	if r == nil {
		return n.Run(ctx, gateways...)
	}
	n.SetAction(&simdon.Action{Request: *r, Done: func(o simdon.ActionOutcome) { logOutcome(log, &o) }})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !a.now || n.WaitConnectedToOne(ctx) != nil {
			return
		}
		o := simdon.ActionOutcome{Node: n}
		start := time.Now()
		o.Response, o.Err = n.Act(ctx, *r)
		o.Took = time.Since(start)
		if ctx.Err() == nil {
			logOutcome(log, &o)
		}
	}()
	err := n.Run(ctx, gateways...)
	cancel()
	<-done
	return err
}

// logOutcome tells how an action went. Nodes that got the same body log the same
// digest; the body itself and the URL stay out of the log, as in the gateway's.
func logOutcome(log *zap.Logger, o *simdon.ActionOutcome) {
	fields := []zap.Field{zap.Duration("took", o.Took)}
	if o.ExecutionID != "" {
		fields = append(fields, zap.String("workflow", o.WorkflowID), zap.String("execution", o.ExecutionID))
	}
	var failed *connector.ActionError
	switch {
	case o.Err == nil:
		sum := sha256.Sum256(o.Response.Body)
		log.Info("action answered", append(fields, zap.Int("status", o.Response.StatusCode), zap.Int("bytes", len(o.Response.Body)),
			zap.String("digest", hex.EncodeToString(sum[:4])), zap.Bool("cached", o.Response.Latency == 0), zap.Duration("endpoint", o.Response.Latency))...)
	case errors.As(o.Err, &failed) && failed.Validation:
		log.Warn("action refused", append(fields, zap.String("why", failed.Message))...)
	case failed != nil:
		log.Warn("action failed", append(fields, zap.String("why", failed.Message), zap.Bool("endpoint", failed.External))...)
	default:
		log.Warn("action failed", append(fields, zap.Error(o.Err))...)
	}
}
