package gateway

import (
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/gorilla/websocket"
	"go.uber.org/zap"

	"dongate/aggregation"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// The methods a node's message can carry before the first slash of its id
// (protocol §4). An id without a slash answers a trigger.
const (
	methodAction = "http_action"
	methodPush   = "push_workflow_metadata"
	methodPull   = "pull_workflow_metadata"
	pullPrefix   = methodPull + "/"
)

// Why a node's message was dropped: the label of a metric.
const (
	dropMalformed   = "malformed"
	dropThrottled   = "throttled"
	dropLate        = "late"
	dropForeign     = "foreign"
	dropSuperfluous = "superfluous"
	dropRefused     = "refused"
)

// route handles one message of a live session. data is reused after the call.
// It never panics on a node's bytes: a handler's panic costs the node one
// malformed message.
func (srv *Server) route(s *session, data []byte) {
	defer func() {
		if p := recover(); p != nil {
			srv.log.Error("panic on a node's message", zap.Any("panic", p), zap.String("node", s.node.name()), zap.Stack("stack"))
			srv.malformed(s, "panic")
		}
	}()
	if len(data) > largeMessage {
		srv.large <- struct{}{}
		defer func() { <-srv.large }()
	}
	resp, err := jsonrpc.DecodeResponse(data)
	if err == nil {
		err = resp.Check()
	}
	if err != nil {
		srv.malformed(s, unreadable(err))
		return
	}
	svc := s.node.shard.service
	method, rest, slashed := strings.Cut(resp.ID, "/")
	switch {
	case resp.ID == "" || len(resp.ID) > maxNodeIDBytes || (slashed && rest == ""):
		srv.malformed(s, "id")
	case svc == nil:
		srv.drop(s, dropForeign)
	case !slashed:
		svc.answer(s, &resp)
	case method == methodPush:
		if srv.admit(s) {
			svc.push(s, &resp)
		} else {
			srv.drop(s, dropThrottled)
		}
	case method == methodPull:
		svc.pulled(s, &resp)
	case method == methodAction:
		svc.actions.handle(s, &resp, srv.admit(s))
	default:
		srv.malformed(s, "id names no method")
	}
}

// unreadable says for the log why a message could not be decoded: not where, since
// that would quote member names of what may be an action.
func unreadable(err error) string {
	var de *jsonrpc.DecodeError
	if errors.As(err, &de) && de.Parse {
		return "not JSON"
	}
	return "not a response"
}

// maxNodeIDBytes bounds the id of a node's message: method, workflow id,
// execution id and a uuid fit several times.
const maxNodeIDBytes = 1 << 10

// admit takes a token for a message the node sent unasked: from its own bucket
// and its shard's, or from neither.
func (srv *Server) admit(s *session) bool {
	ok, _ := s.node.shard.service.unasked.Allow(s.node.key, s.node.shard.id, time.Now())
	if !ok {
		s.node.shard.m.throttled.Inc()
	}
	return ok
}

// malformed counts a message that means nothing; the hundredth within a minute
// ends the session.
func (srv *Server) malformed(s *session, why string) {
	srv.drop(s, dropMalformed)
	srv.log.Debug("malformed message", zap.String("shard", s.node.shard.id), zap.String("node", s.node.name()), zap.String("why", why))
	if s.malformed.add(time.Now()) {
		s.stop(websocket.ClosePolicyViolation, "malformed")
	}
}

// drop counts a message of the node that had no effect.
func (srv *Server) drop(s *session, why string) { s.node.shard.m.dropped[why].Inc() }

// answer counts a node's answer to a trigger as a vote in the flight it is for.
func (svc *service) answer(s *session, r *jsonrpc.Response) {
	n := s.node
	if !svc.flights.open(r.ID) {
		svc.server.drop(s, dropLate)
		return
	}
	named, ok := namedWorkflow(r.Result)
	if !ok {
		svc.server.drop(s, dropForeign)
		return
	}
	f, shardIndex, why := svc.flights.find(r.ID, named, n)
	if f == nil {
		svc.server.drop(s, why)
		return
	}
	v, known, more := f.known(shardIndex, n, r)
	if !more {
		svc.server.drop(s, dropSuperfluous)
		return
	}
	if !known {
		digest, err := r.VoteDigest()
		if err != nil {
			svc.server.malformed(s, "the answer has no digest")
			return
		}
		v = aggregation.Vote{Kind: aggregation.Result, Digest: digest}
		if r.Error != nil {
			v.Kind = aggregation.Failure
		}
	}
	status := f.vote(shardIndex, n, v, r)
	switch status {
	case aggregation.Late:
		svc.server.drop(s, dropLate)
	case aggregation.Superfluous:
		svc.server.drop(s, dropSuperfluous)
	case aggregation.NotAMember:
		svc.server.drop(s, dropForeign)
	default:
		n.shard.m.votes[status].Inc()
	}
}

// namedWorkflow is the workflow a result says it is for, normalised; "" when it
// says nothing. false: it names something that is no workflow id.
func namedWorkflow(result jsontext.Value) (string, bool) {
	if result.Kind() != '{' {
		return "", true
	}
	var named struct {
		WorkflowID jsontext.Value `json:"workflow_id"`
	}
	// The envelope's decoder has refused duplicates, which costs to look for.
	if err := json.Unmarshal(result, &named, jsontext.AllowDuplicateNames(true)); err != nil {
		return "", false
	}
	if named.WorkflowID == nil || string(named.WorkflowID) == `""` || named.WorkflowID.Kind() == 'n' {
		return "", true
	}
	var id string
	if json.Unmarshal(named.WorkflowID, &id) != nil {
		return "", false
	}
	id, err := workflow.NormalizeID(strings.ToLower(id))
	return id, err == nil
}
