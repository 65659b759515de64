package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gorilla/websocket"
	"go.uber.org/zap"

	"dongate/aggregation"
	"dongate/auth"
	"dongate/config"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// call is one client request on its way: a body of its own or one element of a
// batch.
type call struct {
	request  jsonrpc.Request
	snapshot *snapshot   // the configuration that it keeps to
	header   *auth.Token // a header token that passed the checks needing no body
	deadline time.Time   // requestTimeoutMillis after the request came
	held     *work       // given back before the wait for the nodes
}

// config is the handler's configuration for this request.
func (c *call) config(svc *service) *config.Handler { return c.snapshot.handlers[svc.name] }

// execute runs one trigger to its answer, in the order of protocol §2: method,
// params, workflow, signature, authorisation, replay, limits, claim, dispatch.
// Nothing is burnt before the claim. It returns the complete answer, or a failure.
func (svc *service) execute(ctx context.Context, c *call) ([]byte, Reason, *failure) {
	// The envelope's decoder has refused duplicate names, which costs to look for.
	params, err := workflow.DecodeTriggerParams(c.request.Params, jsontext.AllowDuplicateNames(true))
	if err != nil {
		return nil, "", fail(ReasonInvalidParams, "%v", err)
	}
	if err := jsonrpc.CheckExactNumbers(c.request.Params); err != nil {
		return nil, "", fail(ReasonInvalidParams, "%v", err)
	}
	w, f := svc.lookup(&params.Workflow, c.snapshot.topology)
	if f != nil {
		return nil, "", f
	}
	token, signer, f := svc.authorise(c, w)
	if f != nil {
		return nil, "", f
	}
	if f := svc.admit(ctx, w, signer, token); f != nil {
		return nil, "", f
	}
	defer svc.flights.unreserve(w.ID)
	body, prepared, err := svc.encode(&c.request, &params, w, signer)
	if err != nil {
		return nil, "", &failure{reason: ReasonInternal, message: "the request could not be encoded for the nodes", cause: err}
	}
	if !svc.open.takeBody(w.Owner, int64(body)) {
		return nil, "", overloaded("open requests hold the bytes they may (maxOpenBytes)")
	}
	defer svc.open.giveBody(w.Owner, int64(body))
	if f := svc.claim(ctx, w, signer, token, c); f != nil {
		return nil, "", f
	}
	c.request.Params, params.Input = nil, nil // what the nodes get is all that is needed now
	c.held.done()
	return svc.fly(ctx, svc.newFlight(c, w, prepared, body))
}

func overloaded(message string) *failure {
	return &failure{reason: ReasonOverloaded, message: message, retryAfter: time.Second}
}

// lookup finds the workflow a request selects. An id that comes with owner, name
// and tag must agree with them.
func (svc *service) lookup(r *workflow.Reference, t *topology) (*aggregation.Workflow, *failure) {
	v := svc.view.Load()
	var w *aggregation.Workflow
	if r.ID != "" {
		w = v.ByID(r.ID)
	} else {
		w = v.ByReference(r.Owner, workflow.HashName(r.Name), r.Tag)
	}
	if w == nil || !slices.ContainsFunc(w.Shards, func(id string) bool { return t.shards[id] != nil }) {
		return nil, fail(ReasonWorkflowNotFound, "Workflow not found: too few nodes vouch for %s; check the selector, or wait until the DON has registered it", selected(r))
	}
	if (r.Owner != "" && r.Owner != w.Owner) || (r.Name != "" && workflow.HashName(r.Name) != w.NameHash) || (r.Tag != "" && r.Tag != w.Tag) {
		return nil, fail(ReasonWorkflowNotFound, "Workflow not found: %s has another owner, name or tag than the request says; leave them out or correct them", r.ID)
	}
	return w, nil
}

// selected says which workflow a request selects, for an error text.
func selected(r *workflow.Reference) string {
	if r.ID != "" {
		return r.ID
	}
	return fmt.Sprintf("the workflow %s, tag %s, of %s", quoteShort(r.Name), quoteShort(r.Tag), r.Owner)
}

// authorise checks the token and that its signer may run the workflow. What is
// cheap comes first: the digest, which costs with the body's size, comes last.
func (svc *service) authorise(c *call, w *aggregation.Workflow) (*auth.Token, common.Address, *failure) {
	token, tolerance := c.header, c.config(svc).JWTIssuedAtTolerance
	if c.request.Auth != "" {
		var err error
		if token, err = auth.ParseToken(c.request.Auth, time.Now(), tolerance); err != nil {
			return nil, common.Address{}, unauthorized(err)
		}
	}
	if token != nil && token.IssuedAt.After(time.Now().Add(tolerance)) {
		// A header token was checked before its service was known.
		return nil, common.Address{}, fail(ReasonUnauthorized, "Auth failure: JWT iat is more than %v in the future: check the clock", tolerance)
	}
	if token == nil {
		return nil, common.Address{}, fail(ReasonUnauthorized, "Auth failure: JWT missing; send it as `Authorization: Bearer <jwt>` or in the member `auth`")
	}
	signer, err := token.Signer()
	if err != nil {
		return nil, signer, unauthorized(err)
	}
	if !w.Authorized(workflow.KeyTypeECDSAEVM, strings.ToLower(signer.Hex())) {
		return nil, signer, fail(ReasonUnauthorized, "Auth failure: signer %s is not authorised for this workflow", strings.ToLower(signer.Hex()))
	}
	digest, err := c.request.Digest()
	if err == nil {
		err = token.CheckDigest(digest)
	}
	if err != nil {
		return nil, signer, unauthorized(err)
	}
	return token, signer, nil
}

func unauthorized(err error) *failure {
	return &failure{reason: ReasonUnauthorized, message: "Auth failure: " + err.Error(), cause: err}
}

// admit checks what may refuse a request without using it up: an already used
// token, the workflow's open requests and the rate limits. On success one of the
// workflow's places is taken.
func (svc *service) admit(ctx context.Context, w *aggregation.Workflow, signer common.Address, t *auth.Token) *failure {
	used, err := svc.claims.Used(context.WithoutCancel(ctx), signer, t.ID)
	if err != nil {
		return svc.unavailable(err)
	}
	if used {
		return replayed()
	}
	if !svc.flights.reserve(w.ID) {
		svc.server.metrics.throttled.WithLabelValues("open").Inc()
		return &failure{reason: ReasonRateLimited, message: "rate limit exceeded: the workflow has 1000 open requests", retryAfter: time.Second}
	}
	if ok, wait := svc.users.Allow(w.Owner, w.ID, time.Now()); !ok {
		svc.flights.unreserve(w.ID)
		svc.server.metrics.throttled.WithLabelValues("rate").Inc()
		return &failure{reason: ReasonRateLimited, message: "rate limit exceeded: send the same bytes again after " + retryAfterSeconds(wait) + " s", retryAfter: wait}
	}
	return nil
}

func replayed() *failure {
	return fail(ReasonTokenReplayed, "Auth failure: JWT token has already been used; sign a new one")
}

func (svc *service) unavailable(err error) *failure {
	return &failure{reason: ReasonUnavailable, message: "used tokens cannot be recorded at the moment, so nothing was dispatched; try again", retryAfter: time.Second, cause: err}
}

// claim uses up the token and the request id together, or neither.
func (svc *service) claim(ctx context.Context, w *aggregation.Workflow, signer common.Address, t *auth.Token, c *call) *failure {
	if f := svc.tooLate(ctx, c); f != nil {
		return f
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), c.deadline)
	defer cancel()
	outcome, previous, err := svc.claims.Claim(ctx, auth.Claim{
		Signer: signer, TokenID: t.ID, TokenUntil: t.Expires, KeepUntil: time.Now().Add(c.config(svc).JWTReplayPeriod),
		WorkflowID: w.ID, RequestID: c.request.ID,
		RequestUntil: c.deadline.Add(c.config(svc).RequestIDPeriod()),
	})
	switch {
	case errors.Is(err, auth.ErrClaimExpired):
		return fail(ReasonUnauthorized, "Auth failure: JWT token has expired; sign a new one")
	case err != nil:
		return svc.unavailable(err)
	case outcome == auth.Replayed:
		return replayed()
	case outcome == auth.Conflict:
		return svc.conflict(w, signer, c.request.ID, previous)
	}
	return nil
}

// tooLate refuses a request that could not be answered any more, before it uses
// up anything.
func (svc *service) tooLate(ctx context.Context, c *call) *failure {
	select {
	case <-svc.server.killed:
		return fail(ReasonDraining, "the gateway is shutting down; nothing was dispatched, use another one")
	default:
	}
	switch {
	case ctx.Err() != nil:
		return fail(ReasonAbandoned, "the client went away")
	case !time.Now().Before(c.deadline):
		return &failure{reason: ReasonTimeout, data: &failureData{Shards: []shardState{}},
			message: "the request took too long to arrive; nothing was dispatched, send it again"}
	}
	return nil
}

// conflict tells the signer of the earlier attempt what became of it, and anyone
// else no more than that the id is taken.
func (svc *service) conflict(w *aggregation.Workflow, signer common.Address, id string, p *auth.Previous) *failure {
	f := fail(ReasonConflict, "the request id is in use or was used lately, and the earlier attempt may still run; ask for its outcome with the same signer, or use a new id")
	if p == nil || p.Signer != signer {
		return f
	}
	f.data = &failureData{State: string(p.State), ExecutionID: workflow.ExecutionID(w.ID, id)}
	if p.State == auth.StateAnswered && len(p.Answer) > 0 {
		f.data.Response = jsontext.Value(p.Answer)
	}
	return f
}

// triggerParams is what nodes get as params: members in sorted order.
type triggerParams struct {
	Input    jsontext.Value `json:"input"`
	Key      workflow.Key   `json:"key"`
	Workflow sentWorkflow   `json:"workflow"`
}

type sentWorkflow struct {
	ID    string `json:"workflowID"`
	Name  string `json:"workflowName,omitzero"`
	Owner string `json:"workflowOwner,omitzero"`
	Tag   string `json:"workflowTag,omitzero"`
}

// encode makes the one message that every node gets (protocol §5).
func (svc *service) encode(r *jsonrpc.Request, p *workflow.TriggerParams, w *aggregation.Workflow, signer common.Address) (int, *websocket.PreparedMessage, error) {
	input, err := jsonrpc.SortMembers(p.Input)
	if err != nil {
		return 0, nil, err
	}
	params, err := json.Marshal(&triggerParams{
		Input:    input,
		Key:      workflow.Key{KeyType: workflow.KeyTypeECDSAEVM, PublicKey: strings.ToLower(signer.Hex())},
		Workflow: sentWorkflow{ID: w.ID, Name: p.Workflow.Name, Owner: p.Workflow.Owner, Tag: p.Workflow.Tag},
	})
	if err != nil {
		return 0, nil, err
	}
	data := jsonrpc.AppendRequest(make([]byte, 0, len(params)+len(r.ID)+96), &jsonrpc.Request{ID: r.ID, Method: r.Method, Params: params})
	m, err := websocket.NewPreparedMessage(websocket.BinaryMessage, data)
	return len(data), m, err
}

func (svc *service) newFlight(c *call, w *aggregation.Workflow, m *websocket.PreparedMessage, size int) *flight {
	now := time.Now()
	f := &flight{
		service: svc, config: c.config(svc), id: c.request.ID, workflow: w, prepared: m, size: size,
		started: now, poke: make(chan struct{}, 1),
	}
	f.deadline = now.Add(f.config.MaxTriggerRequestDuration)
	if c.deadline.Before(f.deadline) {
		f.deadline = c.deadline
	}
	var sizes []aggregation.ShardSize
	for _, id := range w.Shards {
		r := c.snapshot.topology.shards[id]
		if r == nil {
			continue
		}
		fs := flightShard{roster: r, deliveries: make([]delivery, len(r.nodes)), votes: make([]*answer, len(r.nodes))}
		for j := range fs.deliveries {
			d := &fs.deliveries[j]
			d.flight, d.shard, d.node = f, len(f.shards), j
		}
		f.shards = append(f.shards, fs)
		sizes = append(sizes, aggregation.ShardSize{N: len(r.nodes), Threshold: r.threshold})
	}
	f.trigger = aggregation.NewTrigger(aggregation.TriggerConfig{
		Shards: sizes, Start: now, Deadline: f.deadline,
		Grace: f.config.NoQuorumGrace, Unavailable: f.config.DONUnavailable,
	}, make([]int, len(sizes)))
	return f
}

// fly dispatches a claimed request, waits for its end and closes its id with the
// answer.
func (svc *service) fly(ctx context.Context, f *flight) ([]byte, Reason, *failure) {
	svc.flights.add(f)
	f.dispatch()
	d := f.wait(ctx, svc.server.killed)
	svc.flights.remove(f)
	defer f.release()

	body, reason, failed := svc.conclude(f, d)
	state := auth.StateFailed
	if failed == nil {
		state = auth.StateAnswered
	}
	until := time.Now().Add(f.config.RequestIDPeriod())
	svc.claims.End(f.workflow.ID, f.id, state, body, until, func(err error) {
		if err != nil {
			svc.server.log.Error("request id not closed", zap.Error(err), zap.String("workflow", f.workflow.ID))
		}
	})
	svc.server.metrics.quorum.Observe(time.Since(f.started).Seconds())
	return body, reason, failed
}

// conclude turns the decision into the client's answer.
func (svc *service) conclude(f *flight, d aggregation.Decision) ([]byte, Reason, *failure) {
	switch d.Outcome {
	case aggregation.AgreedResult, aggregation.AgreedError:
		a := f.take(d.Vote)
		if a == nil {
			return nil, "", &failure{reason: ReasonInternal, message: "the agreed answer is gone", cause: errors.New("no bytes for an agreed vote")}
		}
		if a.failure != nil {
			return jsonrpc.AppendNodeError(nil, f.id, a.method, a.failure), ReasonNodeError, nil
		}
		return jsonrpc.AppendResult(nil, f.id, a.method, a.payload), ReasonResult, nil
	case aggregation.NoQuorum:
		return nil, "", &failure{reason: ReasonNoQuorum, data: &failureData{Shards: f.states()},
			message: "no quorum is possible: the nodes' answers differ; the request may have run, use a new id to try again"}
	case aggregation.Timeout:
		return nil, "", &failure{reason: ReasonTimeout, data: &failureData{Shards: f.states()},
			message: "no quorum before the deadline; the request may still run, use a new id to try again"}
	case aggregation.Unavailable:
		return nil, "", &failure{reason: ReasonDONUnavailable, retryAfter: f.config.DONUnavailable,
			message: "no node of the workflow's DON is connected; " + f.mayHaveRun() + "; try again with a new id and token"}
	case outcomeKilled:
		return nil, "", &failure{reason: ReasonDraining, retryAfter: time.Second,
			message: "the gateway is shutting down; the request was dispatched and may have run, use a new id to try again"}
	case outcomeAbandoned:
		return nil, "", fail(ReasonAbandoned, "the client went away")
	default:
		return nil, "", fail(ReasonInternal, "unexpected outcome")
	}
}
