package gateway

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"dongate/cache"
	"dongate/egress"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// maxActionTimeout is the longest an action may take.
const maxActionTimeout = 60 * time.Second

// actionRequest is the result of a node's http_action message (protocol §7).
// `readFromCache` is accepted and ignored, like everything unknown.
type actionRequest struct {
	URL          string              `json:"url"`
	Method       string              `json:"method"`
	Headers      map[string]string   `json:"headers"`
	MultiHeaders map[string][]string `json:"multiHeaders"`
	Body         []byte              `json:"body"`
	TimeoutMs    uint32              `json:"timeoutMs"`
	MaxBytes     uint32              `json:"maxBytes"`
	Cache        struct {
		MaxAgeMs int64 `json:"maxAgeMs"`
		Store    bool  `json:"store"`
	} `json:"cacheSettings"`
	MTLS *struct {
		PrivateKey  []byte `json:"privateKey"`
		Certificate []byte `json:"certificate"`
	} `json:"mtlsAuth"`
	WorkflowID    string `json:"workflowId"`
	WorkflowOwner string `json:"workflowOwner"`
}

// actionResponse is an endpoint's answer, encoded once for everybody who gets it:
// the params up to the latency. It never changes.
type actionResponse struct {
	params  []byte
	latency time.Duration
}

// action is one outbound HTTP request of a node, checked.
type action struct {
	id       string
	node     *node
	owner    actionOwner
	key      cache.Key
	prepared *egress.Prepared
	timeout  time.Duration
	maxAge   time.Duration
	store    bool
}

// actions makes the outbound requests of a service's nodes. Safe for concurrent
// use.
type actions struct {
	service *service
	client  *egress.Client
	cache   *cache.Cache[*actionResponse]
	slots   *actionSlots
}

func newActions(svc *service, client *egress.Client) *actions {
	return &actions{
		service: svc, client: client, slots: newActionSlots(svc.config.MaxConcurrentActions),
		cache: cache.New[*actionResponse](cache.Config{TTL: svc.config.OutboundRequestCacheTTL, MaxBytes: svc.config.MaxCacheBytes}),
	}
}

// handle takes one action of a node and does not wait for its outcome. Nothing of r
// is kept.
func (x *actions) handle(s *session, r *jsonrpc.Response, admitted bool) {
	if !admitted {
		x.service.server.drop(s, dropThrottled)
		s.node.deliver(x.refused(r.ID, actionThrottled, "rate limit exceeded: the node, or its shard, sends too many messages"))
		return
	}
	a, err := x.prepare(s.node, r)
	if err != nil {
		s.node.deliver(x.refused(r.ID, actionRefused, err.Error()))
		return
	}
	x.start(a, s.node.deliver)
}

// prepare makes every check that needs no network. The error is a sentence for
// the node.
func (x *actions) prepare(n *node, r *jsonrpc.Response) (*action, error) {
	var q actionRequest
	if r.Error != nil || json.Unmarshal(r.Result, &q, jsontext.AllowDuplicateNames(true)) != nil {
		return nil, errors.New("the action is not readable: see the protocol for its members and their types")
	}
	owner, err := x.ownerOf(n, r.ID, &q)
	if err != nil {
		return nil, err
	}
	req := &egress.Request{Method: q.Method, URL: q.URL, Header: q.MultiHeaders, Body: q.Body,
		Timeout: time.Duration(q.TimeoutMs) * time.Millisecond, MaxBytes: int64(q.MaxBytes)}
	if len(q.MultiHeaders) == 0 {
		req.Header = make(map[string][]string, len(q.Headers))
		for name, value := range q.Headers {
			req.Header[name] = []string{value}
		}
	} else if err := x.checkUnused(q.Headers); err != nil {
		return nil, err
	}
	if q.MTLS != nil {
		req.CertPEM, req.KeyPEM = q.MTLS.Certificate, q.MTLS.PrivateKey
	}
	p, err := x.client.Prepare(req)
	if err != nil {
		return nil, err
	}
	a := &action{id: r.ID, node: n, owner: owner, prepared: p, timeout: p.Timeout(), store: q.Cache.Store}
	if q.Cache.MaxAgeMs > 0 {
		a.maxAge = time.Duration(min(q.Cache.MaxAgeMs, int64(1<<40))) * time.Millisecond
	}
	a.key = actionKey(&owner, p)
	return a, nil
}

// checkUnused holds `headers` to the rules though `multiHeaders` wins.
func (x *actions) checkUnused(headers map[string]string) error {
	if len(headers) == 0 {
		return nil
	}
	h := make(map[string][]string, len(headers))
	for name, value := range headers {
		h[name] = []string{value}
	}
	return x.client.CheckHeader(h)
}

// ownerOf checks the action's workflow and owner against its id and the metadata.
func (x *actions) ownerOf(n *node, id string, q *actionRequest) (actionOwner, error) {
	_, rest, _ := strings.Cut(id, "/")
	inID, _, more := strings.Cut(rest, "/")
	workflowID, err := workflow.NormalizeID(strings.ToLower(q.WorkflowID))
	if err != nil {
		return actionOwner{}, errors.New("workflowId is no workflow id: send the one the action runs for")
	}
	if named, err := workflow.NormalizeID(strings.ToLower(inID)); err != nil || !more || named != workflowID {
		return actionOwner{}, errors.New("workflowId differs from the second segment of the message's id")
	}
	address, err := workflow.NormalizeOwner(strings.ToLower(q.WorkflowOwner))
	if err != nil {
		return actionOwner{}, errors.New("workflowOwner is no address: send the owner of the workflow")
	}
	o := actionOwner{don: n.shard.don.name, address: address}
	if w := x.service.view.Load().ByID(workflowID); w != nil {
		if w.Owner != address {
			return actionOwner{}, errors.New("workflowOwner is not the owner of the workflow")
		}
		o.confirmed = w.DON == o.don
	}
	return o, nil
}

// actionKey says which actions are the same: each part with its length, so that
// no two different requests share a key. The workflow is not part of it: the
// scope is the owner, as in the network (protocol §7).
func actionKey(o *actionOwner, p *egress.Prepared) cache.Key {
	h := cache.NewHasher()
	h.String(o.don)
	h.String(o.address)
	h.Bool(o.confirmed)
	h.String(p.Method())
	h.String(p.URL())
	h.Map(p.Header())
	h.Bytes(p.Body())
	h.Int(p.MaxBytes())
	cert, key := p.ClientCertificate()
	h.Bytes(cert)
	h.Bytes(key)
	return h.Sum()
}

// charged is who pays for cache room and waiting: owners can be made up where
// metadata does not confirm them, nodes cannot.
func (a *action) charged() string {
	if a.owner.confirmed {
		return a.owner.don + "/" + a.owner.address
	}
	return a.node.key
}

// start has the action served from the cache, by another's call or by one of its
// own, and hands the message for the node to done, within the action's own time.
func (x *actions) start(a *action, done func(message []byte)) {
	if resp, ok := x.cache.Get(a.key, a.maxAge); ok {
		done(x.answer(a, actionHit, resp.params, 0))
		return
	}
	fetched := false // set before anybody is told
	x.cache.Start(x.service.server.actionsCtx, cache.Call[*actionResponse]{
		Key: a.key, Owner: a.charged(), MaxAge: a.maxAge, Store: a.store, Timeout: a.timeout,
		Admit: func() (func(), error) {
			release, bound := x.slots.take(a.node, a.owner)
			if release == nil {
				return nil, &egress.Refused{Reason: reasonBusy, Msg: "too many requests at once: " + bound}
			}
			fetched = true
			return release, nil
		},
		Fetch: func(ctx context.Context) (*actionResponse, int64, bool, error) { return x.fetch(ctx, a.prepared) },
	}, func(resp *actionResponse, hit bool, err error) { done(x.outcome(a, resp, hit, fetched, err)) })
}

// outcome is the message for the node.
func (x *actions) outcome(a *action, resp *actionResponse, hit, fetched bool, err error) []byte {
	var refused *egress.Refused
	var external *egress.External
	var late *cache.TimeoutError
	var waiters *cache.TooManyWaitersError
	switch {
	case err == nil && hit:
		return x.answer(a, actionHit, resp.params, 0)
	case err == nil && fetched:
		return x.answer(a, actionFetched, resp.params, resp.latency)
	case err == nil:
		return x.answer(a, actionShared, resp.params, resp.latency)
	case errors.As(err, &refused) && refused.Reason == reasonBusy, errors.As(err, &waiters):
		return x.refused(a.id, actionBusy, err.Error())
	case refused != nil:
		return x.refused(a.id, actionRefused, refused.Error())
	case errors.As(err, &late):
		return x.failed(a, fmt.Sprintf("no answer from the endpoint within %v", a.timeout))
	case errors.As(err, &external):
		return x.failed(a, external.Error())
	default:
		x.service.server.log.Error("action failed", zap.Error(err), zap.String("node", a.node.name), zap.String("host", a.prepared.Host()))
		return x.failed(a, "the gateway could not make the request")
	}
}

// reasonBusy marks our own refusals among those of egress.
const reasonBusy egress.Reason = "busy"

// fetch makes the upstream call. It runs detached from whoever asked first: the
// context ends when nobody waits any more.
func (x *actions) fetch(ctx context.Context, p *egress.Prepared) (*actionResponse, int64, bool, error) {
	r, err := x.client.Do(ctx, p.WithTimeout(maxActionTimeout))
	if err != nil {
		return nil, 0, false, err
	}
	out := &actionResponse{params: appendEndpointAnswer(nil, r), latency: r.Latency}
	cacheable := r.StatusCode/100 == 2 || r.StatusCode/100 == 4
	return out, int64(cap(out.params)), cacheable, nil
}

// appendEndpointAnswer appends the params of an endpoint's answer up to the
// latency, which comes last and differs between who fetched and who was served
// from the cache. Headers are in order, so that equal answers are equal bytes.
func appendEndpointAnswer(dst []byte, r *egress.Response) []byte {
	names := slices.Sorted(maps.Keys(r.Header))
	size := 256 + base64.StdEncoding.EncodedLen(len(r.Body))
	for name, values := range r.Header {
		for _, v := range values {
			size += 2 * (len(name) + len(v) + 8)
		}
	}
	dst = slices.Grow(dst, size)
	dst = append(dst, `{"isExternalEndpointError":false,"isValidationError":false,"statusCode":`...)
	dst = strconv.AppendInt(dst, int64(r.StatusCode), 10)
	for _, form := range []string{"headers", "multiHeaders"} {
		dst = append(append(append(dst, `,"`...), form...), `":{`...)
		for i, name := range names {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendText(dst, name), ':')
			if form == "headers" {
				dst = appendText(dst, strings.Join(r.Header[name], ","))
				continue
			}
			dst = append(dst, '[')
			for j, v := range r.Header[name] {
				if j > 0 {
					dst = append(dst, ',')
				}
				dst = appendText(dst, v)
			}
			dst = append(dst, ']')
		}
		dst = append(dst, '}')
	}
	dst = append(dst, `,"body":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, r.Body)
	return append(dst, '"')
}

// appendText appends a JSON string; what is not UTF-8 becomes U+FFFD.
func appendText(dst []byte, s string) []byte {
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

// answer is the message with an endpoint's answer.
func (x *actions) answer(a *action, outcome string, params []byte, latency time.Duration) []byte {
	x.service.server.metrics.actions[outcome].Inc()
	if outcome == actionFetched {
		x.service.server.metrics.upstream.Observe(latency.Seconds())
	}
	return actionMessage(a.id, params, latency)
}

// failed is the message that sending or reading failed.
func (x *actions) failed(a *action, why string) []byte {
	return x.error(a.id, actionFailed, why, true)
}

// refused is the message that nothing was sent, and why.
func (x *actions) refused(id, outcome, why string) []byte {
	return x.error(id, outcome, why, false)
}

func (x *actions) error(id, outcome, why string, external bool) []byte {
	x.service.server.metrics.actions[outcome].Inc()
	params := appendText([]byte(`{"errorMessage":`), why)
	params = strconv.AppendBool(append(params, `,"isExternalEndpointError":`...), external)
	params = strconv.AppendBool(append(params, `,"isValidationError":`...), !external)
	return actionMessage(id, params, 0)
}

// actionMessage is the request that answers an action: params lack their end, the
// latency.
func actionMessage(id string, params []byte, latency time.Duration) []byte {
	out := make([]byte, 0, len(params)+len(id)+160)
	out = append(appendText(append(out, `{"jsonrpc":"2.0","id":`...), id), `,"method":"`+methodAction+`","params":`...)
	out = append(append(out, params...), `,"externalEndpointLatency":`...)
	return append(strconv.AppendInt(out, int64(latency), 10), "}}"...)
}

// Outcomes of actions: the label of a metric.
const (
	actionHit       = "hit"       // served from the cache
	actionShared    = "shared"    // served by another's call
	actionFetched   = "fetched"   // the endpoint answered
	actionFailed    = "failed"    // sending or reading failed, timeouts included
	actionRefused   = "refused"   // against the rules
	actionThrottled = "throttled" // over the node's or the shard's rate
	actionBusy      = "busy"      // too many at once
)

var actionOutcomes = []string{actionHit, actionShared, actionFetched, actionFailed, actionRefused, actionThrottled, actionBusy}
