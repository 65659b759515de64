package gateway

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"dongate/aggregation"
	"dongate/auth"
	"dongate/config"
	"dongate/jsonrpc"
	"dongate/ratelimit"
	"dongate/workflow"
)

// service is one `http-capabilities` handler: the workflows of its DONs, their
// limits and their open requests. Safe for concurrent use.
type service struct {
	server *Server
	name   string
	method string // the one method clients call: name + ".execute"

	users   *ratelimit.UserLimiter
	unasked *ratelimit.NodeLimiter // for what nodes send without having been asked
	claims  auth.Claims
	flights *flightRegistry
	open    *byteBudget
	actions *actions
	changed chan struct{} // capacity 1: run is to look at the configuration again

	metaMu   sync.Mutex // guards metadata; held for its pure operations only
	metadata *aggregation.Metadata
	view     atomic.Pointer[aggregation.View]
	viewed   atomic.Bool // a first workflow has been agreed on
}

// maxOwners bounds the keys of the user limiter. Owners are taken from agreed
// metadata, so clients cannot invent them.
const maxOwners = 100_000

// newService returns a service that has no DON until apply gives it some.
func newService(srv *Server, name string, claims auth.Claims) *service {
	svc := &service{
		server: srv, name: name, method: name + ".execute", claims: claims,
		flights: newFlightRegistry(), open: newByteBudget(0),
		users:   ratelimit.NewUser(ratelimit.UserOptions{MaxKeys: maxOwners}),
		unasked: ratelimit.NewNode(ratelimit.NodeOptions{}),
		changed: make(chan struct{}, 1),
	}
	svc.metadata = aggregation.NewMetadata(aggregation.MetadataConfig{})
	svc.view.Store(svc.metadata.View())
	svc.actions = newActions(svc)
	return svc
}

// config is the handler's configuration in effect. Whoever needs several members
// that belong together asks once; an open request keeps that of its flight.
func (svc *service) config() *config.Handler { return svc.server.current().handlers[svc.name] }

// apply puts the limits of the configuration s in place, and its DONs.
func (svc *service) apply(s *snapshot, now time.Time) {
	h := s.handlers[svc.name]
	svc.users.SetRates(rate(h.UserRate.Global), rate(h.UserRate.PerSender), rate(h.UserRate.PerWorkflow), now)
	svc.unasked.SetMaxKeys(len(s.topology.nodes))
	svc.unasked.SetRates(rate(h.NodeRate.PerSender), rate(h.NodeRate.Global), now)
	svc.open.setLimit(h.MaxOpenBytes)
	svc.actions.slots.setMost(h.MaxConcurrentActions)
	svc.actions.cache.SetBounds(h.OutboundRequestCacheTTL, h.MaxCacheBytes)
	svc.withMetadata(func(m *aggregation.Metadata) {
		m.SetBounds(h.MaxWorkflowsPerNode, h.MaxMetadataBytes, h.CleanUpPeriod, now)
		m.SetDONs(s.topology.specs(svc), now)
	})
	for _, n := range s.topology.nodes {
		if session := n.session.Load(); session != nil && n.shard.service == svc {
			session.repace.Store(true)
			session.queue.signal()
		}
	}
	select {
	case svc.changed <- struct{}{}:
	default:
	}
}

func rate(r config.Rate) ratelimit.Rate { return ratelimit.Rate{RPS: r.RPS, Burst: r.Burst} }

// run drops what expired from the view and the cache, until ctx ends.
func (svc *service) run(ctx context.Context) {
	h := svc.config()
	ticker := time.NewTicker(h.MetadataAggregationInterval)
	defer ticker.Stop()
	sweep := time.NewTicker(h.CleanUpPeriod)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-svc.changed:
			// A reload that leaves an interval as it was does not put off its end, or a
			// gateway that is reloaded often would never clean up.
			now := svc.config()
			if now.MetadataAggregationInterval != h.MetadataAggregationInterval {
				ticker.Reset(now.MetadataAggregationInterval)
			}
			if now.CleanUpPeriod != h.CleanUpPeriod {
				sweep.Reset(now.CleanUpPeriod)
			}
			h = now
		case now := <-sweep.C:
			svc.actions.cache.Sweep(now)
		case now := <-ticker.C:
			svc.expire(now)
		}
	}
}

// expire drops old observations. Should that ever panic, the gateway goes on.
func (svc *service) expire(now time.Time) {
	defer func() {
		if p := recover(); p != nil {
			svc.server.log.Error("panic while dropping old metadata", zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	svc.withMetadata(func(m *aggregation.Metadata) { m.Expire(now) })
}

// withMetadata changes the metadata and publishes the view that follows.
func (svc *service) withMetadata(change func(*aggregation.Metadata)) {
	svc.metaMu.Lock()
	defer svc.metaMu.Unlock()
	change(svc.metadata)
	svc.publishLocked()
}

func (svc *service) publishLocked() {
	v := svc.metadata.View()
	svc.view.Store(v)
	if v.Len() > 0 && !svc.viewed.Load() && svc.viewed.CompareAndSwap(false, true) {
		svc.server.metrics.firstView.Set(time.Since(svc.server.started).Seconds())
	}
}

// push takes a node's word for one workflow.
func (svc *service) push(s *session, r *jsonrpc.Response) {
	if r.Error != nil {
		svc.server.malformed(s, "a push carries a result")
		return
	}
	w, err := workflow.DecodeMetadata(r.Result)
	if err != nil {
		svc.server.malformed(s, err.Error())
		return
	}
	svc.withMetadata(func(m *aggregation.Metadata) { svc.counted(s, m.Report(s.node.key, w, time.Now())) })
}

func (svc *service) counted(s *session, status aggregation.ReportStatus) {
	if status == aggregation.Accepted {
		s.node.shard.m.reports.Inc()
	} else {
		svc.server.drop(s, dropRefused)
	}
}

// beginPull opens the pull that the node is about to be sent; false: s has been
// replaced, and its successor asks for itself. A pull that an older session of the
// node left open is forgotten: that session was not live throughout.
func (svc *service) beginPull(s *session, id string, now time.Time) (begun bool) {
	svc.withMetadata(func(m *aggregation.Metadata) {
		if s.node.session.Load() != s {
			return
		}
		begun = true
		if s.node.pulling != s && s.node.pulling != nil {
			m.AbandonPull(s.node.key)
		}
		s.node.pulling, s.pull = s, id
		m.BeginPull(s.node.key, now)
	})
	return begun
}

// endPull closes the session's open pull: what it did not name is withdrawn.
func (svc *service) endPull(s *session, now time.Time) {
	svc.withMetadata(func(m *aggregation.Metadata) {
		if s.node.pulling == s {
			s.node.pulling, s.pull = nil, ""
			m.EndPull(s.node.key, now)
		}
	})
}

// abandonPull forgets the open pull of a session that ended.
func (svc *service) abandonPull(s *session) {
	svc.metaMu.Lock()
	defer svc.metaMu.Unlock()
	if s.node.pulling == s {
		s.node.pulling, s.pull = nil, ""
		svc.metadata.AbandonPull(s.node.key)
	}
}

// pullOpen reports whether id is the session's open pull.
func (svc *service) pullOpen(s *session, id string) bool {
	svc.metaMu.Lock()
	defer svc.metaMu.Unlock()
	return s.node.pulling == s && s.pull == id
}

// pulled takes one message that answers a pull: an array of metadata objects.
// Good elements count though others are bad.
func (svc *service) pulled(s *session, r *jsonrpc.Response) {
	if !svc.pullOpen(s, r.ID) {
		svc.server.drop(s, dropLate)
		return
	}
	if r.Error != nil {
		svc.server.malformed(s, "a pull is answered with a result")
		return
	}
	var elements []jsontext.Value
	if err := json.Unmarshal(r.Result, &elements); err != nil {
		svc.server.malformed(s, "a pull is answered with an array")
		return
	}
	reports := make([]workflow.Metadata, 0, len(elements))
	bad := false
	for _, e := range elements {
		w, err := workflow.DecodeMetadata(e)
		if err != nil {
			bad = true
			svc.server.log.Debug("bad metadata", zap.String("node", s.node.name()), zap.Error(err))
			continue
		}
		reports = append(reports, w)
	}
	if bad {
		svc.server.malformed(s, "a workflow in a pull's answer")
	}
	now := time.Now()
	svc.withMetadata(func(m *aggregation.Metadata) {
		for _, w := range reports {
			svc.counted(s, m.Report(s.node.key, w, now))
		}
	})
}

// nodeConnected gives a node that has just connected the requests that are open.
func (svc *service) nodeConnected(n *node) {
	for _, f := range svc.flights.all() {
		f.nodeConnected(n)
	}
}

func (svc *service) nodeDisconnected(n *node) {
	for _, f := range svc.flights.all() {
		f.nodeDisconnected(n.shard)
	}
}

// nodeRemoved takes a node's votes out of the requests that are open.
func (svc *service) nodeRemoved(n *node) {
	for _, f := range svc.flights.all() {
		f.nodeRemoved(n)
	}
}
