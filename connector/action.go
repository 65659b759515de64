package connector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of an action (protocol §7).
const (
	// MaxActionTimeout is the longest an action may take; a longer ActionRequest.Timeout is shortened to it.
	MaxActionTimeout = 60 * time.Second
	// ActionGrace is how long after the action's own time its answer is still waited for: gateways spend up to this long
	// on getting it to the node.
	ActionGrace = 5 * time.Second
	// MaxExecutionIDBytes bounds ActionRequest.ExecutionID.
	MaxExecutionIDBytes = 128
)

// Errors of Action besides *[ActionError], [ErrUnknownGateway], [ErrQueueFull] and [ErrTooLarge].
var (
	// ErrNotConnected: no gateway is connected that could make the action.
	ErrNotConnected = errors.New("no gateway is connected")
	// ErrTooManyActions: Config.MaxActions wait for their answers already.
	ErrTooManyActions = errors.New("too many actions wait for their answers")
	// ErrUnanswered: the gateway has not answered in time. Whether the endpoint was called is not known.
	ErrUnanswered = errors.New("the gateway has not answered the action")
	// ErrUnreadableAnswer: the gateway's answer is not what the protocol has. Whether the endpoint was called is not known.
	ErrUnreadableAnswer = errors.New("the gateway's answer to the action is not readable")
)

// ActionRequest is an outbound HTTP request that a gateway is to make for a workflow (protocol §7). What it may ask for is
// the gateway's to decide: public addresses only, by default.
type ActionRequest struct {
	// WorkflowID and WorkflowOwner say for whom it is made: hex with or without 0x, in any case. Required. The gateway
	// refuses an owner that it knows not to be the workflow's.
	WorkflowID, WorkflowOwner string
	// ExecutionID, when set, becomes part of the message's id, so that both sides' logs name the execution. At most
	// [MaxExecutionIDBytes] visible ASCII characters without '/'.
	ExecutionID string

	// URL is http or https. Method is GET when empty.
	URL, Method string
	// Header is sent as it is; names without values are left out.
	Header http.Header
	Body   []byte
	// Timeout is for the whole request, at most [MaxActionTimeout], in steps of a millisecond. 0: the gateway's default,
	// 5 s unless configured otherwise.
	Timeout time.Duration
	// MaxBytes is the longest body to accept in response; a longer one is an error. 0: as much as the gateway allows and
	// the connector can read, which also bound what is asked for here.
	MaxBytes int64
	// Cache says whether the response may be, and become, a stored one.
	Cache ActionCache
	// ClientCertificate, when set, is shown to the endpoint. Gateways refuse it unless configured otherwise.
	ClientCertificate *ClientCertificate

	// Gateway is the URL of the gateway to ask, which is then waited for if it is not connected. When empty, it is the one
	// whose request the context belongs to ([GatewayFrom]), so that all nodes asked by one gateway share its cache and its
	// call; if that is not connected, the first in the configuration that is.
	Gateway string
}

// ActionCache is an action's use of the gateway's cache, whose entries belong to the workflow's owner.
type ActionCache struct {
	// MaxAge, when positive, accepts a stored response that is younger, in steps of a millisecond, and shares one call
	// with equal actions made at the same time. 0: always a call of its own.
	MaxAge time.Duration
	// Store keeps what was fetched for others.
	Store bool
}

// ClientCertificate is a certificate (with its chain) and its key, both PEM.
type ClientCertificate struct {
	CertPEM, KeyPEM []byte
}

// ActionResponse is what the endpoint answered, 3xx and 5xx included: redirects are not followed.
type ActionResponse struct {
	StatusCode int
	// Header has canonical names.
	Header http.Header
	Body   []byte
	// Latency is how long the endpoint took; 0: the response came from the cache. It differs between nodes, so it must not
	// be part of what they are to agree on.
	Latency time.Duration
}

// ActionError is an action that came to nothing: by itself or, where there is neither flag, by the gateway's fault.
type ActionError struct {
	// Validation: nothing was sent to the endpoint, because the request breaks a rule or too many are made. Unless it was
	// about numbers, the same request will be refused again.
	Validation bool
	// External: sending the request or reading the response failed, name lookup and timeout included. The endpoint may
	// have acted on it.
	External bool
	// Message says what was wrong, at most 1 KiB, in the gateway's words or the connector's.
	Message string
}

// Error is the message, with what it is about.
func (e *ActionError) Error() string {
	switch {
	case e.Validation:
		return "connector: the action is refused: " + e.Message
	case e.External:
		return "connector: the action's endpoint failed: " + e.Message
	}
	return "connector: the action failed: " + e.Message
}

// Action has a gateway make an HTTP request, and waits for its outcome. It may be called from handlers and elsewhere, any
// number of times at once up to [Config.MaxActions].
//
// The error is an *[ActionError] when the outcome is known. Otherwise it wraps the cause of ctx's end or [ErrUnanswered],
// which comes [ActionGrace] after the action's own time (where that is the gateway's default, after the most it can be,
// [MaxActionTimeout]), or, when nothing was sent, [ErrNotConnected], [ErrUnknownGateway], [ErrTooManyActions],
// [ErrQueueFull] or [ErrTooLarge]. When ctx ends, what is not written yet is not sent.
//
// A connection that is lost meanwhile is no error: the answer follows on the next one. The request is written once: if it
// was lost with the connection, the outcome is [ErrUnanswered].
func (c *Connector) Action(ctx context.Context, a ActionRequest) (*ActionResponse, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("connector: action: %w", context.Cause(ctx))
	}
	id, data, refused := encodeAction(&a, c.config.MaxReadBytes)
	if refused != nil {
		return nil, refused
	}
	l, err := c.actionLink(ctx, a.Gateway)
	if err != nil {
		return nil, fmt.Errorf("connector: action: %w", err)
	}
	answer, ok := c.actions.begin(id, l)
	if !ok {
		return nil, fmt.Errorf("connector: action: %w", ErrTooManyActions)
	}
	defer c.actions.end(id)
	wait := a.patience()
	queued, err := l.offer(data, wait)
	if err != nil {
		return nil, fmt.Errorf("connector: action: %w", err)
	}
	l.count(&l.stats.Actions)
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case params := <-answer:
		r, err := decodeActionAnswer(params)
		if errors.Is(err, ErrUnreadableAnswer) {
			l.malformed(err.Error())
		}
		return r, err
	case <-t.C:
		err = ErrUnanswered
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.withdraw(queued)
	return nil, fmt.Errorf("connector: action: %w", err)
}

// patience is how long an answer is waited for.
func (a *ActionRequest) patience() time.Duration {
	if a.Timeout <= 0 || a.Timeout > MaxActionTimeout {
		return MaxActionTimeout + ActionGrace
	}
	return a.Timeout + ActionGrace
}

// actionLink is the gateway to ask.
func (c *Connector) actionLink(ctx context.Context, url string) (*link, error) {
	if url != "" {
		if l := c.byURL[url]; l != nil {
			return l, nil
		}
		return nil, fmt.Errorf("%w: %q", ErrUnknownGateway, url)
	}
	if g, ok := GatewayFrom(ctx); ok {
		if l := c.byURL[g.URL]; l != nil && l.isConnected() {
			return l, nil
		}
	}
	for _, l := range c.links {
		if l.isConnected() {
			return l, nil
		}
	}
	return nil, ErrNotConnected
}

// actions are those that wait for their answers, by the ids of their messages.
type actions struct {
	mu      sync.Mutex
	most    int
	waiting map[string]*actionWait
}

type actionWait struct {
	link   *link // nobody else's answer counts
	answer chan<- jsontext.Value
}

// begin lets an action wait for its answer; not ok when too many do. It must be ended.
func (a *actions) begin(id string, l *link) (answer <-chan jsontext.Value, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) >= a.most {
		return nil, false
	}
	ch := make(chan jsontext.Value, 1)
	a.waiting[id] = &actionWait{link: l, answer: ch}
	return ch, true
}

func (a *actions) end(id string) {
	a.mu.Lock()
	delete(a.waiting, id)
	a.mu.Unlock()
}

// answered hands over an answer, whose params are the callee's. It returns false when nobody waits for it from this
// gateway: it is late, made up, or the second one.
func (a *actions) answered(id string, l *link, params jsontext.Value) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[id]
	if w == nil || w.link != l {
		return false
	}
	delete(a.waiting, id)
	w.answer <- params // has room: there is one answer
	return true
}

func (a *actions) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.waiting)
}
