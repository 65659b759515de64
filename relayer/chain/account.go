package chain

import (
	"context"
	"fmt"
	"math/big"
	"sync"
	"time"

	"dongate/relayer/fhevm"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"
)

// DefaultAccountPoll is how often the signer's means are read.
const DefaultAccountPoll = 15 * time.Second

// AccountOptions say whose means are watched and how low they may get.
type AccountOptions struct {
	Pool    *Pool // the gateway chain
	Address common.Address
	// FeeToken and FeeSpender: what requests are paid with and who takes it. Only the native balance counts unless both are set.
	FeeToken, FeeSpender common.Address

	// With less than these the account cannot pay; nil: 1, so that only an empty account cannot.
	MinBalance   *big.Int // wei
	MinToken     *big.Int // smallest units of the fee token
	MinAllowance *big.Int // smallest units of the fee token

	Poll time.Duration // 0: DefaultAccountPoll
	Log  *zap.Logger   // nil: none
}

// Means are what an account had when it was last read.
type Means struct {
	Address   common.Address
	Balance   *big.Int  // wei; nil until read
	Token     *big.Int  // smallest units of the fee token; nil without one
	Allowance *big.Int  // of the fee's taker, smallest units; nil without a fee token
	Read      time.Time // when all of this was read; zero: never
	Err       error     // why it could not be read since; nil: it was
}

// Account watches whether the signer can pay.
type Account struct {
	o AccountOptions

	mu    sync.Mutex // guards means; the numbers in it are never changed
	means Means
}

// NewAccount does no I/O.
func NewAccount(o AccountOptions) *Account {
	one := big.NewInt(1)
	for _, least := range []**big.Int{&o.MinBalance, &o.MinToken, &o.MinAllowance} {
		if *least == nil {
			*least = one
		}
	}
	if o.Poll <= 0 {
		o.Poll = DefaultAccountPoll
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	return &Account{o: o, means: Means{Address: o.Address}}
}

// Run refreshes at once and then at every poll, until ctx ends, and logs when the account becomes unable to pay or able again.
func (a *Account) Run(ctx context.Context) {
	var before fhevm.Label
	for failing := false; ctx.Err() == nil; sleep(ctx, a.o.Poll) {
		err := a.Refresh(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			a.o.Log.Warn("the signer's balance cannot be read; trying on", zap.Error(err))
		}
		failing = err != nil
		label, _ := a.Label()
		if label != before && label != "" {
			a.o.Log.Error("the signer cannot pay: new requests are refused", zap.String("label", string(label)), zap.Stringer("signer", a.o.Address))
		}
		if label != before && label == "" {
			a.o.Log.Info("the signer can pay again", zap.Stringer("signer", a.o.Address))
		}
		before = label
	}
}

// Refresh reads the account now, such as after a send that failed for want of funds. What was read before stays where it fails.
func (a *Account) Refresh(ctx context.Context) error {
	m, err := a.read(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.means.Err = err
		return err
	}
	a.means = m
	return nil
}

func (a *Account) read(ctx context.Context) (m Means, err error) {
	m = Means{Address: a.o.Address, Read: time.Now()}
	if m.Balance, err = a.o.Pool.Balance(ctx, a.o.Address); err != nil {
		return m, fmt.Errorf("the signer's balance: %w", err)
	}
	if !a.paysToken() {
		return m, nil
	}
	if m.Token, err = a.token(ctx, fhevm.CallBalanceOf(a.o.Address)); err != nil {
		return m, fmt.Errorf("the signer's balance of the fee token: %w", err)
	}
	if m.Allowance, err = a.token(ctx, fhevm.CallAllowance(a.o.Address, a.o.FeeSpender)); err != nil {
		return m, fmt.Errorf("the signer's allowance of the fee token: %w", err)
	}
	return m, nil
}

func (a *Account) paysToken() bool {
	return a.o.FeeToken != common.Address{} && a.o.FeeSpender != common.Address{}
}

func (a *Account) token(ctx context.Context, data []byte) (*big.Int, error) {
	returned, err := a.o.Pool.Call(ctx, common.Address{}, a.o.FeeToken, data, Latest, 0)
	if err != nil {
		return nil, err
	}
	return fhevm.DecodeUint256(returned)
}

// Label returns what a new request is to be refused with while the account cannot pay: [fhevm.LabelInsufficientBalance] or
// [fhevm.LabelInsufficientAllowance]. blocked is false while it can, and until it was read.
func (a *Account) Label() (label fhevm.Label, blocked bool) {
	switch m := a.Snapshot(); {
	case below(m.Balance, a.o.MinBalance), below(m.Token, a.o.MinToken):
		return fhevm.LabelInsufficientBalance, true
	case below(m.Allowance, a.o.MinAllowance):
		return fhevm.LabelInsufficientAllowance, true
	default:
		return "", false
	}
}

// below is false for what is not known.
func below(n, least *big.Int) bool { return n != nil && n.Cmp(least) < 0 }

// Snapshot returns what was read last. Its numbers are shared: they are not to be changed.
func (a *Account) Snapshot() Means {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.means
}
