package simchain

import (
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/accounts/abi/bind"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/ethclient"

	"dongate/relayer/fhevm"
)

// Accepted is one request that a gateway contract has taken.
type Accepted struct {
	ID       fhevm.Reference
	Kind     fhevm.Kind
	Content  common.Hash // see [Content]
	Sender   common.Address
	Block    int64
	Extra    []byte // its extra data
	Answered uint64 // bit i: share i has come; a public decryption or a proof has bit 0 alone
}

// Verdict is what the canonical chain knows at one block.
type Verdict struct {
	Head     int64
	Accepted []Accepted // decryptions, then proofs, each in the order of their acceptance
}

// ByContent groups the accepted requests by what they ask for.
func (v Verdict) ByContent() map[common.Hash][]Accepted {
	out := make(map[common.Hash][]Accepted)
	for _, a := range v.Accepted {
		out[a.Content] = append(out[a.Content], a)
	}
	return out
}

// Times returns how often a request was accepted that asks for the given content.
func (v Verdict) Times(content common.Hash) int {
	n := 0
	for _, a := range v.Accepted {
		if a.Content == content {
			n++
		}
	}
	return n
}

// Twice returns every acceptance after the first of the same content: none where everything was sent at most once.
func (v Verdict) Twice() []Accepted {
	seen := make(map[common.Hash]bool)
	var out []Accepted
	for _, a := range v.Accepted {
		if seen[a.Content] {
			out = append(out, a)
		}
		seen[a.Content] = true
	}
	return out
}

// Judge reads every accepted request from the contracts' state at the head. Nothing but the chain is asked.
func (c *Control) Judge(ctx context.Context) (Verdict, error) {
	head, err := c.eth.HeaderByNumber(ctx, nil)
	if err != nil {
		return Verdict{}, fmt.Errorf("simchain: judge: %w", err)
	}
	v := Verdict{Head: head.Number.Int64()}
	for _, g := range gateways(c.config) {
		list, err := g.page(ctx, c.eth, head.Hash(), 0, maxAccepted)
		if err != nil {
			return Verdict{}, fmt.Errorf("simchain: judge %s: %w", g.name, err)
		}
		v.Accepted = append(v.Accepted, list...)
	}
	return v, nil
}

const (
	pageSize    = 100
	maxAccepted = 1_000_000
)

// gatewayContract is one of the two contracts that take requests.
type gatewayContract struct {
	name string
	at   common.Address
}

func gateways(c Config) []gatewayContract {
	return []gatewayContract{{"Decryption", c.Decryption}, {"InputVerification", c.InputVerification}}
}

// page reads at most n accepted requests, beginning with number from, at the given block; the zero hash is the head.
func (g gatewayContract) page(ctx context.Context, eth *ethclient.Client, block common.Hash, from, n int) ([]Accepted, error) {
	type entry struct {
		Id        *big.Int
		Content   [32]byte
		Selector  [4]byte
		Sender    common.Address
		Number    uint64
		ExtraData []byte
	}
	contract := bind.NewBoundContract(g.at, ContractOf(g.name).ABI, eth, eth, eth)
	var out []Accepted
	for len(out) < n {
		size := min(pageSize, n-len(out))
		var result []any
		opts := &bind.CallOpts{Context: ctx, BlockHash: block}
		if err := contract.Call(opts, &result, "page", big.NewInt(int64(from+len(out))), big.NewInt(int64(size))); err != nil {
			return nil, err
		}
		var (
			list    []entry
			answers []*big.Int
		)
		if err := ContractOf(g.name).ABI.Methods["page"].Outputs.Copy(&struct {
			List    *[]entry
			Answers *[]*big.Int
		}{&list, &answers}, result); err != nil {
			return nil, err
		}
		for i, e := range list {
			a := Accepted{Kind: kindOf(e.Selector), Content: e.Content, Sender: e.Sender, Block: int64(e.Number), Extra: slices.Clone(e.ExtraData), Answered: answers[i].Uint64()}
			e.Id.FillBytes(a.ID[:])
			out = append(out, a)
		}
		if len(list) < size {
			break
		}
	}
	return out, nil
}

func kindOf(selector [4]byte) fhevm.Kind {
	switch selector {
	case fhevm.FuncPublicDecryption.Selector():
		return fhevm.KindPublicDecrypt
	case fhevm.FuncVerifyProof.Selector():
		return fhevm.KindInputProof
	default:
		return fhevm.KindUserDecrypt
	}
}
