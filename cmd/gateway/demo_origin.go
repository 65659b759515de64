package main

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// originThinks is how long the origin takes: enough for four nodes to ask meanwhile.
const originThinks = 40 * time.Millisecond

// origin is a web server on loopback whose every answer is another one, so that
// who got equal answers has shared a call.
type origin struct {
	address netip.AddrPort
	calls   atomic.Int64
	server  *http.Server
	serving sync.WaitGroup
}

func newOrigin() (*origin, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &origin{address: l.Addr().(*net.TCPAddr).AddrPort()}
	o.server = &http.Server{Handler: o, ReadHeaderTimeout: demoPatience}
	o.serving.Go(func() { _ = o.server.Serve(l) })
	return o, nil
}

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := o.calls.Add(1)
	t := time.NewTimer(originThinks)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"price":"1999.%02d","answer":%d}`, 40+n%60, n)
}

func (o *origin) url() string { return "http://" + o.address.String() + "/price" }

func (o *origin) close() {
	_ = o.server.Close()
	o.serving.Wait()
}
