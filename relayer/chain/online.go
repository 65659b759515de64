package chain

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
)

// Finding is one line of a check against the chains.
type Finding struct {
	OK   bool
	Text string // what was looked at and what it is like; names a node by its host
	Do   string // what to do about it; "" where it is OK
}

// String returns the finding as one line.
func (f Finding) String() string {
	switch {
	case f.OK:
		return "ok: " + f.Text
	case f.Do == "":
		return "problem: " + f.Text
	default:
		return "problem: " + f.Text + ": " + f.Do
	}
}

// NodeStatus is what one node says of itself.
type NodeStatus struct {
	Host    string
	ChainID uint64 // 0 where Err is set
	Err     error  // without host or URL
}

// Probe asks every node for its chain, one after the other, whatever is known of it.
func (p *Pool) Probe(ctx context.Context) []NodeStatus {
	out := make([]NodeStatus, len(p.nodes))
	for i, n := range p.nodes {
		id, err := p.nodeChainID(ctx, n)
		if err != nil {
			id, err = 0, fmt.Errorf("%w: %s", ErrUnavailable, brief(err))
		}
		out[i] = NodeStatus{n.host, id, err}
	}
	return out
}

// Contract is a contract that must exist.
type Contract struct {
	Member  string // of the configuration, such as "relayer.contracts.decryption"
	Address common.Address
	Pool    *Pool // its chain
}

// OnlineOptions say what to look at.
type OnlineOptions struct {
	Pools     []*Pool // every chain
	Contracts []Contract
	Account   *Account // nil: not looked at
	// Subscriptions are the WebSocket URLs of the gateway chain's listeners.
	Subscriptions []string
	Gateway       *Pool // the chain of the subscriptions
}

// Online asks the chains for what a configuration takes for granted: each node's chain id, code at the contracts' addresses, what the
// signer has and may spend, and that the listeners can be reached. It only reads, and lasts at most the pools' timeouts or as long as ctx.
func Online(ctx context.Context, o OnlineOptions) []Finding {
	var out []Finding
	answers := make(map[*Pool]bool)
	for _, p := range o.Pools {
		for _, n := range p.Probe(ctx) {
			f := p.nodeFinding(n)
			answers[p] = answers[p] || f.OK
			out = append(out, f)
		}
	}
	for _, url := range o.Subscriptions {
		out = append(out, o.Gateway.subscriptionFinding(ctx, url))
	}
	for _, c := range o.Contracts {
		if answers[c.Pool] { // else there is a finding already, and nobody to ask
			out = append(out, c.finding(ctx))
		}
	}
	if o.Account != nil && answers[o.Account.o.Pool] {
		out = append(out, o.Account.findings(ctx)...)
	}
	return out
}

func (p *Pool) nodeFinding(n NodeStatus) Finding {
	switch where := p.name + ", node " + n.Host; {
	case n.Err != nil:
		return Finding{Text: fmt.Sprintf("%s: %v", where, n.Err), Do: "check the URL and that the node runs"}
	case n.ChainID != p.chainID:
		return Finding{Text: fmt.Sprintf("%s: its chain id is %d, not %d", where, n.ChainID, p.chainID), Do: "correct the URL or the chain id"}
	default:
		return Finding{OK: true, Text: fmt.Sprintf("%s: chain id %d", where, n.ChainID)}
	}
}

func (c Contract) finding(ctx context.Context) Finding {
	code, err := c.Pool.CodeAt(ctx, c.Address)
	switch where := fmt.Sprintf("%s %s", c.Member, c.Address); {
	case err != nil:
		return Finding{Text: fmt.Sprintf("%s: %v", where, err), Do: "try again"}
	case len(code) == 0:
		return Finding{Text: fmt.Sprintf("%s: no contract on %s", where, c.Pool.name), Do: "correct the address"}
	default:
		return Finding{OK: true, Text: fmt.Sprintf("%s: %d bytes of code", where, len(code))}
	}
}

func (a *Account) findings(ctx context.Context) []Finding {
	signer := "signer " + a.o.Address.Hex()
	if err := a.Refresh(ctx); err != nil {
		return []Finding{{Text: fmt.Sprintf("%s: %v", signer, err), Do: "check relayer.contracts.feeToken and feeSpender"}}
	}
	m := a.Snapshot()
	one := func(what string, has, least *big.Int, do string) Finding {
		if has.Cmp(least) < 0 {
			return Finding{Text: fmt.Sprintf("%s: %s %s is less than %s", signer, what, has, least), Do: do}
		}
		return Finding{OK: true, Text: fmt.Sprintf("%s: %s %s", signer, what, has)}
	}
	out := []Finding{one("balance in wei", m.Balance, a.o.MinBalance, "send it native tokens of "+a.o.Pool.name)}
	if a.paysToken() {
		out = append(out, one("balance of the fee token", m.Token, a.o.MinToken, "send it fee tokens ("+a.o.FeeToken.Hex()+")"),
			one("allowance of the fee token", m.Allowance, a.o.MinAllowance, "approve "+a.o.FeeSpender.Hex()+" on the fee token with the signer"))
	}
	return out
}

func (p *Pool) subscriptionFinding(ctx context.Context, raw string) Finding {
	host, err := subscriptionHost(raw)
	if err != nil {
		return Finding{Text: p.name + ", listener: " + err.Error(), Do: "correct the URL"}
	}
	where := p.name + ", listener " + host
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	s, err := p.dial(limited, raw)
	if err == nil {
		s.end()
		return Finding{OK: true, Text: where + ": takes subscriptions"}
	}
	do := "check the URL and that the node takes WebSocket connections"
	if errors.Is(err, errOtherChain) {
		do = "correct the URL"
	}
	return Finding{Text: where + ": " + briefSubscription(err), Do: do}
}
