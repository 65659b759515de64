package connector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// Whatever happens between two messages, a gateway that reads them in order never sees an older word on a workflow after
// a newer one, and in the end knows each workflow as the node has it. A dumb model keeps what a gateway would.
func TestReportsConvergeAndNeverGoBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c, err := New(Config{DONID: "d", Signer: unusedSigner{}, Gateways: []Gateway{{URL: "ws://g/node", ID: "g"}}, PushRPS: 1000, PushBurst: 3})
		require.NoError(t, err)
		l := c.links[0]
		now := time.Unix(1, 0)
		const ids = 120 // more than two batches
		truth := make(map[string]int)
		seen := make(map[string]int)   // the newest version of each workflow in any message
		pulled := make(map[string]int) // what the latest complete pull named, or a later push
		version := 0
		put := func(i int) {
			version++
			m := modelWorkflow(i, version)
			truth[m.Selector.WorkflowID] = version
			require.NoError(t, c.PutWorkflow(m))
		}
		step := func() bool {
			now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "ms")) * time.Millisecond)
			message, wait := l.nextReport(now)
			if message == nil {
				return wait > 0
			}
			r, err := jsonrpc.DecodeResponse(message)
			require.NoError(t, err)
			raws := []jsontext.Value{r.Result}
			if r.Method == methodPull {
				require.True(t, strings.HasPrefix(r.ID, methodPull+"/"))
				require.NoError(t, json.Unmarshal(r.Result, &raws))
				require.LessOrEqual(t, len(raws), pullBatch)
				require.NotEmpty(t, raws)
			}
			for _, raw := range raws {
				m, err := workflow.DecodeMetadata(raw)
				require.NoError(t, err)
				id, v := m.Selector.WorkflowID, modelVersion(m)
				require.GreaterOrEqual(t, v, seen[id], "an older word on %s", id)
				seen[id], pulled[id] = v, v
			}
			return true
		}
		for i := range rapid.IntRange(0, ids).Draw(t, "before") {
			put(i)
		}
		l.opened()
		pulls := 0
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0, 1:
				put(rapid.IntRange(0, ids).Draw(t, "id"))
			case 2:
				id := modelWorkflow(rapid.IntRange(0, ids).Draw(t, "id"), 0).Selector.WorkflowID
				c.RemoveWorkflow(id)
				delete(truth, id)
			case 3:
				pulls++
				l.startPull(fmt.Sprint(methodPull, "/", pulls))
				clear(pulled)
			default:
				step()
			}
		}
		l.startPull(methodPull + "/last")
		clear(pulled)
		for step() {
		}
		require.Equal(t, truth, pulled)
		require.Empty(t, l.pushes.due)
	})
}

func TestReportsOfALostConnectionAreForgotten(t *testing.T) {
	t.Parallel()
	c, err := New(Config{DONID: "d", Signer: unusedSigner{}, Gateways: []Gateway{{URL: "ws://g/node", ID: "g"}}})
	require.NoError(t, err)
	l := c.links[0]
	require.NoError(t, c.PutWorkflow(modelWorkflow(1, 1)))
	m, _ := l.nextReport(time.Now())
	require.Nil(t, m, "nobody is connected")
	l.opened()
	require.NoError(t, c.PutWorkflow(modelWorkflow(1, 2)))
	l.startPull(methodPull + "/x")
	l.closed()
	l.opened()
	m, _ = l.nextReport(time.Now())
	require.Nil(t, m, "the gateway asks again")
}

func modelWorkflow(i, version int) workflow.Metadata {
	return workflow.Metadata{
		Selector: workflow.Selector{WorkflowID: fmt.Sprintf("0x%064x", i), WorkflowOwner: fmt.Sprintf("0x%040x", i),
			WorkflowName: workflow.HashName("n"), WorkflowTag: fmt.Sprint("v", version)},
		AuthorizedKeys: []workflow.Key{{KeyType: workflow.KeyTypeECDSAEVM, PublicKey: fmt.Sprintf("0x%040x", 1)}},
	}
}

func modelVersion(m workflow.Metadata) (v int) {
	_, _ = fmt.Sscanf(m.Selector.WorkflowTag, "v%d", &v)
	return v
}

type unusedSigner struct{ auth.Signer }
