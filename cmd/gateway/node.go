package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"dongate/config"
	"dongate/connector"
	"dongate/internal/simdon"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// nodeFlags describe a simulated node.
type nodeFlags struct {
	gateways, gatewayIDs []string
	don                  string
	key                  keyFlags
	behaviour            string
	delay                time.Duration
	workflow             selectorFlags
	authorize            []string
	workflows            string
	action               actionFlags
	asJSON               bool
}

func newNode(w *world) *cobra.Command {
	var n nodeFlags
	cmd := &cobra.Command{
		Use:   "node --gateway URL --gateway-id ID --don SHARD [flags]",
		Short: "Run a simulated node, to try a real gateway",
		Long: `Run a simulated node against a real gateway: it connects with its key, reports
workflows and answers triggers without running anything. It logs what it sees to
standard error until it is told to stop.

The gateway's configuration must have the key's address in the shard named by
--don: shard 0 of DON x is "x", shard n is "x_n". The key comes from a file or
the environment, never from a flag's value. A workflow can be called once f+1
nodes of a shard report it alike, so start several nodes with the same workflow.

Behaviours:
  accept    answer at once, as a healthy node does
  slow      answer the same after --delay
  silent    answer no trigger
  conflict  answer with something that no other node says
  flip      answer as conflict does and correct it after --delay
  error     answer with an error, the same on every node
  frozen    stop reading the socket

The workflow is named by --workflow-id, --owner, --name and --tag; what is left
out is made up from the rest, equally on every node. --workflows FILE has many:
a JSON array of the metadata objects that nodes report.

With --action-url the node runs something after all: after each answer to a
trigger it has the gateway fetch that URL for it, and logs the outcome: the status,
a digest of the body (equal on nodes that got the same) and whether it came from
the cache; or why it was refused or failed.`,
		Example: `  gateway node --gateway ws://127.0.0.1:5003/node --gateway-id gateway-1 --don my-don \
      --key-file node-1.hex --workflow-id 0x1234 --authorize 0xabc…
  gateway node --gateway wss://a.example/node --gateway wss://b.example/node \
      --gateway-id gateway-1 --don my-don_1 --key-file node-5.hex \
      --workflows workflows.json --behaviour slow --delay 2s
  gateway node --gateway ws://127.0.0.1:5003/node --gateway-id gateway-1 --don my-don \
      --key-file node-1.hex --workflow-id 0x1234 --authorize 0xabc… \
      --action-url https://api.example.com/price --action-max-age 10s --action-store --action-now`,
		RunE: func(cmd *cobra.Command, _ []string) error { return n.run(cmd.Context(), w, cmd) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&n.gateways, "gateway", nil, "a gateway's node endpoint, `ws://… or wss://…`; may be repeated")
	f.StringArrayVar(&n.gatewayIDs, "gateway-id", nil, "the gateway's authGatewayId; one for all gateways, or one for each")
	f.StringVar(&n.don, "don", "", "the id of the node's `shard`: x, or x_n for shard n of DON x")
	n.key.add(cmd)
	f.StringVar(&n.behaviour, "behaviour", string(simdon.Accept), "accept, slow, silent, conflict, flip, error or frozen")
	f.DurationVar(&n.delay, "delay", 0, "for slow and flip (default "+simdon.DefaultDelay.String()+")")
	n.workflow.add(cmd)
	f.StringArrayVar(&n.authorize, "authorize", nil, "an `address` whose key may trigger the workflow; may be repeated")
	f.StringVar(&n.workflows, "workflows", "", "a `file` with a JSON array of workflow metadata")
	n.action.add(cmd)
	f.BoolVar(&n.asJSON, "json", false, "log in JSON")
	return cmd
}

func (n *nodeFlags) run(ctx context.Context, w *world, cmd *cobra.Command) error {
	gateways, err := n.gatewayList()
	if err != nil {
		return usage(cmd, err)
	}
	behaviour, err := n.parseBehaviour()
	if err != nil {
		return usage(cmd, err)
	}
	list, err := n.workflowList(w, cmd)
	if err != nil {
		return err
	}
	action, err := n.action.request(len(list))
	if err != nil {
		return usage(cmd, err)
	}
	key, err := n.key.key(w)
	if err != nil {
		return err
	}
	format := "console"
	if n.asJSON {
		format = "json"
	}
	log, err := newLogger(config.Log{Level: "info", Format: format}, w.stderr)
	if err != nil {
		return err
	}
	node, err := simdon.NewNode(simdon.NodeConfig{
		Name: strings.ToLower(simdon.Address(key).Hex()), ShardID: n.don, Key: key, Log: log, Observe: func(e simdon.Event) { logEvent(log, e) },
	})
	if err != nil {
		return err
	}
	node.Set(behaviour)
	if err := node.SetWorkflows(list); err != nil {
		return usage(cmd, err)
	}
	log.Info("starting", zap.String("node", node.Name()), zap.String("shard", n.don), zap.String("behaviour", behaviour.String()),
		zap.Int("workflows", len(list)))
	for _, m := range list[:min(len(list), 10)] {
		log.Info("supports", zap.String("workflow", m.Selector.WorkflowID), zap.String("owner", m.Selector.WorkflowOwner),
			zap.String("tag", m.Selector.WorkflowTag), zap.Int("keys", len(m.AuthorizedKeys)))
	}
	if err := n.action.runNode(ctx, log, node, action, gateways); err != nil {
		return usage(cmd, err)
	}
	log.Info("stopped")
	return nil
}

func (n *nodeFlags) gatewayList() ([]connector.Gateway, error) {
	switch {
	case len(n.gateways) == 0:
		return nil, errors.New("which gateway? give --gateway ws://HOST:PORT/node, the address of its node endpoint")
	case len(n.gatewayIDs) != 1 && len(n.gatewayIDs) != len(n.gateways):
		return nil, errors.New("give --gateway-id once, or once for each --gateway: the authGatewayId of its configuration")
	case n.don == "":
		return nil, errors.New("which shard? give --don, such as my-don, or my-don_1 for its second shard")
	}
	var list []connector.Gateway
	for i, url := range n.gateways {
		id := n.gatewayIDs[0]
		if len(n.gatewayIDs) > 1 {
			id = n.gatewayIDs[i]
		}
		list = append(list, connector.Gateway{URL: url, ID: id})
	}
	return list, nil
}

func (n *nodeFlags) parseBehaviour() (simdon.Behaviour, error) {
	text := n.behaviour
	if n.delay != 0 {
		text += ":" + n.delay.String()
	}
	b, err := simdon.ParseBehaviour(text)
	if err == nil && b.Kind == simdon.Absent {
		err = errors.New("an absent node need not be started")
	}
	return b, err
}

// workflowList is what the node reports.
func (n *nodeFlags) workflowList(w *world, cmd *cobra.Command) ([]workflow.Metadata, error) {
	s := n.workflow
	named := s != selectorFlags{} || len(n.authorize) > 0
	if n.workflows != "" {
		if named {
			return nil, usage(cmd, errors.New("give --workflows or one workflow's flags, not both"))
		}
		return readWorkflows(n.workflows)
	}
	if !named {
		return nil, nil
	}
	if len(n.authorize) == 0 {
		return nil, usage(cmd, errors.New("who may trigger the workflow? give --authorize ADDRESS"))
	}
	var keys []common.Address
	for _, a := range n.authorize {
		normal, err := workflow.NormalizeOwner(strings.ToLower(a))
		if err != nil {
			return nil, usage(cmd, fmt.Errorf("--authorize: %w", err))
		}
		keys = append(keys, common.HexToAddress(normal))
	}
	owner, err := workflow.NormalizeOwner(strings.ToLower(s.owner))
	if s.owner == "" {
		owner, err = strings.ToLower(keys[0].Hex()), nil
	}
	if err != nil {
		return nil, usage(cmd, fmt.Errorf("--owner: %w", err))
	}
	m := simdon.NewWorkflow(common.HexToAddress(owner), orDefault(s.name, "workflow"), orDefault(s.tag, "v1"), keys...)
	if s.id != "" {
		if m.Selector.WorkflowID, err = workflow.NormalizeID(strings.ToLower(s.id)); err != nil {
			return nil, usage(cmd, fmt.Errorf("--workflow-id: %w", err))
		}
	}
	if err := m.Normalize(); err != nil {
		return nil, usage(cmd, err)
	}
	return []workflow.Metadata{m}, nil
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// readWorkflows reads a JSON array of metadata as nodes report it (protocol §6).
func readWorkflows(path string) ([]workflow.Metadata, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fail(exitLocal, "%w", err)
	}
	defer f.Close()
	data, err := readBounded(f, path, maxInputBytes)
	if err != nil {
		return nil, err
	}
	var raw []jsontext.Value
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, fail(exitLocal, "%s is not a JSON array of workflow metadata: %w", path, err)
	}
	list := make([]workflow.Metadata, len(raw))
	for i := range raw {
		if list[i], err = workflow.DecodeMetadata(raw[i]); err != nil {
			return nil, fail(exitLocal, "%s: element %d: %w", path, i, err)
		}
	}
	return list, nil
}

// maxLogged is how much of a message is logged, in bytes.
const maxLogged = 200

func logEvent(log *zap.Logger, e simdon.Event) {
	fields := []zap.Field{zap.String("gateway", e.Gateway.URL), zap.String("request", e.RequestID)}
	switch e.Kind {
	case simdon.Asked:
		if r, err := jsonrpc.DecodeNodeRequest(e.Data); err == nil {
			if t, err := connector.DecodeTrigger(&r); err == nil {
				fields = append(fields, zap.String("workflow", t.Workflow.ID), zap.String("signer", t.Key.PublicKey), zap.String("input", cut(t.Input)))
			}
		}
		log.Info("asked to run a workflow", fields...)
	case simdon.Answered:
		if r, err := jsonrpc.DecodeResponse(e.Data); err == nil {
			fields = append(fields, zap.String("answer", cut([]byte(answerText(&r)))))
		}
		log.Info("answered", fields...)
	case simdon.Pulled:
		log.Info("asked for its workflows", fields...)
	case simdon.Reported:
		log.Info("reported workflows", append(fields, zap.Int("bytes", len(e.Data)))...)
	case simdon.Acting:
		log.Info("asked for an HTTP request", fields...)
	}
}

// answerText is what a node says, in one line.
func answerText(r *jsonrpc.Response) string {
	if r.Error != nil {
		return fmt.Sprintf("error %d: %s", r.Error.Code, r.Error.Message)
	}
	return string(r.Result)
}

func cut(b []byte) string {
	if len(b) <= maxLogged {
		return string(b)
	}
	return strings.ToValidUTF8(string(b[:maxLogged]), "") + "…"
}
