package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"dongate/relayer/fhevm"
)

// keyURL tells where the network's public key and CRS can be fetched (relayer reference §1.9).
func (h *Handler) keyURL(c *call) answer {
	key, crs, ok := h.o.KeyURL()
	if !ok {
		return c.fail(fhevm.ErrOperator(fhevm.LabelGatewayNotReachable), h.o.RetryAfter.Remaining(blockedWait))
	}
	return answer{Reply: fhevm.KeyURLs(key, crs)}
}

func plain(status int, v any) answer {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		status, body = http.StatusInternalServerError, []byte("{}")
	}
	return answer{Reply: fhevm.Reply{Status: status, Body: body}}
}

func (h *Handler) liveness(*call) answer {
	return plain(http.StatusOK, map[string]string{"status": "alive"})
}

func (h *Handler) version(*call) answer {
	return plain(http.StatusOK, struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		Build   string `json:"build"`
	}(h.o.Version))
}

func (h *Handler) docsPage(c *call) answer {
	c.w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	return answer{Reply: fhevm.Reply{Status: http.StatusOK, Body: h.docs}, contentType: "text/html; charset=utf-8"}
}

func (h *Handler) openAPI(*call) answer {
	return answer{Reply: fhevm.Reply{Status: http.StatusOK, Body: openAPI}, contentType: "application/yaml"}
}

const (
	healthAge     = time.Second     // how long an answer is used for others
	healthTimeout = 5 * time.Second // of asking
)

// healthCache keeps the last answer: probes come from anybody.
type healthCache struct {
	mu   sync.Mutex
	at   time.Time
	last map[string]bool
}

func (h *Handler) healthz(c *call) answer {
	type health struct {
		Status       string            `json:"status"`
		Dependencies map[string]string `json:"dependencies,omitzero"`
	}
	if h.o.Draining() {
		return plain(http.StatusServiceUnavailable, health{Status: "shutting_down"})
	}
	status, out := http.StatusOK, health{Status: "healthy", Dependencies: map[string]string{}}
	for name, ok := range h.dependencies(c.Context()) {
		out.Dependencies[name] = "ok"
		if !ok {
			out.Dependencies[name], out.Status, status = "fail", "unhealthy", http.StatusServiceUnavailable
		}
	}
	return plain(status, out)
}

func (h *Handler) dependencies(ctx context.Context) map[string]bool {
	h.health.mu.Lock()
	defer h.health.mu.Unlock()
	if now := h.o.Now(); h.health.last == nil || now.Sub(h.health.at) >= healthAge || now.Before(h.health.at) {
		// Not the caller's context: others wait for this answer, too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
		defer cancel()
		h.health.last, h.health.at = h.o.Health(ctx), h.o.Now()
		if h.health.last == nil {
			h.health.last = map[string]bool{}
		}
	}
	return h.health.last
}
