package demorelayer

import (
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/stretchr/testify/require"

	"dongate/internal/simchain"
)

func TestTally(t *testing.T) {
	t.Parallel()
	content := func(n byte) common.Hash { return common.Hash{n} }
	list := []*posted{
		{what: "first", request: simchain.Request{Content: content(1)}, times: 1, want: 1},
		{what: "second", request: simchain.Request{Content: content(2)}, times: 3, want: 1},
		{what: "third", request: simchain.Request{Content: content(3)}, times: 1, want: 0},
	}
	on := func(contents ...byte) (v simchain.Verdict) {
		for _, n := range contents {
			v.Accepted = append(v.Accepted, simchain.Accepted{Content: content(n)})
		}
		return v
	}
	rows, sum, wrong := tally(list, on(2, 1))
	require.Empty(t, wrong)
	require.Equal(t, "5 posts, 2 requests on the chain, each once", sum)
	require.Equal(t, [][]string{
		{"   request", "posted", "on the chain"},
		{"   first", "once", "once"},
		{"   second", "3 times", "once"},
		{"   third", "once", "never"},
	}, rows)

	_, sum, wrong = tally(list, on(2, 2, 3, 4))
	require.Equal(t, "5 posts, 4 requests on the chain, not each once", sum)
	require.Equal(t, []string{
		"first is on the chain never, not once", "second is on the chain twice, not once", "third is on the chain once, not never",
		"the chain has 1 request that nobody posted",
	}, wrong)
}

func TestSqueeze(t *testing.T) {
	t.Parallel()
	require.Equal(t, "0x02..1f", squeeze("0x020000000000000000000000000000000000000000000000000000000000001f"))
	require.Equal(t, "0x..1", squeeze("0x0000000000000000000000000000000000000000000000000000000000000001"))
	require.Empty(t, squeeze(""))
}
