package relayer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
	"dongate/internal/soak"
	"dongate/relayer/fhevm"
	"dongate/storage"
)

// everyFault is a node that does everything a node can do wrong, save inventing what no chain has.
var everyFault = []simchain.Rule{
	{Fault: simchain.FaultError, Chance: 0.02}, {Fault: simchain.FaultStatus, Chance: 0.02}, {Fault: simchain.FaultHang, Chance: 0.002},
	{Fault: simchain.FaultCut, Chance: 0.02}, {Fault: simchain.FaultDrop, Chance: 0.02}, {Fault: simchain.FaultGarbage, Chance: 0.02},
	{Fault: simchain.FaultSlow, Chance: 0.05, Delay: 50 * time.Millisecond},
	{Method: "eth_getTransactionReceipt", Fault: simchain.FaultNull, Chance: 0.3},
	{Method: "eth_getTransactionByHash", Fault: simchain.FaultNull, Chance: 0.1},
	{Method: "eth_getTransactionCount", Fault: simchain.FaultOffset, Delta: 3, Chance: 0.1},
	{Method: "eth_getTransactionCount", Fault: simchain.FaultOffset, Delta: -2, Chance: 0.1},
	{Method: "eth_sendRawTransaction", Fault: simchain.FaultError, Code: -32000, Message: "nonce too low", Chance: 0.05},
	{Method: "eth_sendRawTransaction", Fault: simchain.FaultError, Code: -32000, Message: "replacement transaction underpriced", Chance: 0.05},
	{Method: "eth_getLogs", Fault: simchain.FaultShuffle, Chance: 0.3}, {Method: "eth_getLogs", Fault: simchain.FaultRepeat, Chance: 0.3},
	{Method: "eth_subscription", Fault: simchain.FaultDrop, Chance: 0.2}, {Method: "eth_subscription", Fault: simchain.FaultRepeat, Chance: 0.2},
}

// TestSoakFaults posts requests while nodes fail in every way, blocks are re-organised and the process is killed. In the end every request is completed
// and the chain has each once.
func TestSoakFaults(t *testing.T) {
	t.Parallel()
	run(t, storage.DriverSQLite, 1, func(s *siege) {
		for s.goesOn() {
			s.wait(time.Second, 3*time.Second)
			switch s.chance.IntN(3) {
			case 0:
				s.reorg()
			default:
				s.children[0].kill()
				s.children[0] = startChild(s.t, s.o)
				s.kills++
			}
		}
	})
}

// TestSoakReplicas has two processes on one PostgreSQL server, of which one is killed, or stopped for longer than its lock lasts and then woken.
func TestSoakReplicas(t *testing.T) {
	t.Parallel()
	run(t, storage.DriverPostgres, 2, func(s *siege) {
		for s.goesOn() {
			s.wait(500*time.Millisecond, 2*time.Second)
			i := s.chance.IntN(2)
			switch s.chance.IntN(4) {
			case 0:
				s.reorg()
			case 1:
				p := s.children[i].cmd.Process
				require.NoError(s.t, p.Signal(syscall.SIGSTOP))
				s.wait(700*time.Millisecond, 1500*time.Millisecond)
				require.NoError(s.t, p.Signal(syscall.SIGCONT))
				s.stops++
			default:
				s.children[i].kill()
				s.children[i] = startChild(s.t, s.o)
				s.kills++
			}
		}
	})
}

// siege is one such run.
type siege struct {
	*house
	t        *testing.T
	o        childOptions
	children []*child
	chance   *rand.Rand
	until    time.Time

	kills, stops, reorgs int
}

func (s *siege) goesOn() bool { return time.Now().Before(s.until) }

func (s *siege) wait(least, most time.Duration) {
	time.Sleep(least + time.Duration(s.chance.Int64N(int64(most-least)))) // the trouble's rhythm: nothing is decided by it
}

func (s *siege) reorg() {
	replaced, err := s.house.chain.Reorg(s.t.Context(), 1+s.chance.IntN(2), s.chance.IntN(2) == 0)
	if err != nil { // the machine is too busy for the chain to answer in time
		s.t.Logf("no re-organisation: %v", err)
	}
	if replaced > 0 {
		s.reorgs++
	}
}

func run(t *testing.T, driver string, replicas int, trouble func(s *siege)) {
	seed := rand.Uint64()
	if text := os.Getenv("DONGATE_SEED"); text != "" {
		_, err := fmt.Sscan(text, &seed)
		require.NoError(t, err)
	}
	c, err := simchain.StartProcess(t.Context(), simchain.Options{Interval: 50 * time.Millisecond, KMS: &simchain.KMSOptions{Duplicates: 1, Shuffle: true, Missing: 2, Seed: seed}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	h := newHouseOn(t, driver, c.Control)
	var proxies []*simchain.Proxy
	for i := range uint64(2) {
		p, err := simchain.NewProxy(h.net, seed+i, everyFault...)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		proxies = append(proxies, p)
		h.nodes, h.ws = append(h.nodes, p.HTTP()), append(h.ws, p.WS())
	}
	s := &siege{house: h, t: t, o: h.child(0), chance: rand.New(rand.NewPCG(seed, 1))}
	for range replicas {
		s.children = append(s.children, startChild(t, s.o))
	}
	started := time.Now()
	s.until = started.Add(soak.For(3 * time.Second))
	var all []request
	var posting sync.WaitGroup
	posting.Go(func() {
		for n := uint64(0); s.goesOn(); n++ {
			all = append(all, h.post(fhevm.Endpoints[n%uint64(len(fhevm.Endpoints))], n))
			time.Sleep(40 * time.Millisecond) // the clients' rhythm
		}
	})
	trouble(s)
	posting.Wait()
	for _, p := range proxies {
		p.SetRules()
	}
	slow, tardy := time.Duration(0), 0
	deadline := time.Now().Add(60 * time.Second)
	for _, r := range all {
		j := h.job(r)
		for ; j.State != fhevm.StateCompleted; j = h.job(r) {
			require.False(t, j.State == fhevm.StateFailure || j.State == fhevm.StateTimedOut, "seed %d: %s: %s", seed, j.ErrCode, j.ErrReason)
			require.True(t, time.Now().Before(deadline), "seed %d: %s", seed, s.stuck(r))
			time.Sleep(10 * time.Millisecond) // between looks
		}
		took := j.StateSince.Sub(j.Created)
		slow = max(slow, took)
		if took > 10*time.Second {
			tardy++
		}
	}
	require.Eventually(t, func() bool {
		adrift, err := h.store.Adrift(t.Context(), 0, 10)
		require.NoError(t, err)
		return len(adrift) == 0
	}, 30*time.Second, 10*time.Millisecond, "seed %d: transactions stay adrift", seed)
	h.once(all...)
	faults := map[simchain.Fault]int{}
	for _, p := range proxies {
		for f, n := range p.Counts() {
			faults[f] += n
		}
	}
	t.Logf("seed %d: %d requests, each on the chain once; %d kills, %d stops, %d re-organisations; slowest %v, %d took more than 10 s; faults %v", seed, len(all), s.kills, s.stops, s.reorgs, slow.Round(time.Millisecond), tardy, faults)
}

// stuck says what is known of a request that does not get to its end.
func (s *siege) stuck(r request) string {
	j := s.job(r)
	v, err := s.house.chain.Judge(s.t.Context())
	require.NoError(s.t, err)
	attempts, err := s.store.Attempts(s.t.Context(), j.Kind, j.ID)
	require.NoError(s.t, err)
	cursor, err := s.store.Cursor(s.t.Context())
	require.NoError(s.t, err)
	text := fmt.Sprintf("%s %s stays in %s since %v, known as %x; the cursor is at %d and the chain at %d; on the chain %+v; attempts", j.Kind, j.ExtJobID, j.State, j.StateSince, j.Reference, cursor.Number, v.Head, v.ByContent()[r.Content])
	for _, a := range attempts {
		text += fmt.Sprintf(" {nonce %d hash %x %s in %d %x}", a.Nonce, a.Hash, a.Result, a.Block.Number, a.Block.Hash)
	}
	log, err := os.ReadFile(s.o.Log)
	require.NoError(s.t, err)
	return text + "\n" + string(log[max(0, len(log)-20_000):])
}
