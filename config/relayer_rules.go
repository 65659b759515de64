package config

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/ethereum/go-ethereum/common"
)

// maxWaiting bounds the requests of a kind that may wait: they are not counted beyond.
const maxWaiting = 20_000

// maxListeners bounds relayer.chain.listeners (relayer reference §5).
const maxListeners = 5

// relayerPaths are what the relayer serves on the client listener; those that end in "/" with everything below.
var relayerPaths = []string{"/v2/", "/v3/", "/liveness", "/healthz", "/version", "/docs", "/openapi.yml"}

// relayer checks `relayer`: what must be there only when it is enabled, what must make sense in any case.
func (b *binder) relayer(c *Config) {
	r := &c.Relayer
	b.relayerChain(&r.Chain, r.Enabled)
	b.hostChains(r)
	b.contracts(r)
	b.signer(&r.Signer, r.Enabled)
	b.queue(&r.Queues.InputProof, "relayer.queues.inputProof")
	b.queue(&r.Queues.PublicDecrypt, "relayer.queues.publicDecrypt")
	b.queue(&r.Queues.UserDecrypt, "relayer.queues.userDecrypt")
	b.relayerTimes(r)
	b.keyURL(&r.KeyURL, r.Enabled)
	b.apiKeys(r.APIKeys)
	b.secretNames(r)

	zeroOff(&r.AdditionalShares)
	zeroOff(&r.Quotas.PerKeyRPS)
	zeroOff(&r.Quotas.PerAddressRPS)
	zeroOff(&r.Quotas.MaxHandles)
	zeroOff(&r.Quotas.MaxContracts)
	if r.Quotas.PerKeyRPS > 0 && len(r.APIKeys) == 0 && b.ok("relayer.apiKeys") {
		b.warn("relayer.quotas.perKeyRPS", "no effect without apiKeys")
	}
	if !r.Enabled {
		return
	}
	if c.Storage.Driver == DriverMemory && b.ok("storage.driver") {
		b.fail("storage.driver", "the relayer must not forget what it sent when it stops: write %q or %q, or turn relayer.enabled off", DriverSQLite, DriverPostgres)
	}
	if path := c.UserServer.Path; r.Listen == "" && b.ok("relayer.listen", "userServerConfig.path") && slices.ContainsFunc(relayerPaths, func(p string) bool {
		return path == p || path == strings.TrimSuffix(p, "/") || strings.HasSuffix(p, "/") && strings.HasPrefix(path, p)
	}) {
		b.fail("userServerConfig.path", "found %s, which the relayer serves on this listener; write another path, or give it one of its own in relayer.listen", shownText(path))
	}
}

// zeroOff makes a -1, which is off, the 0 that the types promise.
func zeroOff[T int | int64 | float64 | Coins](x *T) { *x = max(*x, 0) }

// needs reports a member that an enabled relayer cannot do without.
func (b *binder) needs(enabled, missing bool, path, what string) {
	if enabled && missing && b.ok(path) {
		b.fail(path, "required when the relayer is enabled: write %s", what)
	}
}

func (b *binder) relayerChain(c *RelayerChain, enabled bool) {
	const at = "relayer.chain"
	b.needs(enabled, len(c.RPCURLs) == 0, at+".rpcURLs", `the gateway chain's nodes, ["https://…"]`)
	b.needs(enabled, c.ChainID == 0, at+".chainId", "the gateway chain's id")
	if len(c.ReadURLs) == 0 {
		c.ReadURLs = slices.Clone(c.RPCURLs)
	}
	if len(c.Listeners) > maxListeners && b.ok(at+".listeners") {
		b.fail(at+".listeners", "found %d listeners; write at most %d", len(c.Listeners), maxListeners)
	}
	for i, l := range c.Listeners {
		path := index(at+".listeners", i)
		if !b.ok(path, path+".type", path+".url") {
			continue
		}
		ws := strings.HasPrefix(l.URL.Reveal(), "ws")
		switch {
		case l.URL == "":
			b.fail(path+".url", "required: write the node's URL")
		case l.Type == ListenSubscription && !ws:
			b.fail(path+".url", "a subscription needs a URL that starts with wss:// or ws://; write one, or set type to %q", ListenPolling)
		case l.Type == ListenPolling && ws:
			b.fail(path+".url", "polling needs a URL that starts with https:// or http://; write one, or set type to %q", ListenSubscription)
		}
	}
}

func (b *binder) hostChains(r *Relayer) {
	const at = "relayer.hostChains"
	b.needs(r.Enabled, len(r.HostChains) == 0, at, "the chains whose handles are served, [{chainId, rpcURL, acl}]")
	first := make(map[uint64]string)
	for i, h := range r.HostChains {
		path := index(at, i)
		if !b.ok(path) {
			continue
		}
		b.required(path+".chainId", h.ChainID == 0, "the chain's id")
		b.required(path+".rpcURL", h.RPCURL == "", "its node's URL")
		b.required(path+".acl", h.ACL == common.Address{}, "the address of its ACL contract")
		if other, taken := first[h.ChainID]; taken && h.ChainID != 0 && b.ok(path+".chainId") {
			b.fail(path+".chainId", "chain %d is already at %s; remove one", h.ChainID, other)
			continue
		}
		first[h.ChainID] = path
	}
}

func (b *binder) required(path string, missing bool, what string) {
	if missing && b.ok(path) {
		b.fail(path, "required: write %s", what)
	}
}

func (b *binder) contracts(r *Relayer) {
	const at = "relayer.contracts"
	c, none := &r.Contracts, common.Address{}
	b.needs(r.Enabled, c.Decryption == none, at+".decryption", "the address of Decryption")
	b.needs(r.Enabled, c.InputVerification == none, at+".inputVerification", "the address of InputVerification")
	if r.KeyURL.Source == KeyURLChain && b.ok("relayer.keyurl.source") {
		const how = `, or set keyurl.source to "config"`
		b.needs(r.Enabled, c.ProtocolConfig == none, at+".protocolConfig", "the address of ProtocolConfig"+how)
		b.needs(r.Enabled, c.KMSGeneration == none, at+".kmsGeneration", "the address of KMSGeneration"+how)
	} else if r.Enabled && c.ProtocolConfig == none && b.ok(at+".protocolConfig") {
		b.warn(at, "without protocolConfig a user decryption completes at threshold (%d) shares, whatever the network's own threshold is", r.Threshold)
	}
	switch {
	case !b.ok(at+".feeToken", at+".feeSpender") || (c.FeeToken == none) == (c.FeeSpender == none):
	case c.FeeToken == none:
		b.fail(at+".feeSpender", "without feeToken; write both, or neither")
	default:
		b.fail(at+".feeToken", "without feeSpender; write both, or neither")
	}

	protocol := at + ".protocolChainId"
	if c.ProtocolChainID == 0 {
		if len(r.HostChains) > 0 {
			c.ProtocolChainID = r.HostChains[0].ChainID
		}
		return
	}
	known := c.ProtocolChainID == r.Chain.ChainID || slices.ContainsFunc(r.HostChains, func(h HostChain) bool { return h.ChainID == c.ProtocolChainID })
	if r.Enabled && !known && b.ok(protocol, "relayer.chain.chainId", "relayer.hostChains") && b.hostChainIDsRead(r) {
		b.fail(protocol, "found %d; write the chainId of one of hostChains or of the gateway chain", c.ProtocolChainID)
	}
}

// hostChainIDsRead reports that each id of hostChains is what the file says.
func (b *binder) hostChainIDsRead(r *Relayer) bool {
	for i := range r.HostChains {
		if path := index("relayer.hostChains", i); !b.ok(path, path+".chainId") {
			return false
		}
	}
	return true
}

func (b *binder) signer(s *RelayerSigner, enabled bool) {
	const at = "relayer.signer"
	var set []string
	sound := b.ok(at)
	for _, source := range []struct{ name, value string }{{"keystore", s.Keystore}, {"keyFile", s.KeyFile}, {"keyEnv", s.KeyEnv}} {
		if source.value != "" {
			set = append(set, source.name)
		}
		sound = sound && b.ok(at+"."+source.name)
	}
	switch {
	case !sound:
	case len(set) > 1:
		b.fail(at+"."+set[1], "a second key beside %s; remove one", set[0])
	case len(set) == 0 && enabled:
		b.fail(at, "required when the relayer is enabled: write one of keystore, keyFile and keyEnv")
	}
	switch {
	case !b.ok(at+".passwordFile", at+".passwordEnv"):
	case s.PasswordFile != "" && s.PasswordEnv != "":
		b.fail(at+".passwordEnv", "a second password beside passwordFile; remove one")
	case s.Keystore == "" && s.PasswordFile != "":
		b.warn(at+".passwordFile", "not used: there is no keystore")
	case s.Keystore == "" && s.PasswordEnv != "":
		b.warn(at+".passwordEnv", "not used: there is no keystore")
	case s.Keystore != "" && s.PasswordFile == "" && s.PasswordEnv == "":
		s.PasswordEnv = DefaultPasswordEnv
	}
	zeroOff(&s.MinBalance)
	zeroOff(&s.MinFeeTokens)
}

func (b *binder) queue(q *RelayerQueue, at string) {
	const defMargin = 1000
	if q.Margin == 0 {
		q.Margin = min(defMargin, q.Capacity/10)
	}
	zeroOff(&q.Margin)
	switch room := q.Capacity - q.Margin; {
	case !b.ok(at+".margin", at+".capacity"):
	case room <= 0:
		b.fail(at+".margin", "found %d; write less than capacity (%d)", q.Margin, q.Capacity)
	case room > maxWaiting:
		b.fail(at+".capacity", "%d may wait (capacity %d − margin %d), of which only %d are counted; write at most %d", room, q.Capacity, q.Margin, maxWaiting, maxWaiting+q.Margin)
	}
}

func (b *binder) relayerTimes(r *Relayer) {
	if t, p := "relayer.readiness.timeout", "relayer.readiness.poll"; r.Readiness.Poll > r.Readiness.Timeout && b.ok(t, p) {
		where := p
		if !b.chosen(p) {
			where = t
		}
		b.fail(where, "poll (%s) is longer than timeout (%s); write a shorter poll or a longer timeout", short(r.Readiness.Poll), short(r.Readiness.Timeout))
	}
	if least, most := "relayer.retryAfter.min", "relayer.retryAfter.max"; r.RetryAfter.Min > r.RetryAfter.Max && b.ok(least, most) {
		where := least
		if !b.chosen(least) {
			where = most
		}
		b.fail(where, "min (%s) is more than max (%s); write at most max for the first", short(r.RetryAfter.Min), short(r.RetryAfter.Max))
	}
	zeroOff(&r.RetryAfter.Margin)
}

func (b *binder) keyURL(k *RelayerKeyURL, enabled bool) {
	const at = "relayer.keyurl.value"
	for _, m := range []struct {
		path string
		*KeyMaterial
	}{{at + ".publicKey", &k.PublicKey}, {at + ".crs", &k.CRS}} {
		id, urls := m.path+".dataId", m.path+".urls"
		switch missing := (m.DataID == common.Hash{}); {
		case !b.ok("relayer.keyurl.source", at, m.path, id, urls):
		case k.Source == KeyURLChain:
			if !missing || len(m.URLs) > 0 {
				b.warn(m.path, "not used: keyurl.source is %q", k.Source)
			}
		case !enabled:
		case missing:
			b.fail(id, "required with source %q: write 0x and 64 hex digits", k.Source)
		case len(m.URLs) == 0:
			b.fail(urls, "required with source %q: write at least one URL", k.Source)
		}
	}
}

func (b *binder) apiKeys(keys []APIKey) {
	first := make(map[string]string)
	for i, k := range keys {
		path := index("relayer.apiKeys", i)
		if !b.ok(path) {
			continue
		}
		b.required(path+".name", k.Name == "", "the client's name")
		if other, taken := first[k.Name]; taken && k.Name != "" {
			b.fail(path+".name", "%s is already the name at %s; give each key its own", shownText(k.Name), other)
		} else {
			first[k.Name] = path
		}
		switch {
		case !b.ok(path+".keyEnv", path+".keyFile"):
		case k.Env == "" && k.File == "":
			b.fail(path, "required: write keyEnv, the name of a variable, or keyFile")
		case k.Env != "" && k.File != "":
			b.fail(path+".keyFile", "beside keyEnv; remove one")
		}
	}
}

// secretNames reports secrets that would be read from a variable that means something else, and lets the others be named as they are.
func (b *binder) secretNames(r *Relayer) {
	names := map[string]string{"relayer.signer.keyEnv": r.Signer.KeyEnv, "relayer.signer.passwordEnv": r.Signer.PasswordEnv}
	for i, k := range r.APIKeys {
		names[index("relayer.apiKeys", i)+".keyEnv"] = k.Env
	}
	for path, name := range names {
		if name == "" || !b.ok(path) {
			continue
		}
		b.secretEnv[name] = true
		if o, taken := b.overrides[name]; taken {
			b.fail(path, "%s replaces %s; write another name", name, o.path)
		}
	}
}

// listenHostPort splits a checked relayer.listen.
func listenHostPort(listen string) (host string, port int) {
	host, text, _ := net.SplitHostPort(listen)
	port, _ = strconv.Atoi(text)
	if host == "" {
		host = "::"
	}
	return host, port
}
