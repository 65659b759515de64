package gateway

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"dongate/cache"
	"dongate/egress"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// No two different requests share a key, however one's parts spell another's.
//
// conformance: 7.cache.key
func TestActionKey(t *testing.T) {
	t.Parallel()
	cfg := egress.Config{}
	cfg.MTLS.RPS, cfg.MTLS.Burst = 1, 1
	client, err := egress.New(cfg)
	require.NoError(t, err)
	prepare := func(r egress.Request) *egress.Prepared {
		p, err := client.Prepare(&r)
		require.NoError(t, err)
		return p
	}
	owner := actionOwner{don: "d", address: fmt.Sprintf("0x%040x", 1), confirmed: true}
	cert, key := clientCertificate(t)
	cert2, key2 := clientCertificate(t)
	const u = "https://h.example/p"
	with := func(h map[string][]string) *egress.Prepared { return prepare(egress.Request{URL: u, Header: h}) }
	other := func(change func(*actionOwner)) *actionOwner {
		o := owner
		change(&o)
		return &o
	}
	keys := map[cache.Key]string{}
	for _, tt := range []struct {
		name  string
		owner *actionOwner
		p     *egress.Prepared
	}{
		{"GET", &owner, prepare(egress.Request{URL: u})},
		{"POST h/p with body GET/x", &owner, prepare(egress.Request{Method: "POST", URL: u, Body: []byte("GET/x")})},
		{"GET h/p/POST with body x", &owner, prepare(egress.Request{URL: u + "/POST", Body: []byte("x")})},
		{"POST h/pGET with body /x", &owner, prepare(egress.Request{Method: "POST", URL: u + "GET", Body: []byte("/x")})},
		{"POST h/p/x", &owner, prepare(egress.Request{Method: "POST", URL: u + "/x"})},
		{"POST h/p?x", &owner, prepare(egress.Request{Method: "POST", URL: u + "?x"})},
		{"PUT", &owner, prepare(egress.Request{Method: "PUT", URL: u})},
		{"http", &owner, prepare(egress.Request{URL: "http://h.example/p"})},
		{"port", &owner, prepare(egress.Request{URL: "https://h.example:80/p"})},

		{"X: a, b", &owner, with(map[string][]string{"X": {"a", "b"}})},
		{"X: b, a", &owner, with(map[string][]string{"X": {"b", "a"}})},
		{"X: a and b without values", &owner, with(map[string][]string{"X": {"a"}, "b": {}})},
		{"X: a and an empty b", &owner, with(map[string][]string{"X": {"a"}, "b": {""}})},
		{"X: a,b", &owner, with(map[string][]string{"X": {"a,b"}})},
		{"Xa: b", &owner, with(map[string][]string{"Xa": {"b"}})},
		{"Accept-Encoding", &owner, with(map[string][]string{"Accept-Encoding": {""}})},

		{"limit", &owner, prepare(egress.Request{URL: u, MaxBytes: 100})},
		{"one certificate", &owner, prepare(egress.Request{URL: u, CertPEM: cert, KeyPEM: key})},
		{"another certificate", &owner, prepare(egress.Request{URL: u, CertPEM: cert2, KeyPEM: key2})},
		{"a certificate with a line more", &owner, prepare(egress.Request{URL: u, CertPEM: append([]byte("\n"), cert...), KeyPEM: key})},

		{"another owner", other(func(o *actionOwner) { o.address = fmt.Sprintf("0x%040x", 2) }), prepare(egress.Request{URL: u})},
		{"the owner, unconfirmed", other(func(o *actionOwner) { o.confirmed = false }), prepare(egress.Request{URL: u})},
		{"another DON", other(func(o *actionOwner) { o.don = "e" }), prepare(egress.Request{URL: u})},
		{"DON and owner cut elsewhere", other(func(o *actionOwner) { o.don, o.address = "d0", o.address[1:] }), prepare(egress.Request{URL: u})},
	} {
		k := actionKey(tt.owner, tt.p, 0)
		require.NotContains(t, keys, k, "%s has the key of %s", tt.name, keys[k])
		keys[k] = tt.name
		require.Equal(t, k, actionKey(tt.owner, tt.p, 0))
		require.NotEqual(t, k, actionKey(tt.owner, tt.p, 1), "under other rules")
	}
	// Equal requests share one, whatever their spelling and their time.
	require.Equal(t, "GET", keys[actionKey(&owner, prepare(egress.Request{Method: "get", URL: "HTTPS://H.example/p", Timeout: 7, MaxBytes: 1 << 40}), 0)])
	require.Equal(t, "X: a, b", keys[actionKey(&owner, with(map[string][]string{"x": {"a", " b "}}), 0)])
}

// The scope is the owner: workflows and shards share, DONs and unconfirmed owners do not.
//
// conformance: 7.cache.scope
// conformance: 7.owner.unconfirmed
func TestScopeOfTheCache(t *testing.T) {
	t.Parallel()
	r := newRig(t, rigSpec{dons: []donSpec{{"don", 1, []int{4, 4}}, {"other", 1, []int{4}}}})
	owned := func(n int, owner int) workflow.Metadata {
		w := testWorkflow(n, fmt.Sprint("workflow", n), "v1", clientSigner)
		w.Selector.WorkflowOwner = fmt.Sprintf("0x%040x", owner)
		return w
	}
	one, two, theirs, unknown := owned(1, 7), owned(2, 7), owned(3, 8), owned(4, 7)
	for _, shard := range []string{"don", "don_1", "other"} { // the first DON to agree owns them
		for i := range 4 {
			r.connect(shard, i, []workflow.Metadata{one, two, theirs}, silent)
		}
		r.awaitWorkflow(theirs.Selector.WorkflowID)
	}
	key := func(shard string, index int, w workflow.Metadata) cache.Key {
		resp, err := jsonrpc.DecodeResponse(jsonrpc.AppendResult(nil, "http_action/"+w.Selector.WorkflowID+"/1", methodAction, mustJSON(map[string]any{
			"url": "https://h.example/", "cacheSettings": share, "workflowId": w.Selector.WorkflowID, "workflowOwner": w.Selector.WorkflowOwner,
		})))
		require.NoError(t, err)
		a, err := r.svc().actions.prepare(r.srv.current().topology.shards[shard].nodes[index], &resp)
		require.NoError(t, err)
		return a.key
	}
	k := key("don", 0, one)
	require.Equal(t, k, key("don", 3, one), "nodes share")
	require.Equal(t, k, key("don_1", 1, one), "shards of a DON share")
	require.Equal(t, k, key("don", 0, two), "an owner's workflows share")
	require.NotEqual(t, k, key("don", 0, theirs), "another owner")
	require.NotEqual(t, k, key("other", 0, one), "another DON")
	made := key("don", 0, unknown)
	require.NotEqual(t, k, made, "an owner that metadata does not confirm is another of the same name")
	require.Equal(t, made, key("don", 1, unknown))
}
