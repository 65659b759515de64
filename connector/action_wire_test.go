package connector

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/jsonrpc"
)

func TestEncodeAction(t *testing.T) {
	t.Parallel()
	const ids = `"workflowId":"0x0000000000000000000000000000000000000000000000000000000000000001","workflowOwner":"0x0000000000000000000000000000000000000002"`
	for name, test := range map[string]struct {
		a    ActionRequest
		read int64
		want string
	}{
		"everything": {ActionRequest{Method: "POST", URL: "u", Header: http.Header{"X-A": {"1", "2"}, "X-B": {"3"}}, Body: []byte("body"),
			Timeout: 1500 * time.Millisecond, MaxBytes: 99, Cache: ActionCache{MaxAge: time.Minute, Store: true},
			ClientCertificate: &ClientCertificate{CertPEM: []byte("cert"), KeyPEM: []byte("key")}}, 4 << 20,
			`{"url":"u","method":"POST","multiHeaders":{"X-A":["1","2"],"X-B":["3"]},"body":"Ym9keQ==","timeoutMs":1500,"maxBytes":99,
			"cacheSettings":{"maxAgeMs":60000,"store":true},"mtlsAuth":{"privateKey":"a2V5","certificate":"Y2VydA=="},` + ids + `}`},
		"one value per name": {ActionRequest{URL: "u", Header: http.Header{"X-A": {"1"}, "X-B": {""}, "X-C": {}}}, 4 << 20,
			`{"url":"u","headers":{"X-A":"1","X-B":""},"maxBytes":2752512,` + ids + `}`},
		"no value":        {ActionRequest{URL: "u", Header: http.Header{"X-C": nil}}, 4 << 20, `{"url":"u","maxBytes":2752512,` + ids + `}`},
		"a little":        {ActionRequest{URL: "u", Timeout: 1, Cache: ActionCache{MaxAge: 1}}, 4 << 20, `{"url":"u","timeoutMs":1,"maxBytes":2752512,"cacheSettings":{"maxAgeMs":1,"store":false},` + ids + `}`},
		"a lot":           {ActionRequest{URL: "u", Timeout: time.Hour, MaxBytes: 1 << 40}, 1 << 60, `{"url":"u","timeoutMs":60000,"maxBytes":4294967295,` + ids + `}`},
		"a small reader":  {ActionRequest{URL: "u"}, 8 << 10, `{"url":"u","maxBytes":3072,` + ids + `}`},
		"hardly a reader": {ActionRequest{URL: "u"}, 1, `{"url":"u","maxBytes":1,` + ids + `}`},
		"store alone":     {ActionRequest{URL: "u", Cache: ActionCache{Store: true}}, 4 << 20, `{"url":"u","maxBytes":2752512,"cacheSettings":{"maxAgeMs":0,"store":true},` + ids + `}`},
	} {
		test.a.WorkflowID, test.a.WorkflowOwner = "1", "2"
		id, data, refused := encodeAction(&test.a, test.read)
		require.Nil(t, refused, name)
		r, err := jsonrpc.DecodeResponse(data)
		require.NoError(t, err, name)
		require.NoError(t, r.Check(), name)
		require.Equal(t, id, r.ID)
		require.JSONEq(t, test.want, string(r.Result), name)
	}
}

// A body as long as was asked for, with all the headers a gateway passes on, fits into one message.
func TestAnswersFitTheReader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		read := rapid.Int64Range(2<<20, 1<<34).Draw(t, "read")
		body := readableBody(read)
		encoded := (body + 2) / 3 * 4
		const headers = 2 * 3 * 64 << 10 // twice, each byte three when it is no UTF-8
		require.LessOrEqual(t, encoded+headers+(16<<10), read)
		require.True(t, encoded >= read/2 || body == 1<<32-1)
	})
}

func TestDecodeActionAnswer(t *testing.T) {
	t.Parallel()
	r, err := decodeActionAnswer([]byte(`{"statusCode":404,"headers":{"x":"9"},"multiHeaders":{"x-b":["2"],"X-B":["1","1,5"],"Empty":[]},"body":"","externalEndpointLatency":-1,"new":[1]}`))
	require.NoError(t, err)
	require.Equal(t, &ActionResponse{StatusCode: 404, Header: http.Header{"X-B": {"1", "1,5", "2"}}, Body: []byte{}}, r)
	r, err = decodeActionAnswer([]byte(`{"statusCode":599,"headers":{"a":"1","A":"0","b":"2"},"multiHeaders":{}}`))
	require.NoError(t, err)
	require.Equal(t, http.Header{"A": {"0", "1"}, "B": {"2"}}, r.Header, "without the one, the other")
	for _, params := range []string{"", "{", `{"statusCode":200,"body":"cHJpY2U"}`, `{"statusCode":200,"multiHeaders":{"a":"b"}}`, `{"statusCode":200,"externalEndpointLatency":"1"}`, `{"statusCode":-200}`} {
		_, err := decodeActionAnswer([]byte(params))
		require.ErrorIs(t, err, ErrUnreadableAnswer, params)
	}
}

// FuzzDecodeActionAnswer: whatever a gateway answers, the decoder does not panic; it returns a response that holds every
// rule, or an error without the answer's bytes in it, save for the message that is for the caller.
func FuzzDecodeActionAnswer(f *testing.F) {
	for _, s := range []string{
		`{"statusCode":200,"headers":{"A":"1,2"},"multiHeaders":{"A":["1","2"]},"body":"cHJpY2U=","externalEndpointLatency":12,"isExternalEndpointError":false,"isValidationError":false}`,
		`{"errorMessage":"refused","isValidationError":true}`, `{"errorMessage":"` + strings.Repeat("ü", 600) + `","isExternalEndpointError":true}`,
		`{"statusCode":1e2}`, `{"statusCode":200,"body":"=="}`, `{"statusCode":200,"body":null,"headers":null}`, `{"StatusCode":200}`, `null`, `[]`, `{`, ``, "\xff",
		`{"statusCode":200,"statusCode":200}`, `{"statusCode":99999999999999999999}`, `{"statusCode":200,"multiHeaders":{"":[""],"\u0000":["\n"]}}`,
		`{"statusCode":200,"externalEndpointLatency":9223372036854775807}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		r, err := decodeActionAnswer(params)
		var e *ActionError
		switch {
		case errors.As(err, &e):
			require.LessOrEqual(t, len(e.Message), maxActionMessage)
			require.True(t, e.Validation || e.External || e.Message != "")
		case err != nil:
			require.ErrorIs(t, err, ErrUnreadableAnswer)
			require.Less(t, len(err.Error()), 150)
		default:
			require.True(t, 100 <= r.StatusCode && r.StatusCode <= 999)
			require.GreaterOrEqual(t, r.Latency, time.Duration(0))
			for name, values := range r.Header {
				require.Equal(t, http.CanonicalHeaderKey(name), name)
				require.NotEmpty(t, values)
			}
			again, err := json.Marshal(&wireAnswer{StatusCode: r.StatusCode, MultiHeaders: r.Header, Body: r.Body, Latency: int64(r.Latency)})
			require.NoError(t, err)
			back, err := decodeActionAnswer(again)
			require.NoError(t, err)
			require.Equal(t, r.Header, back.Header)
			require.Equal(t, base64.StdEncoding.EncodeToString(r.Body), base64.StdEncoding.EncodeToString(back.Body))
		}
	})
}
