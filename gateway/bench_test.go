package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/storage/storagetest"
	"dongate/workflow"
)

// benchFile is a configuration with one shard of n nodes and no limits.
func benchFile(n, f int) (string, []auth.Signer) { return benchFileOn(n, f, nil) }

// benchFileOn is benchFile with a storage section.
func benchFileOn(n, f int, storage map[string]any) (string, []auth.Signer) {
	var signers []auth.Signer
	var nodes []any
	for i := range n {
		s := auth.NewKeySigner(key(int64(i + 1)))
		signers = append(signers, s)
		nodes = append(nodes, map[string]any{"name": fmt.Sprint("n", i), "address": s.Address().Hex()})
	}
	return string(mustJSON(map[string]any{
		"userServerConfig":        map[string]any{"host": "127.0.0.1", "port": 0},
		"nodeServerConfig":        map[string]any{"host": "127.0.0.1", "port": 0},
		"connectionManagerConfig": map[string]any{"authGatewayId": testGatewayID, "authTimestampToleranceSec": 60},
		"services": []any{map[string]any{"serviceName": "workflows", "dons": []string{"don"},
			"handlers": []any{map[string]any{"name": "http-capabilities", "config": unlimited()}}}},
		"shardedDONs": []any{map[string]any{"donName": "don", "f": f, "shards": []any{map[string]any{"nodes": nodes}}}},
		"admin":       map[string]any{"port": -1},
		"storage":     storage,
	})), signers
}

// acceptBytes answers pulls with the workflow and triggers with ACCEPTED, cheaply.
func acceptBytes(w workflow.Metadata) func(int, *websocket.Conn, []byte) []byte {
	metadata := mustJSON([]workflow.Metadata{w})
	return func(_ int, _ *websocket.Conn, data []byte) []byte {
		rest := data[bytes.Index(data, []byte(`"id":"`))+6:]
		id := string(rest[:bytes.IndexByte(rest, '"')])
		if strings.HasPrefix(id, pullPrefix) {
			return jsonrpc.AppendResult(nil, id, methodPull, metadata)
		}
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%q,"method":"workflows.execute","result":{"workflow_id":%q,"workflow_execution_id":%q,"status":"ACCEPTED"}}`,
			id, w.Selector.WorkflowID, workflow.ExecutionID(w.Selector.WorkflowID, id))
	}
}

// benchClient sends signed triggers to one process.
type benchClient struct {
	tb    testing.TB
	url   string
	http  *http.Client
	input string
}

func newBenchClient(tb testing.TB, user string, inputBytes int) *benchClient {
	tr := &http.Transport{MaxIdleConnsPerHost: 64}
	tb.Cleanup(tr.CloseIdleConnections)
	return &benchClient{tb: tb, url: "http://" + user + "/", http: &http.Client{Transport: tr}, input: strings.Repeat("x", inputBytes)}
}

func (c *benchClient) sign(w workflow.Metadata) signed {
	return sign(uuid.NewString(), paramsFor(w, map[string]any{"data": c.input}), clientSigner, auth.TokenOptions{})
}

func (c *benchClient) send(s signed) (int, time.Duration) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, c.url, bytes.NewReader(s.body))
	if err != nil {
		c.tb.Fatal(err)
	}
	req.Header = s.header()
	start := time.Now()
	resp, err := c.http.Do(req)
	if err != nil {
		c.tb.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		c.tb.Fatal(err)
	}
	return resp.StatusCode, time.Since(start)
}

// until waits for the first trigger that is accepted.
func (c *benchClient) until(w workflow.Metadata) {
	require.Eventually(c.tb, func() bool { status, _ := c.send(c.sign(w)); return status == 200 }, 10*time.Second, 10*time.Millisecond)
}

// run sends n triggers from some clients at once and returns how long that took;
// tokens are signed beforehand.
func (c *benchClient) run(w workflow.Metadata, n, clients int) time.Duration {
	all := make([]signed, n)
	for i := range all {
		all[i] = c.sign(w)
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for range clients {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if status, _ := c.send(all[i]); status != 200 {
					c.tb.Errorf("status %d", status)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func percentile(v []time.Duration, p float64) time.Duration {
	slices.Sort(v)
	return v[int(float64(len(v)-1)*p)]
}

// BenchmarkTriggerCPU is the gateway's CPU per trigger (4 nodes, 1 KiB input)
// over that of the floor: the median of alternating pairs.
func BenchmarkTriggerCPU(b *testing.B) {
	const pairs, triggers, clients = 7, 1500, 8
	cfg, signers := benchFile(4, 1)
	w := theWorkflow()
	gateway, floor := startBenchProcess(b, "gateway", cfg), startBenchProcess(b, "floor", "")
	gateway.connectNodes("don", signers, acceptBytes(w))
	floor.connectNodes("don", signers, acceptBytes(w))
	gc, fc := newBenchClient(b, gateway.user, 1024), newBenchClient(b, floor.user, 1024)
	gc.until(w)
	// The nodes sent the floor their signature, which it does not wait for.
	measure := func(p *benchProcess, c *benchClient) float64 {
		before := p.ask("cpu")
		c.run(w, triggers, clients)
		return float64(p.ask("cpu")-before) / triggers
	}
	measure(gateway, gc)
	measure(floor, fc)
	var ratios, gs, fs []float64
	b.ResetTimer()
	for range b.N {
		for range pairs {
			g, f := measure(gateway, gc), measure(floor, fc)
			ratios, gs, fs = append(ratios, g/f), append(gs, g), append(fs, f)
		}
	}
	b.ReportMetric(median(gs), "gateway-µs/trigger")
	b.ReportMetric(median(fs), "floor-µs/trigger")
	b.ReportMetric(median(ratios), "ratio")
}

// BenchmarkDurableClaims is the throughput of triggers with claims on SQLite, each
// flushed to the disk before its request is dispatched, over that with claims in
// memory, for 16 and 64 concurrent clients, and what it adds to the latency of one
// client alone: the median of alternating pairs, each long enough that its start
// and end, with fewer clients at work, count little.
func BenchmarkDurableClaims(b *testing.B) {
	const pairs, triggers = 7, 5000
	w := theWorkflow()
	start := func(storage map[string]any) (*benchProcess, *benchClient) {
		cfg, signers := benchFileOn(4, 1, storage)
		p := startBenchProcess(b, "gateway", cfg)
		p.connectNodes("don", signers, acceptBytes(w))
		c := newBenchClient(b, p.user, 1024)
		c.until(w)
		c.run(w, triggers, 64)
		return p, c
	}
	_, memory := start(nil)
	p, durable := start(map[string]any{"driver": "sqlite", "dsn": filepath.Join(b.TempDir(), "bench.db")})
	b.Run("1", func(b *testing.B) {
		const few = 500
		for range b.N {
			var added []float64
			for range pairs {
				m := memory.run(w, few, 1)
				added = append(added, float64((durable.run(w, few, 1)-m).Microseconds())/few)
			}
			b.ReportMetric(median(added), "added-µs/trigger")
		}
	})
	for _, clients := range []int{16, 64} {
		b.Run(fmt.Sprint(clients), func(b *testing.B) {
			for range b.N {
				var ratios, rates, cpus []float64
				for range pairs {
					m := memory.run(w, triggers, clients)
					before := p.ask("cpu")
					d := durable.run(w, triggers, clients)
					cpus = append(cpus, float64(p.ask("cpu")-before)/triggers)
					ratios, rates = append(ratios, m.Seconds()/d.Seconds()), append(rates, triggers/d.Seconds())
				}
				b.ReportMetric(median(rates), "triggers/s")
				b.ReportMetric(median(cpus), "gateway-µs/trigger")
				b.ReportMetric(median(ratios), "ratio")
			}
		})
	}
}

// BenchmarkSecondGateway is the throughput of triggers through two gateways on one
// PostgreSQL server over that through one of them, 32 concurrent clients in all,
// with the CPU that one gateway spends on a trigger: the median of alternating
// pairs. Everything shares this machine's processors, so more throughput can only
// come from waiting less; what it shows is that sharing claims costs nothing.
func BenchmarkSecondGateway(b *testing.B) {
	const pairs, triggers, clients = 7, 2000, 32
	w := theWorkflow()
	dsn := storagetest.Config(b, "postgres").DSN
	var processes []*benchProcess
	var cs []*benchClient
	for range 2 {
		cfg, signers := benchFileOn(4, 1, map[string]any{"driver": "postgres", "dsn": dsn})
		p := startBenchProcess(b, "gateway", cfg)
		p.connectNodes("don", signers, acceptBytes(w))
		c := newBenchClient(b, p.user, 1024)
		c.until(w)
		c.run(w, triggers, clients)
		processes, cs = append(processes, p), append(cs, c)
	}
	both := func() time.Duration {
		var wg sync.WaitGroup
		took := make([]time.Duration, 2)
		for i, c := range cs {
			wg.Go(func() { took[i] = c.run(w, triggers/2, clients/2) })
		}
		wg.Wait()
		return max(took[0], took[1])
	}
	b.ResetTimer()
	for range b.N {
		var ratios, ones, twos, cpus []float64
		for range pairs {
			before := processes[0].ask("cpu")
			one := cs[0].run(w, triggers, clients)
			cpus = append(cpus, float64(processes[0].ask("cpu")-before)/triggers)
			two := both()
			ratios, ones, twos = append(ratios, one.Seconds()/two.Seconds()), append(ones, triggers/one.Seconds()), append(twos, triggers/two.Seconds())
		}
		b.ReportMetric(median(ones), "one/s")
		b.ReportMetric(median(twos), "two/s")
		b.ReportMetric(median(cpus), "gateway-µs/trigger")
		b.ReportMetric(median(ratios), "ratio")
	}
}

// BenchmarkIdleSession is the memory of an idle session, of 1000.
func BenchmarkIdleSession(b *testing.B) {
	const sessions = 1000
	cfg, signers := benchFile(sessions, 333)
	gateway := startBenchProcess(b, "gateway", cfg)
	for range b.N {
		before := gateway.ask("memory")
		conns := gateway.connectNodes("don", signers, func(int, *websocket.Conn, []byte) []byte { return nil })
		gateway.ask("memory") // a collection in between: stacks shrink
		gateway.ask("memory")
		b.ReportMetric(float64(gateway.ask("memory")-before)/sessions/1024, "KiB/session")
		for _, c := range conns {
			_ = c.Close()
		}
		if b.N > 1 {
			b.Fatal("run with -benchtime 1x: a node's second is good once")
		}
	}
}

// BenchmarkFaultyNodes is the client's p95 with one node of 7 absent and one that
// stopped reading with its socket full, over that with all healthy: 1000 triggers
// each, in alternating blocks of 50.
func BenchmarkFaultyNodes(b *testing.B) {
	const blocks, block = 20, 50
	w := theWorkflow()
	start := func(faulty bool) *benchClient {
		cfg, signers := benchFile(7, 2)
		p := startBenchProcess(b, "gateway", cfg)
		if faulty {
			p.connectNodes("don", signers[1:6], acceptBytes(w))
			p.connectNodes("don", signers[6:], nil) // live, and never reads
		} else {
			p.connectNodes("don", signers, acceptBytes(w))
		}
		c := newBenchClient(b, p.user, 1024)
		c.until(w)
		if faulty { // fill the socket of the one that stopped reading
			big := newBenchClient(b, p.user, 512<<10)
			big.run(w, 40, 4)
		}
		c.run(w, 200, 1)
		return c
	}
	healthy, faulty := start(false), start(true)
	b.ResetTimer()
	for range b.N {
		times := map[*benchClient][]time.Duration{}
		for range blocks {
			for _, c := range []*benchClient{healthy, faulty} {
				for range block {
					status, took := c.send(c.sign(w))
					if status != 200 {
						b.Fatalf("status %d", status)
					}
					times[c] = append(times[c], took)
				}
			}
		}
		h, f := percentile(times[healthy], .95), percentile(times[faulty], .95)
		b.ReportMetric(float64(h.Microseconds()), "healthy-p95-µs")
		b.ReportMetric(float64(f.Microseconds()), "faulty-p95-µs")
		b.ReportMetric(float64(f)/float64(h), "ratio")
	}
}

// BenchmarkBadTokens is a good client's p95 while 20 requests/s with bodies of
// 1 MB come with bad tokens, over its p95 without: alternating blocks. The bodies
// are one long string, a hundred thousand member names out of order, nested objects
// and a quarter million numbers.
func BenchmarkBadTokens(b *testing.B) {
	var names, numbers strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&names, `"%05d":0,`, (i*7919)%100_000)
	}
	numbers.WriteString(strings.Repeat("1e0,", 250_000))
	for name, input := range map[string]string{
		"string":  `{"data":"` + strings.Repeat("x", 1<<20-1000) + `"}`,
		"names":   "{" + strings.TrimSuffix(names.String(), ",") + "}",
		"nested":  "[" + strings.TrimSuffix(strings.Repeat(strings.Repeat(`{"b":0,"a":`, 50)+"0"+strings.Repeat("}", 50)+",", 1700), ",") + "]",
		"numbers": "[" + strings.TrimSuffix(numbers.String(), ",") + "]",
	} {
		b.Run(name, func(b *testing.B) { benchBadTokens(b, input) })
	}
}

func benchBadTokens(b *testing.B, input string) {
	const blocks, block = 6, 800
	cfg, signers := benchFile(4, 1)
	w := theWorkflow()
	p := startBenchProcess(b, "gateway", cfg)
	p.connectNodes("don", signers, acceptBytes(w))
	c := newBenchClient(b, p.user, 1024)
	c.until(w)
	c.run(w, 500, 1)
	big := newBenchClient(b, p.user, 0)
	params := `{"input":` + input + `,"workflow":{"workflowID":"1"}}`
	valid, other := sign("", params, clientSigner, auth.TokenOptions{}), c.sign(w)
	stranger := sign("", params, auth.NewKeySigner(key(31337)), auth.TokenOptions{})
	bad := []signed{{valid.body, "x.y.z"}, {valid.body, other.token}, stranger} // shape, digest, signer
	b.ResetTimer()
	for range b.N {
		var quiet, flooded []time.Duration
		measure := func(into *[]time.Duration) {
			for range block {
				status, took := c.send(c.sign(w))
				if status != 200 {
					b.Fatalf("status %d", status)
				}
				*into = append(*into, took)
			}
		}
		for range blocks {
			measure(&quiet)
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				tick := time.NewTicker(50 * time.Millisecond)
				defer tick.Stop()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					case <-tick.C:
						req, _ := http.NewRequest(http.MethodPost, big.url, bytes.NewReader(bad[i%3].body))
						req.Header = bad[i%3].header()
						if resp, err := big.http.Do(req); err == nil { // a refusal before the body may cut the connection
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
					}
				}
			})
			measure(&flooded)
			close(stop)
			wg.Wait()
		}
		q, f := percentile(quiet, .95), percentile(flooded, .95)
		b.ReportMetric(float64(q.Microseconds()), "quiet-p95-µs")
		b.ReportMetric(float64(f.Microseconds()), "flooded-p95-µs")
		b.ReportMetric(float64(f)/float64(q), "ratio")
	}
}
