package gateway

import (
	"bytes"
	"log"
	"net/http"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// refusedBodyWait is how long the rest of a refused request's body may take to
// come, which net/http reads so that the answer is not lost, before the
// connection is closed.
const refusedBodyWait = 500 * time.Millisecond

// withReadDeadline bounds how long any request's body may take, also one that no
// handler reads: net/http would wait for it as long as the connection lives. A
// request without a body keeps none, so that nothing interrupts its handler.
func withReadDeadline(timeout time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
		}
		next.ServeHTTP(w, r)
	})
}

// httpErrors is where net/http writes what it cannot tell a handler. What keeps
// the gateway from accepting connections is an error; the rest is what strangers'
// connections do, and only of interest when looked for.
func httpErrors(l *zap.Logger) *log.Logger {
	return log.New(writer(func(line []byte) {
		line = bytes.TrimSpace(line)
		if bytes.Contains(line, []byte("Accept error")) {
			l.Error("connections cannot be accepted", zap.ByteString("cause", line))
			return
		}
		l.Debug("connection", zap.ByteString("event", line))
	}), "", 0)
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// spareFiles is what the process needs besides connections: listeners, store,
// upstream calls.
const spareFiles = 256

// warnOfFiles says when the process may open fewer files than its configuration
// lets connections in: past that nobody can connect.
func (srv *Server) warnOfFiles() {
	var limit syscall.Rlimit
	want := srv.config.UserServer.MaxConnections + srv.maxNodeConnections() + spareFiles
	if r := srv.options.Relayer; r != nil && r.Listen != "" {
		want += srv.config.UserServer.MaxConnections
	}
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil && limit.Cur < uint64(want) {
		srv.log.Warn("the limit of open files is below what the configuration lets in; raise it (ulimit -n, LimitNOFILE) or lower maxConnections",
			zap.Uint64("limit", uint64(limit.Cur)), zap.Int("wanted", want))
	}
}
