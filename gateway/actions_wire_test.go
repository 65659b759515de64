package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/jsonrpc"
)

// Every member of an answer, as the bytes on the wire.
//
// conformance: 7.answer.form
// conformance: 7.answer.latency
// conformance: 7.answer.status
func TestAnswersOnTheWire(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		_, nodes := acting(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				time.Sleep(3 * time.Second)
			}
			w.Header()["Date"] = nil
			w.Header()["X-Many"] = []string{"a", "b\"c"}
			w.Header()["X-Latin"] = []string{"caf\xe9"}
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "oh\x00")
		}, rigSpec{})
		const headers = `"headers":{"Content-Length":"3","Content-Type":"text/plain","X-Latin":"caf�","X-Many":"a,b\"c"},` +
			`"multiHeaders":{"Content-Length":["3"],"Content-Type":["text/plain"],"X-Latin":["caf�"],"X-Many":["a","b\"c"]}`
		for _, tt := range []struct {
			ask  map[string]any
			want string
		}{
			{map[string]any{"url": endpoint + "slow"}, `{"isExternalEndpointError":false,"isValidationError":false,"statusCode":503,` + headers + `,"body":"b2gA","externalEndpointLatency":3000000000}`},
			{map[string]any{"url": endpoint + "slow", "cacheSettings": share}, `{"isExternalEndpointError":false,"isValidationError":false,"statusCode":503,` + headers + `,"body":"b2gA","externalEndpointLatency":3000000000}`},
			{map[string]any{"url": endpoint + "slow", "timeoutMs": 1}, `{"errorMessage":"8.8.8.8: no complete response within 1ms: timed out while waiting for the response's headers","isExternalEndpointError":true,"isValidationError":false,"externalEndpointLatency":0}`},
			{map[string]any{"url": "http://[::1]/"}, `{"errorMessage":"the address ::1 is loopback, not public; actions can reach public addresses only","isExternalEndpointError":false,"isValidationError":true,"externalEndpointLatency":0}`},
		} {
			id := nodes[0].ask(theWorkflow(), tt.ask)
			req := within(t, nodes[0].got)
			require.Equal(t, id, req.ID)
			require.Equal(t, "http_action", req.Method)
			require.Equal(t, tt.want, string(req.Params))
		}
		time.Sleep(3 * time.Second) // until the last handler has ended
	})
}

// conformance: 7.answer.latency
func TestLatencyFromTheCacheIsZero(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		_, nodes := acting(t, paths, rigSpec{})
		for i := range 3 {
			nodes[i].ask(theWorkflow(), map[string]any{"url": endpoint + "after?2s", "cacheSettings": map[string]any{"maxAgeMs": 60_000, "store": true}})
			_, a, _ := nodes[i].next()
			require.EqualValues(t, map[bool]time.Duration{true: 2 * time.Second}[i == 0], *a.LatencyNanosP)
		}
	})
}

// conformance: 7.request.headers
// conformance: 7.request.body
func TestFormsOfHeadersAndBody(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		_, nodes := acting(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%q %q %s", r.Header["X-A"], r.Header["X-B"], body)
		}, rigSpec{})
		for _, tt := range []struct{ members, want string }{
			{``, `[] [] `},
			{`"headers":null,"multiHeaders":null,"body":null`, `[] [] `},
			{`"headers":{},"multiHeaders":{},"body":""`, `[] [] `},
			{`"headers":{"X-A":"1","x-b":""}`, `["1"] [""] `},
			{`"headers":{"X-A":"1"},"multiHeaders":null`, `["1"] [] `},
			{`"headers":{"X-A":"1"},"multiHeaders":{}`, `["1"] [] `},
			{`"headers":{"X-A":"1"},"multiHeaders":{"X-B":["2","3"]}`, `[] ["2" "3"] `},
			{`"headers":null,"multiHeaders":{"x-A":["2"],"X-a":["1"]}`, `["1" "2"] [] `},
			{`"headers":{"X-A":null}`, `[""] [] `},
			{`"method":"PUT","body":"aGk="`, `[] [] hi`},
			{`"headers":{"Host":"a"},"multiHeaders":{"X-B":["2"]}`, `refused`},
			{`"headers":{"X-A":"a\nb"},"multiHeaders":{"X-B":["2"]}`, `refused`},
			{`"headers":{"X-A":"1"},"multiHeaders":{"te":["2"]}`, `refused`},
			{`"headers":{"X-A":1}`, `refused`},
			{`"headers":{"X-A":["1"]}`, `refused`},
			{`"headers":["X-A"]`, `refused`},
			{`"headers":"X-A: 1"`, `refused`},
			{`"multiHeaders":{"X-A":"1"}`, `refused`},
			{`"body":"a"`, `refused`},
			{`"body":"aGk"`, `refused`},
			{`"body":["aGk="]`, `refused`},
		} {
			w := theWorkflow().Selector
			result := `{"url":"` + endpoint + `","workflowId":"` + w.WorkflowID + `","workflowOwner":"` + w.WorkflowOwner + `"`
			if tt.members != "" {
				result += "," + tt.members
			}
			nodes[0].send(jsonrpc.AppendResult(nil, "http_action/"+w.WorkflowID+"/1", methodAction, []byte(result+"}")))
			_, a, _ := nodes[0].next()
			if tt.want == "refused" {
				require.True(t, a.Validation, "%s: %+v", tt.members, a)
				continue
			}
			require.Equal(t, tt.want, string(a.Body), "%s: %+v", tt.members, a)
		}
	})
}

// conformance: 7.request.max-bytes
func TestByteLimitOfAnAction(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		_, nodes := acting(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1000)) },
			rigSpec{top: map[string]any{"httpClientConfig": map[string]any{"maxResponseBytes": 1000}}})
		for given, fits := range map[int]bool{0: true, 999: false, 1000: true, 1<<32 - 1: true} {
			nodes[0].ask(theWorkflow(), map[string]any{"url": endpoint, "maxBytes": given})
			_, a, _ := nodes[0].next()
			require.Equal(t, fits, a.StatusCode == 200, "%d: %+v", given, a)
			require.Equal(t, !fits, a.External)
			require.False(t, a.Validation)
		}
		_, more := acting(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 1001)) },
			rigSpec{top: map[string]any{"httpClientConfig": map[string]any{"maxResponseBytes": 1000}}})
		for _, given := range []int{0, 1001, 1<<32 - 1} {
			more[0].ask(theWorkflow(), map[string]any{"url": endpoint, "maxBytes": given})
			_, a, _ := more[0].next()
			require.True(t, a.External, "%d: %+v", given, a)
			require.Contains(t, a.ErrorMessage, "over 1000 bytes")
		}
	})
}

// conformance: 7.answer.failed
func TestFailuresOfEndpointsAreExternal(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		_, nodes := acting(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/closed":
				panic(http.ErrAbortHandler)
			case "/short":
				w.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(w, "short")
			case "/gzip":
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = io.WriteString(w, "no gzip")
			}
		}, rigSpec{})
		for url, why := range map[string]string{
			"http://nowhere.example/": "no such host", endpoint + "closed": "closed", endpoint + "short": "closed", endpoint + "gzip": "gzip", "https://8.8.8.8/": "TLS",
		} {
			for _, cached := range []any{nil, share} {
				nodes[0].ask(theWorkflow(), map[string]any{"url": url, "cacheSettings": cached})
				_, a, _ := nodes[0].next()
				require.True(t, a.External, "%s: %+v", url, a)
				require.False(t, a.Validation)
				require.Zero(t, a.StatusCode)
				require.Contains(t, a.ErrorMessage, why)
			}
		}
	})
}

// conformance: 7.owner.workflow
// conformance: 7.owner.known
func TestWorkflowAndOwnerOfAnAction(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		_, nodes := acting(t, paths, rigSpec{})
		known := theWorkflow().Selector // 0x…01 of 0x…07
		for _, tt := range []struct{ inID, workflow, owner, why string }{
			{known.WorkflowID, known.WorkflowID, known.WorkflowOwner, ""},
			{"1", known.WorkflowID, known.WorkflowOwner, ""},
			{known.WorkflowID, "0x1", "7", ""},
			{"0X1", "1", "0x7", ""},
			{"0xAB", "ab", "0x9", ""},
			{"ab", "0xAB", "0xFF", ""},
			{"2", "1", "7", "differs"},
			{"", "1", "7", "differs"},
			{"x", "1", "7", "differs"},
			{"1", "", "7", "no workflow id"},
			{"1", "0x", "7", "no workflow id"},
			{"1", strings.Repeat("1", 65), "7", "no workflow id"},
			{"1", "1", "", "no address"},
			{"1", "1", strings.Repeat("7", 41), "no address"},
			{"1", "1", "8", "not the owner"},
			{"ab", "ab", "8", ""}, // nobody knows its owner
		} {
			id := "http_action/" + tt.inID + "/x"
			nodes[0].send(jsonrpc.AppendResult(nil, id, methodAction, mustJSON(map[string]any{"url": endpoint, "workflowId": tt.workflow, "workflowOwner": tt.owner})))
			got, a, _ := nodes[0].next()
			require.Equal(t, id, got)
			require.Equal(t, tt.why != "", a.Validation, "%+v: %+v", tt, a)
			require.Contains(t, a.ErrorMessage, tt.why)
			require.Equal(t, tt.why == "", a.StatusCode == 200)
		}
		nodes[0].send(jsonrpc.AppendResult(nil, "http_action/1", methodAction, mustJSON(map[string]any{"url": endpoint, "workflowId": "1", "workflowOwner": "7"})))
		_, a, _ := nodes[0].next()
		require.Contains(t, a.ErrorMessage, "differs", "the id ends after the workflow")
	})
}

// conformance: 7.limit.node
// conformance: 7.limit.owner
func TestConcurrentActionsOfANodeAndOfAnOwner(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, nodes := acting(t, paths, rigSpec{})
		hang := func(n *testNode, workflow, owner, times int) (busy int) {
			w := testWorkflow(workflow, "w", "v1", clientSigner)
			w.Selector.WorkflowOwner = fmt.Sprintf("0x%040x", owner)
			for range times {
				n.ask(w, map[string]any{"url": endpoint + "after?1h", "timeoutMs": 60_000})
			}
			synctest.Wait()
			for ; len(n.got) > 0; busy++ {
				_, a, _ := n.next()
				require.True(t, a.Validation, "%+v", a)
				require.Contains(t, a.ErrorMessage, "too many requests at once")
			}
			return busy
		}
		require.Equal(t, 8, hang(nodes[0], 1, 7, 40), "half of the owner's 64 for one node")
		require.Equal(t, 1, hang(nodes[0], 0x50, 7, 33), "as an unconfirmed owner it has others")
		require.Equal(t, 64, r.svc().actions.slots.underWay())
		require.Equal(t, 1, hang(nodes[0], 0x51, 8, 1), "the node's 64")
		require.Equal(t, 0, hang(nodes[1], 1, 7, 32))
		require.Equal(t, 1, hang(nodes[2], 1, 7, 1), "the owner's 64")
		require.Equal(t, 0, hang(nodes[2], 0x52, 9, 32))
		require.Equal(t, 128, r.svc().actions.slots.underWay())
	})
}

// conformance: 7.panic
func TestPanicEndsOneAction(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var logged lockedLog
		connect := pipeOrigin(t, paths)
		r, nodes := acting(t, nil, rigSpec{options: Options{Log: logged.logger(), Connect: func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			if to.Port() == 443 {
				panic("CANARY")
			}
			return connect(ctx, to)
		}}})
		for _, cached := range []any{nil, share} {
			nodes[0].ask(theWorkflow(), map[string]any{"url": "https://8.8.8.8/", "cacheSettings": cached})
			_, a, _ := nodes[0].next()
			require.True(t, a.External, "%+v", a)
			require.NotContains(t, a.ErrorMessage, "CANARY")
			nodes[0].ask(theWorkflow(), map[string]any{"url": endpoint, "cacheSettings": cached})
			_, a, _ = nodes[0].next()
			require.Equal(t, 200, a.StatusCode, a.ErrorMessage)
		}
		require.Equal(t, 2, strings.Count(logged.String(), "panic in an outbound request"))
		require.NotContains(t, logged.String(), "CANARY")
		require.Zero(t, r.svc().actions.slots.underWay())
		require.NotNil(t, r.live("don", 0), "its session goes on")
	})
}
