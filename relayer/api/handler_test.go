package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

func TestOptions(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	good := f.o
	for name, change := range map[string]func(*Options){
		"store":      func(o *Options) { o.Store = nil },
		"signatures": func(o *Options) { o.Signatures = nil },
		"chains":     func(o *Options) { o.HostChains = nil },
		"threshold":  func(o *Options) { o.Threshold = 0 },
		"limits":     func(o *Options) { o.Limits = map[fhevm.Kind]Queue{fhevm.KindInputProof: {Capacity: 1}} },
		"no room": func(o *Options) {
			o.Limits = map[fhevm.Kind]Queue{fhevm.KindInputProof: {Capacity: 1, Margin: 1}, fhevm.KindPublicDecrypt: {Capacity: 1}, fhevm.KindUserDecrypt: {Capacity: 1}}
		},
		"uncounted": func(o *Options) {
			o.Limits = map[fhevm.Kind]Queue{fhevm.KindInputProof: {Capacity: 1}, fhevm.KindPublicDecrypt: {Capacity: store.MaxCount + 1}, fhevm.KindUserDecrypt: {Capacity: 1}}
		},
		"empty key":   func(o *Options) { o.Keys = []APIKey{{"a", nil}} },
		"unnamed key": func(o *Options) { o.Keys = []APIKey{{"", []byte("k")}} },
		"same key":    func(o *Options) { o.Keys = []APIKey{{"a", []byte("k")}, {"b", []byte("k")}} },
		"same name":   func(o *Options) { o.Keys = []APIKey{{"a", []byte("k")}, {"a", []byte("l")}} },
	} {
		o := good
		o.Metrics = prometheus.NewRegistry()
		change(&o)
		_, err := New(o)
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), `"k"`)
	}
}

func TestPathsAndMethods(t *testing.T) {
	t.Parallel()
	f := memory(t, nil)
	for _, path := range []string{"/", "/v1/input-proof", "/v2", "/v2/", "/v2/other", "/v2/input-proof/", "/v2/input-proof/a/b", "/v3/input-proof", "/v3/keyurl",
		"/v2/keyurl/x", "/v2//input-proof", "/liveness/", "/v2/input-proof/../keyurl", "/V2/keyurl", "/admin/config", "/v2/{job_id}"} {
		a := f.do(t, "GET", path, "", sdkName, sdk)
		require.Equal(t, 404, a.status, path)
		require.Equal(t, fhevm.LabelNotFound, a.body.Error.Label)
		require.Equal(t, "No such path", a.body.Error.Message)
	}
	for path, allow := range map[string]string{"/v2/input-proof": "POST", "/v3/user-decrypt": "POST", "/v2/input-proof/x": "GET, HEAD", "/v2/keyurl": "GET, HEAD", "/healthz": "GET, HEAD"} {
		for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "X"} {
			if strings.Contains(allow, method) {
				continue
			}
			a := f.do(t, method, path, "")
			require.Equal(t, 405, a.status, "%s %s", method, path)
			require.Equal(t, allow, a.header.Get("Allow"))
			require.Equal(t, fhevm.LabelRequestError, a.body.Error.Label)
			require.Equal(t, 400, f.do(t, method, path, "", sdkName, sdk).status)
		}
	}
	head := f.do(t, "HEAD", "/liveness", "")
	require.Equal(t, 200, head.status)
	require.Empty(t, head.raw)

	// Mounted as Paths says, every route is reached.
	mux := http.NewServeMux()
	for _, p := range f.Paths() {
		mux.Handle(p, f)
	}
	for _, op := range operations() {
		_, pattern := mux.Handler(httptest.NewRequest(strings.ToUpper(op.method), strings.Replace(op.path, "{job_id}", unknownID, 1), nil))
		require.Contains(t, f.Paths(), pattern, op.path)
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	var asked, draining int
	healthy := map[string]bool{"database": true, "gateway_http": true}
	key := fhevm.KeyMaterial{ID: [32]byte{31: 1}, URLs: []string{"https://a/b"}}
	f := memory(t, func(o *Options) {
		o.Version = VersionInfo{"relayer", "1.2.3", "abc-clean"}
		o.Health = func(ctx context.Context) map[string]bool {
			asked++
			_, bounded := ctx.Deadline()
			require.True(t, bounded)
			return healthy
		}
		o.Draining = func() bool { return draining > 0 }
		o.KeyURL = func() (fhevm.KeyMaterial, fhevm.KeyMaterial, bool) { return key, key, true }
	})
	require.JSONEq(t, `{"status":"alive"}`, f.do(t, "GET", "/liveness", "").raw)
	require.JSONEq(t, `{"name":"relayer","version":"1.2.3","build":"abc-clean"}`, f.do(t, "GET", "/version", "").raw)
	id := "0x" + strings.Repeat("00", 31) + "01"
	require.JSONEq(t, `{"status":"succeeded","response":{"fheKeyInfo":[{"fhePublicKey":{"dataId":"`+id+`","urls":["https://a/b"]}}],"crs":{"2048":{"dataId":"`+id+`","urls":["https://a/b"]}}}}`,
		f.do(t, "GET", "/v2/keyurl", "").raw)

	for range 3 {
		require.JSONEq(t, `{"status":"healthy","dependencies":{"database":"ok","gateway_http":"ok"}}`, f.do(t, "GET", "/healthz", "").raw)
	}
	require.Equal(t, 1, asked)
	healthy = map[string]bool{"database": false, "gateway_http": true}
	f.clock.advance(time.Second)
	a := f.do(t, "GET", "/healthz", "")
	require.Equal(t, 503, a.status)
	require.JSONEq(t, `{"status":"unhealthy","dependencies":{"database":"fail","gateway_http":"ok"}}`, a.raw)
	draining = 1
	a = f.do(t, "GET", "/healthz", "")
	require.Equal(t, 503, a.status)
	require.JSONEq(t, `{"status":"shutting_down"}`, a.raw)

	bare := memory(t, nil)
	require.JSONEq(t, `{"status":"healthy","dependencies":{}}`, bare.do(t, "GET", "/healthz", "").raw)
	a = bare.do(t, "GET", "/v2/keyurl", "")
	require.Equal(t, 503, a.status)
	require.Equal(t, fhevm.LabelGatewayNotReachable, a.body.Error.Label)
}

func TestKeys(t *testing.T) {
	t.Parallel()
	const page = "https://app.example.com"
	f := memory(t, func(o *Options) {
		o.Keys = []APIKey{{"a", []byte("first-key")}, {"b", []byte("second-key")}}
		o.AllowOrigin = func(origin string) bool { return origin == page }
	})
	e := fhevm.EndpointInputProof
	for i, headers := range [][]string{
		{"x-api-key", "first-key"}, {"X-API-KEY", "second-key"}, {"Authorization", "Bearer first-key"}, {"authorization", "bearer second-key"},
		{"Cookie", "x-api-key=first-key;"}, {"Cookie", "a=b; x-api-key=second-key"}, {"Cookie", "x-api-key=first-key", "Origin", page},
		{"Cookie", "x-api-key=first-key", "Origin", "http://example.com"}, // the host of the request
		{"Authorization", "Basic x", "Cookie", "x-api-key=first-key"}, {"x-api-key", "first-key", "Authorization", "Bearer wrong"},
	} {
		a := f.do(t, "POST", string(e), bodyOf(e, i), headers...)
		require.Equal(t, 202, a.status, headers)
		require.Equal(t, 202, f.do(t, "GET", string(e)+"/"+a.body.Result.JobID, "", headers...).status)
	}
	for _, headers := range [][]string{
		nil, {"x-api-key", ""}, {"x-api-key", "first-ke"}, {"x-api-key", "first-keyy"}, {"x-api-key", "a"}, {"Authorization", "first-key"}, {"Authorization", "Basic first-key"},
		{"Authorization", "Bearer "}, {"x-api-key", "wrong", "Authorization", "Bearer first-key"}, {"Cookie", "api-key=first-key"},
		{"Cookie", "x-api-key=first-key", "Origin", "https://evil.example.com"}, {"Cookie", "x-api-key=first-key", "Origin", "null"},
		{"x-api-key", strings.Repeat("x", 1<<16)},
	} {
		for _, to := range []string{"POST /v2/input-proof", "GET /v2/input-proof/" + unknownID, "GET /v2/keyurl"} {
			method, path, _ := strings.Cut(to, " ")
			for _, header := range []string{"", sdk} {
				a := f.do(t, method, path, bodyOf(e, 99), append([]string{sdkName, header}, headers...)...)
				require.Equal(t, 401, a.status, "%s %v", to, headers)
				require.Equal(t, fhevm.LabelUnauthorized, a.body.Error.Label)
				require.NotEmpty(t, a.header.Get("WWW-Authenticate"))
			}
		}
		for _, path := range []string{"/liveness", "/healthz", "/version", "/docs", "/openapi.yml"} {
			require.Equal(t, 200, f.do(t, "GET", path, "", headers...).status)
		}
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	address := netip.MustParseAddr("192.0.2.1")
	f := memory(t, func(o *Options) {
		o.Keys = []APIKey{{"a", []byte("a")}, {"b", []byte("b")}}
		o.PerAddressRPS, o.PerKeyRPS = 3, 2
		o.ClientIP = func(*http.Request) netip.Addr { return address }
	})
	e := fhevm.EndpointInputProof
	post := func(key string) got { return f.do(t, "POST", string(e), bodyOf(e, 1), "x-api-key", key) }
	refused := func(a got) {
		t.Helper()
		require.Equal(t, 429, a.status)
		require.Equal(t, "Rate limit exceeded: send fewer requests", a.body.Error.Message)
		require.Equal(t, 1, a.retryAfter)
	}
	id := post("a").body.Result.JobID
	require.Equal(t, 202, post("a").status)
	refused(post("a")) // its key's, which costs the address nothing
	require.Equal(t, 202, post("b").status)
	refused(post("b")) // its address's
	refused(post("wrong"))
	for range 10 {
		require.Equal(t, 202, f.do(t, "GET", string(e)+"/"+id, "", "x-api-key", "a").status, "a GET is free")
	}
	address = netip.MustParseAddr("2001:db8::1")
	require.Equal(t, 202, post("b").status)
	for range 2 {
		require.Equal(t, 401, post("wrong").status)
	}
	address = netip.MustParseAddr("2001:db8::2")
	refused(post("wrong"))
	address = netip.MustParseAddr("2001:db8:0:1::2")
	require.Equal(t, 401, post("wrong").status)
	f.clock.advance(time.Second)
	require.Equal(t, 202, post("a").status)

	slow := memory(t, func(o *Options) { o.PerAddressRPS = 0.001 })
	require.Equal(t, 202, slow.do(t, "POST", string(e), bodyOf(e, 1)).status)
	require.Equal(t, 300, slow.do(t, "POST", string(e), bodyOf(e, 1)).retryAfter, "within the bounds")
}

func TestCORS(t *testing.T) {
	t.Parallel()
	const page = "https://app.example.com"
	f := memory(t, func(o *Options) { o.AllowOrigin = func(origin string) bool { return origin == page } })
	preflight := func(origin, headers string) http.Header {
		r := httptest.NewRequest("OPTIONS", "/v2/input-proof", nil)
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", headers)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		require.Equal(t, 204, w.Code)
		return w.Header()
	}
	const asked = "authorization,content-type,x-api-key,zama-sdk-name,zama-sdk-version"
	header := preflight(page, asked)
	require.Equal(t, page, header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, asked, header.Get("Access-Control-Allow-Headers"))
	require.Empty(t, preflight("https://evil.example.com", asked).Get("Access-Control-Allow-Origin"))
	require.Empty(t, preflight(page, "x-other").Get("Access-Control-Allow-Origin"))

	a := f.do(t, "POST", "/v2/input-proof", bodyOf(fhevm.EndpointInputProof, 1), "Origin", page)
	require.Equal(t, 202, a.status)
	require.Equal(t, page, a.header.Get("Access-Control-Allow-Origin"))
	require.Equal(t, "Retry-After", a.header.Get("Access-Control-Expose-Headers"))
	a = f.do(t, "POST", "/v2/input-proof", "{", "Origin", "https://evil.example.com")
	require.Empty(t, a.header.Get("Access-Control-Allow-Origin"))

	none := memory(t, nil)
	require.Empty(t, none.do(t, "GET", "/liveness", "", "Origin", page).header.Get("Access-Control-Allow-Origin"))
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	f := memory(t, func(o *Options) { o.Metrics = registry })
	e := fhevm.EndpointUserDecryptV3
	for range 2 {
		f.do(t, "POST", string(e), bodyOf(e, 1), sdkName, sdk, sdkVersion, "0.4.2")
	}
	f.do(t, "GET", "/v2/input-proof/x", "")
	f.do(t, "BREW", "/teapot", "", sdkName, "mine", sdkVersion, "1.2.3")
	for n := range 100 {
		f.do(t, "GET", "/v2/keyurl", "", sdkName, sdk, sdkVersion, fmt.Sprintf("1.0.%d", n))
	}
	f.do(t, "GET", "/v2/keyurl", "", sdkName, sdk, sdkVersion, strings.Repeat("9", 1000))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP relayer_request_cache_total Accepted requests, new and repeated.
# TYPE relayer_request_cache_total counter
relayer_request_cache_total{req_type="user_decrypt",result="new"} 1
relayer_request_cache_total{req_type="user_decrypt",result="repeated"} 1
# HELP relayer_user_decrypt_signature_precheck_total Signatures checked before a request is accepted.
# TYPE relayer_user_decrypt_signature_precheck_total counter
relayer_user_decrypt_signature_precheck_total{outcome="accepted"} 2
# HELP relayer_http_responses_total HTTP responses.
# TYPE relayer_http_responses_total counter
relayer_http_responses_total{endpoint="input-proof",method="GET",status="400",version="v2"} 1
relayer_http_responses_total{endpoint="keyurl",method="GET",status="503",version="v2"} 101
relayer_http_responses_total{endpoint="other",method="other",status="404",version=""} 1
relayer_http_responses_total{endpoint="user-decrypt",method="POST",status="202",version="v3"} 2
`), "relayer_request_cache_total", "relayer_user_decrypt_signature_precheck_total", "relayer_http_responses_total"))
	require.EqualValues(t, 2, testutil.ToFloat64(f.metrics.requests.WithLabelValues("user-decrypt", "POST", "v3", sdk, "0.4.2")))
	require.EqualValues(t, 1, testutil.ToFloat64(f.metrics.requests.WithLabelValues("other", "other", "", "unknown", "unknown")))
	require.LessOrEqual(t, testutil.CollectAndCount(f.metrics.requests), 3+maxVersions+1)
	_, err := New(Options{Store: f.store, Limits: f.o.Limits, Signatures: f.signatures, HostChains: f.o.HostChains, Threshold: 1, Metrics: registry})
	require.Error(t, err, "registered already")
}

// FuzzRequests checks that every answer to anything is an envelope, as the document has it.
func FuzzRequests(f *testing.F) {
	for _, e := range fhevm.Endpoints {
		f.Add("POST", string(e), bodyOf(e, 1), sdk)
	}
	f.Add("GET", "/v2/input-proof/"+unknownID, "", "")
	f.Add("GET", "/v2/%zz", "", "x")
	fix := memory(f, nil)
	f.Fuzz(func(t *testing.T, method, path, body, name string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://x"+path, strings.NewReader(body))
		if err != nil || !strings.HasPrefix(path, "/") {
			return
		}
		r.Header.Set(sdkName, name)
		a := fix.send(t, r)
		if a.header.Get("Content-Type") == "application/json" && method != "HEAD" {
			require.True(t, jsontext.Value(a.raw).IsValid())
		}
	})
}
