package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/jsonrpc"
)

// cpuTime is this process's CPU time.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// actionBench makes actions and bare net/http calls to one endpoint, which is
// another process.
type actionBench struct {
	b       *testing.B
	target  string
	actions *actions
	node    *node
	client  *http.Client
}

// benchHeaders go with every request.
var benchHeaders = map[string]string{"Accept": "application/json", "X-Api-Key": "0123456789abcdef"}

const (
	benchWorkers = 8
	benchTimeout = 5 * time.Second
	benchLimit   = 1 << 20
)

func newActionBench(b *testing.B) *actionBench {
	p := startBenchProcess(b, "origin", "")
	var port int
	_, err := fmt.Sscanf(p.user, "127.0.0.1:%d", &port)
	require.NoError(b, err)
	r := newRig(b, rigSpec{top: map[string]any{"httpClientConfig": map[string]any{
		"allowedIPs": []string{"127.0.0.1"}, "allowedPorts": []int{port}, "maxResponseBytes": benchLimit,
	}}})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: benchWorkers}}
	b.Cleanup(client.CloseIdleConnections)
	return &actionBench{b, "http://" + p.user + "/", r.svc().actions, r.srv.current().topology.shards["don"].nodes[0], client}
}

// message is a node's message as the envelope's decoder leaves it.
func (x *actionBench) message(path string, more map[string]any) *jsonrpc.Response {
	w := theWorkflow().Selector
	resp, err := jsonrpc.DecodeResponse(jsonrpc.AppendResult(nil, "http_action/"+w.WorkflowID+"/1", methodAction, mustJSON(merge(map[string]any{
		"url": x.target + path, "headers": benchHeaders, "workflowId": w.WorkflowID, "workflowOwner": w.WorkflowOwner, "timeoutMs": benchTimeout.Milliseconds(),
	}, more))))
	require.NoError(x.b, err)
	return &resp
}

// act is an action without the node's socket: decoding, checks, call, answer
// encoded.
func (x *actionBench) act(message *jsonrpc.Response, size int) {
	a, err := x.actions.prepare(x.node, message)
	if err != nil {
		x.b.Fatal(err)
	}
	done := make(chan []byte, 1)
	x.actions.start(a, func(message []byte) { done <- message })
	if out := <-done; len(out) < size {
		x.b.Errorf("%s", out)
	}
}

// bare is what any caller of net/http has to do: a request with its headers and a
// deadline, and the whole body read, within a limit.
func (x *actionBench) bare(path string, size int) {
	ctx, cancel := context.WithTimeout(context.Background(), benchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.target+path, nil)
	if err != nil {
		x.b.Fatal(err)
	}
	for name, value := range benchHeaders {
		req.Header.Set(name, value)
	}
	resp, err := x.client.Do(req)
	if err != nil {
		x.b.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(io.LimitReader(resp.Body, benchLimit)); err != nil || len(body) != size {
		x.b.Errorf("%d bytes, %v", len(body), err)
	}
}

// measure runs f n times, several at a time, and returns the CPU time of each in µs.
func measure(n int, f func()) float64 {
	start := cpuTime()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range benchWorkers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				f()
			}
		})
	}
	wg.Wait()
	return float64(cpuTime()-start) / float64(n) / 1e3
}

// BenchmarkAction is the CPU of an uncached action over that of a bare net/http
// call of the same size, 8 at a time: the median ratio of alternating blocks. Beside
// it, over the same floor: an action whose answer is stored, and the bare call made
// in a goroutine of its own, as whoever cannot wait for it has to.
func BenchmarkAction(b *testing.B) {
	x := newActionBench(b)
	for _, size := range []int{1 << 10, 16 << 10, 100 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			// Long blocks, so that the start of each, with its new goroutines, does not count.
			const blocks = 9
			block := 20_000_000 / (2000 + size/10)
			path := strconv.Itoa(size)
			plain, stored := x.message(path, nil), x.message(path, map[string]any{"cacheSettings": map[string]any{"store": true}})
			ways := [4]func(){
				func() { x.bare(path, size) }, func() { x.act(plain, size) }, func() { x.act(stored, size) },
				func() {
					done := make(chan struct{})
					go func() {
						x.bare(path, size)
						close(done)
					}()
					<-done
				},
			}
			for _, f := range ways {
				measure(block, f)
			}
			b.ResetTimer()
			for range b.N {
				var took, ratio [4][]float64
				for range blocks {
					for i, f := range ways {
						took[i] = append(took[i], measure(block, f))
						ratio[i] = append(ratio[i], took[i][len(took[i])-1]/took[0][len(took[i])-1])
					}
				}
				b.ReportMetric(median(took[0]), "bare-µs")
				b.ReportMetric(median(took[1]), "action-µs")
				b.ReportMetric(median(ratio[1]), "ratio")
				b.ReportMetric(median(ratio[2]), "ratio-stored")
				b.ReportMetric(median(ratio[3]), "ratio-own-goroutine")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkActionBesideHanging is the throughput of actions while calls to one
// endpoint hang, over that without: the median of alternating blocks.
func BenchmarkActionBesideHanging(b *testing.B) {
	const blocks, block, hanging = 7, 4000, 20
	x := newActionBench(b)
	plain, hang := x.message("1024", nil), x.message("hang", map[string]any{"timeoutMs": 1500})
	rate := func() float64 {
		measure(block/8, func() { x.act(plain, 1<<10) }) // what opening connections costs is not throughput
		start := time.Now()
		measure(block, func() { x.act(plain, 1<<10) })
		return block / time.Since(start).Seconds()
	}
	rate()
	b.ResetTimer()
	for range b.N {
		var ratio []float64
		for range blocks {
			free := rate()
			var wg sync.WaitGroup
			for range hanging {
				a, err := x.actions.prepare(x.node, hang)
				require.NoError(b, err)
				wg.Add(1)
				x.actions.start(a, func([]byte) { wg.Done() })
			}
			ratio = append(ratio, rate()/free)
			if x.actions.slots.underWay() != hanging {
				b.Error("they did not hang for as long")
			}
			wg.Wait()
		}
		b.ReportMetric(median(ratio), "ratio")
	}
	b.ReportMetric(0, "ns/op")
}
