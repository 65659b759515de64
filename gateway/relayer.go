package gateway

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"dongate/config"
)

// Relayer is the relayer's HTTP API as the gateway serves it: on the client listener beside JSON-RPC, or on a listener of its own, with the
// client listener's timeouts and limits. What the API does is none of the gateway's business.
type Relayer struct {
	// Handler serves Paths, which are as in [http.ServeMux]: one that ends in "/" stands for everything below it, too. It must not panic on
	// purpose, except with http.ErrAbortHandler.
	Handler http.Handler
	Paths   []string
	// Listen is the host:port of its own listener, "" for the client listener.
	Listen string
	// Overloaded answers a request that comes while maxConcurrentRequests others are being worked on. It is asked for paths that end in "/"
	// alone: what tells whether the process lives is never refused.
	Overloaded http.Handler
	// Status is what /readyz tells of it. It should return soon after its context ends.
	Status func(context.Context) RelayerStatus
}

// RelayerStatus is what /readyz tells of the relayer.
type RelayerStatus struct {
	// Storage says why its tables cannot be used; "" when they can. Otherwise the gateway is not ready.
	Storage string `json:"storage,omitempty"`
	// Dispatcher tells whether this process is the one that sends, and Epoch is that of its newest term.
	Dispatcher bool  `json:"dispatcher"`
	Epoch      int64 `json:"epoch"`
	// Paused tells whether the operator has stopped it from sending what was not sent yet.
	Paused bool `json:"paused"`
}

// Draining reports whether Shutdown was called.
func (srv *Server) Draining() bool { return srv.draining.Load() }

// ClientAddress is the address that a request counts for: the peer's, or behind trusted proxies that of the client they name.
func ClientAddress(r *http.Request, trusted []netip.Prefix) netip.Addr {
	return clientAddress(r.RemoteAddr, r.Header.Values("X-Forwarded-For"), trusted)
}

// OriginAllowed compares an Origin header with configured origins: exact ones, and `https://*.example.com` for every true subdomain.
func OriginAllowed(origin string, allowed []string) bool { return originAllowed(origin, allowed) }

// withRelayer hands the relayer's paths to it and all others on.
func (srv *Server) withRelayer(next http.Handler) http.Handler {
	r := srv.options.Relayer
	if r == nil || r.Listen != "" {
		return next
	}
	relayer := srv.relayerHandler()
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// No ServeMux, which would send callers of JSON-RPC elsewhere to tidy up their path.
		if slices.Contains(r.Paths, req.URL.Path) || r.below(req.URL.Path) {
			relayer.ServeHTTP(w, req)
			return
		}
		next.ServeHTTP(w, req)
	})
}

// below tells whether a path is below one of those that end in "/".
func (r *Relayer) below(path string) bool {
	return slices.ContainsFunc(r.Paths, func(p string) bool { return strings.HasSuffix(p, "/") && strings.HasPrefix(path, p) })
}

const (
	// maxRelayerPlaces bounds what is set aside for maxConcurrentRequests, which may be any number.
	maxRelayerPlaces = 1 << 16
	// maxRelayerBytes bounds the bytes of all bodies that the relayer is reading or working on.
	maxRelayerBytes = 256 << 20
)

// relayerHandler bounds how many requests the relayer works on at a time and what they hold. They are counted apart from those of JSON-RPC.
func (srv *Server) relayerHandler() http.Handler {
	r := srv.options.Relayer
	places := make(chan struct{}, min(srv.config.UserServer.MaxConcurrentRequests, maxRelayerPlaces))
	var bytes atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler {
					srv.log.Error("panic in a request to the relayer", zap.Any("panic", p), zap.Stack("stack"))
				}
				panic(http.ErrAbortHandler) // part of an answer may be out
			}
		}()
		if req.ContentLength != 0 {
			body := &relayerBody{ReadCloser: req.Body, rc: http.NewResponseController(w), all: &bytes}
			defer func() { bytes.Add(-body.read) }()
			req.Body = body
		}
		if !r.below(req.URL.Path) {
			r.Handler.ServeHTTP(w, req)
			return
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			r.Handler.ServeHTTP(w, req)
		default:
			r.Overloaded.ServeHTTP(w, req)
		}
	})
}

// relayerBody counts what is read, and lifts the body's deadline at its end: the answer may take longer than reading may.
type relayerBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	all  *atomic.Int64 // of all bodies
	read int64         // of this one
}

// Read implements io.Reader.
func (b *relayerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if b.all.Add(int64(n)) > maxRelayerBytes && err == nil {
		return n, errors.New("requests being read hold too many bytes")
	}
	if err == io.EOF { // with any other error net/http may still wait for the rest
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// listenRelayer opens the relayer's own listener where it has one.
func (srv *Server) listenRelayer() error {
	r, user := srv.options.Relayer, &srv.config.UserServer
	if r == nil || r.Listen == "" {
		return nil
	}
	host, text, err := net.SplitHostPort(r.Listen)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	return srv.listen(RelayerListener, &config.Listener{Host: host, Port: port}, user.MaxConnections, &http.Server{
		Handler:           withReadDeadline(user.ReadTimeout, srv.relayerHandler()),
		ReadHeaderTimeout: user.ReadTimeout,
		WriteTimeout:      user.WriteTimeout,
		IdleTimeout:       idleTimeout,
	}, nil)
}
