package chain

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
)

const (
	// maxReply bounds an answer in bytes: a block's header comes with the hashes of its transactions, a receipt with its logs.
	maxReply = 8 << 20
	// maxLogsReply bounds the answer to a question for logs, in bytes. A range with more has to be asked for in parts.
	maxLogsReply = 32 << 20

	dialTimeout = 5 * time.Second
	keepAlive   = 30 * time.Second
)

// Causes for which a call goes to the next node.
var (
	errMalformed  = errors.New("malformed answer")
	errTooLarge   = fmt.Errorf("%w: too large", errMalformed)
	errOtherChain = errors.New("the node is of another chain")
	errStuck      = errors.New("it answers but does not move on")
)

// statusError is an HTTP status that is no answer.
type statusError int

func (s statusError) Error() string { return fmt.Sprintf("HTTP status %d", int(s)) }

func newHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    dialTimeout,
			IdleConnTimeout:        90 * time.Second,
			MaxIdleConns:           256,
			MaxIdleConnsPerHost:    64,
			MaxConnsPerHost:        512,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// post makes one call to one node within the pool's time limit and tells the observer.
func (p *Pool) post(ctx context.Context, n *node, r request) error {
	start := time.Now()
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	err := p.exchange(limited, n, r)
	p.observe(r.method, outcome(ctx, err), time.Since(start))
	return err
}

func outcome(ctx context.Context, err error) string {
	var answer *RPCError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &answer):
		return "error"
	case errors.Is(ctx.Err(), context.Canceled):
		return "canceled"
	case errors.Is(err, errMalformed):
		return "malformed"
	case timedOut(err):
		return "timeout"
	default:
		return "failed"
	}
}

func (p *Pool) exchange(ctx context.Context, n *node, r request) error {
	id := p.ids.Add(1)
	params := r.params
	if params == nil {
		params = []any{}
	}
	body, err := json.Marshal(struct {
		Version string `json:"jsonrpc"`
		ID      uint64 `json:"id"`
		Method  string `json:"method"`
		Params  []any  `json:"params"`
	}{"2.0", id, r.method, params})
	if err != nil {
		return fmt.Errorf("encoding %s: %w", r.method, err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("the node's URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := p.http.Do(req)
	if err != nil {
		var ue *url.Error // its text holds the URL
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return err
	}
	defer resp.Body.Close()
	// An error may come with a status of 4xx, so that is no failure as long as it is an answer to our call.
	if s := resp.StatusCode; s >= 500 || s < 200 || (s >= 300 && s < 400) || s == http.StatusTooManyRequests ||
		s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusRequestTimeout {
		return statusError(s)
	}
	limit := r.limit
	if limit == 0 {
		limit = maxReply
	}
	reply, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return err
	}
	if int64(len(reply)) > limit {
		if r.tooLarge != nil {
			return r.tooLarge
		}
		return errTooLarge
	}
	err = decodeReply(reply, id, r.decode)
	if errors.Is(err, errMalformed) && resp.StatusCode >= 300 {
		return statusError(resp.StatusCode)
	}
	return err
}

// decodeReply takes a JSON-RPC reply apart. The error is an *RPCError or wraps errMalformed.
func decodeReply(reply []byte, id uint64, decode func(result []byte) error) error {
	var r struct {
		ID     json.RawMessage `json:"id"`
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Code    int             `json:"code"`
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply, &r); err != nil {
		return fmt.Errorf("%w: not JSON-RPC", errMalformed)
	}
	if string(r.ID) != fmt.Sprint(id) {
		return fmt.Errorf("%w: it answers another call", errMalformed)
	}
	if r.Error != nil {
		return &RPCError{r.Error.Code, clean(r.Error.Message), revertData(r.Error.Data)}
	}
	if len(r.Result) == 0 {
		return fmt.Errorf("%w: neither result nor error", errMalformed)
	}
	if err := decode(r.Result); err != nil {
		return fmt.Errorf("%w: %s", errMalformed, tidy(err.Error()))
	}
	return nil
}

// revertData reads an error's data as nodes write it: 0x and hex, some with a word before it; anything else is no revert's data.
func revertData(raw json.RawMessage) []byte {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil
	}
	_, digits, found := strings.Cut(text, "0x")
	if !found {
		return nil
	}
	data, err := hex.DecodeString(digits)
	if err != nil || len(data) == 0 {
		return nil
	}
	return data
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || isTimeout(err)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// brief says why a node did not answer, for a text that may reach a client: no host, no address, nothing of the node's own.
func brief(err error) string {
	var status statusError
	var errno syscall.Errno
	var dns *net.DNSError
	var answer *RPCError
	switch {
	case err == nil:
		return "there is none"
	case errors.Is(err, errOtherChain):
		return errOtherChain.Error()
	case errors.Is(err, errMalformed):
		return errMalformed.Error()
	case errors.As(err, &status):
		return status.Error()
	case errors.As(err, &answer):
		return fmt.Sprintf("error %d", answer.Code)
	case timedOut(err):
		return "no answer in time"
	case errors.As(err, &dns):
		return "its host name is not known"
	case errors.As(err, &errno):
		return errno.Error()
	default:
		return "the connection failed"
	}
}

// detail says the same for the log, with the cause's own words.
func detail(err error) string {
	if timedOut(err) {
		return "no answer in time"
	}
	return tidy(err.Error())
}

func decodeUint64(out *uint64) func([]byte) error {
	return func(result []byte) error {
		if isNull(result) {
			return errors.New("null is no number")
		}
		var n hexutil.Uint64
		if err := json.Unmarshal(result, &n); err != nil {
			return err
		}
		*out = uint64(n)
		return nil
	}
}

func isNull(result []byte) bool { return string(bytes.TrimSpace(result)) == "null" }
