package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"dongate/client"
	"dongate/config"
	"dongate/gateway"
)

func TestReport(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  error
		code int
		text string
	}{
		{"nothing", nil, exitOK, ""},
		{"any", errors.New("broken\n"), exitFailure, "gateway: broken\n"},
		{"with a hint", fmt.Errorf("x: %w", fail(exitLocal, "y %d", 1).withHint("do %s", "z")), exitLocal, "gateway: x: y 1\ndo z\n"},
		{"told already", &exitError{code: exitConfig, err: errors.New("x"), told: true}, exitConfig, ""},
		{"signal", fmt.Errorf("x: %w", stopSignal{os.Interrupt}), exitInterrupted, "gateway: x: stopped by signal: interrupt\n"},
	} {
		var out bytes.Buffer
		require.Equal(t, c.code, report(&out, c.err), c.name)
		require.Equal(t, c.text, out.String(), c.name)
	}
}

func TestExitCodesAreDocumentedOnce(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for _, c := range exitCodes {
		require.False(t, seen[c.code], c.code)
		seen[c.code] = true
	}
	for _, code := range exitCodesByReason {
		require.True(t, seen[code], code)
	}
}

// Every reason of the protocol has an exit code that is meant, and says what to do.
func TestTriggerErrors(t *testing.T) {
	t.Parallel()
	for reason, code := range map[gateway.Reason]int{
		gateway.ReasonParseError: exitRequest, gateway.ReasonTooLarge: exitRequest, gateway.ReasonInvalidRequest: exitRequest,
		gateway.ReasonInvalidParams: exitRequest, gateway.ReasonMethodNotFound: exitRequest, gateway.ReasonWorkflowNotFound: exitRequest,
		gateway.ReasonUnauthorized: exitUnauthorized, gateway.ReasonTokenReplayed: exitUnauthorized, gateway.ReasonRateLimited: exitRateLimited,
		gateway.ReasonConflict: exitConflict, gateway.ReasonOverloaded: exitUnavailable, gateway.ReasonUnavailable: exitUnavailable,
		gateway.ReasonTimeout: exitNoQuorum, gateway.ReasonNoQuorum: exitNoQuorum, gateway.ReasonDONUnavailable: exitUnavailable,
		gateway.ReasonDraining: exitUnavailable, gateway.ReasonInternal: exitFailure,
	} {
		r := &triggerReport{ID: "it's", Signer: "0xabc"}
		e := explain(context.Background(), &client.Error{Reason: string(reason), Message: "no", URL: "http://g/"}, r)
		require.Equal(t, code, e.ExitCode, reason)
		require.Equal(t, "no", e.Message, reason)
		require.Equal(t, string(reason), e.Reason)
		require.Equal(t, "http://g/", r.URL)
		if code != exitRequest && code != exitFailure {
			require.NotEmpty(t, e.Hint, reason)
		}
	}
	hint := func(err error) *triggerError {
		return explain(context.Background(), err, &triggerReport{ID: "it's", Signer: "0xabc"})
	}
	require.Contains(t, hint(&client.Error{Reason: "rate_limited", RetryAfter: 3 * time.Second}).Hint, "Try again in 3s")
	require.Contains(t, hint(&client.Error{Reason: "no_quorum", Shards: []client.Shard{{Threshold: 3, Connected: 4, Answered: 4, Groups: []int{2, 2}}}}).Hint,
		"3 equal answers needed, 4 nodes connected, 4 answered; equal answers: 2 + 2")
	require.Contains(t, hint(&client.Error{Reason: "conflict"}).Hint, "Another signer")
	require.Contains(t, hint(&client.Error{Reason: "conflict", State: "failed", ExecutionID: "e1"}).Hint, "may have run (execution e1)")

	lost := hint(&client.UnknownOutcomeError{Err: errors.New("cut")})
	require.Equal(t, exitNoQuorum, lost.ExitCode)
	require.Contains(t, lost.Hint, `--id 'it'\''s'`, "for pasting into a shell")
	cut := hint(&client.Error{Reason: "draining", Message: "the request may have run"})
	require.Equal(t, exitNoQuorum, cut.ExitCode, "a gateway that gave up an open request")
	require.Equal(t, "unknown_outcome", cut.Reason)
	require.Equal(t, exitUnavailable, hint(fmt.Errorf("%w: x", client.ErrUnreachable)).ExitCode)
	node := hint(&client.NodeError{Code: -32603, Message: "engine"})
	require.Equal(t, exitNodeError, node.ExitCode)
	require.Equal(t, "the nodes agreed on error -32603: engine", node.Message)

	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(stopSignal{os.Interrupt})
	require.Equal(t, exitInterrupted, explain(ctx, &client.UnknownOutcomeError{Err: ctx.Err()}, &triggerReport{}).ExitCode)
}

// A flood of equal entries is cut, and the log says so.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log, err := newLogger(config.Log{Level: "info", Format: "json"}, &out)
	require.NoError(t, err)
	now := time.Now()
	for i := range 10 * logPerSecond {
		// In one instant, so that the second does not turn.
		entry := zapcore.Entry{Level: zapcore.WarnLevel, Time: now, Message: "node refused"}
		if e := log.Core().Check(entry, nil); e != nil {
			e.Write(zap.Int("i", i))
		}
	}
	log.Info("another")
	log.Debug("not at this level")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, logPerSecond+2)
	require.Contains(t, lines[logPerSecond], `"msg":"log entries left out: too many alike per second","count":1`)
	require.Contains(t, lines[logPerSecond+1], `"msg":"another"`)
	_, err = newLogger(config.Log{Level: "loud"}, &out)
	require.Error(t, err)
}
