package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/rs/cors"
	"go.uber.org/zap"

	"dongate/relayer/fhevm"
)

// sdkName and sdkVersion are the headers of the network's SDK.
const (
	sdkName    = "zama-sdk-name"
	sdkVersion = "zama-sdk-version"
)

// Handler serves the API. It starts no goroutine and is safe for concurrent use.
type Handler struct {
	o       Options
	root    http.Handler
	routes  map[string]*route // by path; a job's is that of its endpoint and jobSuffix
	queues  map[fhevm.Kind]*queue
	keys    keyring
	quotas  *quotas
	checks  chan struct{} // a place for each signature check that asks a host chain
	health  healthCache
	docs    []byte
	metrics *metrics
}

// jobSuffix ends the path of a route whose last part is a job id.
const jobSuffix = "/{job_id}"

// route is one path. A method it has not is nil.
type route struct {
	path          string
	name, version string // for metrics
	get, post     func(*call) answer
	open          bool // needs no API key
}

// call is one HTTP request.
type call struct {
	*http.Request
	w     http.ResponseWriter
	id    string // requestId of the answer
	sdk   bool
	jobID string // last part of the path of a job
	due   *queue // to be looked at once the call is answered
}

// answer is what is written.
type answer struct {
	fhevm.Reply
	contentType string // "": JSON
	label       fhevm.Label
}

func (c *call) fail(e *fhevm.Error, retryAfter int) answer {
	if c.sdk {
		e = e.ForSDK()
	}
	return answer{Reply: fhevm.Failed(c.id, e, false, retryAfter), label: e.Label}
}

// New returns the handler of the API. The error says which option is missing or impossible.
func New(o Options) (*Handler, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	h := &Handler{o: o, queues: map[fhevm.Kind]*queue{}, checks: make(chan struct{}, maxSignatureChecks), quotas: newQuotas(&o)}
	for _, k := range fhevm.Kinds {
		h.queues[k] = newQueue(k, &o)
	}
	var err error
	if h.keys, err = newKeyring(o.Keys); err != nil {
		return nil, err
	}
	if h.metrics, err = newMetrics(o.Metrics); err != nil {
		return nil, err
	}
	h.docs = docsPage()
	h.routes = map[string]*route{}
	for _, r := range h.table() {
		h.routes[r.path] = r
	}
	h.root = http.HandlerFunc(h.serve)
	if o.AllowOrigin != nil {
		h.root = cors.New(cors.Options{
			AllowOriginFunc:  o.AllowOrigin,
			AllowedMethods:   []string{http.MethodGet, http.MethodPost},
			AllowedHeaders:   []string{"Content-Type", "Authorization", apiKeyHeader, sdkName, sdkVersion},
			ExposedHeaders:   []string{"Retry-After"},
			AllowCredentials: true, // the SDK can send its key in a cookie
			MaxAge:           600,
		}).Handler(h.root)
	}
	return h, nil
}

// table lists every route.
func (h *Handler) table() []*route {
	routes := []*route{
		{path: "/v2/keyurl", name: "keyurl", version: "v2", get: h.keyURL},
		{path: "/liveness", name: "liveness", get: h.liveness, open: true},
		{path: "/healthz", name: "healthz", get: h.healthz, open: true},
		{path: "/version", name: "version", get: h.version, open: true},
		{path: "/docs", name: "docs", get: h.docsPage, open: true},
		{path: "/openapi.yml", name: "openapi", get: h.openAPI, open: true},
	}
	for _, e := range fhevm.Endpoints {
		version, name, _ := strings.Cut(string(e[1:]), "/")
		routes = append(routes,
			&route{path: string(e), name: name, version: version, post: func(c *call) answer { return h.post(c, e) }},
			&route{path: string(e) + jobSuffix, name: name, version: version, get: func(c *call) answer { return h.job(c, e.Kind()) }})
	}
	return routes
}

// Paths returns the patterns under which the handler is to be mounted on a [http.ServeMux]. Everything below /v2/ and /v3/ is the API's, so that
// its unknown paths get its envelope.
func (h *Handler) Paths() []string {
	paths := []string{"/v2/", "/v3/"}
	for _, r := range h.table() {
		if !strings.HasPrefix(r.path, "/v") || r.path == "/version" {
			paths = append(paths, r.path)
		}
	}
	return paths
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.root.ServeHTTP(w, r) }

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) {
	start := h.o.Now()
	at, jobID := h.find(r.URL.Path)
	observed := h.metrics.begin(at, r)
	c := &call{Request: r, w: w, id: uuid.NewString(), sdk: r.Header.Get(sdkName) != "", jobID: jobID}
	a := h.answer(at, c)
	h.write(w, r, a)
	observed(a.Status, h.o.Now().Sub(start))
	h.o.Log.Debug("request", zap.String("requestId", c.id), zap.String("method", r.Method), zap.String("route", at.path),
		zap.Int("status", a.Status), zap.String("label", string(a.label)))
	if c.due != nil {
		_ = http.NewResponseController(w).Flush() // where that cannot be, the caller waits for the look
		c.due.renew(r.Context(), h.o.Now())
	}
}

// unknown is the route of every path that is none.
var unknown = &route{name: "other", open: true}

func (h *Handler) find(path string) (at *route, jobID string) {
	if at := h.routes[path]; at != nil && !strings.HasSuffix(path, jobSuffix) {
		return at, ""
	}
	if i := strings.LastIndexByte(path, '/'); i >= 0 && path[i+1:] != "" {
		if at := h.routes[path[:i]+jobSuffix]; at != nil {
			return at, path[i+1:]
		}
	}
	return unknown, ""
}

// answer checks what every route has in common: that path and method are there, and the key.
func (h *Handler) answer(at *route, c *call) answer {
	var handle func(*call) answer
	switch c.Method {
	case http.MethodPost:
		handle = at.post
	case http.MethodGet, http.MethodHead:
		handle = at.get
	}
	switch {
	case at == unknown:
		return c.fail(fhevm.ErrPathNotFound(), 0)
	case handle == nil:
		c.w.Header().Set("Allow", at.allow())
		return c.fail(fhevm.ErrMethodNotAllowed(), 0)
	case at.open:
		return handle(c)
	}
	key, known := h.keys.find(presentedKey(c.Request, h.o.AllowOrigin))
	if c.Method == http.MethodPost {
		// Before the key is judged, so that guessing one is limited, too. GETs are free: they cost the operator nothing, and the SDK gives up
		// on a GET that gets 429.
		if wait := h.quotas.take(h.o.ClientIP(c.Request), key, h.o.Now()); wait > 0 {
			return c.fail(fhevm.ErrQuotaExceeded(), h.o.RetryAfter.Remaining(wait))
		}
	}
	if !known {
		c.w.Header().Set("WWW-Authenticate", `Bearer realm="relayer"`)
		return c.fail(fhevm.ErrUnauthorized(), 0)
	}
	return handle(c)
}

func (r *route) allow() string {
	if r.post != nil {
		return http.MethodPost
	}
	return http.MethodGet + ", " + http.MethodHead
}

func (h *Handler) write(w http.ResponseWriter, r *http.Request, a answer) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	if a.contentType != "" {
		header.Set("Content-Type", a.contentType)
	}
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(a.Body)))
	if a.RetryAfter > 0 {
		header.Set("Retry-After", strconv.Itoa(a.RetryAfter))
	}
	w.WriteHeader(a.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.Body) // a caller that is gone needs no answer
	}
}
