package aggregation

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/workflow"
)

// world is a Metadata with DON a (shards a and a_1 of four nodes, f = 1) and DON b (one shard like these), and a clock in milliseconds.
type world struct {
	*Metadata
	t   *testing.T
	now int
}

func newWorld(t *testing.T, change ...func(*MetadataConfig)) *world {
	c := MetadataConfig{DONs: worldDONs(), MaxPerNode: 1000, MaxBytes: 1 << 30, Expiry: 10 * time.Minute}
	for _, f := range change {
		f(&c)
	}
	return &world{Metadata: NewMetadata(c), t: t}
}

func worldDONs() []DONSpec {
	shard := func(id string) ShardSpec {
		s := ShardSpec{ID: id, F: 1}
		for n := range 4 {
			s.Nodes = append(s.Nodes, fmt.Sprint(id, ".", n))
		}
		return s
	}
	return []DONSpec{{Name: "a", Shards: []ShardSpec{shard("a"), shard("a_1")}}, {Name: "b", Shards: []ShardSpec{shard("b")}}}
}

// say lets nodes of a shard report w, and all of it be accepted.
func (w *world) say(shard string, m workflow.Metadata, nodes ...int) {
	w.t.Helper()
	for _, n := range nodes {
		require.Equal(w.t, Accepted, w.Report(fmt.Sprint(shard, ".", n), m, at(w.now)))
	}
}

// keysOf lists the keys by which workflow number id is known, as numbers; nil if it is not.
func (w *world) keysOf(id int) []int {
	known := w.View().ByID(meta(id, 0, 1).Selector.WorkflowID)
	if known == nil {
		return nil
	}
	var keys []int
	for _, k := range known.Keys {
		var n int
		_, err := fmt.Sscanf(k.PublicKey, "0x%x", &n)
		require.NoError(w.t, err)
		keys = append(keys, n)
	}
	return keys
}

// conformance: 6.agreement
func TestMetadataAgreement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 0, 0)
	require.Nil(t, w.keysOf(1), "one node, however often")
	w.say("a_1", meta(1, 1, 1), 0)
	w.say("b", meta(1, 1, 1), 0)
	require.Nil(t, w.keysOf(1), "nodes of three shards do not add up")
	w.say("a", meta(1, 1, 2), 1)
	require.Nil(t, w.keysOf(1), "other keys are another digest")
	w.say("a", meta(1, 1, 1), 2)
	require.Equal(t, []int{1}, w.keysOf(1))
	known := w.View().ByID(meta(1, 1, 1).Selector.WorkflowID)
	require.Equal(t, "a", known.DON)
	require.Equal(t, []string{"a"}, known.Shards)
	require.True(t, known.Authorized(workflow.KeyTypeECDSAEVM, fmt.Sprintf("0x%040x", 1)))
	require.False(t, known.Authorized(workflow.KeyTypeECDSAEVM, fmt.Sprintf("0x%040x", 2)))
	require.False(t, known.Authorized("ed25519", fmt.Sprintf("0x%040x", 1)))
	require.Equal(t, UnknownNode, w.Report("a.4", meta(1, 1, 1), at(0)))
}

// conformance: 6.report.replaced
func TestMetadataReplacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("a", meta(1, 1, 2), 1)
	require.Nil(t, w.keysOf(1), "one against one")
	w.say("a", meta(1, 1, 2), 0)
	require.Equal(t, []int{2}, w.keysOf(1))
	require.Equal(t, 2, w.Stats().Observations)
}

// conformance: 6.expiry
func TestMetadataExpiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("a", meta(2, 2, 1), 0, 1)
	w.now = 500_000
	w.say("a", meta(1, 1, 1), 0, 1)
	w.Expire(at(599_999))
	require.Equal(t, 2, w.View().Len())
	w.Expire(at(600_000))
	require.Equal(t, []int{1}, w.keysOf(1), "repeated in time")
	require.Nil(t, w.keysOf(2))
	w.Expire(at(1)) // a clock that goes back
	require.Equal(t, []int{1}, w.keysOf(1))
	w.Expire(at(1_100_000))
	require.Zero(t, w.View().Len())
	require.Equal(t, MetadataStats{}, w.Stats(), "nothing is left behind")

	forever := newWorld(t, func(c *MetadataConfig) { c.Expiry = 0 })
	forever.say("a", meta(1, 1, 1), 0, 1)
	forever.Expire(at(1 << 40))
	require.Equal(t, []int{1}, forever.keysOf(1))
}

// conformance: 6.pull.messages
// conformance: 6.pull.withdrawn
func TestMetadataPullInSeveralMessages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const all = 120 // messages of 50, 50 and 20
	for i := range all {
		w.say("a", meta(i, i, 1), 0, 1)
	}
	w.now = 1000
	w.BeginPull("a.0", at(w.now))
	w.BeginPull("a.1", at(w.now))
	for message := range 3 {
		for i := 50 * message; i < min(50*(message+1), all); i++ {
			if i == 77 {
				continue // was deleted
			}
			w.say("a", meta(i, i, 1), 0, 1)
		}
		require.Equal(t, all, w.View().Len(), "nothing is withdrawn before the pull closes")
	}
	w.EndPull("a.0", at(31_000))
	require.Nil(t, w.keysOf(77), "fewer than f+1 support it")
	w.EndPull("a.1", at(31_000))
	require.Equal(t, all-1, w.View().Len())
	require.Equal(t, 2*(all-1), w.Stats().Observations)
	w.EndPull("a.1", at(32_000))
	require.Equal(t, all-1, w.View().Len(), "a pull ends once")
}

// conformance: 6.pull.silent
func TestMetadataSilentSession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.BeginPull("a.0", at(1))
	require.Equal(t, []int{1}, w.keysOf(1))
	w.BeginPull("a.0", at(60_000)) // the next pull closes the first
	require.Nil(t, w.keysOf(1))
	require.Equal(t, 1, w.Stats().Observations)
}

func TestMetadataClockBackwards(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Expire(at(0))
	w.Expire(at(1000))
	w.now = -5000
	w.say("a", meta(1, 1, 1), 0, 1)
	w.Expire(at(600_999))
	require.Equal(t, []int{1}, w.keysOf(1), "reported at 1000 at the earliest")
	w.Expire(at(601_000))
	require.Nil(t, w.keysOf(1))
}

// conformance: 6.pull.silent
func TestMetadataAbandonedPullWithdrawsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.BeginPull("a.0", at(1))
	w.AbandonPull("a.0")
	w.EndPull("a.0", at(2))
	require.Equal(t, []int{1}, w.keysOf(1), "the session ended: its silence means nothing")
	w.BeginPull("a.0", at(3))
	w.EndPull("a.0", at(4))
	require.Nil(t, w.keysOf(1), "the next one counts")
	for _, unknown := range []func(){
		func() { w.BeginPull("x", at(5)) }, func() { w.EndPull("x", at(5)) }, func() { w.AbandonPull("x") },
	} {
		require.NotPanics(t, unknown)
	}
}

// conformance: 6.pull.withdrawn
func TestMetadataPushDuringPull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("a", meta(2, 2, 1), 0, 1)
	for _, n := range []string{"a.0", "a.1"} {
		w.BeginPull(n, at(1))
		require.Equal(t, Accepted, w.Report(n, meta(2, 2, 1), at(2))) // a repetition
		require.Equal(t, Accepted, w.Report(n, meta(3, 3, 1), at(2))) // something new
		w.EndPull(n, at(3))
	}
	require.Nil(t, w.keysOf(1))
	require.Equal(t, []int{1}, w.keysOf(2))
	require.Equal(t, []int{1}, w.keysOf(3))
}

// conformance: 6.superseded
func TestMetadataSupersededDoesNotReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1), 0, 1, 2, 3)
	w.say("a", meta(1, 1, 2), 0)
	require.Equal(t, []int{1}, w.keysOf(1), "one node's new keys are not enough")
	w.say("a", meta(1, 1, 2), 1)
	require.Equal(t, []int{2}, w.keysOf(1), "f+1 with the new keys against f+1 with the old")
	for range 3 {
		w.say("a", meta(1, 1, 1), 2, 3)
		require.Equal(t, []int{2}, w.keysOf(1), "laggards' repetitions change nothing")
	}
	w.BeginPull("a.2", at(1))
	w.EndPull("a.2", at(1))
	w.say("a", meta(1, 1, 1), 2)
	require.Equal(t, []int{2}, w.keysOf(1), "nor does one that withdraws and says it anew")
	w.say("a", meta(1, 1, 1), 1)
	require.Equal(t, []int{1}, w.keysOf(1), "the current fell below f+1")
	w.say("a", meta(1, 1, 2), 1)
	require.Equal(t, []int{1}, w.keysOf(1), "and now it is the superseded one")
	w.say("a", meta(1, 1, 2), 2, 3)
	require.Equal(t, []int{2}, w.keysOf(1))
}

// TestMetadataSupersededMemory: the memory of what was superseded is bounded, and what laggards still repeat is not what is forgotten.
func TestMetadataSupersededMemory(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *MetadataConfig) { c.DONs[0].Shards[0].Nodes = append(c.DONs[0].Shards[0].Nodes, "a.4", "a.5") })
	w.say("a", meta(1, 1, 1), 0, 1, 2, 3, 4, 5)
	for key := 2; key < 500; key++ {
		for _, movers := range [][]int{{0, 1}, {2, 3}} { // 4 and 5 are the laggards
			w.say("a", meta(1, 1, key), movers...)
			require.Equal(t, []int{key}, w.keysOf(1))
		}
	}
	require.Less(t, w.Stats().Bytes, int64(20_000))
	for n := range 6 {
		w.BeginPull(fmt.Sprint("a.", n), at(1))
		w.EndPull(fmt.Sprint("a.", n), at(1))
	}
	require.Equal(t, MetadataStats{}, w.Stats())
	w.say("a", meta(1, 1, 1), 0, 1)
	require.Equal(t, []int{1}, w.keysOf(1), "forgotten with the last report of the workflow")
}

// conformance: 6.cap.node
func TestMetadataPerNodeCap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *MetadataConfig) { c.MaxPerNode = 2 })
	w.say("a", meta(1, 1, 1), 0, 1)
	w.say("a", meta(2, 2, 1), 0)
	for range 3 {
		require.Equal(t, RefusedNodeFull, w.Report("a.0", meta(3, 3, 1), at(0)))
	}
	require.EqualValues(t, 3, w.Stats().Refused)
	w.say("a", meta(3, 3, 1), 1) // another node is not affected
	w.say("a", meta(1, 1, 2), 0) // and a replacement needs no room
	w.BeginPull("a.0", at(1))
	w.say("a", meta(2, 2, 1), 0)
	w.EndPull("a.0", at(1))
	w.say("a", meta(3, 3, 1), 0)
	require.Equal(t, []int{1}, w.keysOf(3), "room that became free is used")
}

// conformance: 6.cap.bytes
func TestMetadataByteCap(t *testing.T) {
	t.Parallel()
	const limit = 100_000
	w := newWorld(t, func(c *MetadataConfig) { c.MaxBytes, c.MaxPerNode = limit, 0 })
	w.say("a", meta(1, 1, 1), 0, 1)
	accepted, refused := 0, uint64(0)
	for i := 2; i < 1000; i++ {
		switch w.Report("a.2", meta(i, i, i, i+1, i+2), at(0)) {
		case Accepted:
			accepted++
		case RefusedBytesFull:
			refused++
		}
		require.LessOrEqual(t, w.Stats().Bytes, int64(limit))
	}
	require.Greater(t, accepted, 40)
	require.Equal(t, refused, w.Stats().Refused)
	require.Positive(t, refused)
	require.Equal(t, []int{1}, w.keysOf(1), "what is there stays")
	w.say("a", meta(1, 1, 1), 0, 1) // repetitions need no room
	require.Equal(t, RefusedBytesFull, w.Report("a.2", meta(2, 2, manyKeys()...), at(1)))
	require.Equal(t, accepted+1, w.Stats().Observations, "what it said of that workflow is gone")
}

func TestMetadataByteCapSmallerReplacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.say("a", meta(1, 1, 1, 2, 3), 0)
	w.maxBytes = w.Stats().Bytes
	w.SetDONs(worldDONs(), at(0))
	require.Equal(t, Accepted, w.Report("a.0", meta(1, 1, 1), at(0)), "fewer keys need less room")
	require.Equal(t, Accepted, w.Report("a.0", meta(1, 2, 1), at(0)), "another name instead of the old one")
	require.Equal(t, RefusedBytesFull, w.Report("a.0", meta(1, 2, 1, 2, 3, 4), at(0)))
	require.Equal(t, RefusedBytesFull, w.Report("a.1", meta(2, 2, 1, 2, 3, 4), at(0)))
	require.Zero(t, w.Stats().Bytes)
}

func TestReportStatusNames(t *testing.T) {
	t.Parallel()
	require.Equal(t, "accepted refused_node_full refused_bytes_full unknown_node unknown",
		fmt.Sprint(Accepted, " ", RefusedNodeFull, " ", RefusedBytesFull, " ", UnknownNode, " ", ReportStatus(9)))
}

// Bounds that change while running count for what comes then, and leave what is there the time it had.
func TestMetadataSetBounds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *MetadataConfig) { c.MaxPerNode = 1 })
	w.say("a", meta(1, 1, 1), 0, 1)
	require.Equal(t, RefusedNodeFull, w.Report("a.0", meta(2, 2, 1), at(0)))
	w.SetBounds(2, 0, 10*time.Minute, at(0))
	w.now = 500_000
	w.say("a", meta(2, 2, 1), 0, 1)
	w.SetBounds(1, 1, 200*time.Second, at(500_000))
	require.Equal(t, []int{1}, w.keysOf(2), "what is held past a lowered bound stays")
	require.Equal(t, RefusedNodeFull, w.Report("a.0", meta(3, 3, 1), at(w.now)))
	require.Equal(t, RefusedBytesFull, w.Report("a.2", meta(3, 3, 1), at(w.now)))
	w.Expire(at(599_999))
	require.Equal(t, []int{1}, w.keysOf(1), "it had 100 seconds left")
	w.Expire(at(600_000))
	require.Nil(t, w.keysOf(1))
	w.Expire(at(699_999))
	require.Equal(t, []int{1}, w.keysOf(2), "and this one more than the new expiry")
	w.SetBounds(1, 0, time.Hour, at(699_999))
	w.Expire(at(4_099_999))
	require.Equal(t, []int{1}, w.keysOf(2), "a longer one is had by all")
	w.Expire(at(4_100_000))
	require.Nil(t, w.keysOf(2))
	w.SetBounds(1, 0, 0, at(4_100_000))
	w.now = 4_100_000
	w.say("a", meta(1, 1, 1), 0, 1)
	w.SetBounds(1, 0, time.Second, at(9_000_000))
	w.Expire(at(9_000_999))
	require.Equal(t, []int{1}, w.keysOf(1), "it had forever")
	w.Expire(at(9_001_000))
	require.Nil(t, w.keysOf(1))
}
