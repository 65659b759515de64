package gateway

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"dongate/cache"
	"dongate/egress"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// actionRequest is the result of a node's http_action message (protocol §7).
// `readFromCache` is accepted and ignored, like everything unknown.
type actionRequest struct {
	URL          string              `json:"url"`
	Method       string              `json:"method"`
	Headers      singleHeaders       `json:"headers"`
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

// prepare makes every check that needs no network. The error is a sentence for
// the node.
func (x *actions) prepare(n *node, r *jsonrpc.Response) (*action, error) {
	current := x.service.server.current()
	client := current.egress
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
		req.Fields = q.Headers
	} else if err := client.CheckFields(q.Headers); err != nil {
		return nil, err // `headers` is held to the rules though `multiHeaders` wins
	}
	if q.MTLS != nil {
		req.CertPEM, req.KeyPEM = q.MTLS.Certificate, q.MTLS.PrivateKey
	}
	p, err := client.Prepare(req)
	if err != nil {
		return nil, err
	}
	a := &action{actions: x, client: client, id: r.ID, node: n, owner: owner, prepared: p, store: q.Cache.Store}
	if q.Cache.MaxAgeMs > 0 {
		a.maxAge = time.Duration(min(q.Cache.MaxAgeMs, int64(1<<40))) * time.Millisecond
	}
	if !a.alone() {
		a.key = actionKey(&owner, p, current.rules)
	}
	return a, nil
}

// singleHeaders are {name: value}.
type singleHeaders []egress.Field

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (h *singleHeaders) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	switch open, err := dec.ReadToken(); {
	case err != nil:
		return err
	case open.Kind() == 'n':
		return nil
	case open.Kind() != '{':
		return errHeaders
	}
	*h = make(singleHeaders, 0, 4)
	for dec.PeekKind() == '"' {
		token, err := dec.ReadToken()
		if err != nil {
			return err
		}
		f := egress.Field{Name: token.String()}
		if token, err = dec.ReadToken(); err != nil {
			return err
		}
		switch token.Kind() {
		case '"':
			f.Value = token.String()
		case 'n':
		default:
			return errHeaders
		}
		*h = append(*h, f)
	}
	_, err := dec.ReadToken() // the end, or an error
	return err
}

var errHeaders = errors.New("headers are not an object of texts")

// ownerOf checks the action's workflow and owner against its id and the metadata.
func (x *actions) ownerOf(n *node, id string, q *actionRequest) (actionOwner, error) {
	_, rest, _ := strings.Cut(id, "/")
	inID, _, more := strings.Cut(rest, "/")
	workflowID, err := workflow.NormalizeID(strings.ToLower(q.WorkflowID))
	if err != nil {
		return actionOwner{}, errors.New("workflowId is no workflow id: send the one the action runs for")
	}
	if inID != q.WorkflowID || !more {
		if named, err := workflow.NormalizeID(strings.ToLower(inID)); err != nil || !more || named != workflowID {
			return actionOwner{}, errors.New("workflowId differs from the second segment of the message's id")
		}
	}
	address, err := workflow.NormalizeOwner(strings.ToLower(q.WorkflowOwner))
	if err != nil {
		return actionOwner{}, errors.New("workflowOwner is no address: send the owner of the workflow")
	}
	o := actionOwner{don: n.shard.don, address: address}
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
// scope is the owner, as in the network (protocol §7). What came under other rules,
// before a reload, is another action's.
func actionKey(o *actionOwner, p *egress.Prepared, rules int64) cache.Key {
	h := hashers.Get().(*cache.Hasher)
	defer hashers.Put(h)
	h.Reset()
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
	h.Int(rules)
	return h.Sum()
}

var hashers = sync.Pool{New: func() any { return cache.NewHasher() }}
