package relayer

import (
	"context"
	"errors"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"dongate/relayer/chain"
	"dongate/relayer/fhevm"
	"dongate/relayer/store"
)

// Options are what a relayer works with and by. Durations and counts that are zero mean the defaults named.
type Options struct {
	Store *store.Store
	Lock  Lock
	Log   *zap.Logger      // nil: none
	Now   func() time.Time // nil: time.Now

	Send   *chain.Pool // the gateway chain's nodes that transactions are sent to
	Read   *chain.Pool // those that everything else is asked of
	Signer *chain.Signer
	Fees   chain.Fees
	// ChainID is the gateway chain's.
	ChainID uint64

	Decryption        common.Address // on the gateway chain
	InputVerification common.Address // on the gateway chain

	Readiness  Readiness
	Thresholds Thresholds

	// Subscriptions are WebSocket URLs of the gateway chain whose notifications make the relayer look sooner.
	Subscriptions []string

	Queues map[fhevm.Kind]Queue // what a kind lacks has no limit

	ReadinessTimeout     time.Duration // how long a request waits to be ready; 0: 30 min
	ReadinessPoll        time.Duration // 0: 3 s
	ReadinessConcurrency int           // checks at a time; 0: 250

	StartBlock        int64         // where a database without a cursor begins to read; 0: at the head
	MaxBlocksPerQuery int64         // 0: 1000
	Confirmations     int64         // blocks above one before it counts
	PollInterval      time.Duration // 0: 2 s
	ResendAfter       time.Duration // 0: 2 s
	BumpAfter         time.Duration // 0: 30 s

	Timeouts     map[fhevm.Kind]time.Duration // in receipt_received; 0: 30 min
	TimeoutSweep time.Duration                // 0: 1 min

	ExpiryInterval time.Duration                // 0: final rows are kept for ever
	Expiry         map[fhevm.Kind]time.Duration // how long; 0: for ever

	SweepInterval time.Duration // 0: 500 ms
	MaxInFlight   int           // transactions being sent or waited for at a time; 0: 100
	StopWithin    time.Duration // what workers have to stop in when the lock is lost; 0: 5 s

	Metrics prometheus.Registerer // nil: none

	// pass is told where a worker is, so that tests can end the process there. nil: nobody is told.
	pass       func(point string)
	blocksBack int64 // how far back a nonce's transaction is looked for; 0: 4096
}

// The points between which a process can end.
const (
	pointClaimed  = "claimed"
	pointReady    = "ready"
	pointSigned   = "signed"
	pointStored   = "stored"
	pointSent     = "sent"
	pointMined    = "mined"
	pointReceived = "received"
	pointApplied  = "applied"
	pointCursor   = "cursor"
	pointFailed   = "failed"
)

var points = []string{pointClaimed, pointReady, pointSigned, pointStored, pointSent, pointMined, pointReceived, pointApplied, pointCursor, pointFailed}

// Queue limits how fast one kind is sent.
type Queue struct{ TPS float64 } // 0: no limit

// Readiness tells whether a decryption may be sent; [chain.Readiness] is one.
type Readiness interface {
	ACL(ctx context.Context, checks []fhevm.ACLCheck) (denied []fhevm.ACLCheck, err error)
	Ready(ctx context.Context, calldata []byte) (bool, error)
}

// Thresholds tells how many shares complete a user decryption; [chain.Thresholds] is one.
type Thresholds interface {
	Resolve(ctx context.Context, extraData []byte) (int64, error)
	// Known is Resolve where that needs nobody else.
	Known(extraData []byte) (threshold int64, ok bool)
}

// ErrStuck: the lock was lost and the workers did not stop in time. The process should end, so that nothing of it goes on.
var ErrStuck = errors.New("the relayer's workers did not stop after its lock was lost")

func (o *Options) defaults() error {
	if o.Store == nil || o.Lock == nil || o.Send == nil || o.Read == nil || o.Signer == nil || o.Readiness == nil || o.Thresholds == nil || o.ChainID == 0 {
		return errors.New("relayer: options are incomplete")
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.blocksBack <= 0 {
		o.blocksBack = 4096
	}
	if o.pass == nil {
		o.pass = func(string) {}
	}
	for value, standard := range map[*time.Duration]time.Duration{
		&o.ReadinessTimeout: 30 * time.Minute, &o.ReadinessPoll: 3 * time.Second, &o.PollInterval: 2 * time.Second,
		&o.ResendAfter: 2 * time.Second, &o.BumpAfter: 30 * time.Second, &o.TimeoutSweep: time.Minute,
		&o.SweepInterval: 500 * time.Millisecond, &o.StopWithin: 5 * time.Second,
	} {
		if *value <= 0 {
			*value = standard
		}
	}
	if o.ReadinessConcurrency <= 0 {
		o.ReadinessConcurrency = 250
	}
	if o.MaxBlocksPerQuery <= 0 {
		o.MaxBlocksPerQuery = 1000
	}
	if o.MaxInFlight <= 0 {
		o.MaxInFlight = 100
	}
	return nil
}

// timeout is how long a request of a kind may wait in receipt_received.
func (o *Options) timeout(k fhevm.Kind) time.Duration {
	if t := o.Timeouts[k]; t > 0 {
		return t
	}
	return 30 * time.Minute
}

// contract is the contract that requests of a kind are sent to.
func (o *Options) contract(k fhevm.Kind) common.Address {
	if k == fhevm.KindInputProof {
		return o.InputVerification
	}
	return o.Decryption
}
