package simchain

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"sync"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"

	"dongate/relayer/fhevm"
)

// KMSOptions say how the chain's nodes answer requests. What they answer and in which order follows from Seed and the chain alone.
// The zero value answers everything in the block after the request, once, in order, with a share from each node.
type KMSOptions struct {
	Missing     int    // the last so many nodes never send their share
	DelayBlocks int64  // blocks between a request and its answer, besides the one that holds the answer
	Duplicates  int    // each answer is sent so many times more, at most 16
	Shuffle     bool   // answers are sent in another order than asked for, shares of different requests mixed
	RejectEvery uint64 // every so-manieth proof is rejected, 1: each; 0: none
	SilentEvery uint64 // every so-manieth request is never answered, 1: each; 0: none
	Bytes       int    // length of a result or share, at most 16 384; 0: 96
	Seed        uint64
}

const (
	maxDuplicates   = 16
	maxAnswerBytes  = 16 << 10
	answerBytes     = 96
	signatureBytes  = 65
	resendAfter     = 8    // blocks after which an answer that is in none is sent again
	maxAnswersAhead = 4096 // transactions sent per step
)

func (o *KMSOptions) check() error {
	if o == nil {
		return nil
	}
	if o.Missing < 0 || o.DelayBlocks < 0 || o.Duplicates < 0 || o.Duplicates > maxDuplicates || o.Bytes < 0 || o.Bytes > maxAnswerBytes {
		return errors.New("a KMS option is out of range")
	}
	return nil
}

// kms answers the requests that the contracts' state shows. It goes by the state and not by events, so that an answer lost to a
// re-organisation is given again.
type kms struct {
	eth    *ethclient.Client
	config Config
	settle func() // returns when the pool knows what it took

	mu      sync.Mutex // one step at a time; guards the fields below
	options *KMSOptions
	last    *types.Header      // head of the last step
	from    map[string]int     // per contract: the first request that may lack answers
	sent    map[answerID]int64 // block in which an answer was last sent
}

type answerID struct {
	contract string
	content  common.Hash
	id       fhevm.Reference
	index    int
}

type answer struct {
	answerID
	node int
	to   common.Address
	data []byte
}

func newKMS(eth *ethclient.Client, c Config, settle func(), o *KMSOptions) *kms {
	k := &kms{eth: eth, config: c, settle: settle, options: o}
	k.forget()
	return k
}

func (k *kms) forget() {
	k.from, k.sent = make(map[string]int), make(map[answerID]int64)
}

func (k *kms) set(o *KMSOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.options = o
	k.forget()
	return nil
}

// step sends the answers that are due at the head and returns how many transactions that were.
func (k *kms) step(ctx context.Context) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.options == nil {
		return 0, nil
	}
	head, err := k.eth.HeaderByNumber(ctx, nil)
	if err != nil {
		return 0, fmt.Errorf("head: %w", err)
	}
	if k.last != nil {
		if was, err := k.eth.HeaderByNumber(ctx, k.last.Number); err != nil || was.Hash() != k.last.Hash() {
			k.forget() // a re-organisation
		}
	}
	k.last = head
	var due []answer
	for _, g := range gateways(k.config) {
		answers, err := k.due(ctx, g, head)
		if err != nil {
			return 0, fmt.Errorf("requests of %s: %w", g.name, err)
		}
		due = append(due, answers...)
	}
	if o := k.options; o.Shuffle {
		r := rand.New(rand.NewPCG(o.Seed, head.Number.Uint64()))
		r.Shuffle(len(due), func(i, j int) { due[i], due[j] = due[j], due[i] })
	}
	return k.send(ctx, head, due)
}

// due returns the answers that a contract's requests lack.
func (k *kms) due(ctx context.Context, g gatewayContract, head *types.Header) ([]answer, error) {
	var due []answer
	for at := k.from[g.name]; len(due) < maxAnswersAhead; {
		list, err := g.page(ctx, k.eth, head.Hash(), at, pageSize)
		if err != nil {
			return nil, err
		}
		for _, a := range list {
			answers, complete := k.answersTo(g, a, head.Number.Int64())
			if complete && k.from[g.name] == at {
				k.from[g.name]++
			}
			due = append(due, answers...)
			at++
		}
		if len(list) < pageSize {
			break
		}
	}
	return due, nil
}

// answersTo returns what is to be sent for one request now, and whether nothing ever will be again.
func (k *kms) answersTo(g gatewayContract, a Accepted, head int64) (due []answer, complete bool) {
	o := k.options
	serial := binary.BigEndian.Uint64(a.ID[24:])
	if o.SilentEvery > 0 && serial%o.SilentEvery == 0 {
		return nil, true
	}
	n := 1
	if a.Kind == fhevm.KindUserDecrypt {
		n = max(0, k.config.Nodes-o.Missing)
	}
	complete = true
	for i := range n {
		id := answerID{g.name, a.Content, a.ID, i}
		if a.Answered&(1<<i) != 0 {
			delete(k.sent, id)
			continue
		}
		complete = false
		if sent, ok := k.sent[id]; head-a.Block < o.DelayBlocks || ok && head-sent < resendAfter {
			continue
		}
		data := k.calldata(a, i, o.RejectEvery > 0 && serial%o.RejectEvery == 0)
		for range 1 + o.Duplicates {
			due = append(due, answer{id, i, g.at, data})
		}
	}
	return due, complete
}

func (k *kms) calldata(a Accepted, index int, reject bool) []byte {
	id := new(big.Int).SetBytes(a.ID[:])
	switch {
	case a.Kind == fhevm.KindPublicDecrypt:
		r := k.options.PublicResult(a.ID, k.config.Nodes, a.Extra)
		return pack("Decryption", "publicDecryptionResponse", id, r.DecryptedValue, r.Signatures, r.ExtraData)
	case a.Kind == fhevm.KindUserDecrypt:
		s := k.options.Share(a.ID, index, a.Extra)
		return pack("Decryption", "userDecryptionResponse", id, big.NewInt(int64(index)), s.Payload, s.Signature, s.ExtraData)
	case reject:
		return pack("InputVerification", "rejectProofResponse", id)
	default:
		r := k.options.ProofResult(a.ID, k.config.Nodes)
		return pack("InputVerification", "verifyProofResponse", id, r.Handles, r.Signatures)
	}
}

// send puts the answers into the pool, each from its node's account.
func (k *kms) send(ctx context.Context, head *types.Header, due []answer) (int, error) {
	nonces := make(map[int]uint64)
	k.settle()
	for i, a := range due[:min(len(due), maxAnswersAhead)] {
		nonce, ok := nonces[a.node]
		if !ok {
			var err error
			if nonce, err = k.eth.PendingNonceAt(ctx, NodeAccount(a.node).Address); err != nil {
				return i, fmt.Errorf("nonce of node %d: %w", a.node, err)
			}
		}
		if err := k.eth.SendTransaction(ctx, NodeAccount(a.node).sign(nonce, &a.to, new(big.Int), a.data)); err != nil {
			return i, fmt.Errorf("answer of node %d: %w", a.node, err)
		}
		nonces[a.node] = nonce + 1
		k.sent[a.answerID] = head.Number.Int64()
	}
	return min(len(due), maxAnswersAhead), nil
}

// PublicResult returns the result that the nodes give for a public decryption.
func (o *KMSOptions) PublicResult(id fhevm.Reference, nodes int, extra []byte) fhevm.PublicResult {
	r := fhevm.PublicResult{DecryptedValue: stuff(o.length(), id, "value", 0), ExtraData: extra}
	for i := range nodes {
		r.Signatures = append(r.Signatures, stuff(signatureBytes, id, "signature", i))
	}
	return r
}

// Share returns the index-th node's share of a user decryption.
func (o *KMSOptions) Share(id fhevm.Reference, index int, extra []byte) fhevm.Share {
	return fhevm.Share{Payload: stuff(o.length(), id, "share", index), Signature: stuff(signatureBytes, id, "share signature", index), ExtraData: extra}
}

// ProofResult returns the result of a proof that is not rejected.
func (o *KMSOptions) ProofResult(id fhevm.Reference, nodes int) fhevm.ProofResult {
	r := fhevm.ProofResult{Accepted: true, Handles: [][32]byte{[32]byte(stuff(32, id, "handle", 0))}}
	for i := range nodes {
		r.Signatures = append(r.Signatures, stuff(signatureBytes, id, "proof signature", i))
	}
	return r
}

func (o *KMSOptions) length() int {
	if o.Bytes > 0 {
		return o.Bytes
	}
	return answerBytes
}

// stuff returns n bytes that depend on the other arguments alone.
func stuff(n int, id fhevm.Reference, what string, index int) []byte {
	var out []byte
	for block := uint64(0); len(out) < n; block++ {
		out = append(out, crypto.Keccak256(id[:], []byte(what), binary.BigEndian.AppendUint64(nil, uint64(index)), binary.BigEndian.AppendUint64(nil, block))...)
	}
	return out[:n]
}
