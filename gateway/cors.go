package gateway

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/rs/cors"

	"dongate/config"
)

// withCORS answers preflights and marks answers for the configured origins; a
// request from another origin is served without CORS headers (protocol §2).
func (srv *Server) withCORS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := srv.current().cors; c != nil {
			c.ServeHTTP(w, r, next.ServeHTTP)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newCORS are the rules of a configuration; nil: off.
func newCORS(c *config.UserServer) *cors.Cors {
	if !c.CORSEnabled {
		return nil
	}
	allowed := c.CORSAllowedOrigins
	return cors.New(cors.Options{
		AllowOriginFunc: func(origin string) bool { return originAllowed(origin, allowed) },
		AllowedMethods:  []string{http.MethodPost},
		AllowedHeaders:  []string{"Authorization", "Content-Type", "X-Request-ID", "traceparent"},
		ExposedHeaders:  []string{"Retry-After", "X-Request-ID"},
		MaxAge:          600,
	})
}

// originAllowed compares with exact origins and with `https://*.example.com`,
// which is any true subdomain: neither example.com itself nor evilexample.com.
func originAllowed(origin string, allowed []string) bool {
	for _, a := range allowed {
		if strings.EqualFold(origin, a) {
			return true
		}
		scheme, domain, wild := strings.Cut(a, "://*.")
		if !wild {
			continue
		}
		u, err := url.Parse(origin)
		if err != nil || u.Path != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !strings.EqualFold(u.Scheme, scheme) {
			continue
		}
		host, suffix := strings.ToLower(u.Host), "."+strings.ToLower(domain)
		if sub := strings.TrimSuffix(host, suffix); sub != host && sub != "" && !strings.HasPrefix(sub, ".") {
			return true
		}
	}
	return false
}
