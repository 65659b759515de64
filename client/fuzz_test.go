package client

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzRead: whatever answers, the client does not panic, and says exactly one of: result, nodes' error, refusal, unknown.
func FuzzRead(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":"a","method":"m","result":{"n":1}}`,
		`{"jsonrpc":"2.0","id":"a","error":{"code":-32000,"message":"rate limit exceeded","data":{"reason":"rate_limited","retryAfterMs":1e99}}}`,
		`{"jsonrpc":"2.0","id":"a","error":{"code":-32001,"message":"x","data":{"reason":"conflict","state":"answered","response":{"jsonrpc":"2.0","id":"a","result":1}}}}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"x","data":{"reason":"no_quorum","shards":[{"groups":[1,-1]}]}}}`,
		`{"jsonrpc":"2.0","id":"a","error":{"code":1,"message":"x","data":{"reason":5}}}`, `<html>`, ``, `null`, `[]`,
	} {
		for _, status := range []int{200, 302, 400, 429, 503} {
			f.Add(status, s, "3")
		}
	}
	f.Fuzz(func(t *testing.T, status int, body, after string) {
		s := &Signed{Prepared: Prepared{ID: "a"}}
		resp := &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}}
		r, err := read("http://g/", s, resp, []byte(body))
		if err == nil {
			require.Equal(t, 200, status)
			require.Equal(t, "a", r.ID)
			require.NotEmpty(t, r.Result)
			return
		}
		require.Nil(t, r)
		var e *Error
		var n *NodeError
		var u *UnknownOutcomeError
		switch {
		case errors.As(err, &e):
			require.False(t, e.RetryAfter < 0)
			require.LessOrEqual(t, e.RetryAfter, maxRetryAfter)
			require.NotEqual(t, 200, status)
		case errors.As(err, &n):
			require.Equal(t, 200, status)
		default:
			require.ErrorAs(t, err, &u)
		}
		_ = err.Error()
	})
}
