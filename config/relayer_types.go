package config

import (
	"math/big"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"
)

// Relayer is the durable relayer (`relayer`). Its defaults are in place whether it is enabled or not; what Enabled asks for beyond
// them (chains, contracts, a signer) is there only when Enabled. Every duration is positive and a whole number of milliseconds,
// every count at least 1, save where a member says otherwise.
type Relayer struct {
	// Enabled turns the relayer on. Everything below is checked for sense even when it is off, for completeness only when on.
	Enabled bool
	// Listen is the host:port of a listener of the relayer's own, "" to serve on the client listener. A host of "" is every
	// address, port 0 any free port.
	Listen string

	Chain     RelayerChain
	Contracts RelayerContracts
	// HostChains is never empty when Enabled; chain ids are unique.
	HostChains []HostChain
	Signer     RelayerSigner

	Queues     RelayerQueues
	Readiness  RelayerReadiness
	Timeouts   RelayerTimeouts
	Expiry     RelayerExpiry
	RetryAfter RelayerRetryAfter

	// Threshold is the number of shares that completes a user decryption where the response names no context.
	Threshold int64
	// AdditionalShares is how many shares more are waited for before a completed user decryption is handed out, at most for
	// AdditionalSharesTimeout; 0: none.
	AdditionalShares        int64
	AdditionalSharesTimeout time.Duration

	KeyURL RelayerKeyURL
	// ERC1271Gas bounds the gas of one call of a wallet's isValidSignature.
	ERC1271Gas uint64

	// APIKeys says where the keys of clients are; empty: no key is asked for. Names are unique.
	APIKeys []APIKey
	Quotas  RelayerQuotas
	// CORSAllowedOrigins are as UserServer's; empty: browsers of other origins are refused.
	CORSAllowedOrigins []string
}

// RelayerChain is the gateway chain (`relayer.chain`).
type RelayerChain struct {
	// RPCURLs are the http(s) nodes that transactions are sent to, first choice first; one to eight when the relayer is enabled.
	RPCURLs []Endpoint
	// ReadURLs are the http(s) nodes that everything else is asked of; RPCURLs where the file names none.
	ReadURLs []Endpoint
	// ChainID is 1 to 2^53, 0 only when the relayer is off.
	ChainID uint64
	// Listeners are at most five.
	Listeners []RelayerListener
	// StartBlock is where a database without a cursor begins to read events; 0: at the chain's head of that moment.
	StartBlock int64
	// MaxBlocksPerQuery bounds the range of one eth_getLogs.
	MaxBlocksPerQuery int64
	// Confirmations is how many blocks a block must have above it before its events count; may be 0.
	Confirmations int64
	// ResendAfter is when a transaction that no node knows is sent again, BumpAfter when one that is not mined is replaced with a
	// higher fee.
	ResendAfter, BumpAfter time.Duration
	// CallTimeout bounds one call of one node.
	CallTimeout time.Duration
	// MaxFee is the most that is offered per unit of gas, replacements included.
	MaxFee Gwei
}

// Kinds of listeners.
const (
	ListenSubscription = "subscription"
	ListenPolling      = "polling"
)

// RelayerListener is one source of events besides the polled ReadURLs.
type RelayerListener struct {
	// Type is ListenSubscription, with a ws or wss URL, or ListenPolling, with an http or https one.
	Type string
	URL  Endpoint
}

// RelayerContracts are the network's contracts (`relayer.contracts`). The zero address stands for none.
type RelayerContracts struct {
	// Decryption and InputVerification are on the gateway chain, never none when the relayer is enabled.
	Decryption, InputVerification common.Address
	// ProtocolConfig and KMSGeneration are on ProtocolChainID, never none when the relayer is enabled and key URLs come from the
	// chain.
	ProtocolConfig, KMSGeneration common.Address
	// ProtocolChainID is the id of one of HostChains or of the gateway chain; the first of HostChains where the file names none.
	ProtocolChainID uint64
	// FeeToken is the ERC-20 token on the gateway chain that requests are paid with, FeeSpender who takes it. Either both are
	// there or none: then only the native balance counts.
	FeeToken, FeeSpender common.Address
}

// HostChain is a chain whose handles are served (`relayer.hostChains`).
type HostChain struct {
	ChainID uint64 // 1 to 2^53
	RPCURL  Endpoint
	ACL     common.Address // never zero
}

// RelayerSigner says where the key is that transactions are signed with (`relayer.signer`). Exactly one of Keystore, KeyFile and
// KeyEnv is set when the relayer is enabled.
type RelayerSigner struct {
	Keystore string // an encrypted keystore file
	KeyFile  string // a file with 64 hex digits that only its owner may read
	KeyEnv   string // the name of an environment variable with 64 hex digits

	// PasswordFile and PasswordEnv say where the password of Keystore is. With a Keystore one of them is set: PasswordEnv is
	// DefaultPasswordEnv where the file has neither.
	PasswordFile, PasswordEnv string

	// MinBalance is the balance in native coins below which POST is answered 503, MinFeeTokens the same for balance and allowance
	// of the fee token; 0: no such floor.
	MinBalance, MinFeeTokens Coins
}

// DefaultPasswordEnv is the variable of a keystore's password.
const DefaultPasswordEnv = "DONGATE_KEYSTORE_PASSWORD"

// RelayerQueues are the limits of work per kind (`relayer.queues`).
type RelayerQueues struct {
	InputProof, PublicDecrypt, UserDecrypt RelayerQueue
}

// RelayerQueue is the back-pressure of one kind: past Capacity − Margin waiting requests new ones are answered 429.
type RelayerQueue struct {
	// TPS is how many transactions of the kind are sent per second.
	TPS float64
	// Margin is less than Capacity and may be 0. Capacity is at most 20000 more.
	Capacity, Margin int
}

// RelayerReadiness is the check that a chain is ready for a decryption (`relayer.readiness`).
type RelayerReadiness struct {
	// Timeout is how long a request may wait for it, Poll the time between two tries; Poll is at most Timeout.
	Timeout, Poll time.Duration
	// Concurrency is how many requests of a kind are checked at one time.
	Concurrency int
}

// RelayerTimeouts says how long the chain may take to answer a request that it has (`relayer.timeouts`).
type RelayerTimeouts struct {
	InputProof, PublicDecrypt, UserDecrypt time.Duration
	// Sweep is the time between two looks for requests that are past it.
	Sweep time.Duration
}

// RelayerExpiry says how long requests in a final state are kept (`relayer.expiry`).
type RelayerExpiry struct {
	Enabled bool
	// Interval is the time between two deletions.
	Interval                               time.Duration
	InputProof, PublicDecrypt, UserDecrypt time.Duration
}

// RelayerRetryAfter are the figures behind the header Retry-After (`relayer.retryAfter`).
type RelayerRetryAfter struct {
	// Min and Max are whole seconds, Min at most Max.
	Min, Max time.Duration
	// Margin is what is added to an estimate, 0.2 for a fifth; 0 to 1.
	Margin float64
	// Readiness is the usual time of one check, Confirmation that of a transaction, the others that from receipt to answer.
	Readiness, InputProof, PublicDecrypt, UserDecrypt, Confirmation time.Duration
}

// Values of RelayerKeyURL.Source.
const (
	KeyURLChain  = "chain"
	KeyURLConfig = "config"
)

// RelayerKeyURL says what GET /v2/keyurl answers (`relayer.keyurl`).
type RelayerKeyURL struct {
	// Source is KeyURLChain, asked every Poll, or KeyURLConfig: then PublicKey and CRS are set.
	Source         string
	Poll           time.Duration
	PublicKey, CRS KeyMaterial
}

// KeyMaterial is a public key or a common reference string. It is zero where the file has none.
type KeyMaterial struct {
	DataID common.Hash
	// URLs are http or https, at least one where DataID is set.
	URLs []string
}

// APIKey says where one client's key is. Exactly one of Env and File is set.
type APIKey struct {
	// Name is for people and metrics.
	Name string
	// Env is the name of an environment variable, File that of a file.
	Env, File string
}

// RelayerQuotas limit what one client may ask for (`relayer.quotas`); 0 means that there is no limit.
type RelayerQuotas struct {
	// PerKeyRPS and PerAddressRPS are requests per second of one API key and of one address.
	PerKeyRPS, PerAddressRPS float64
	// MaxHandles and MaxContracts are the most of one request.
	MaxHandles, MaxContracts int
}

// Gwei is an amount in units of 10^9 wei.
type Gwei float64

// Wei returns the amount in wei, exactly as the file's digits say, without a fraction.
func (g Gwei) Wei() *big.Int { return scaled(float64(g), 9) }

// Coins is an amount in units of 10^18 of a chain's or a token's smallest unit.
type Coins float64

// Wei returns the amount in the smallest unit, exactly as the file's digits say, without a fraction.
func (c Coins) Wei() *big.Int { return scaled(float64(c), 18) }

// scaled is x·10^digits without its fraction, of the shortest decimal number that x stands for.
func scaled(x float64, digits int64) *big.Int {
	exact, ok := new(big.Rat).SetString(strconv.FormatFloat(x, 'g', -1, 64))
	if !ok { // infinite or not a number, which no file can say
		return new(big.Int)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(digits), nil)
	exact.Mul(exact, new(big.Rat).SetInt(unit))
	return new(big.Int).Quo(exact.Num(), exact.Denom())
}
