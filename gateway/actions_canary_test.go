package gateway

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"dongate/auth"
	"dongate/jsonrpc"
)

// lockedLog keeps what is logged at debug level.
type lockedLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *lockedLog) logger() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(l)), zap.DebugLevel))
}

// Canary strings in URLs, headers, bodies, key material, tokens and inputs, and in
// what endpoints and nodes say, never reach the log, at debug level, nor the metrics.
//
// conformance: 7.secrets
func TestCanariesStayOutOfLogs(t *testing.T) {
	t.Parallel()
	const canary = "CANARY7f3a"
	var logged lockedLog
	u, cfg := origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Back", canary)
		switch r.URL.Path {
		case "/cut":
			c, _, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(c, r.URL.RawQuery)
			_ = c.Close()
			return
		case "/broken": // on the status line, in a header and in a chunk
			c, _, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(c, "HTTP/1.1 200 "+canary+"\r\nX-Y: "+canary+"\r\nTransfer-Encoding: chunked\r\n\r\n"+canary+"\r\n")
			_ = c.Close()
			return
		case "/500":
			w.WriteHeader(500)
		}
		_, _ = io.WriteString(w, canary)
	})
	tlsURL, tlsCfg, _ := mtlsOrigin(t, 1000)
	rules := cfg["httpClientConfig"].(map[string]any)
	for name, value := range tlsCfg["httpClientConfig"].(map[string]any) {
		if name != "allowedPorts" {
			rules[name] = value
		}
	}
	rules["allowedPorts"] = append(rules["allowedPorts"].([]int), allow(t, tlsURL)["httpClientConfig"].(map[string]any)["allowedPorts"].([]int)[0])
	r := newRig(t, rigSpec{top: cfg, handler: unlimited(), options: Options{Log: logged.logger()}})
	w := theWorkflow()
	n := r.connectAll(nil, w)["don"][0]
	stranger := auth.NewKeySigner(key(5))
	cert, key := clientCertificate(t)
	secrets := []string{canary, base64.StdEncoding.EncodeToString([]byte(canary)), "bearer"}
	for _, m := range [][]byte{cert, key} {
		block, _ := pem.Decode(m)
		secrets = append(secrets, base64.StdEncoding.EncodeToString(block.Bytes)[8:40], base64.StdEncoding.EncodeToString(m)[100:140])
	}
	private := func(cert, key []byte) map[string]any { return map[string]any{"certificate": cert, "privateKey": key} }
	garbage := pem.EncodeToMemory(&pem.Block{Type: canary, Headers: map[string]string{canary: canary}, Bytes: []byte(canary)})
	inside := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(canary)})

	shared := map[string]any{"headers": map[string]string{"X-Key": canary, "Authorization": "Bearer " + canary}, "body": []byte(canary), "method": "POST"}
	for _, cached := range []any{nil, map[string]any{"maxAgeMs": 1000, "store": true}} {
		for _, more := range []map[string]any{
			{"url": u + "/?q=" + canary}, {"url": u + "/500?q=" + canary}, {"url": u + "/cut?q=" + canary}, {"url": u + "/broken?q=" + canary}, {"url": u + "/?q=" + canary, "maxBytes": 1},
			{"url": "http://127.1/" + canary}, {"url": "http://169.254.169.254/" + canary}, {"url": "http://user:" + canary + "@example.org/"},
			{"url": canary}, {"url": 1, "body": canary}, {"url": u, "method": canary}, {"url": u, "headers": map[string]string{"X-Key": canary + "\n"}}, {"url": u, "headers": canary},
			{"url": tlsURL + "/" + canary}, // without a certificate the handshake fails
			{"url": tlsURL, "mtlsAuth": private(cert, key)}, {"url": u, "mtlsAuth": private(cert, key)}, {"url": tlsURL, "mtlsAuth": private(key, cert)},
			{"url": tlsURL, "mtlsAuth": private(garbage, garbage)}, {"url": tlsURL, "mtlsAuth": private(inside, key)}, {"url": tlsURL, "mtlsAuth": private(cert, []byte(canary))},
			{"url": tlsURL, "mtlsAuth": canary}, {"url": u, "workflowOwner": canary}, {"url": u, "workflowId": canary},
		} {
			n.reply(n.ask(w, merge(merge(map[string]any{"cacheSettings": cached}, shared), more)))
		}
	}
	n.send([]byte(`{"jsonrpc":"2.0","id":"x","result":"` + canary))
	n.send([]byte(`{"jsonrpc":"2.0","id":"http_action/0x1/1","result":{"headers":{"` + canary + `":"` + canary + `","` + canary + `":""}}}`))
	n.send([]byte(`{"jsonrpc":"2.0","id":"` + canary + `","result":"` + canary + `"}`))
	n.send(jsonrpc.AppendResult(nil, "http_action/"+canary+"/"+canary, canary, []byte(`{"url":"`+canary+`"}`)))
	n.send(jsonrpc.AppendResult(nil, "push_workflow_metadata/"+canary, canary, []byte(`{"`+canary+`":"`+canary+`"}`)))
	n.send(jsonrpc.AppendNodeError(nil, canary, canary, &jsonrpc.Error{Message: canary}))

	input := paramsFor(w, map[string]any{canary: []string{canary}})
	for _, s := range []signed{
		sign("", input, clientSigner, auth.TokenOptions{}),
		sign(canary, input, stranger, auth.TokenOptions{ID: canary}),
		{sign("", input, clientSigner, auth.TokenOptions{}).body, canary},
		{sign("", input, clientSigner, auth.TokenOptions{}).body, sign("", input, clientSigner, auth.TokenOptions{}).token},
		sign("", `{"input":{"`+canary+`":9007199254740993},"workflow":{"workflowID":"1"}}`, clientSigner, auth.TokenOptions{}),
		sign("", paramsFor(w, map[string]any{"x": canary + "\xff"}), clientSigner, auth.TokenOptions{}),
		sign("", `{"input":{"`+canary+`":1,"`+canary+`":"`+canary+`"},"workflow":{"workflowID":"1"}}`, clientSigner, auth.TokenOptions{}),
		sign("", paramsFor(w, canary), clientSigner, auth.TokenOptions{}),
		{[]byte(`{"` + canary), sign("", input, clientSigner, auth.TokenOptions{}).token},
		sign("", paramsFor(testWorkflow(99, canary, canary, clientSigner), canary), clientSigner, auth.TokenOptions{}),
	} {
		r.send(s)
		if parts := strings.Split(s.token, "."); len(parts) == 3 {
			secrets = append(secrets, parts[1], parts[2])
		}
	}
	r.eventually(func() bool { return r.dropped("don", dropMalformed) >= 2 }, "the last messages were looked at")

	families, err := r.srv.metrics.registry.Gather()
	require.NoError(t, err)
	metrics := fmt.Sprint(families)
	require.NotEmpty(t, logged.String())
	require.Contains(t, metrics, "dongate_actions_total")
	for i, secret := range secrets {
		for where, text := range map[string]string{"log": logged.String(), "metrics": metrics} {
			if at := strings.Index(strings.ToLower(text), strings.ToLower(secret)); at >= 0 {
				t.Errorf("secret %d is in the %s: %.300s", i, where, text[max(0, at-100):])
			}
		}
	}
}
