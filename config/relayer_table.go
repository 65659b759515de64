package config

import "time"

// relayerFields are the members of `relayer`. Defaults are the network's own (relayer reference §1.7 and §5) where the network has
// one.
func relayerFields(r *Relayer) []field {
	const (
		enabled = "required when enabled"
		day     = 24 * time.Hour
	)
	return []field{
		boolean("enabled", &r.Enabled, "Whether the relayer runs."),
		withDefault("the client listener", text("listen", &r.Listen, "", "A listener of its own, as `host:port`.", checkListen)),
		section("chain", "The gateway chain.", []field{
			endpoints("rpcURLs", &r.Chain.RPCURLs, enabled, "The nodes that transactions are sent to, first choice first.", "https", "http"),
			endpoints("readURLs", &r.Chain.ReadURLs, "rpcURLs", "The nodes that everything else is asked of.", "https", "http"),
			chainID("chainId", &r.Chain.ChainID, enabled, "The chain's id; a node of another chain is not used."),
			objects("listeners", &r.Chain.Listeners, "What tells of events early, at most 5; without any the chain is polled.", listenerURLFields),
			withDefault("the chain's head", integer("startBlock", &r.Chain.StartBlock, span{min: 1, max: 1 << 53}, "", "Where the first start begins to read events; later ones go on where the last ended.")),
			integer("maxBlocksPerQuery", &r.Chain.MaxBlocksPerQuery, span{def: 1000, min: 1, max: 1e6}, "", "The most blocks of one eth_getLogs."),
			integer("confirmations", &r.Chain.Confirmations, span{min: 1, max: 10000}, "", "Blocks above a block before its events count."),
			lasting("resendAfter", &r.Chain.ResendAfter, extent{def: 2 * sec, max: time.Hour}, "When a transaction that no node knows is sent again."),
			lasting("bumpAfter", &r.Chain.BumpAfter, extent{def: 30 * sec, max: 24 * time.Hour}, "When a transaction that is not mined is replaced with a higher fee."),
			lasting("callTimeout", &r.Chain.CallTimeout, extent{def: 10 * sec, max: 5 * time.Minute}, "How long one call of one node may take."),
			rps("maxFeeGwei", (*float64)(&r.Chain.MaxFee), span{def: 500, min: 1e-6, max: 1e6}, "The most that is offered per unit of gas, in gwei, replacements included."),
		}),
		section("contracts", "The network's contracts.", []field{
			contract("decryption", &r.Contracts.Decryption, enabled, "Decryption, on the gateway chain."),
			contract("inputVerification", &r.Contracts.InputVerification, enabled, "InputVerification, on the gateway chain."),
			contract("protocolConfig", &r.Contracts.ProtocolConfig, "required when enabled and keyurl.source is `chain`", "ProtocolConfig: thresholds and key URLs. Without it every threshold is that of the file."),
			contract("kmsGeneration", &r.Contracts.KMSGeneration, "required when enabled and keyurl.source is `chain`", "KMSGeneration: key URLs."),
			chainID("protocolChainId", &r.Contracts.ProtocolChainID, "the first of hostChains", "The chain of protocolConfig and kmsGeneration: one of hostChains, or the gateway chain."),
			contract("feeToken", &r.Contracts.FeeToken, "", "The ERC-20 token that requests are paid with; without it only the native balance counts."),
			contract("feeSpender", &r.Contracts.FeeSpender, "", "Who takes the fee, and needs an allowance; with feeToken."),
		}),
		withDefault(enabled, objects("hostChains", &r.HostChains, "The chains whose handles are served.", hostChainFields)),
		section("signer", "The key that transactions are signed with: one of keystore, keyFile and keyEnv.", []field{
			text("keystore", &r.Signer.Keystore, "", "An encrypted Ethereum keystore file.", checkFileName),
			text("keyFile", &r.Signer.KeyFile, "", "A file with 64 hex digits that only its owner may read (mode 0600).", checkFileName),
			variable("keyEnv", &r.Signer.KeyEnv, "", "The name of a variable with 64 hex digits."),
			text("passwordFile", &r.Signer.PasswordFile, "", "A file with the keystore's password that only its owner may read.", checkFileName),
			variable("passwordEnv", &r.Signer.PasswordEnv, "`"+DefaultPasswordEnv+"` with keystore, without passwordFile", "The name of a variable with the keystore's password."),
			rps("minBalance", (*float64)(&r.Signer.MinBalance), span{def: 0.01, min: 1e-9, max: 1e9, off: true}, "The native balance, in coins of 10^18, below which POST is answered 503."),
			rps("minFeeTokens", (*float64)(&r.Signer.MinFeeTokens), span{def: 1, min: 1e-9, max: 1e15, off: true}, "The same for balance and allowance of feeToken, in tokens of 10^18."),
		}),
		section("queues", "How much of each kind is sent and may wait.", []field{
			section("inputProof", "Input proofs.", queueFields(&r.Queues.InputProof)),
			section("publicDecrypt", "Public decryptions.", queueFields(&r.Queues.PublicDecrypt)),
			section("userDecrypt", "User decryptions.", queueFields(&r.Queues.UserDecrypt)),
		}),
		section("readiness", "The check that the chains are ready for a decryption.", []field{
			lasting("timeout", &r.Readiness.Timeout, extent{def: 30 * time.Minute}, "How long a request may wait for it."),
			lasting("poll", &r.Readiness.Poll, extent{def: 3 * sec, min: 10 * ms, max: time.Hour}, "The time between two tries; at most timeout."),
			integer("concurrency", &r.Readiness.Concurrency, span{def: 250, min: 1, max: 100000}, "", "Requests of one kind that are checked at one time."),
		}),
		section("timeouts", "How long the network may take to answer a request on the chain.", append(
			perKind(&r.Timeouts.InputProof, &r.Timeouts.PublicDecrypt, &r.Timeouts.UserDecrypt, extent{min: sec}, 30*time.Minute, 30*time.Minute, 30*time.Minute),
			lasting("sweep", &r.Timeouts.Sweep, extent{def: time.Minute, min: 100 * ms, max: time.Hour}, "The time between two looks for what is past it."),
		)),
		section("expiry", "How long requests in a final state are kept.", append([]field{
			boolean("enabled", &r.Expiry.Enabled, "Whether old ones are deleted."),
			lasting("interval", &r.Expiry.Interval, extent{def: 5 * time.Minute, min: sec, max: 24 * time.Hour}, "The time between two deletions."),
		}, perKind(&r.Expiry.InputProof, &r.Expiry.PublicDecrypt, &r.Expiry.UserDecrypt, extent{min: sec}, 7*day, 365*day, 7*day)...)),
		section("retryAfter", "The figures behind the header Retry-After.", append(append([]field{
			lasting("min", &r.RetryAfter.Min, extent{def: sec, min: sec, max: time.Hour, step: sec}, "The least that it says."),
			lasting("max", &r.RetryAfter.Max, extent{def: 300 * sec, min: sec, max: time.Hour, step: sec}, "The most that it says."),
			rps("margin", &r.RetryAfter.Margin, span{def: 0.2, min: 0.001, max: 1, off: true}, "What is added to an estimate: 0.2 is a fifth."),
			lasting("readiness", &r.RetryAfter.Readiness, extent{def: 4 * sec, max: time.Hour}, "The usual time of one readiness check."),
		}, perKind(&r.RetryAfter.InputProof, &r.RetryAfter.PublicDecrypt, &r.RetryAfter.UserDecrypt, extent{max: time.Hour}, 2*sec, 6*sec, 6*sec)...),
			lasting("confirmation", &r.RetryAfter.Confirmation, extent{def: 250 * ms, max: time.Minute}, "The usual time of a transaction."),
		)),
		integer("threshold", &r.Threshold, span{def: 9, min: 1, max: 10000}, "", "The shares that complete a user decryption where the response names no context."),
		integer("additionalShares", &r.AdditionalShares, span{def: 2, min: 1, max: 10000, off: true}, "", "Shares more that are waited for before a user decryption is handed out."),
		lasting("additionalSharesTimeout", &r.AdditionalSharesTimeout, extent{def: 5 * sec, max: 5 * time.Minute}, "How long they are waited for."),
		section("keyurl", "What GET /v2/keyurl answers.", []field{
			oneOf("source", &r.KeyURL.Source, "Where it comes from.", KeyURLChain, KeyURLConfig),
			lasting("poll", &r.KeyURL.Poll, extent{def: 12 * sec, min: 100 * ms, max: time.Hour}, "How often the chain is asked."),
			section("value", "The answer when source is `config`.", []field{
				section("publicKey", "The network's public key.", materialFields(&r.KeyURL.PublicKey)),
				section("crs", "The common reference string of 2048 bits.", materialFields(&r.KeyURL.CRS)),
			}),
		}),
		integer("erc1271Gas", &r.ERC1271Gas, span{def: 250000, min: 30000, max: 100e6}, "", "The most gas of one call of a wallet's isValidSignature."),
		objects("apiKeys", &r.APIKeys, "The keys of clients; without any no key is asked for. Each has one of keyEnv and keyFile.", apiKeyFields),
		section("quotas", "What one client may ask for.", []field{
			withDefault("off", rps("perKeyRPS", &r.Quotas.PerKeyRPS, rateSpan(0, true), "Requests per second of one API key.")),
			withDefault("off", rps("perAddressRPS", &r.Quotas.PerAddressRPS, rateSpan(0, true), "Requests per second of one client address.")),
			integer("maxHandles", &r.Quotas.MaxHandles, span{def: 256, min: 1, max: maxCount, off: true}, "", "The most handles of one request. The contracts take 2048 bits in all, which is 256 handles of 8 bits."),
			withDefault("off", integer("maxContracts", &r.Quotas.MaxContracts, span{min: 1, max: maxCount, off: true}, "", "The most contracts of one request.")),
		}),
		strs("corsAllowedOrigins", &r.CORSAllowedOrigins, "origins", nil, "Exact origins, and `https://*.example.com` for every true subdomain.", checkOrigin),
	}
}

func listenerURLFields(l *RelayerListener) []field {
	return []field{
		oneOf("type", &l.Type, "How it listens.", ListenSubscription, ListenPolling),
		required(endpoint("url", &l.URL, "The node: wss or ws for a subscription, https or http for polling.", "wss", "ws", "https", "http")),
	}
}

func hostChainFields(h *HostChain) []field {
	return []field{
		required(chainID("chainId", &h.ChainID, "", "The chain's id, unique over the list: bytes 22 to 29 of a handle.")),
		required(endpoint("rpcURL", &h.RPCURL, "Its node.", "https", "http")),
		required(contract("acl", &h.ACL, "", "Its ACL contract.")),
	}
}

func queueFields(q *RelayerQueue) []field {
	return []field{
		rps("tps", &q.TPS, span{def: 20, min: 0.001, max: 1e6}, "Transactions per second."),
		integer("capacity", &q.Capacity, span{def: 11000, min: 1, max: maxCount}, "", "The most that may wait; past capacity − margin, at most 20000, POST is answered 429."),
		withDefault("1000, or a tenth of capacity if that is less", integer("margin", &q.Margin, span{min: 1, max: maxCount, off: true}, "", "What is kept free; less than capacity.")),
	}
}

// perKind is one duration per kind of request, which differ in their defaults and share the bounds of e.
func perKind(proof, public, user *time.Duration, e extent, defProof, defPublic, defUser time.Duration) []field {
	with := func(def time.Duration) extent {
		e.def = def
		return e
	}
	return []field{
		lasting("inputProof", proof, with(defProof), "For input proofs."),
		lasting("publicDecrypt", public, with(defPublic), "For public decryptions."),
		lasting("userDecrypt", user, with(defUser), "For user decryptions."),
	}
}

func materialFields(m *KeyMaterial) []field {
	return []field{
		dataID("dataId", &m.DataID, "Its id."),
		strs("urls", &m.URLs, "URLs", nil, "Where clients fetch it.", checkPublicURL),
	}
}

func apiKeyFields(k *APIKey) []field {
	return []field{
		required(text("name", &k.Name, "", "For people and metrics: 1 to 64 bytes, unique.", checkName(64))),
		variable("keyEnv", &k.Env, "", "The name of a variable with the key."),
		text("keyFile", &k.File, "", "A file with the key.", checkFileName),
	}
}
