package simchain

import (
	"fmt"
	"maps"
	"math/big"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/eth"
	"github.com/ethereum/go-ethereum/eth/catalyst"
	"github.com/ethereum/go-ethereum/eth/ethconfig"
	"github.com/ethereum/go-ethereum/eth/filters"
	"github.com/ethereum/go-ethereum/log"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/p2p"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
)

// ChainID is the id of every simulated chain; go-ethereum's simulation has no other.
const ChainID = 1337

const (
	host = "127.0.0.1"
	// blockGas lets a block hold what a burst of requests and all their shares need.
	blockGas = 2_000_000_000
	// buildTime is how long a block may take to be made before it is closed as it is: long enough for a loaded machine under the
	// race detector.
	buildTime = time.Minute
	// poolSlots lets one account have as many transactions waiting as a test of load sends.
	poolSlots = 1 << 16
)

// backend is go-ethereum with a beacon that makes blocks when it is told to: what its ethclient/simulated assembles, but with the
// node, whose port nobody has to guess, and the chain, which can be rewound below waiting transactions.
type backend struct {
	stack  *node.Node
	eth    *eth.Ethereum
	beacon *catalyst.SimulatedBeacon
}

// newBackend starts a node that listens for HTTP and WebSocket on one free port of the loopback interface.
func newBackend(alloc types.GenesisAlloc, port int, syncTimeout time.Duration, dev any) (*backend, error) {
	conf := node.DefaultConfig
	conf.DataDir, conf.IPCPath = "", ""
	conf.P2P = p2p.Config{NoDiscovery: true, NoDial: true}
	conf.Logger = log.NewLogger(log.DiscardHandler())
	// HTTP and WebSocket share a server where their ports are equal.
	conf.HTTPHost, conf.HTTPPort, conf.WSHost, conf.WSPort = host, port, host, port
	conf.HTTPModules = []string{"eth", "net", "web3", "txpool", devNamespace}
	conf.WSModules = conf.HTTPModules

	genesis := core.SystemContractAllocs()
	maps.Copy(genesis, alloc)
	ethConf := ethconfig.Defaults
	ethConf.Genesis = &core.Genesis{Config: params.AllDevChainProtocolChanges, GasLimit: blockGas, Alloc: genesis}
	ethConf.Miner.GasCeil = blockGas
	ethConf.Miner.Recommit = buildTime
	ethConf.SyncMode = ethconfig.FullSync
	ethConf.LogNoHistory = true
	ethConf.TxPool.NoLocals = true
	ethConf.TxPool.AccountSlots, ethConf.TxPool.GlobalSlots = poolSlots, 4*poolSlots
	ethConf.TxPool.AccountQueue, ethConf.TxPool.GlobalQueue = poolSlots, 4*poolSlots
	if syncTimeout > 0 {
		ethConf.TxSyncDefaultTimeout = syncTimeout
	}

	stack, err := node.New(&conf)
	if err != nil {
		return nil, fmt.Errorf("make the node: %w", err)
	}
	b := &backend{stack: stack}
	if err := b.start(&ethConf, dev); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *backend) start(conf *ethconfig.Config, dev any) error {
	service, err := eth.New(b.stack, conf)
	if err != nil {
		return fmt.Errorf("make the chain: %w", err)
	}
	b.eth = service
	b.stack.RegisterAPIs([]rpc.API{
		{Namespace: "eth", Service: filters.NewFilterAPI(filters.NewFilterSystem(service.APIBackend, filters.Config{}))},
		{Namespace: devNamespace, Service: dev},
	})
	if err := b.stack.Start(); err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	if b.beacon, err = catalyst.NewSimulatedBeacon(0, common.Address{}, service); err != nil {
		return fmt.Errorf("start the beacon: %w", err)
	}
	return b.rewind(0, false)
}

// close stops everything. It may be called on what started in part.
func (b *backend) close() error {
	if b.beacon != nil {
		b.beacon.Stop()
	}
	return b.stack.Close()
}

func (b *backend) head() *types.Header { return b.eth.BlockChain().CurrentBlock() }

// final returns the number of the last final block; no block before it can be replaced.
func (b *backend) final() uint64 {
	if h := b.eth.BlockChain().CurrentFinalBlock(); h != nil {
		return h.Number.Uint64()
	}
	return 0
}

// commit makes one block of the waiting transactions. The beacon reports its failures in the node's log alone, so that a head that
// did not move is the error. Every transaction that the pool had taken before is in the block, and the pool knows the block when
// commit returns: otherwise a transaction that comes while the pool changes to the new head waits for one block more.
func (b *backend) commit() (*types.Header, error) {
	b.settle()
	before := b.head()
	b.beacon.Commit()
	after := b.head()
	if after.Number.Cmp(new(big.Int).Add(before.Number, big.NewInt(1))) != 0 {
		return nil, fmt.Errorf("no block was made on top of %d", before.Number)
	}
	if err := b.eth.TxPool().Sync(); err != nil {
		return nil, fmt.Errorf("settle the pool: %w", err)
	}
	return after, nil
}

// fence is a transaction that the pool refuses, since its sender has nothing.
var fence = sync.OnceValue(func() *types.Transaction {
	a := named("fence")
	return a.sign(0, &a.Address, new(big.Int), nil)
})

// settle returns when the pool has sorted in all transactions that it took before: it takes them at once, but sorts them later,
// and answers to a sender who waits for that come in order.
func (b *backend) settle() { b.eth.TxPool().Add([]*types.Transaction{fence()}, true) }

// waiting returns how many transactions the next block could hold.
func (b *backend) waiting() int {
	n, _ := b.eth.TxPool().Stats()
	return n
}

// indexed reports whether the node can say of each transaction whether it knows it; before that it answers with errors.
func (b *backend) indexed() bool { return b.eth.BlockChain().TxIndexDone() }

// rewind makes the block with the given number the head. The transactions of the blocks above go back to the pool, and with drop
// they and all others are forgotten.
func (b *backend) rewind(number uint64, drop bool) error {
	block := b.eth.BlockChain().GetBlockByNumber(number)
	if block == nil {
		return fmt.Errorf("no block %d", number)
	}
	if _, err := b.eth.BlockChain().SetCanonical(block); err != nil {
		return fmt.Errorf("rewind to block %d: %w", number, err)
	}
	if err := b.eth.TxPool().Sync(); err != nil {
		return fmt.Errorf("settle the pool: %w", err)
	}
	if drop {
		b.eth.TxPool().Clear()
	}
	return nil
}
