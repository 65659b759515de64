package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/client"
	"dongate/config"
	"dongate/internal/simdon"
	"dongate/internal/soak"
)

// A gateway is reloaded again and again, a node is taken out and let in again and limits change, while requests come at a steady rate. Each is
// answered with the nodes' result, and no node is asked one twice.
func TestSoakReload(t *testing.T) {
	t.Parallel()
	const nodes, last = 5, 4
	f := newFleetOf(t, 1, nodes, map[string]any{"driver": config.DriverSQLite, "dsn": filepath.Join(t.TempDir(), "claims.db")})
	long := soak.For(0) > 0
	rate, pause := 200, 50*time.Millisecond
	if long {
		rate, pause = 1000, time.Second
	}
	admin := freeAddress(t)
	var file map[string]any
	require.NoError(t, json.Unmarshal(f.configuration(f.gateways[0]), &file))
	_, port, err := net.SplitHostPort(admin)
	require.NoError(t, err)
	file["admin"] = map[string]any{"port": jsontext.Value(port)}
	shard := file["shardedDONs"].([]any)[0].(map[string]any)["shards"].([]any)[0].(map[string]any)
	all := shard["nodes"].([]any)
	handler := file["services"].([]any)[0].(map[string]any)["handlers"].([]any)[0].(map[string]any)["config"].(map[string]any)
	write := func(round int, with bool) {
		shard["nodes"] = all[:last]
		if with {
			shard["nodes"] = all
		}
		handler["noQuorumGraceMs"] = 1000 + round%100
		handler["maxOpenBytes"] = 100_000_000 + round
		user := file["userServerConfig"].(map[string]any)
		user["corsEnabled"], user["corsAllowedOrigins"] = round%2 == 0, []string{fmt.Sprintf("https://app%d.example.com", round)}
		file["httpClientConfig"] = map[string]any{"maxResponseBytes": 1000 + round}
		file["log"] = map[string]any{"level": []string{"info", "debug"}[round%2]}
		text, err := json.Marshal(file)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(f.gateways[0].file, text, 0o600))
	}
	write(0, true)
	f.start(0)

	sent, answered := f.steady(rate)
	asked := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for what := range f.seen {
			if strings.HasPrefix(what, f.don.Node(0, last).Name()+" ") {
				n++
			}
		}
		return n
	}
	deadline := time.Now().Add(soak.For(2 * time.Second))
	rounds := 0
	for ; rounds < 4 || time.Now().Before(deadline); rounds++ {
		with := rounds%2 == 0
		write(rounds+1, with)
		out, err := askReload(t.Context(), "http://"+admin, "")
		require.NoError(t, err)
		require.True(t, out.OK, "%+v", out.Problems)
		require.Contains(t, out.Applied, "services[0].handlers[0].config.maxOpenBytes")
		require.Equal(t, rounds > 0, strings.Contains(strings.Join(out.Applied, " "), "shardedDONs"))
		if with && rounds > 0 {
			before := asked()
			f.wait(func() bool { return asked() > before }, nil) // it is back, and asked with the others
		}
		select {
		case <-time.After(pause): // how often it is reloaded; nothing is decided by it
		case <-t.Context().Done():
		}
	}
	n, took := sent()
	f.judge()
	for _, node := range f.don.Nodes() {
		require.Zero(t, node.Connector().Stats().Gateways[0].QueueFull, "a node left out an answer: that is not the gateway's loss")
	}
	require.EqualValues(t, n, answered.Load(), "every request has one answer")
	require.Positive(t, asked())
	t.Logf("%d reloads, %d requests, %.0f per second", rounds, n, float64(n)/took.Seconds())
}

// steady sends requests at a rate until it is told to stop, which waits for the last answer. A request that is not answered with a result fails the test.
func (f *fleet) steady(perSecond int) (stop func() (sent int64, took time.Duration), answered *atomic.Int64) {
	ctx, cancel := context.WithCancel(f.Context())
	c := f.client(0)
	var wg sync.WaitGroup
	var sent int64
	answered = new(atomic.Int64)
	start := time.Now()
	// Fewer than a node's library keeps answers for its gateway (256): on a machine that is too busy for the rate, nodes would leave answers out.
	places := make(chan struct{}, 200)
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			for due := int64(time.Since(start).Seconds() * float64(perSecond)); sent < due; sent++ {
				places <- struct{}{}
				wg.Go(func() {
					defer func() { <-places }()
					if err := f.try(c); err != nil {
						f.Errorf("a request was lost: %v", err)
						return
					}
					answered.Add(1)
				})
			}
		}
	})
	return func() (int64, time.Duration) { cancel(); wg.Wait(); return sent, time.Since(start) }, answered
}

// A gateway is told to stop under load, over and over. Every request that it had begun to read gets a complete answer, all others are sent to the second
// gateway with success, and the process ends with 0 and leaves no goroutine.
func TestSoakDrain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, map[string]any{"driver": config.DriverMemory})
	f.start(1)
	for _, n := range f.don.Nodes() {
		n.Set(simdon.Behaviour{Kind: simdon.Slow, Delay: 10 * time.Millisecond})
	}
	least := 3
	if soak.For(0) > 0 {
		least = 50
	}
	deadline := time.Now().Add(soak.For(2 * time.Second))
	rounds := 0
	var total drained
	for ; rounds < least || time.Now().Before(deadline); rounds++ {
		f.start(0)
		f.drainOnce(&total)
	}
	f.judge()
	for _, id := range total.unread {
		require.False(t, f.ids[id], "a node was asked a request whose connection was closed without an answer")
	}
	t.Logf("%d stops, %d requests answered, of which %d by the second gateway after the first refused; %d on connections that were closed unread", rounds,
		total.answered.Load(), total.refused.Load(), len(total.unread))
}

// drained counts what became of requests.
type drained struct {
	answered, refused atomic.Int64
	unread            []string // ids of those whose connection was closed; guarded by the fleet's mu
}

// drainOnce stops the first gateway under load.
func (f *fleet) drainOnce(d *drained) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 16 {
		both := f.client(0, 1)
		second := f.client(1)
		wg.Go(func() {
			defer both.CloseIdleConnections()
			defer second.CloseIdleConnections()
			for ctx.Err() == nil {
				f.sendOnce(d, both, second)
				if i%4 == 0 {
					both.CloseIdleConnections() // every request on a new connection
				}
			}
		})
	}
	f.progressOf(&d.answered, 50)

	begun := f.begin(0)
	g := f.gateways[0]
	require.NoError(f, g.cmd.Process.Signal(syscall.SIGTERM))
	f.progressOf(&d.answered, 20)
	require.Equal(f, http.StatusOK, begun(), "its body was being read when the signal came")
	err := g.cmd.Wait()
	log, _ := os.ReadFile(g.file + ".log")
	require.NoError(f, err, "%s", log[max(0, len(log)-4000):])
	require.NotContains(f, string(log), "connections were cut off")
	g.cmd = nil
	f.progressOf(&d.answered, 20)
	cancel()
	wg.Wait()
}

// sendOnce has one request answered: by both gateways' client or, where that cannot know what became of it, by a new request to the second. Then no node
// may have been asked the first.
func (f *fleet) sendOnce(d *drained, both, second *client.Client) {
	s, err := both.Sign(client.Request{Workflow: f.reference, Input: jsontext.Value(`{}`)})
	if err != nil {
		f.Error(err)
		return
	}
	r, err := both.Send(f.Context(), s)
	switch {
	case err == nil:
		if strings.Contains(r.URL, f.gateways[1].user) {
			d.refused.Add(1)
		}
		d.answered.Add(1)
		return
	case !errors.Is(err, client.ErrUnknownOutcome):
		f.Errorf("a request was lost: %v", err)
		return
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.Errorf("an answer was cut off: %v", err)
	}
	f.mu.Lock()
	d.unread = append(d.unread, s.ID)
	f.mu.Unlock()
	if err := f.try(second); err != nil {
		f.Errorf("the second gateway: %v", err)
		return
	}
	d.answered.Add(1)
}

// begin sends the header of a request and waits until the gateway asks for its body. The function that it returns sends the body and gives the status of the
// complete answer.
func (f *fleet) begin(i int) (finish func() int) {
	f.Helper()
	p, err := client.BuildRequest(client.Request{Workflow: f.reference, Input: jsontext.Value(`{}`)})
	require.NoError(f, err)
	s, err := client.Sign(p, f.signer, auth.TokenOptions{})
	require.NoError(f, err)
	conn, err := net.Dial("tcp", f.gateways[i].user)
	require.NoError(f, err)
	f.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", s.Token, len(s.Body))
	require.NoError(f, err)
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	require.NoError(f, err)
	require.Contains(f, line, "100 Continue")
	_, err = in.ReadString('\n')
	require.NoError(f, err)
	return func() int {
		f.Helper()
		_, err := conn.Write(s.Body)
		require.NoError(f, err)
		resp, err := http.ReadResponse(in, nil)
		require.NoError(f, err)
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		require.NoError(f, err)
		return resp.StatusCode
	}
}

// progressOf waits until n more are counted.
func (f *fleet) progressOf(count *atomic.Int64, n int64) {
	f.Helper()
	target := count.Load() + n
	f.wait(func() bool { return count.Load() >= target }, nil)
}

// The service manager is told when the gateway is ready, reloads and stops, and in between that it lives.
func TestServiceManager(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, map[string]any{"driver": config.DriverMemory})
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	defer conn.Close()
	next := func() string {
		buf := make([]byte, 1000)
		for {
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
			n, err := conn.Read(buf)
			require.NoError(t, err)
			if text := string(buf[:n]); text != "WATCHDOG=1" {
				return text
			}
		}
	}
	f.environ = []string{"NOTIFY_SOCKET=" + socket, "WATCHDOG_USEC=" + strconv.Itoa(20_000)}
	f.start(0)
	require.Equal(t, "READY=1", next())
	p := f.gateways[0].cmd.Process
	require.NoError(t, p.Signal(syscall.SIGHUP))
	require.Regexp(t, `^RELOADING=1\nMONOTONIC_USEC=\d+$`, next())
	require.Equal(t, "READY=1", next())
	buf := make([]byte, 1000)
	n, err := conn.Read(buf)
	require.NoError(t, err)
	require.Equal(t, "WATCHDOG=1", string(buf[:n]))
	require.NoError(t, p.Signal(syscall.SIGTERM))
	require.Equal(t, "STOPPING=1", next())
	require.NoError(t, f.gateways[0].cmd.Wait())
	f.gateways[0].cmd = nil
}
