package connector

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"dongate/jsonrpc"
)

// Handler answers one request of a gateway. It runs on a goroutine of its own, concurrently with others and with itself.
//
// ctx ends when Run's does, not when a connection is lost: the answer then goes to the gateway's next connection. It
// knows the gateway ([GatewayFrom]). r is the handler's to keep; [DecodeTrigger] reads a workflow trigger.
//
// The result is any value that encodes to JSON other than null, or raw JSON as a jsontext.Value. Nodes whose answers
// are to agree must give equal ones: no clocks, no random numbers. Of the errors, a *jsonrpc.Error is sent as it is and
// [ErrNoAnswer] sends nothing; any other, and a panic, is logged and sent as an internal error without its text.
type Handler func(ctx context.Context, r *jsonrpc.Request) (any, error)

// ErrNoAnswer is returned by a handler that wants nothing sent: it has answered with [Connector.Send], or never will.
var ErrNoAnswer = errors.New("no answer")

// What a node answers when no handler could speak. They are constants so that nodes in the same trouble agree.
var (
	errNoHandler      = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "the node does not know this method"}
	errBusy           = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the node is busy: it handles as many requests as it may"}
	errInternal       = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error of the node"}
	errAnswerTooLarge = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the node's answer is larger than a gateway accepts"}
)

type gatewayKey struct{}

// GatewayFrom returns the gateway whose request the handler with this context was called for.
func GatewayFrom(ctx context.Context) (Gateway, bool) {
	g, ok := ctx.Value(gatewayKey{}).(Gateway)
	return g, ok
}

// serve runs the handler of one admitted request and queues its answer.
func (c *Connector) serve(ctx context.Context, l *link, h Handler, r *jsonrpc.Request) {
	out := &jsonrpc.Response{ID: r.ID, Method: r.Method}
	var err error
	out.Result, err = c.call(context.WithValue(ctx, gatewayKey{}, l.gateway), l, h, r)
	var failure *jsonrpc.Error
	switch {
	case errors.Is(err, ErrNoAnswer), ctx.Err() != nil:
		return
	case errors.As(err, &failure) && failure != nil:
		out.Error = failure
	case err != nil:
		l.log.Error("handler failed", zap.String("method", r.Method), zap.String("id", r.ID), zap.Error(err))
		out.Error = errInternal
	}
	if out.Error != nil && out.Error.Data != nil && !out.Error.Data.IsValid() {
		l.log.Error("handler's error data is not JSON", zap.String("method", r.Method), zap.String("id", r.ID))
		out.Error = errInternal
	}
	l.answer(out)
}

// call runs h, encodes its result and turns a panic in either into an error.
func (c *Connector) call(ctx context.Context, l *link, h Handler, r *jsonrpc.Request) (raw jsontext.Value, err error) {
	defer func() {
		if p := recover(); p != nil {
			l.count(&l.stats.Panics)
			l.log.Error("handler panicked", zap.String("method", r.Method), zap.String("id", r.ID),
				zap.String("panic", fmt.Sprint(p)), zap.ByteString("stack", debug.Stack()))
			raw, err = nil, errInternal
		}
	}()
	result, err := h(ctx, r)
	if err != nil {
		return nil, err
	}
	return encodeResult(result)
}

func encodeResult(result any) (jsontext.Value, error) {
	raw, ok := result.(jsontext.Value)
	if !ok {
		var err error
		if raw, err = json.Marshal(result, json.Deterministic(true)); err != nil {
			return nil, fmt.Errorf("encode the result: %w", err)
		}
	} else if !raw.IsValid() {
		return nil, errors.New("the result is not JSON")
	}
	if raw.Kind() == 'n' {
		return nil, errors.New("the result is null, which the protocol takes for none")
	}
	return raw, nil
}

// admission bounds the requests being handled, in number and in bytes. One request is always let in, whatever its size:
// the read limit bounds that.
type admission struct {
	mu       sync.Mutex
	maxCount int
	maxBytes int64
	count    int
	bytes    int64
}

func (a *admission) limits(count int, bytes int64) { a.maxCount, a.maxBytes = count, bytes }

func (a *admission) enter(size int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count >= a.maxCount || (a.count > 0 && a.bytes+size > a.maxBytes) {
		return false
	}
	a.count++
	a.bytes += size
	return true
}

func (a *admission) leave(size int64) {
	a.mu.Lock()
	a.count--
	a.bytes -= size
	a.mu.Unlock()
}
