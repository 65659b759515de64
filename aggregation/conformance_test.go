package aggregation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// conformance: 6.interned
func TestMetadataEqualObservationsAreKeptOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	keys := make([]int, 100)
	for i := range keys {
		keys[i] = i + 1
	}
	m := meta(1, 1, keys...)
	w.say("a", m, 0)
	first := w.Stats().Bytes
	require.Greater(t, first, int64(100*keyCost))
	w.say("a", m, 1, 2, 3)
	require.Equal(t, first+3*observationCost, w.Stats().Bytes, "no keys, digest or names again")
	w.say("a_1", m, 0, 1, 2, 3)
	require.Equal(t, first+7*observationCost+standingCost, w.Stats().Bytes)
	require.Equal(t, 8, w.Stats().Observations)
	forms := w.subjects[m.Selector.WorkflowID].forms
	require.Len(t, forms, 1)
	for _, n := range w.nodes {
		for _, o := range n.observations {
			require.Same(t, forms[0], o.form)
		}
	}
	w.say("b", m, 0)
	require.Len(t, forms, 1, "other DONs share it as well")
	w.say("a", meta(1, 1, 1), 0)
	require.Len(t, w.subjects[m.Selector.WorkflowID].forms, 2)
}
