package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strconv"
	"time"

	"go.uber.org/zap"

	"dongate/cache"
	"dongate/egress"
	"dongate/jsonrpc"
)

// maxCall is how long an upstream call may take: twice the longest time of an
// action, so that one that comes as late as the first one's last moment can share
// the call for all of its own time.
const maxCall = 2 * egress.MaxTimeout

// actionResponse is an endpoint's answer, encoded once for everybody who gets it. It
// never changes.
type actionResponse struct {
	params  []byte // up to the latency
	latency time.Duration
}

// action is one outbound HTTP request of a node, checked.
type action struct {
	actions  *actions
	client   *egress.Client // the one whose rules it was checked against
	id       string
	node     *node
	owner    actionOwner
	key      cache.Key // zero when alone
	prepared *egress.Prepared
	maxAge   time.Duration
	store    bool

	done     func(message []byte) // takes the answer
	release  func()               // gives the slot back, if it took one
	progress egress.Progress      // of the upstream call, if it made it
}

// alone reports whether the action has nothing to do with any other: it neither
// shares a call nor uses the cache.
func (a *action) alone() bool { return a.maxAge <= 0 && !a.store }

// actions makes the outbound requests of a service's nodes. Safe for concurrent
// use.
type actions struct {
	service *service
	cache   *cache.Cache[*actionResponse]
	slots   *actionSlots
	crew    crew            // makes the upstream calls
	ctx     context.Context // of the calls that are nobody else's
	cancel  context.CancelFunc
}

// newActions makes no request until its bounds are set; see service.apply.
func newActions(svc *service) *actions {
	x := &actions{service: svc, slots: newActionSlots(0)}
	x.cache = cache.New[*actionResponse](cache.Config{Go: x.crew.run})
	x.ctx, x.cancel = context.WithCancel(context.Background())
	return x
}

// stop ends what is under way, without waiting for it.
func (x *actions) stop() {
	x.cancel()
	x.cache.Close(errStopped)
	x.crew.stop()
}

// errStopped ends what is under way when the server stops.
var errStopped = errors.New("the gateway is stopping")

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

// charged is who pays for cache room and waiting: owners can be made up where
// metadata does not confirm them, nodes cannot.
func (a *action) charged() string {
	if a.owner.confirmed {
		return a.owner.don + "/" + a.owner.address
	}
	return a.node.key
}

// start has the action done: by itself, from the cache, by another's call or by one
// that others may share. It hands the message for the node to done, within the
// action's own time, and waits for nothing.
func (x *actions) start(a *action, done func(message []byte)) {
	a.done = done
	if a.alone() {
		if _, err := a.admit(); err != nil {
			done(x.failure(a, err))
			return
		}
		x.crew.run(a.run)
		return
	}
	if resp, ok := x.cache.Get(a.key, a.maxAge); ok {
		done(x.answer(actionHit, actionMessage(a.id, resp.params, 0)))
		return
	}
	call := cache.Call[*actionResponse]{
		Key: a.key, Owner: a.charged(), MaxAge: a.maxAge, Store: a.store, Timeout: a.prepared.Timeout(), Limit: maxCall, Admit: a.admit, Fetch: a.fetch,
	}
	if cert, _ := a.prepared.ClientCertificate(); cert != nil {
		call.Late = a.progress.Refusal
	}
	x.cache.Start(context.Background(), call, a.end) // until the cache is closed
}

// admit takes a slot for the upstream call.
func (a *action) admit() (release func(), err error) {
	release, bound := a.actions.slots.take(a.node, a.owner)
	if release == nil {
		return nil, &egress.Refused{Reason: reasonBusy, Msg: "too many requests at once: " + bound}
	}
	a.release = release
	return release, nil
}

// reasonBusy marks our own refusals among those of egress.
const reasonBusy egress.Reason = "busy"

// run makes the upstream call of an action that is alone.
func (a *action) run() {
	a.done(a.call())
}

// call makes the upstream call and returns the message for the node.
func (a *action) call() (message []byte) {
	x := a.actions
	defer a.release()
	defer func() {
		if p := recover(); p != nil {
			message = x.failure(a, &cache.PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	r, err := a.client.Do(x.ctx, a.prepared)
	if err != nil {
		return x.failure(a, err)
	}
	defer r.Free()
	x.service.server.metrics.upstream.Observe(r.Latency.Seconds())
	return x.answer(actionFetched, endpointAnswer(r, a.id))
}

// fetch makes the upstream call of actions that may share it. It runs detached from
// whoever asked first: the context ends when nobody waits any more.
func (a *action) fetch(ctx context.Context) (*actionResponse, int64, bool, error) {
	r, err := a.client.DoShared(ctx, a.prepared, &a.progress)
	if err != nil {
		return nil, 0, false, err
	}
	defer r.Free()
	a.actions.service.server.metrics.upstream.Observe(r.Latency.Seconds())
	out := &actionResponse{params: endpointAnswer(r, ""), latency: r.Latency}
	cacheable := r.StatusCode/100 == 2 || r.StatusCode/100 == 4
	return out, int64(cap(out.params)), cacheable, nil
}

// end takes what came of an action that the cache was asked about.
func (a *action) end(resp *actionResponse, hit bool, err error) {
	x := a.actions
	switch {
	case err != nil:
		a.done(x.failure(a, err))
	case hit:
		a.done(x.answer(actionHit, actionMessage(a.id, resp.params, 0)))
	case a.release != nil:
		a.done(x.answer(actionFetched, actionMessage(a.id, resp.params, resp.latency)))
	default:
		a.done(x.answer(actionShared, actionMessage(a.id, resp.params, resp.latency)))
	}
}

// failure is the message for an action that came to nothing.
func (x *actions) failure(a *action, err error) []byte {
	var refused *egress.Refused
	var external *egress.External
	var late *cache.TimeoutError
	var waiters *cache.TooManyWaitersError
	switch {
	case errors.As(err, &refused) && refused.Reason == reasonBusy, errors.As(err, &waiters):
		return x.refused(a.id, actionBusy, err.Error())
	case refused != nil:
		return x.refused(a.id, actionRefused, refused.Error())
	case errors.As(err, &late):
		return x.failed(a, fmt.Sprintf("no answer from the endpoint within %v", late.After))
	case errors.As(err, &external):
		return x.failed(a, external.Error())
	case errors.Is(err, errStopped):
		return x.failed(a, err.Error())
	default:
		x.service.server.log.Error("action failed", zap.Error(err), zap.String("node", a.node.name()), zap.String("host", a.prepared.Host()))
		return x.failed(a, "the gateway could not make the request")
	}
}

// answer counts the outcome of an action whose message has an endpoint's answer.
func (x *actions) answer(outcome string, message []byte) []byte {
	x.service.server.metrics.actions[outcome].Inc()
	return message
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
