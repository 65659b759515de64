package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"dongate/jsonrpc"
)

const (
	// maxRetryAfter bounds what a gateway may ask a client to wait.
	maxRetryAfter = 24 * time.Hour
	// maxBareText bounds how much of an answer that is no JSON-RPC an error repeats.
	maxBareText = 200
)

// post sends s to one gateway and reads its answer.
func (c *Client) post(ctx context.Context, to string, s *Signed) (*Response, error) {
	unknown := func(err error) error { return &UnknownOutcomeError{RequestID: s.ID, URL: to, Err: err} }
	if ctx.Err() != nil {
		return nil, fmt.Errorf("client: request %s was not sent: %w", s.ID, context.Cause(ctx))
	}
	watch := &watch{reports: c.reports}
	req, err := http.NewRequestWithContext(watch.context(ctx), http.MethodPost, to, bytes.NewReader(s.Body))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.Token)
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // without the URL's query
		}
		if watch.nothingSent(ctx, err) {
			return nil, fmt.Errorf("client: %w: %s: %w", ErrUnreachable, to, err)
		}
		return nil, unknown(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, c.config.MaxResponseBytes+1))
	if err == nil && int64(len(body)) > c.config.MaxResponseBytes {
		err = fmt.Errorf("%w: over %d bytes", ErrResponseTooLarge, c.config.MaxResponseBytes)
	}
	if err != nil {
		return nil, unknown(err)
	}
	return read(to, s, resp, body)
}

// read decides what an HTTP answer means. Whatever does not say clearly that the request was refused leaves its outcome
// unknown: a proxy's 502 may stand for a gateway that has dispatched it.
func read(to string, s *Signed, resp *http.Response, body []byte) (*Response, error) {
	unknown := func(format string, args ...any) (*Response, error) {
		return nil, &UnknownOutcomeError{RequestID: s.ID, URL: to, Err: fmt.Errorf(format, args...)}
	}
	r, err := jsonrpc.DecodeResponse(body)
	if err == nil {
		err = r.Check()
	}
	switch ok := resp.StatusCode == http.StatusOK; {
	case err != nil && resp.StatusCode >= 300 && resp.StatusCode < 500:
		return nil, bareError(to, s, resp, body)
	case err != nil:
		return unknown("the answer (HTTP %d) is not JSON-RPC: %w", resp.StatusCode, err)
	case r.ID != s.ID && (r.ID != "" || r.Error == nil):
		return unknown("the answer is for another request")
	case ok && r.Error == nil:
		return &Response{ID: r.ID, Method: r.Method, Result: r.Result, URL: to}, nil
	case ok:
		return nil, &NodeError{RequestID: s.ID, URL: to, Code: r.Error.Code, Message: r.Error.Message, Data: r.Error.Data}
	case r.Error == nil:
		return unknown("a result came with HTTP %d", resp.StatusCode)
	}
	e := &Error{
		RequestID: s.ID, URL: to, HTTPStatus: resp.StatusCode, RetryAfter: retryAfter(resp.Header),
		Code: r.Error.Code, Message: r.Error.Message, Data: r.Error.Data,
	}
	e.fill()
	return nil, e
}

// bareError is a refusal by something that does not speak JSON-RPC.
func bareError(to string, s *Signed, resp *http.Response, body []byte) *Error {
	text := strings.ToValidUTF8(strings.TrimSpace(string(body[:min(len(body), maxBareText)])), "")
	e := &Error{RequestID: s.ID, URL: to, HTTPStatus: resp.StatusCode, RetryAfter: retryAfter(resp.Header)}
	if resp.StatusCode < 400 {
		e.Message = "the URL answers with a redirect, which is not followed because it would take the token elsewhere; use the address it leads to"
		return e
	}
	e.Message = fmt.Sprintf("the answer is not a gateway's: %q", text)
	e.Reason = guessReason(resp.StatusCode, 0, "")
	return e
}

// retryAfter reads a Retry-After header: seconds, or a date (RFC 9110 §10.2.3).
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if n, err := strconv.ParseUint(v, 10, 32); err == nil {
		return min(time.Duration(n)*time.Second, maxRetryAfter)
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(time.Until(t), 0), maxRetryAfter)
	}
	return 0
}

// watch learns from a transport whether a request can have reached the gateway. A transport that is not known to report
// leaves it in doubt until it does, and then it can.
type watch struct {
	reports bool        // the transport is the standard one
	asked   atomic.Bool // it looked for a connection, so it reports
	got     atomic.Bool // it has had one
	wrote   atomic.Bool // the header went out, so the body may have followed
}

func (w *watch) context(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { w.asked.Store(true) },
		GotConn:      func(httptrace.GotConnInfo) { w.got.Store(true) },
		WroteHeaders: func() { w.wrote.Store(true) },
	})
}

// nothingSent reports whether the body cannot have been sent, once the request has failed with err. A transport that is
// interrupted does not wait for its writing goroutine, so then a connection is enough for doubt.
func (w *watch) nothingSent(ctx context.Context, err error) bool {
	if !w.reports && !w.asked.Load() {
		return false
	}
	var timeout interface{ Timeout() bool }
	if ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.As(err, &timeout) && timeout.Timeout() {
		return !w.got.Load()
	}
	return !w.wrote.Load()
}
