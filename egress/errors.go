package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// MaxErrorBytes bounds the text of an error.
const MaxErrorBytes = 300

// Reason names a rule that refused a request; it is short and fixed, fit for a metric's label.
type Reason string

// The rules that refuse a request before it is sent.
const (
	ReasonURL       Reason = "url"
	ReasonScheme    Reason = "scheme"
	ReasonUserinfo  Reason = "userinfo"
	ReasonHost      Reason = "host"
	ReasonPort      Reason = "port"
	ReasonAddress   Reason = "address"
	ReasonMethod    Reason = "method"
	ReasonHeader    Reason = "header"
	ReasonMTLSOff   Reason = "mtls_off"
	ReasonMTLSKey   Reason = "mtls_key"
	ReasonMTLSQuota Reason = "mtls_quota"
)

// Refused is a request that was not sent because a rule forbids it: `isValidationError` of protocol §7.
type Refused struct {
	Reason Reason
	Msg    string // for the caller: what was wrong and what to do
}

func (e *Refused) Error() string { return e.Msg }

func refuse(r Reason, format string, args ...any) *Refused {
	return &Refused{Reason: r, Msg: clip(fmt.Sprintf(format, args...))}
}

// Stage is how far a request got; fit for a metric's label.
type Stage string

// The stages of a request, in their order.
const (
	StageDNS     Stage = "dns"
	StageConnect Stage = "connect"
	StageTLS     Stage = "tls"
	StageHeaders Stage = "headers" // sending the request and waiting for the response's headers
	StageBody    Stage = "body"
	StagePanic   Stage = "panic" // a fault of ours
)

var waitingFor = map[Stage]string{
	StageDNS: "looking up the host", StageConnect: "connecting", StageTLS: "in the TLS handshake", StageHeaders: "waiting for the response's headers",
	StageBody: "reading the response's body",
}

// External is a request that failed while it was sent or its response read: `isExternalEndpointError` of protocol §7.
type External struct {
	Msg     string // for the caller
	Stage   Stage
	Timeout bool // a deadline passed

	// cause is nil or one of context.Canceled, context.DeadlineExceeded and a syscall.Errno, never an error whose text may hold an origin's bytes.
	cause error
}

func (e *External) Error() string { return e.Msg }

// Unwrap returns nil, context.Canceled, context.DeadlineExceeded or a syscall.Errno.
func (e *External) Unwrap() error { return e.cause }

func fail(stage Stage, format string, args ...any) *External {
	return &External{Msg: clip(fmt.Sprintf(format, args...)), Stage: stage}
}

// clip keeps text within MaxErrorBytes.
func clip(text string) string {
	if len(text) > MaxErrorBytes {
		return strings.ToValidUTF8(text[:MaxErrorBytes-3], "") + "..."
	}
	return text
}

// shown is a host as it stands in an error's text; its end says most.
func shown(host string) string {
	const most = 80
	if len(host) > most {
		return "..." + host[len(host)-most:]
	}
	return host
}

// Errors of our own that travel through net/http.
var (
	errFlood = errors.New("egress: the origin sent more bytes than its responses may have")
	errBusy  = errors.New("egress: too many open connections")
)

// failed turns what net, crypto/tls or net/http said into an *External. None of their texts is passed on, save for TLS alerts, which come from a fixed
// list: they quote header lines, resolvers' addresses and URLs.
func failed(ctx context.Context, stage Stage, host string, after time.Duration, err error) error {
	var own *External
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.Is(ctx.Err(), context.Canceled):
		e := fail(stage, "%s: cancelled while %s", shown(host), waitingFor[stage])
		e.cause = context.Canceled
		return e
	case ctx.Err() != nil:
		return timedOut(stage, host, after)
	case errors.As(err, &own):
		return own
	}
	e := fail(stage, "%s: %s", shown(host), explain(stage, err))
	if isTimeout(err) {
		e.Timeout, e.cause = true, context.DeadlineExceeded
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.cause = errno
	}
	return e
}

func timedOut(stage Stage, host string, after time.Duration) *External {
	e := fail(stage, "%s: no complete response within %s: timed out while %s", shown(host), after.Round(time.Millisecond), waitingFor[stage])
	e.Timeout, e.cause = true, context.DeadlineExceeded
	return e
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &t) && t.Timeout()
}

func explain(stage Stage, err error) string {
	var dns *net.DNSError
	switch {
	case errors.Is(err, errFlood):
		return "the endpoint sent far more bytes than a response may have"
	case errors.Is(err, errBusy):
		return "the gateway has too many open connections; try again later"
	case errors.Is(err, errRefusedAddress): // the first error of several addresses
		return "some of its addresses are forbidden and the others cannot be reached"
	case errors.As(err, &dns):
		return explainDNS(dns)
	}
	if text := explainTLS(err); text != "" {
		return text
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "the address cannot be reached"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection reset by the endpoint while " + waitingFor[stage]
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, io.ErrClosedPipe),
		strings.HasSuffix(err.Error(), "server closed idle connection"):
		return "connection closed by the endpoint while " + waitingFor[stage]
	case isTimeout(err):
		return "timed out while " + waitingFor[stage]
	case stage == StageConnect:
		return "cannot connect"
	case headersTooLarge(err):
		return fmt.Sprintf("the response's headers are over %d bytes", MaxResponseHeaderBytes)
	case stage == StageHeaders:
		return "the response is not valid HTTP"
	case stage == StageBody:
		return "the response's body is not valid HTTP, or its transfer was broken off"
	}
	return "failed while " + waitingFor[stage]
}

// headersTooLarge knows net/http's three errors for it by their texts, as it exports none; the tests would notice other ones.
func headersTooLarge(err error) bool {
	text := err.Error()
	return strings.Contains(text, "server response headers exceeded") || strings.HasSuffix(text, "header list too large") ||
		strings.HasSuffix(text, "header list larger than advertised limit")
}

func explainDNS(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return "no such host"
	case err.IsTimeout:
		return "the name server did not answer in time"
	}
	return "the name server failed"
}

// explainTLS returns "" when err does not come from TLS.
func explainTLS(err error) string {
	var (
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		op        *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return "the endpoint's certificate is signed by an authority that is not trusted here"
	case errors.As(err, &hostname):
		return "the endpoint's certificate is for another host"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the endpoint's certificate has expired or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return "the endpoint's certificate is not valid"
	case errors.As(err, &record):
		return "the endpoint does not speak TLS on this port"
	case errors.As(err, &op) && op.Op == "remote error":
		return "the endpoint ended the TLS handshake: " + op.Err.Error() // one of a fixed list: "tls: certificate required"
	}
	return ""
}
