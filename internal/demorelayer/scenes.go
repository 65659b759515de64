package demorelayer

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"

	"dongate/internal/console"
	"dongate/internal/simchain"
	"dongate/relayer/fhevm"
)

// endpoints are the first scenes.
var endpoints = []struct {
	at    fhevm.Endpoint
	title string
	about []string
}{
	{fhevm.EndpointInputProof, "An input proof", []string{
		"A user has encrypted an input and proves that it is well formed. The nodes check it and",
		"sign what the contract may take.",
	}},
	{fhevm.EndpointPublicDecrypt, "A public decryption", []string{
		"Somebody wants a value that everybody may know. It waits until the ciphertext is on the",
		"gateway chain and the host chain's ACL says yes.",
	}},
	{fhevm.EndpointUserDecrypt, "A user decryption", []string{
		"A user wants a value of their own. Each node answers with a share that only the user can",
		"open, and enough of them make the value.",
	}},
	{fhevm.EndpointDelegatedUserDecrypt, "A user decryption by a delegate", []string{
		"The same for a value that its owner has delegated to somebody else.",
	}},
	{fhevm.EndpointUserDecryptV3, "A user decryption of the new form", []string{
		"The user's signature is checked before anything is stored.",
	}},
}

// play plays every scene.
func (d *demo) play(ctx context.Context) error {
	for i, e := range endpoints {
		r := d.net.NewRequest(e.at, uint64(i+1), time.Now())
		if err := d.scene(e.title, e.about, func(s *scene) error { return s.succeeds(ctx, d.request(r, "", 1)) }); err != nil {
			return err
		}
	}
	if err := d.scene("The gateway is killed between send and receipt", []string{
		"The chain makes no blocks, so the transaction stays where it was sent. Then the gateway",
		"dies without a word, and blocks come again.",
	}, func(s *scene) error { return s.crash(ctx) }); err != nil {
		return err
	}
	if err := d.scene("The protocol is paused", []string{
		"The contracts refuse everything. Nothing is sent that could only fail, the client is told",
		"why, and may post the same again later.",
	}, func(s *scene) error { return s.paused(ctx) }); err != nil {
		return err
	}
	return d.scene("A value that is not the user's", []string{
		"The host chain's ACL says no, so nothing is sent.",
	}, func(s *scene) error { return s.denied(ctx) })
}

// request registers something that is to be posted. want is how often the chain must have it at the end.
func (d *demo) request(r simchain.Request, remark string, want int) *posted {
	p := &posted{what: strings.TrimSpace(string(r.Endpoint) + " " + remark), request: r, want: want}
	d.posted = append(d.posted, p)
	return p
}

// post posts a request and returns its job.
func (s *scene) post(ctx context.Context, p *posted) (job string, err error) {
	p.times++
	r, err := s.gateway.do(ctx, http.MethodPost, string(p.request.Endpoint), p.request.Body)
	if err != nil {
		return "", err
	}
	var of struct {
		JobID string `json:"jobId"`
	}
	if r.code != http.StatusAccepted || json.Unmarshal(r.Result, &of) != nil {
		return "", fmt.Errorf("POST %s: %d %s: %s", p.request.Endpoint, r.code, r.word(), r.Error.Message)
	}
	s.tell("POST", word(s.Style.Green, r.line()), "%s, job %s", p.request.Endpoint, of.JobID)
	return of.JobID, nil
}

// meanings say what a state means.
var meanings = map[string]string{
	string(fhevm.StateQueued):          "is it ready, and allowed?",
	string(fhevm.StateProcessing):      "its transaction comes next",
	string(fhevm.StateTxInFlight):      "the transaction is signed, stored and sent",
	string(fhevm.StateReceiptReceived): "it is mined, and the nodes answer",
	string(fhevm.StateCompleted):       "enough shares; some more are waited for",
}

// follow polls a job, tells every change, and returns the first answer that is final or until says yes to.
func (s *scene) follow(ctx context.Context, p *posted, job string, until func(*reply) bool) (last *reply, err error) {
	told := ""
	err = eventually(ctx, "a result", func() (bool, error) {
		r, err := s.gateway.do(ctx, http.MethodGet, string(p.request.Endpoint)+"/"+job, nil)
		if err != nil {
			return false, err
		}
		last = r
		if line := r.line(); line != told {
			told = line
			paint, text := s.Style.Green, meanings[r.State]
			if r.code >= 400 {
				paint, text = s.Style.Yellow, r.Error.Message
			}
			s.tell("GET", word(paint, line), "%s", text)
		}
		return r.code != http.StatusAccepted || until != nil && until(r), nil
	})
	return last, err
}

// succeeds posts a request that must succeed.
func (s *scene) succeeds(ctx context.Context, p *posted) error {
	job, err := s.post(ctx, p)
	if err != nil {
		return err
	}
	return s.result(ctx, p, job)
}

// result follows a job to its result, which must be what the nodes have said, and tells what came of it on the chain.
func (s *scene) result(ctx context.Context, p *posted, job string) error {
	r, err := s.follow(ctx, p, job, nil)
	if err != nil {
		return err
	}
	s.expect(r.code == http.StatusOK && r.Status == "succeeded", "it was answered with %d %s", r.code, r.word())
	d, err := s.gateway.show(job)
	if err != nil {
		return err
	}
	v, err := s.Chain.Judge(ctx)
	if err != nil {
		return fmt.Errorf("ask the chain: %w", err)
	}
	found := v.ByContent()[p.request.Content]
	s.expect(len(found) == 1, "the chain has it %s", often(len(found)))
	s.expect(len(d.Attempts) == 1, "%s were signed", console.Count(len(d.Attempts), "transaction"))
	if len(found) != 1 || len(d.Attempts) == 0 {
		return nil
	}
	s.expect(d.Reference == found[0].ID.String(), "the gateway knows it by %s, the chain by %v", d.Reference, found[0].ID)
	a := d.Attempts[0]
	s.add("chain", "request %s, made by transaction %s with nonce %d in block %d", squeeze(d.Reference), a.Hash, a.Nonce, a.Block)
	s.expect(a.Hash == d.Transaction && a.Block == found[0].Block, "the chain has it in block %d", found[0].Block)
	s.answered(p, r, d, found[0])
	return nil
}

// answered compares a result with what the nodes have said, which follows from the request's number.
func (s *scene) answered(p *posted, r *reply, d *details, on simchain.Accepted) {
	k, n := ChainOptions.KMS, s.net.Nodes
	has := func(b []byte) bool { return strings.Contains(string(r.Result), hex.EncodeToString(b)) }
	switch p.request.Endpoint.Kind() {
	case fhevm.KindInputProof:
		want := k.ProofResult(on.ID, n)
		s.add("result", "accepted, %s signed by %s", console.Count(len(want.Handles), "handle"), console.Count(len(want.Signatures), "node"))
		for _, h := range want.Handles {
			s.expect(has(h[:]), "a handle is not in the result")
		}
	case fhevm.KindPublicDecrypt:
		want := k.PublicResult(on.ID, n, on.Extra)
		s.add("result", "a value of %s signed by %s", console.Count(len(want.DecryptedValue), "byte"), console.Count(len(want.Signatures), "node"))
		s.expect(has(want.DecryptedValue), "the result is not what the nodes said")
	case fhevm.KindUserDecrypt:
		shares := 0
		for i := range n {
			if has(k.Share(on.ID, i, on.Extra).Payload) {
				shares++
			}
		}
		s.add("result", "shares of %d of the %d nodes; %d are needed", shares, n, s.net.Threshold)
		s.expect(int64(shares) >= s.net.Threshold, "%s are too few", console.Count(shares, "share"))
		s.expect(len(d.Shares) >= shares, "the gateway has stored %s", console.Count(len(d.Shares), "share"))
	}
}

// crash kills the gateway while a transaction is in flight.
func (s *scene) crash(ctx context.Context) error {
	if err := s.Chain.SetMining(ctx, false); err != nil {
		return err
	}
	p := s.request(s.net.NewRequest(fhevm.EndpointUserDecrypt, 6, time.Now()), "(killed)", 1)
	job, err := s.post(ctx, p)
	if err != nil {
		return err
	}
	if _, err := s.follow(ctx, p, job, func(r *reply) bool { return r.State == string(fhevm.StateTxInFlight) }); err != nil {
		return err
	}
	before, err := s.gateway.show(job)
	if err != nil {
		return err
	}
	if len(before.Attempts) == 0 {
		return errors.New("no transaction is stored")
	}
	sent := before.Attempts[0]
	if err := eventually(ctx, "the transaction in the pool", func() (bool, error) {
		_, pending, err := s.Chain.Eth().TransactionByHash(ctx, common.HexToHash(sent.Hash))
		return err == nil && pending, ctx.Err()
	}); err != nil {
		return err
	}
	s.tell("sent", "", "transaction %s with nonce %d waits in the chain's pool", sent.Hash, sent.Nonce)
	pid := s.gateway.pid()
	if err := s.gateway.kill(); err != nil {
		return err
	}
	s.tell("killed", word(s.Style.Red, "SIGKILL"), "process %d is gone", pid)
	if err := s.mined(ctx, p); err != nil {
		return err
	}
	if err := s.gateway.start(ctx); err != nil {
		return err
	}
	s.tell("started", "", "process %d, now at http://%s, with the same SQLite file", s.gateway.pid(), s.gateway.address)
	if err := s.result(ctx, p, job); err != nil {
		return err
	}
	after, err := s.gateway.show(job)
	if err != nil {
		return err
	}
	s.expect(after.Transaction == sent.Hash, "it was made by transaction %s", after.Transaction)
	return nil
}

// mined lets the chain make blocks until it has the request and its nodes have answered.
func (s *scene) mined(ctx context.Context, p *posted) error {
	if err := s.Chain.SetMining(ctx, true); err != nil {
		return err
	}
	var on simchain.Accepted
	if err := eventually(ctx, "the request on the chain", func() (bool, error) {
		v, err := s.Chain.Judge(ctx)
		if err != nil {
			return false, fmt.Errorf("ask the chain: %w", err)
		}
		found := v.ByContent()[p.request.Content]
		if len(found) == 0 {
			return false, nil
		}
		on = found[0]
		return bits.OnesCount64(on.Answered) == s.net.Nodes, nil
	}); err != nil {
		return err
	}
	s.tell("chain", "", "block %d has the request, all %d nodes have answered, and nobody looks", on.Block, s.net.Nodes)
	return nil
}

// fails posts a request that must fail with a label, and not come to the chain.
func (s *scene) fails(ctx context.Context, p *posted, code int, label fhevm.Label) error {
	job, err := s.post(ctx, p)
	if err != nil {
		return err
	}
	r, err := s.follow(ctx, p, job, nil)
	if err != nil {
		return err
	}
	s.expect(r.code == code && r.Error.Label == string(label), "it was answered with %d %s", r.code, r.word())
	v, err := s.Chain.Judge(ctx)
	if err != nil {
		return fmt.Errorf("ask the chain: %w", err)
	}
	s.expect(v.Times(p.request.Content) == 0, "the chain has it")
	s.add("chain", "holds nothing of it")
	return nil
}

// paused pauses the contracts for one request.
func (s *scene) paused(ctx context.Context) error {
	if err := s.Chain.Pause(ctx, true); err != nil {
		return err
	}
	p := s.request(s.net.NewRequest(fhevm.EndpointPublicDecrypt, 7, time.Now()), "(paused)", 1)
	if err := s.fails(ctx, p, http.StatusServiceUnavailable, fhevm.LabelProtocolPaused); err != nil {
		return err
	}
	if err := s.Chain.Pause(ctx, false); err != nil {
		return err
	}
	s.tell("chain", "", "takes requests again")
	return s.succeeds(ctx, p)
}

// denied asks for what the user may not decrypt.
func (s *scene) denied(ctx context.Context) error {
	const n = 8
	if err := s.Chain.SetAllowed(ctx, simchain.Handle(n), simchain.UserAccount(n).Address, false); err != nil {
		return err
	}
	p := s.request(s.net.NewRequest(fhevm.EndpointUserDecrypt, n, time.Now()), "(denied)", 0)
	return s.fails(ctx, p, http.StatusBadRequest, fhevm.LabelNotAllowedOnHostACL)
}

var zeros = regexp.MustCompile(`0{16,}`)

// squeeze shortens a contract's number, of which the type is in the high bytes and the count in the low ones.
func squeeze(number string) string { return zeros.ReplaceAllString(number, "..") }
