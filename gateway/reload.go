package gateway

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"

	"dongate/config"
)

// Reloaded says what a reload has come to.
type Reloaded struct {
	// OK is false when there are problems, and then nothing was changed.
	OK bool `json:"ok"`
	// Applied are the members that are in effect now as the file has them and were
	// not before, also a certificate whose file holds another one.
	Applied []string `json:"applied"`
	// NeedsRestart are those in which the file differs from what is in effect.
	NeedsRestart []string `json:"needsRestart"`
	// Problems say why the file was refused.
	Problems []ReloadProblem `json:"problems"`
}

// ReloadProblem is one reason for refusing a file; see [config.Problem].
type ReloadProblem struct {
	Path   string `json:"path"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	Text   string `json:"text"`
}

// ErrLeaving refuses a reload once the server is told to stop.
var ErrLeaving = errors.New("the gateway is shutting down")

// Reload puts everything in effect that file changes and that can change while
// running, and says what that was and what needs a restart. With an error nothing
// has changed.
//
// Open requests keep to the configuration they began with, save that the votes of a
// node that was removed stop counting. Such a node's session is closed with 1008.
func (srv *Server) Reload(file *config.Config) (*Reloaded, error) {
	srv.reloading.Lock()
	defer srv.reloading.Unlock()
	if srv.leaving.Load() {
		return nil, ErrLeaving
	}
	before := srv.current()
	c := config.Reload(before.config, file)
	s, err := srv.prepare(c, before)
	if err != nil {
		return nil, err
	}
	srv.apply(s, before)
	srv.warnOfFiles()
	for _, p := range c.Warnings {
		srv.log.Warn("configuration", zap.String("warning", p.String()))
	}
	out := &Reloaded{OK: true, Applied: s.rotated(before), NeedsRestart: []string{}, Problems: []ReloadProblem{}}
	for _, change := range config.Changes(before.config, c) {
		if !slices.Contains(out.Applied, change.Path) {
			out.Applied = append(out.Applied, change.Path)
		}
	}
	for _, change := range config.Changes(c, file) {
		out.NeedsRestart = append(out.NeedsRestart, change.Path)
	}
	return out, nil
}

// rotated names the members whose files hold something else than before.
func (s *snapshot) rotated(before *snapshot) []string {
	paths := []string{}
	for _, name := range []string{UserListener, NodeListener} {
		now, then := s.certificates[name], before.certificates[name]
		if now != nil && then != nil && !slices.EqualFunc(now.Certificate, then.Certificate, slices.Equal[[]byte]) {
			paths = append(paths, name+"ServerConfig.tlsCertPath")
		}
	}
	if !s.roots.Equal(before.roots) {
		paths = append(paths, "httpClientConfig.caPath")
	}
	return paths
}

// serveReload is POST /reload: 200 when the file was applied, 422 when it was
// refused, 409 while another reload is under way.
func (srv *Server) serveReload(w http.ResponseWriter, r *http.Request) {
	if status, why := srv.refuseChange(r); status != 0 {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		srv.log.Warn("reload refused", zap.String("remote", r.RemoteAddr), zap.String("why", why))
		http.Error(w, why, status)
		return
	}
	select {
	case srv.asked <- struct{}{}:
		defer func() { <-srv.asked }()
	default:
		http.Error(w, "another reload is under way", http.StatusConflict)
		return
	}
	out := srv.options.Reload()
	w.Header().Set("Content-Type", "application/json")
	if !out.OK {
		w.WriteHeader(http.StatusUnprocessableEntity)
	}
	_ = json.NewEncoder(w).Encode(out)
}

// refuseChange says why a request to the admin listener may not change anything: it
// comes from a web page, which could make the operator's browser send it, or, where
// others than this machine's users can send it, without the token. 0: it may.
func (srv *Server) refuseChange(r *http.Request) (status int, why string) {
	if len(r.Header.Values("Origin")) > 0 {
		return http.StatusForbidden, "requests of web pages (with Origin) are refused"
	}
	if !loopback(r.Host) {
		return http.StatusForbidden, "the Host must be a loopback address or localhost"
	}
	token, err := srv.config.Admin.Token()
	switch {
	case err != nil:
		srv.log.Error("admin.tokenFile", zap.Error(err))
		return http.StatusForbidden, "the token cannot be read, see the log"
	case token != "":
		given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		want, got := sha256.Sum256([]byte(token.Reveal())), sha256.Sum256([]byte(given))
		if !ok || subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			return http.StatusUnauthorized, "send the token of admin.tokenFile as Authorization: Bearer"
		}
	case !loopback(srv.Address(AdminListener)):
		return http.StatusForbidden, "the admin listener is not on a loopback address: set admin.tokenFile"
	}
	return 0, ""
}

// loopback reports whether a host, with or without a port, is this machine alone.
func loopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostPort, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
