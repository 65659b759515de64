package simdon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"dongate/config"
	"dongate/connector"
	"dongate/workflow"
)

// Config says what a DON looks like. Fields left at zero get the default named with them.
type Config struct {
	// Name of the DON. Default "workflow_1".
	Name string
	// Shards, of Nodes each, of which F may be faulty. Default 2, 4 and 1; F of -1 is 0.
	Shards, Nodes, F int
	// Seed of all keys. Default "dongate".
	Seed string
	// Observe and Log are every node's; see NodeConfig.
	Observe func(Event)
	Log     *zap.Logger
}

// DON is a simulated DON. Its methods are safe for concurrent use.
type DON struct {
	config Config
	shards [][]*Node

	mu      sync.Mutex
	stop    context.CancelFunc
	running sync.WaitGroup
	errs    []error
}

// New makes a DON whose nodes accept triggers and support no workflows yet. Nothing runs before Start.
func New(c Config) (*DON, error) {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&c.Shards, 2)
	set(&c.Nodes, 4)
	set(&c.F, 1)
	c.F = max(c.F, 0)
	if c.Name == "" {
		c.Name = "workflow_1"
	}
	if c.Seed == "" {
		c.Seed = "dongate"
	}
	if c.Shards < 0 || c.Nodes < 3*c.F+1 {
		return nil, fmt.Errorf("simdon: %d shards of %d nodes with f = %d: a shard needs at least 3f+1 nodes", c.Shards, c.Nodes, c.F)
	}
	d := &DON{config: c}
	for s := range c.Shards {
		var shard []*Node
		for i := range c.Nodes {
			n, err := NewNode(NodeConfig{
				Name: fmt.Sprintf("node-%d-%d", s, i), ShardID: ShardID(c.Name, s),
				Key: Key(c.Seed, fmt.Sprintf("%s/%d/%d", c.Name, s, i)), Observe: c.Observe, Log: c.Log,
			})
			if err != nil {
				return nil, err
			}
			shard = append(shard, n)
		}
		d.shards = append(d.shards, shard)
	}
	return d, nil
}

// ShardID is the id of a DON's shard (protocol §4).
func ShardID(don string, shard int) string {
	if shard == 0 {
		return don
	}
	return fmt.Sprintf("%s_%d", don, shard)
}

// Name is the DON's name.
func (d *DON) Name() string { return d.config.Name }

// F is how many nodes of a shard may be faulty.
func (d *DON) F() int { return d.config.F }

// Node returns node i of a shard, both counted from 0.
func (d *DON) Node(shard, i int) *Node { return d.shards[shard][i] }

// Shard returns the nodes of a shard.
func (d *DON) Shard(shard int) []*Node { return append([]*Node(nil), d.shards[shard]...) }

// Nodes returns all nodes, shard by shard.
func (d *DON) Nodes() []*Node {
	var all []*Node
	for _, s := range d.shards {
		all = append(all, s...)
	}
	return all
}

// SetWorkflows makes list everything that each node supports.
func (d *DON) SetWorkflows(list ...workflow.Metadata) error {
	var errs []error
	for _, n := range d.Nodes() {
		errs = append(errs, n.SetWorkflows(list))
	}
	return errors.Join(errs...)
}

// PutWorkflow adds or replaces one workflow on each node.
func (d *DON) PutWorkflow(m workflow.Metadata) error {
	var errs []error
	for _, n := range d.Nodes() {
		errs = append(errs, n.PutWorkflow(m))
	}
	return errors.Join(errs...)
}

// Start runs every node until Stop. It does not wait for connections; see WaitConnected.
func (d *DON) Start(gateways ...connector.Gateway) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil {
		return errors.New("simdon: the DON is running")
	}
	ctx, cancel := context.WithCancel(context.Background())
	d.stop, d.errs = cancel, nil
	for _, n := range d.Nodes() {
		d.running.Go(func() {
			if err := n.Run(ctx, gateways...); err != nil {
				d.mu.Lock()
				d.errs = append(d.errs, fmt.Errorf("%s: %w", n.Name(), err))
				d.mu.Unlock()
			}
		})
	}
	return nil
}

// Stop ends every node and returns when all goroutines have ended, with what went wrong. It may be called twice, and
// Start again after it.
func (d *DON) Stop() error {
	d.mu.Lock()
	stop := d.stop
	d.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	d.running.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stop = nil
	return errors.Join(d.errs...)
}

// WaitConnected waits until every node that is not absent has a session with every gateway.
func (d *DON) WaitConnected(ctx context.Context) error {
	for _, n := range d.Nodes() {
		if err := n.WaitConnected(ctx); err != nil {
			return fmt.Errorf("simdon: %s: %w", n.Name(), err)
		}
	}
	return nil
}

// GatewayConfig is the configuration of a gateway that serves these DONs as one service "workflows" on free local ports
// (port 0), with everything else at its default and nothing stored on disk.
func GatewayConfig(gatewayID string, dons ...*DON) jsontext.Value {
	return GatewayConfigFor(gatewayID, nil, dons...)
}

// GatewayConfigFor is GatewayConfig for a gateway that may, besides what it may by default, reach these origins for its
// nodes: their addresses and ports are allowed.
func GatewayConfigFor(gatewayID string, origins []netip.AddrPort, dons ...*DON) jsontext.Value {
	type node struct {
		Name    string `json:"name"`
		Address string `json:"address"`
	}
	type shard struct {
		Nodes []node `json:"nodes"`
	}
	type don struct {
		Name   string  `json:"donName"`
		F      int     `json:"f"`
		Shards []shard `json:"shards"`
	}
	type listener struct {
		Host string `json:"host"`
		Port int    `json:"port"`
	}
	type handler struct {
		Name   string   `json:"name"`
		Config struct{} `json:"config"`
	}
	type service struct {
		Name     string    `json:"serviceName"`
		DONs     []string  `json:"dons"`
		Handlers []handler `json:"handlers"`
	}
	local := listener{Host: "127.0.0.1"}
	file := struct {
		User    listener `json:"userServerConfig"`
		Node    listener `json:"nodeServerConfig"`
		Manager struct {
			GatewayID string `json:"authGatewayId"`
		} `json:"connectionManagerConfig"`
		HTTP struct {
			Ports []int        `json:"allowedPorts,omitzero"`
			IPs   []netip.Addr `json:"allowedIPs,omitzero"`
		} `json:"httpClientConfig,omitzero"`
		Services []service `json:"services"`
		DONs     []don     `json:"shardedDONs"`
		Admin    listener  `json:"admin"`
		Storage  struct {
			Driver string `json:"driver"`
		} `json:"storage"`
	}{User: local, Node: local, Admin: local}
	file.Manager.GatewayID = gatewayID
	file.Storage.Driver = config.DriverMemory
	if len(origins) > 0 {
		file.HTTP.Ports = []int{80, 443}
	}
	for _, o := range origins {
		file.HTTP.IPs, file.HTTP.Ports = append(file.HTTP.IPs, o.Addr()), append(file.HTTP.Ports, int(o.Port()))
	}
	workflows := service{Name: config.ServiceWorkflows, Handlers: []handler{{Name: config.HandlerHTTPCapabilities}}}
	for _, d := range dons {
		out := don{Name: d.config.Name, F: d.config.F}
		for _, nodes := range d.shards {
			var s shard
			for _, n := range nodes {
				s.Nodes = append(s.Nodes, node{n.Name(), strings.ToLower(n.Address().Hex())})
			}
			out.Shards = append(out.Shards, s)
		}
		file.DONs = append(file.DONs, out)
		workflows.DONs = append(workflows.DONs, d.config.Name)
	}
	file.Services = []service{workflows}
	raw, err := json.Marshal(&file, jsontext.WithIndent("  "))
	if err != nil {
		panic(fmt.Sprintf("simdon: the configuration cannot be encoded: %v", err)) // cannot happen: it holds no outside value
	}
	return raw
}

// ParseConfig is GatewayConfig as a gateway loads it. The caller may change it.
func ParseConfig(gatewayID string, dons ...*DON) (*config.Config, error) {
	return config.Parse("simulated DON", GatewayConfig(gatewayID, dons...), nil)
}

// NodeGateway is the gateway with this id whose node listener is bound to address, for Start and Run.
func NodeGateway(address, gatewayID string) connector.Gateway {
	return connector.Gateway{URL: "ws://" + address + "/node", ID: gatewayID}
}
