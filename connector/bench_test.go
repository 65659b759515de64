package connector_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"dongate/jsonrpc"
)

// BenchmarkAnswer is one request of 1 KiB and its answer through a Connector; BenchmarkEcho is the floor, the same bytes
// through the WebSocket library alone.
func BenchmarkAnswer(b *testing.B) {
	d := newDouble(b)
	c, _ := start(b, nil, d)
	c.Handle("m", func(context.Context, *jsonrpc.Request) (any, error) {
		return struct {
			Status string `json:"status"`
		}{"ACCEPTED"}, nil
	})
	p := d.accept()
	waitConnected(b, c, 1)
	message := benchRequest()
	b.ReportAllocs()
	for b.Loop() {
		p.write(websocket.BinaryMessage, message)
		if _, _, err := p.conn.ReadMessage(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchRequest() string {
	return string(jsonrpc.AppendRequest(nil, &jsonrpc.Request{ID: "a", Method: "m", Params: []byte(`{"fill":"` + strings.Repeat("x", 1024) + `"}`)}))
}

func BenchmarkEcho(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		answer := jsonrpc.AppendResult(nil, "a", "m", []byte(`{"status":"ACCEPTED"}`))
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
			if conn.WriteMessage(websocket.BinaryMessage, answer) != nil {
				return
			}
		}
	}))
	defer server.Close()
	conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	message := benchRequest()
	b.ReportAllocs()
	for b.Loop() {
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(message)); err != nil {
			b.Fatal(err)
		}
		if _, _, err := conn.ReadMessage(); err != nil {
			b.Fatal(err)
		}
	}
}
