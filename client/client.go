package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"dongate/auth"
)

// Defaults of Config.
const (
	// DefaultTimeout is what a gateway takes at most with its default configuration, and some time on the way.
	DefaultTimeout          = 75 * time.Second
	DefaultMaxResponseBytes = 4 << 20
)

// Config says who signs and which gateways are asked. A Config is copied by [New].
type Config struct {
	// URLs are the gateways' client endpoints, http:// or https://, in order of preference. All of them should share
	// their storage, so that a token used at one is known at the others.
	URLs []string
	// Signer holds the key that is authorised for the workflows. Required.
	Signer auth.Signer
	// HTTPClient sends the requests; nil: one of the client's own. Redirects are not followed whatever it says: they would
	// take the token elsewhere.
	HTTPClient *http.Client
	// TTL is how long a token is good for: whole seconds, at most 5 minutes, which is the default.
	TTL time.Duration
	// Timeout bounds one call, all gateways together. Default DefaultTimeout; the context may end it earlier.
	Timeout time.Duration
	// MaxResponseBytes bounds an answer. Default DefaultMaxResponseBytes.
	MaxResponseBytes int64
	// Now is the clock that tokens are stamped with; nil: time.Now.
	Now func() time.Time
}

// Client triggers workflows. Its methods are safe for concurrent use.
type Client struct {
	config    Config
	http      *http.Client
	reports   bool         // http's transport reports what it does with connections
	preferred atomic.Int32 // index of the URL that answered last
}

// New checks the configuration and returns a Client. Nothing is sent.
func New(c Config) (*Client, error) {
	var errs []error
	if c.Signer == nil {
		errs = append(errs, errors.New("no Signer is given"))
	}
	if len(c.URLs) == 0 {
		errs = append(errs, errors.New("URLs is empty: give at least one gateway"))
	}
	for i, s := range c.URLs {
		u, err := url.Parse(s)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			errs = append(errs, fmt.Errorf("URLs[%d] is not the http:// or https:// address of a gateway, such as https://gateway.example.com:5002/", i))
		}
	}
	if c.TTL < 0 || c.TTL > auth.MaxTokenTTL || c.TTL%time.Second != 0 {
		errs = append(errs, fmt.Errorf("TTL is %v: give whole seconds up to %v", c.TTL, auth.MaxTokenTTL))
	}
	if c.Timeout < 0 || c.MaxResponseBytes < 0 {
		errs = append(errs, errors.New("negative Timeout or MaxResponseBytes"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("client: %w", errors.Join(errs...))
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.MaxResponseBytes == 0 {
		c.MaxResponseBytes = DefaultMaxResponseBytes
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.URLs = append([]string(nil), c.URLs...)
	h := &http.Client{Transport: newTransport()}
	if c.HTTPClient != nil {
		shared := *c.HTTPClient
		h = &shared
	}
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	_, standard := h.Transport.(*http.Transport)
	return &Client{config: c, http: h, reports: standard || h.Transport == nil}, nil
}

// newTransport has the limits that http.DefaultTransport leaves to context and chance: a gateway that is down must be
// noticed in time for the next one to be asked.
func newTransport() *http.Transport {
	const connect = 5 * time.Second
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: connect}).DialContext,
		TLSHandshakeTimeout: connect,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		MaxIdleConns:        256,
		MaxIdleConnsPerHost: 64,
		IdleConnTimeout:     time.Minute,
	}
}

// CloseIdleConnections closes connections that carry no request. A Client needs no other closing.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// Response is the result on which the DON agreed.
type Response struct {
	ID     string
	Method string
	Result jsontext.Value
	URL    string // of the gateway that answered
}

// Execution is what workflow nodes answer when they have accepted a trigger.
type Execution struct {
	WorkflowID  string `json:"workflow_id"`
	ExecutionID string `json:"workflow_execution_id"`
	Status      string `json:"status"` // "ACCEPTED"
}

// Execution decodes the result of a trigger.
func (r *Response) Execution() (Execution, error) {
	var e Execution
	if err := json.Unmarshal(r.Result, &e); err != nil {
		return Execution{}, fmt.Errorf("client: the result is not an execution: %w", err)
	}
	return e, nil
}

// Trigger builds, signs and sends a request, once, and returns the DON's answer. The error is an [*Error], a [*NodeError],
// or matches [ErrUnknownOutcome] or [ErrUnreachable]; with several gateways it may hold one error for each.
func (c *Client) Trigger(ctx context.Context, r Request) (*Response, error) {
	s, err := c.Sign(r)
	if err != nil {
		return nil, err
	}
	return c.Send(ctx, s)
}

// Sign builds a request and signs it with the client's key, without sending it.
func (c *Client) Sign(r Request) (*Signed, error) {
	p, err := BuildRequest(r)
	if err != nil {
		return nil, err
	}
	return Sign(p, c.config.Signer, auth.TokenOptions{Now: c.config.Now(), TTL: c.config.TTL})
}

// Send sends a signed request. The gateway that answered last is asked first. The next one gets the same bytes when a
// connection could not be made, or when a gateway says that it is draining, overloaded or unavailable and dispatched
// nothing; any other word is final. After an *Error with a RetryAfter the same Signed may be sent again.
//
// A kept-alive connection that a gateway closes at the very moment of its reuse looks like any other lost connection, and
// matches ErrUnknownOutcome.
func (c *Client) Send(ctx context.Context, s *Signed) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	var attempts attemptsError
	first := int(c.preferred.Load())
	for i := range c.config.URLs {
		at := (first + i) % len(c.config.URLs)
		r, err := c.post(ctx, c.config.URLs[at], s)
		var refused *Error
		if next := errors.Is(err, ErrUnreachable) || errors.As(err, &refused) && refused.notDispatched(); !next {
			var agreed *NodeError
			if err == nil || refused != nil || errors.As(err, &agreed) {
				c.preferred.Store(int32(at))
			}
			return r, err
		}
		attempts = append(attempts, err)
		if ctx.Err() != nil {
			break
		}
	}
	if len(attempts) == 1 {
		return nil, attempts[0]
	}
	return nil, attempts
}

// Outcome says what became of a request.
type Outcome struct {
	// State is "open" (ask again later), "answered", or "failed": it ended without an answer, and may have run.
	State string
	// ExecutionID is the id under which nodes log the execution; "" when Fresh.
	ExecutionID string
	// Response is the DON's result, and Err its agreed error, with "answered". Both are nil when the gateway no longer has
	// the answer.
	Response *Response
	Err      *NodeError
	// Fresh: no earlier attempt had reached a gateway, so the request was run now.
	Fresh bool
}

// Outcome asks what became of an earlier request, whose ID, Workflow and Input r repeats. It sends the same id under a
// fresh token: a gateway that knows the id runs nothing and tells the signer where the request stands. There is no way to
// only ask: if no attempt ever reached a gateway, the request runs now, once.
//
// An id is remembered for a while after the end of its request, ten minutes by default. Ask within that time.
func (c *Client) Outcome(ctx context.Context, r Request) (*Outcome, error) {
	if r.ID == "" {
		return nil, &Error{Reason: reasonInvalidRequest, Message: "give the id of the request whose outcome you want"}
	}
	response, err := c.Trigger(ctx, r)
	var conflict *Error
	var agreed *NodeError
	switch {
	case err == nil:
		return &Outcome{State: "answered", Response: response, Fresh: true}, nil
	case errors.As(err, &agreed):
		return &Outcome{State: "answered", Err: agreed, Fresh: true}, nil
	case !errors.As(err, &conflict) || !errors.Is(conflict, ErrConflict) || conflict.State == "":
		return nil, err
	}
	out := &Outcome{State: conflict.State, ExecutionID: conflict.ExecutionID}
	if a := conflict.Response; a != nil && a.Error != nil {
		out.Err = &NodeError{RequestID: r.ID, URL: conflict.URL, Code: a.Error.Code, Message: a.Error.Message, Data: a.Error.Data}
	} else if a != nil {
		out.Response = &Response{ID: a.ID, Method: a.Method, Result: a.Result, URL: conflict.URL}
	}
	return out, nil
}
