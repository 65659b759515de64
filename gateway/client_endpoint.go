package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"dongate/auth"
	"dongate/jsonrpc"
)

// healthPath answers a load balancer, which sees only the client listener.
const healthPath = "/health"

// clientEndpoint is the HTTP side of protocol §2: it reads a body, finds the
// service and writes one JSON-RPC answer, whatever happens.
type clientEndpoint struct {
	server  *Server
	gate    atomic.Int64  // requests being worked on, at most maxConcurrentRequests
	idle    chan struct{} // capacity 1: the gate fell to 0 while draining
	large   chan struct{} // places for working on large bodies
	reading atomic.Int64  // bytes of bodies; see snapshot.readingLimit
}

func newClientEndpoint(s *Server) *clientEndpoint {
	return &clientEndpoint{server: s, idle: make(chan struct{}, 1), large: make(chan struct{}, largePlaces())}
}

// ServeHTTP answers one HTTP request.
func (e *clientEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	if r.URL.Path == healthPath && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		e.health(w)
		return
	}
	out := e.recovered(w, r, start)
	e.server.metrics.request(out.reason, time.Since(start))
	if out.reason == ReasonAbandoned || (out.reason == reasonBatch && r.Context().Err() != nil) {
		// Nobody is there to read an answer; an empty 200 would be a wrong one.
		panic(http.ErrAbortHandler)
	}
	if out.close {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(refusedBodyWait))
	}
	h := w.Header()
	h.Set("Content-Type", e.server.config.UserServer.ContentTypeHeader)
	h.Set("X-Content-Type-Options", "nosniff")
	if out.retryAfter > 0 {
		h.Set("Retry-After", retryAfterSeconds(out.retryAfter))
	}
	if out.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if out.allow != "" {
		h.Set("Allow", out.allow)
	}
	if r.ProtoMajor == 1 && (out.close || e.server.leaving.Load()) {
		h.Set("Connection", "close") // in HTTP/2 it would end the other requests' connection too
	}
	w.WriteHeader(out.status)
	_, _ = w.Write(out.body)
}

func (e *clientEndpoint) health(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if e.server.leaving.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "draining")
		return
	}
	_, _ = io.WriteString(w, "OK")
}

// recovered turns a panic into the answer `internal`.
func (e *clientEndpoint) recovered(w http.ResponseWriter, r *http.Request, start time.Time) (out reply) {
	defer func() {
		if p := recover(); p != nil {
			e.server.log.Error("panic in a client request", zap.Any("panic", p), zap.Stack("stack"))
			out = replyFailure(nil, fail(ReasonInternal, "internal error"), false)
			out.close = true
		}
	}()
	return e.serve(w, r, start)
}

// serve does everything up to the body and hands it on. A refusal before the
// body is read closes the connection, so that nobody pays for the rest of it.
func (e *clientEndpoint) serve(w http.ResponseWriter, r *http.Request, start time.Time) reply {
	refuse := func(f *failure) reply {
		out := replyFailure(nil, f, false)
		out.close = r.ContentLength != 0
		return out
	}
	cfg := &e.server.config.UserServer
	if f := e.admitAddress(r, start); f != nil {
		return refuse(f)
	}
	if r.URL.Path != cfg.Path {
		return refuse(&failure{reason: ReasonInvalidRequest, status: http.StatusNotFound, message: "unknown path; JSON-RPC requests go to " + cfg.Path})
	}
	if r.Method != http.MethodPost {
		out := refuse(&failure{reason: ReasonInvalidRequest, status: http.StatusMethodNotAllowed, message: "JSON-RPC requests are sent with POST"})
		out.allow = http.MethodPost
		return out
	}
	if len(r.Header.Values("Content-Encoding")) > 0 {
		return refuse(&failure{reason: ReasonInvalidRequest, status: http.StatusUnsupportedMediaType, message: "Content-Encoding is not supported; send the body as it is"})
	}
	if !e.enter() {
		return refuse(overloaded("too many concurrent requests (maxConcurrentRequests)"))
	}
	defer e.leave()
	if e.server.draining.Load() {
		return refuse(&failure{reason: ReasonDraining, message: "the gateway is shutting down; nothing was dispatched, use another one", retryAfter: time.Second})
	}
	token, hasToken, f := e.headerToken(r, start)
	if f != nil {
		return refuse(f)
	}
	body, f := e.readBody(w, r, start)
	if f != nil {
		return refuse(f)
	}
	held := &work{endpoint: e, bytes: int64(len(body))}
	defer held.done()
	deadline := start.Add(cfg.RequestTimeout)
	if jsonrpc.IsBatch(body) {
		return e.batch(r, body, held, hasToken, deadline)
	}
	return e.single(r.Context(), body, held, token, deadline, false)
}

// admitAddress takes a token of the client's address.
func (e *clientEndpoint) admitAddress(r *http.Request, now time.Time) *failure {
	ok, wait := e.server.allowAddress(r, now)
	if ok {
		return nil
	}
	e.server.metrics.throttled.WithLabelValues("address").Inc()
	return &failure{reason: ReasonRateLimited, message: "rate limit exceeded: too many requests from this address", retryAfter: wait}
}

// enter takes one of the maxConcurrentRequests places.
func (e *clientEndpoint) enter() bool {
	if e.gate.Add(1) > int64(e.server.config.UserServer.MaxConcurrentRequests) {
		e.gate.Add(-1)
		return false
	}
	return true
}

func (e *clientEndpoint) leave() {
	if e.gate.Add(-1) == 0 && e.server.draining.Load() {
		select {
		case e.idle <- struct{}{}:
		default:
		}
	}
}

// await returns when no request is being worked on, or when done is closed. It
// is called once draining is set, after which none begins.
func (e *clientEndpoint) await(done <-chan struct{}) {
	for e.gate.Load() > 0 {
		select {
		case <-e.idle:
		case <-done:
			return
		}
	}
}

// headerToken parses the Authorization header as far as that needs no body. A
// scheme other than Bearer is nobody's token.
func (e *clientEndpoint) headerToken(r *http.Request, now time.Time) (t *auth.Token, present bool, f *failure) {
	values := r.Header.Values("Authorization")
	if len(values) == 0 {
		return nil, false, nil
	}
	if len(values) > 1 {
		return nil, true, fail(ReasonUnauthorized, "Auth failure: more than one Authorization header")
	}
	scheme, raw, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, false, nil
	}
	t, err := auth.ParseToken(strings.TrimLeft(raw, " "), now, e.server.current().tolerance)
	if err != nil {
		return nil, true, unauthorized(err)
	}
	return t, true, nil
}

// firstRead is what a body's buffer starts with when its length is not declared.
const firstRead = 4 << 10

// readBody reads at most maxRequestBytes within readTimeoutMillis. What it
// returns is accounted to reading.
func (e *clientEndpoint) readBody(w http.ResponseWriter, r *http.Request, start time.Time) ([]byte, *failure) {
	cfg := &e.server.config.UserServer
	tooLarge := fail(ReasonTooLarge, "the body is larger than %d bytes (maxRequestBytes)", cfg.MaxRequestBytes)
	if r.ContentLength > cfg.MaxRequestBytes {
		return nil, tooLarge
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(start.Add(cfg.ReadTimeout))
	size := int64(firstRead)
	if r.ContentLength >= 0 {
		size = min(r.ContentLength, 64<<10)
	}
	buf := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	accounted := int64(0)
	most := e.server.current().readingLimit
	limited := io.LimitReader(r.Body, cfg.MaxRequestBytes+1)
	for {
		n, err := io.CopyN(buf, limited, 64<<10)
		accounted += n
		if e.reading.Add(n) > most {
			e.reading.Add(-accounted)
			return nil, overloaded("requests being read hold too many bytes")
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			e.reading.Add(-accounted)
			return nil, bodyFailure(err)
		}
	}
	if int64(buf.Len()) > cfg.MaxRequestBytes {
		e.reading.Add(-accounted)
		return nil, tooLarge
	}
	// The answer may take longer than reading may.
	_ = rc.SetReadDeadline(time.Time{})
	return buf.Bytes(), nil
}

func bodyFailure(err error) *failure {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &failure{reason: ReasonInvalidRequest, status: http.StatusRequestTimeout, cause: err,
			message: "the body did not arrive whole within the time allowed (readTimeoutMillis)"}
	}
	return &failure{reason: ReasonInvalidRequest, message: "the body could not be read to its end", cause: err}
}

// single answers one request object; held is what it gives back on its way.
func (e *clientEndpoint) single(ctx context.Context, body []byte, held *work, header *auth.Token, deadline time.Time, inBatch bool) reply {
	if !held.begin(ctx, deadline) {
		return replyFailure(nil, overloaded("too many large requests at once"), inBatch)
	}
	req, err := jsonrpc.DecodeRequest(body)
	if err == nil {
		err = req.Validate()
	}
	if err != nil {
		return replyFailure(decodeFailure(err, inBatch))
	}
	answer, reason, f := e.dispatch(ctx, &call{request: req, snapshot: e.server.current(), header: header, deadline: deadline, held: held})
	if f != nil {
		e.server.logFailure(&req, f)
		return replyFailure(&req.ID, f, inBatch)
	}
	return reply{status: http.StatusOK, reason: reason, body: answer}
}

// decodeFailure is replyFailure's arguments for a body that is no request.
func decodeFailure(err error, inBatch bool) (*string, *failure, bool) {
	var de *jsonrpc.DecodeError
	if !errors.As(err, &de) {
		return nil, &failure{reason: ReasonInternal, message: "internal error", cause: err}, inBatch
	}
	if de.Parse { // what is not JSON has no id that could be trusted
		return nil, fail(ReasonParseError, "%s", de.Msg), inBatch
	}
	return de.ID, fail(ReasonInvalidRequest, "%s", de.Msg), inBatch
}

// dispatch finds the service by the method's text before the first dot.
func (e *clientEndpoint) dispatch(ctx context.Context, c *call) ([]byte, Reason, *failure) {
	name, _, _ := strings.Cut(c.request.Method, ".")
	svc := e.server.services[name]
	if svc == nil || c.request.Method != svc.method {
		return nil, "", fail(ReasonMethodNotFound, "unknown method %s: use %s", quoteShort(c.request.Method), e.server.methods)
	}
	return svc.execute(ctx, c)
}

// batch answers an array: always 200 with the answers in order, each element a
// request of its own, running concurrently (protocol §1).
func (e *clientEndpoint) batch(r *http.Request, body []byte, held *work, hasToken bool, deadline time.Time) reply {
	elements, err := jsonrpc.SplitBatch(body)
	most := e.server.config.UserServer.MaxBatch
	switch {
	case err != nil:
		_, f, _ := decodeFailure(err, false)
		return replyFailure(nil, f, false)
	case hasToken:
		return replyFailure(nil, fail(ReasonInvalidRequest, "a batch takes no header token; put a token into the member `auth` of each element"), false)
	case len(elements) == 0 || len(elements) > most:
		return replyFailure(nil, fail(ReasonInvalidRequest, "a batch has 1 to %d elements", most), false)
	}
	parts := make([]*work, len(elements))
	for i, el := range elements {
		if el.Kind() == '[' {
			return replyFailure(nil, fail(ReasonInvalidRequest, "a batch inside a batch"), false)
		}
		// A copy of its own, so that one element does not hold the whole body.
		elements[i] = el.Clone()
	}
	for i, el := range elements {
		parts[i] = &work{endpoint: e, bytes: int64(len(el))}
		held.bytes -= parts[i].bytes
	}
	held.done()
	replies := make([]reply, len(elements))
	var running sync.WaitGroup
	for i := range elements {
		running.Go(func() { replies[i] = e.element(r, elements[i], parts[i], i == 0, deadline); elements[i] = nil })
	}
	running.Wait()
	out := []byte{'['}
	for i := range replies {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, replies[i].body...)
		e.server.metrics.element(replies[i].reason)
	}
	return reply{status: http.StatusOK, reason: reasonBatch, body: append(out, ']')}
}

// element answers one element of a batch. The first has the HTTP request's own
// place at the gate and token of the address, the others take theirs.
func (e *clientEndpoint) element(r *http.Request, el []byte, held *work, first bool, deadline time.Time) (out reply) {
	defer held.done()
	defer func() {
		if p := recover(); p != nil {
			e.server.log.Error("panic in a batch element", zap.Any("panic", p), zap.Stack("stack"))
			out = replyFailure(nil, fail(ReasonInternal, "internal error"), true)
		}
	}()
	if !first {
		if f := e.admitAddress(r, time.Now()); f != nil {
			return replyFailure(elementID(el), f, true)
		}
		if !e.enter() {
			return replyFailure(elementID(el), overloaded("too many concurrent requests (maxConcurrentRequests)"), true)
		}
		defer e.leave()
	}
	return e.single(r.Context(), el, held, nil, deadline, true)
}

// reasonBatch labels an HTTP request that carried a batch; its elements are
// counted by their own outcomes.
const reasonBatch Reason = "batch"

// elementID is the id of a batch element that is answered without being run.
func elementID(el []byte) *string {
	req, err := jsonrpc.DecodeRequest(el)
	if err == nil {
		return &req.ID
	}
	var de *jsonrpc.DecodeError
	if errors.As(err, &de) {
		return de.ID
	}
	return nil
}
