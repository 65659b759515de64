package gateway

import (
	"fmt"
	"io"
	"net/http"
	"sync"
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

// BenchmarkAction is the CPU of an uncached action (decoding, checks, key, call,
// answer encoded; without the node's socket) over that of a bare net/http call of
// the same size, 8 at a time: the median of alternating blocks. The endpoint is
// another process.
func BenchmarkAction(b *testing.B) {
	const blocks, block, workers = 11, 1000, 8
	p := startBenchProcess(b, "origin", "")
	target := "http://" + p.user + "/"
	var port int
	_, err := fmt.Sscanf(p.user, "127.0.0.1:%d", &port)
	require.NoError(b, err)
	r := newRig(b, rigSpec{top: map[string]any{"httpClientConfig": map[string]any{"allowedIPs": []string{"127.0.0.1"}, "allowedPorts": []int{port}}}})
	x, n, w := r.svc().actions, r.srv.topology.shards["don"].nodes[0], theWorkflow()
	message := func(path string) *jsonrpc.Response {
		resp, err := jsonrpc.DecodeResponse(jsonrpc.AppendResult(nil, "http_action/"+w.Selector.WorkflowID+"/1", methodAction, mustJSON(map[string]any{
			"url": target + path, "workflowId": w.Selector.WorkflowID, "workflowOwner": w.Selector.WorkflowOwner, "timeoutMs": 60000,
		})))
		require.NoError(b, err)
		return &resp
	}
	act := func(resp *jsonrpc.Response) {
		a, err := x.prepare(n, resp)
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan []byte, 1)
		x.start(a, func(message []byte) { done <- message })
		if out := <-done; len(out) < 1<<10 {
			b.Errorf("%s", out)
		}
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	defer client.CloseIdleConnections()
	bare := func() {
		resp, err := client.Get(target)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil {
			b.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	measure := func(f func()) float64 {
		start := cpuTime()
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range block / workers {
					f()
				}
			})
		}
		wg.Wait()
		return float64(cpuTime()-start) / block / 1e3
	}
	plain := message("")
	measure(bare)
	measure(func() { act(plain) })
	b.ResetTimer()
	for range b.N {
		var ratios, bares, acts []float64
		for range blocks {
			f, g := measure(bare), measure(func() { act(plain) })
			ratios, bares, acts = append(ratios, g/f), append(bares, f), append(acts, g)
		}
		b.ReportMetric(median(bares), "bare-µs")
		b.ReportMetric(median(acts), "action-µs")
		b.ReportMetric(median(ratios), "ratio")
	}

	// With one endpoint hanging, the others' throughput.
	rate := func() float64 {
		start := time.Now()
		measure(func() { act(plain) })
		return block / time.Since(start).Seconds()
	}
	hanging := message("hang")
	var slowdowns []float64
	for range blocks {
		free := rate()
		var wg sync.WaitGroup
		for range 20 {
			a, err := x.prepare(n, hanging)
			require.NoError(b, err)
			wg.Add(1)
			x.start(a, func([]byte) { wg.Done() })
		}
		slowdowns = append(slowdowns, rate()/free)
		wg.Wait()
	}
	b.ReportMetric(median(slowdowns), "throughput-beside-hanging")
}
