package simchain

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
)

// Options say how a chain is made. The zero value is a chain without automatic blocks on which every handle is ready and everything
// is allowed. It has a JSON form for a chain in another process.
type Options struct {
	// Interval is how often a block is made of waiting transactions, and at least every second one without any; 0: only Commit
	// makes blocks.
	Interval time.Duration
	// Closed says that no handle is ready and nothing allowed until a knob says so.
	Closed bool
	// Threshold is how many shares a user decryption needs, in the contract and in the KMS context; 0: 9.
	Threshold int64
	// Nodes is how many KMS nodes there are, at most 64; 0: 13.
	Nodes int
	// Fee is what a request costs in the fee token's smallest unit; 0: nothing.
	Fee uint64
	// Accounts is how many funded accounts there are for relayers, at most 64; 0: 4. Each also has fee tokens and has allowed
	// the payment contract to take them.
	Accounts int
	// Port is the TCP port on the loopback interface; 0: a free one.
	Port int
	// SyncTimeout is how long eth_sendRawTransactionSync waits where the caller does not say; 0: go-ethereum's 20 s.
	SyncTimeout time.Duration
	// KMS answers requests from the start where it is not nil. See [KMSOptions].
	KMS *KMSOptions
}

const (
	maxNodes, maxAccounts  = 64, 64
	emptyInterval          = time.Second
	defaultThreshold       = 9
	defaultNodes           = 13
	defaultAccounts        = 4
	storageURL, storageDir = "http://127.0.0.1:9/kms-1", "PUB-p1"
)

func (o Options) withDefaults() (Options, error) {
	set := func(n *int, value int) {
		if *n == 0 {
			*n = value
		}
	}
	if o.Threshold == 0 {
		o.Threshold = defaultThreshold
	}
	set(&o.Nodes, defaultNodes)
	set(&o.Accounts, defaultAccounts)
	switch {
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return o, fmt.Errorf("%d nodes, at most %d", o.Nodes, maxNodes)
	case o.Accounts < 0 || o.Accounts > maxAccounts:
		return o, fmt.Errorf("%d accounts, at most %d", o.Accounts, maxAccounts)
	case o.Threshold < 0 || o.Interval < 0:
		return o, errors.New("a negative option")
	}
	return o, o.KMS.check()
}

// Chain is one simulated chain, gateway and host chain at the same time. All methods may be used from any goroutine.
type Chain struct {
	*Control
	dev *dev
	rpc *rpc.Client
}

// Start makes a chain with all contracts deployed and listens on the loopback interface. ctx bounds the start alone.
func Start(ctx context.Context, o Options) (*Chain, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("simchain: %w", err)
	}
	d := &dev{options: o, kick: make(chan struct{}, 1), stop: make(chan struct{})}
	alloc := types.GenesisAlloc{Admin().Address: {Balance: ether(1_000_000)}}
	for i := range o.Nodes {
		alloc[NodeAccount(i).Address] = types.Account{Balance: ether(1_000_000)}
	}
	for i := range o.Accounts {
		alloc[AccountOf(i).Address] = types.Account{Balance: ether(100_000)}
	}
	if d.backend, err = newBackend(alloc, o.Port, o.SyncTimeout, &devAPI{d}); err != nil {
		return nil, fmt.Errorf("simchain: %w", err)
	}
	client := d.backend.stack.Attach()
	c := &Chain{dev: d, rpc: client}
	d.eth = ethclient.NewClient(client)
	if err := d.deploy(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("simchain: deploy: %w", err)
	}
	c.Control = newControl(client, d.config)
	d.kms = newKMS(d.eth, d.config, d.backend.settle, o.KMS)
	if o.Interval > 0 {
		d.done.Go(d.mine)
		d.done.Go(d.answer)
	}
	return c, nil
}

// Close stops the chain and everything that it started; the state is gone. A second call does nothing.
func (c *Chain) Close() error {
	var err error
	c.dev.once.Do(func() {
		close(c.dev.stop)
		c.dev.done.Wait()
		c.rpc.Close()
		err = c.dev.backend.close()
	})
	return err
}

// dev is what makes blocks. mu guards the order of blocks: commits, rewinds and the administrator's transactions happen one after
// another. Transactions of others reach the pool at any time.
type dev struct {
	options Options
	backend *backend
	eth     *ethclient.Client
	config  Config
	kms     *kms
	mu      sync.Mutex
	paused  bool // no automatic blocks

	kick chan struct{} // a block was made; capacity 1
	stop chan struct{}
	once sync.Once
	done sync.WaitGroup
}

// mine makes blocks by the clock.
func (d *dev) mine() {
	ticker := time.NewTicker(d.options.Interval)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-d.stop:
			return
		case now := <-ticker.C:
			d.mu.Lock()
			if !d.paused && (d.backend.waiting() > 0 || now.Sub(last) >= emptyInterval) {
				last = now
				// A failed block is tried again at the next tick.
				_, _ = d.commit()
			}
			d.mu.Unlock()
		}
	}
}

// answer lets the KMS answer after each automatic block.
func (d *dev) answer() {
	for {
		select {
		case <-d.stop:
			return
		case <-d.kick:
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			// What failed is found again after the next block.
			_, _ = d.kms.step(ctx)
			cancel()
		}
	}
}

// commit makes a block. The caller holds mu.
func (d *dev) commit() (*types.Header, error) {
	h, err := d.backend.commit()
	select {
	case d.kick <- struct{}{}:
	default:
	}
	return h, err
}

// do sends a transaction of the administrator and makes blocks until it is mined.
func (d *dev) do(ctx context.Context, to common.Address, value *big.Int, data []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	tx, err := d.send(ctx, Admin(), to, value, data)
	if err != nil {
		return err
	}
	if err := d.mined(ctx, tx.Hash()); err != nil {
		_, reason := d.eth.CallContract(ctx, callMsg(Admin().Address, to, value, data), nil)
		return errors.Join(err, reason)
	}
	return nil
}

// send puts a transaction with the account's next nonce into the pool. The caller holds mu.
func (d *dev) send(ctx context.Context, from Account, to common.Address, value *big.Int, data []byte) (*types.Transaction, error) {
	d.backend.settle()
	nonce, err := d.eth.PendingNonceAt(ctx, from.Address)
	if err != nil {
		return nil, fmt.Errorf("nonce of %s: %w", from.Address, err)
	}
	tx := from.sign(nonce, &to, value, data)
	if err := d.eth.SendTransaction(ctx, tx); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	return tx, nil
}

// mined makes blocks until the transaction is in one; its status must be 1. The caller holds mu.
func (d *dev) mined(ctx context.Context, hash common.Hash) error {
	for range 20 {
		if _, err := d.commit(); err != nil {
			return err
		}
		r, err := d.eth.TransactionReceipt(ctx, hash)
		if err != nil {
			continue
		}
		if r.Status != types.ReceiptStatusSuccessful {
			return errors.New("the transaction reverted")
		}
		return nil
	}
	return errors.New("the transaction was not mined")
}

func ether(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), big.NewInt(1e18)) }
