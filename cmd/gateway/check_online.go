package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"

	"dongate/config"
	"dongate/internal/console"
	"dongate/relayer/chain"
)

// findingReport is one line of check --online in JSON.
type findingReport struct {
	OK   bool   `json:"ok"`
	Text string `json:"text"`
	Do   string `json:"do,omitzero"`
}

// online asks the chains for what the configuration takes for granted. A relayer that is off asks for nothing.
func (l *loaded) online(ctx context.Context, w *world) []chain.Finding {
	if !l.config.Relayer.Enabled {
		return []chain.Finding{{OK: true, Text: "relayer: off, no chain is asked"}}
	}
	plan, problems := planRelayer(&l.config.Relayer, w.environ)
	if len(problems) > 0 { // they have been reported
		return nil
	}
	parts, err := newRelayerParts(plan, w, nil, nil)
	if err != nil {
		return []chain.Finding{{Text: "relayer: " + err.Error()}}
	}
	defer parts.close()
	all := chain.Online(ctx, chain.OnlineOptions{
		Pools: parts.pools, Contracts: parts.contracts(&l.config.Relayer), Account: parts.account,
		Subscriptions: plan.relayer.Subscriptions, Gateway: parts.read,
	})
	var once []chain.Finding // a node may be one to send to and one to read from
	for _, f := range all {
		if !slices.Contains(once, f) {
			once = append(once, f)
		}
	}
	return once
}

// contracts are those that must exist.
func (p *relayerParts) contracts(r *config.Relayer) []chain.Contract {
	const at = "relayer.contracts."
	c := &r.Contracts
	list := []chain.Contract{
		{Member: at + "decryption", Address: c.Decryption, Pool: p.read}, {Member: at + "inputVerification", Address: c.InputVerification, Pool: p.read},
		{Member: at + "protocolConfig", Address: c.ProtocolConfig, Pool: p.protocol}, {Member: at + "kmsGeneration", Address: c.KMSGeneration, Pool: p.protocol},
		{Member: at + "feeToken", Address: c.FeeToken, Pool: p.read}, // feeSpender may be an account
	}
	for i, h := range r.HostChains {
		list = append(list, chain.Contract{Member: fmt.Sprintf("relayer.hostChains[%d].acl", i), Address: h.ACL, Pool: p.hosts[h.ChainID].Pool})
	}
	return slices.DeleteFunc(list, func(c chain.Contract) bool { return c.Address == common.Address{} })
}

// failures counts the findings that are no good.
func failures(list []chain.Finding) (n int) {
	for _, f := range list {
		if !f.OK {
			n++
		}
	}
	return n
}

// onlineFailure is the error of findings that have been shown; nil when all is well.
func onlineFailure(list []chain.Finding) error {
	n := failures(list)
	if n == 0 {
		return nil
	}
	return &exitError{code: exitConfig, err: fmt.Errorf("the chains are not as the configuration says: %s", console.Count(n, "problem")), told: true}
}
