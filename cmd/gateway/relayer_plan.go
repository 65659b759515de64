package main

import (
	"slices"
	"strconv"

	"github.com/ethereum/go-ethereum/common"

	"dongate/config"
	"dongate/relayer"
	"dongate/relayer/api"
	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
)

// relayerPlan is a configuration's relayer section as the options of its parts. What is not data, such as pools and functions, is filled in when the
// parts are made.
type relayerPlan struct {
	listen string

	send, read chain.PoolOptions // the gateway chain
	shared     bool              // send and read are the same nodes
	hosts      []hostPlan
	protocol   int // of hosts, where ProtocolConfig and KMSGeneration are; -1: the gateway chain

	signer     chain.SignerOptions
	account    chain.AccountOptions
	keyURL     chain.KeyURLOptions
	thresholds chain.ThresholdOptions
	signatures *chain.Signatures
	relayer    relayer.Options
	api        api.Options
	origins    []string // that browsers may call from
}

type hostPlan struct {
	pool chain.PoolOptions
	acl  common.Address
}

// planRelayer translates the section. environ and files give the API keys, without which there are problems.
func planRelayer(r *config.Relayer, environ []string) (*relayerPlan, []config.Problem) {
	c := &r.Contracts
	p := &relayerPlan{
		listen:     r.Listen,
		protocol:   -1,
		signer:     signerOptions(&r.Signer),
		account:    chain.AccountOptions{FeeToken: c.FeeToken, FeeSpender: c.FeeSpender, MinBalance: r.Signer.MinBalance.Wei(), MinToken: r.Signer.MinFeeTokens.Wei(), MinAllowance: r.Signer.MinFeeTokens.Wei()},
		thresholds: chain.ThresholdOptions{ProtocolConfig: c.ProtocolConfig, Static: r.Threshold},
		signatures: &chain.Signatures{Decryption: c.Decryption, Gas: r.ERC1271Gas},
		origins:    r.CORSAllowedOrigins,
	}
	p.planChains(r)
	p.planKeyURL(r)
	p.planDispatcher(r)
	return p, p.planAPI(r, environ)
}

func signerOptions(s *config.RelayerSigner) chain.SignerOptions {
	o := chain.SignerOptions{Keystore: s.Keystore, KeyFile: s.KeyFile, KeyEnv: s.KeyEnv}
	if s.Keystore != "" { // without one a password says nothing
		o.PasswordFile, o.PasswordEnv = s.PasswordFile, s.PasswordEnv
	}
	return o
}

// planChains sorts the nodes: what is sent goes to rpcURLs, everything else is asked of readURLs and the listeners that are polled.
func (p *relayerPlan) planChains(r *config.Relayer) {
	gateway := chain.PoolOptions{Name: "gateway chain", ChainID: r.Chain.ChainID, CallTimeout: r.Chain.CallTimeout}
	p.send, p.read = gateway, gateway
	for _, u := range r.Chain.RPCURLs {
		p.send.URLs = append(p.send.URLs, u.Reveal())
	}
	for _, u := range r.Chain.ReadURLs {
		p.read.URLs = append(p.read.URLs, u.Reveal())
	}
	for _, l := range r.Chain.Listeners {
		switch u := l.URL.Reveal(); {
		case l.Type == config.ListenSubscription:
			p.relayer.Subscriptions = append(p.relayer.Subscriptions, u)
		case !slices.Contains(p.read.URLs, u):
			p.read.URLs = append(p.read.URLs, u)
		}
	}
	p.shared = slices.Equal(p.send.URLs, p.read.URLs)
	for i, h := range r.HostChains {
		p.hosts = append(p.hosts, hostPlan{acl: h.ACL, pool: chain.PoolOptions{
			Name: "host chain " + strconv.FormatUint(h.ChainID, 10), URLs: []string{h.RPCURL.Reveal()}, ChainID: h.ChainID, CallTimeout: r.Chain.CallTimeout,
		}})
		if h.ChainID == r.Contracts.ProtocolChainID {
			p.protocol = i
		}
	}
}

func (p *relayerPlan) planKeyURL(r *config.Relayer) {
	p.keyURL = chain.KeyURLOptions{KMSGeneration: r.Contracts.KMSGeneration, ProtocolConfig: r.Contracts.ProtocolConfig, Poll: r.KeyURL.Poll}
	if r.KeyURL.Source == config.KeyURLConfig {
		material := func(m config.KeyMaterial) fhevm.KeyMaterial { return fhevm.KeyMaterial{ID: m.DataID, URLs: m.URLs} }
		p.keyURL.Static = &chain.KeyMaterials{Key: material(r.KeyURL.PublicKey), CRS: material(r.KeyURL.CRS)}
	}
}

func (p *relayerPlan) planDispatcher(r *config.Relayer) {
	o := &p.relayer
	o.ChainID, o.Fees = r.Chain.ChainID, chain.Fees{Ceiling: r.Chain.MaxFee.Wei()}
	o.Decryption, o.InputVerification = r.Contracts.Decryption, r.Contracts.InputVerification
	o.Queues = map[fhevm.Kind]relayer.Queue{}
	for k, q := range queuesByKind(r) {
		o.Queues[k] = relayer.Queue{TPS: q.TPS}
	}
	o.ReadinessTimeout, o.ReadinessPoll, o.ReadinessConcurrency = r.Readiness.Timeout, r.Readiness.Poll, r.Readiness.Concurrency
	o.StartBlock, o.MaxBlocksPerQuery, o.Confirmations = r.Chain.StartBlock, r.Chain.MaxBlocksPerQuery, r.Chain.Confirmations
	o.ResendAfter, o.BumpAfter = r.Chain.ResendAfter, r.Chain.BumpAfter
	o.Timeouts = byKind(r.Timeouts.InputProof, r.Timeouts.PublicDecrypt, r.Timeouts.UserDecrypt)
	o.TimeoutSweep = r.Timeouts.Sweep
	if r.Expiry.Enabled {
		o.ExpiryInterval, o.Expiry = r.Expiry.Interval, byKind(r.Expiry.InputProof, r.Expiry.PublicDecrypt, r.Expiry.UserDecrypt)
	}
}

func (p *relayerPlan) planAPI(r *config.Relayer, environ []string) []config.Problem {
	o := &p.api
	o.Limits = map[fhevm.Kind]api.Queue{}
	for k, q := range queuesByKind(r) {
		o.Limits[k] = api.Queue{TPS: q.TPS, Capacity: q.Capacity, Margin: q.Margin}
	}
	o.ReadinessConcurrency = r.Readiness.Concurrency
	a := &r.RetryAfter
	o.RetryAfter = fhevm.RetryAfter{Min: a.Min, Max: a.Max, Margin: a.Margin, Readiness: a.Readiness,
		InputProof: a.InputProof, PublicDecrypt: a.PublicDecrypt, UserDecrypt: a.UserDecrypt, Confirmation: a.Confirmation}
	o.Threshold, o.AdditionalShares, o.AdditionalSharesTimeout = r.Threshold, r.AdditionalShares, r.AdditionalSharesTimeout
	q := &r.Quotas
	o.PerKeyRPS, o.PerAddressRPS, o.MaxHandles, o.MaxContracts = q.PerKeyRPS, q.PerAddressRPS, q.MaxHandles, q.MaxContracts
	keys, problems := r.ReadAPIKeys(environ)
	for _, k := range keys {
		o.Keys = append(o.Keys, api.APIKey{Name: k.Name, Secret: []byte(k.Key.Reveal())})
	}
	return problems
}

func queuesByKind(r *config.Relayer) map[fhevm.Kind]config.RelayerQueue {
	return byKind(r.Queues.InputProof, r.Queues.PublicDecrypt, r.Queues.UserDecrypt)
}

func byKind[T any](proof, public, user T) map[fhevm.Kind]T {
	return map[fhevm.Kind]T{fhevm.KindInputProof: proof, fhevm.KindPublicDecrypt: public, fhevm.KindUserDecrypt: user}
}
