package aggregation

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

func oneDON(shards, nodes, f int) []DONSpec {
	d := DONSpec{Name: "d"}
	for s := range shards {
		sh := ShardSpec{ID: "d", F: f}
		if s > 0 {
			sh.ID = "d_" + string(rune('0'+s))
		}
		for n := range nodes {
			sh.Nodes = append(sh.Nodes, nodeName(s, n))
		}
		d.Shards = append(d.Shards, sh)
	}
	return []DONSpec{d}
}

func nodeName(shard, node int) string { return string(rune('a'+shard)) + string(rune('0'+node)) }

// TestMetadataBytes measures what an observation really takes and holds MetadataStats.Bytes, by which memory is bounded, against the heap.
func TestMetadataBytes(t *testing.T) {
	const workflows = 20000
	fill := map[string]func(m *Metadata){
		"two shards of four agree, one key": func(m *Metadata) {
			for i := range workflows / 8 {
				for n := range 8 {
					m.Report(nodeName(n/4, n%4), meta(i, i, 1), start)
				}
			}
		},
		"two nodes agree, one key": func(m *Metadata) {
			for i := range workflows / 2 {
				m.Report("a0", meta(i, i, 1), start)
				m.Report("a1", meta(i, i, 1), start)
			}
		},
		"every node tells of workflows of its own": func(m *Metadata) {
			for i := range workflows {
				m.Report(nodeName(i%8/4, i%4), meta(i, i, 1), start)
			}
		},
		"every node gives every workflow other keys": func(m *Metadata) {
			for i := range workflows / 8 {
				for n := range 8 {
					m.Report(nodeName(n/4, n%4), meta(i, i, n), start)
				}
			}
		},
		"two nodes put all under one name": func(m *Metadata) {
			for i := range workflows / 2 {
				m.Report("a0", meta(i, 1, 1), start)
				m.Report("a1", meta(i, 1, 1), start)
			}
		},
		"keys without end, all different": func(m *Metadata) {
			keys := make([]int, 100)
			for i := range workflows / 20 {
				for k := range keys {
					keys[k] = 1000*i + k
				}
				m.Report("a0", meta(i, i, keys...), start)
			}
		},
	}
	for name, report := range fill {
		t.Run(name, func(t *testing.T) {
			m := NewMetadata(MetadataConfig{DONs: oneDON(2, 4, 1)})
			before := heapInUse()
			report(m)
			view := m.View()
			heap := heapInUse() - before
			s := m.Stats()
			perObservation := heap / int64(s.Observations)
			t.Logf("%d B per observation on the heap, %d counted, %d workflows", perObservation, s.Bytes/int64(s.Observations), s.Workflows)
			if name != "keys without end, all different" {
				require.LessOrEqual(t, perObservation, int64(1200))
			}
			require.LessOrEqual(t, heap, s.Bytes*11/10, "what is counted bounds what is used")
			require.LessOrEqual(t, s.Bytes, 2*heap, "and is not far from it")
			runtime.KeepAlive(view)
			runtime.KeepAlive(m)
		})
	}
}
