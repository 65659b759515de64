package simdon

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"go.uber.org/zap"

	"dongate/auth"
	"dongate/connector"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// NodeConfig says who a node is.
type NodeConfig struct {
	// Name is for people, and makes the node's wrong answers its own.
	Name string
	// ShardID is the id of the node's shard: "x", or "x_n" for shard n > 0 of DON x.
	ShardID string
	// Key is the node's identity. Required.
	Key *ecdsa.PrivateKey
	// TLS is for wss:// gateways; nil: the system's roots.
	TLS *tls.Config
	// Observe, when set, is called with everything that happens, on the goroutine that it happens on: it must be quick.
	Observe func(Event)
	// Log gets the connector's entries; nil: none are written.
	Log *zap.Logger
}

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	Asked    EventKind = "asked"    // a trigger was read
	Answered EventKind = "answered" // an answer to a trigger was written
	Pulled   EventKind = "pulled"   // a request for all workflows was read
	Reported EventKind = "reported" // a message about workflows was written
	Acting   EventKind = "acting"   // an action was written: a request to make an HTTP request
	Acted    EventKind = "acted"    // the outcome of an action was read
)

// Event is one message of a node.
type Event struct {
	Time      time.Time
	Kind      EventKind
	Node      *Node
	Gateway   connector.Gateway
	RequestID string
	Data      []byte // the message, byte for byte; the observer's to keep
}

// Node is one simulated node. Its methods are safe for concurrent use.
type Node struct {
	config NodeConfig

	mu        sync.Mutex
	behaviour Behaviour
	changed   chan struct{} // closed and replaced when behaviour or connector change
	handler   connector.Handler
	action    *Action
	workflows []workflow.Metadata
	connector *connector.Connector // nil unless Run is running
	sockets   map[*socket]struct{}
}

// NewNode returns a node that accepts triggers and supports no workflows yet.
func NewNode(c NodeConfig) (*Node, error) {
	if c.Key == nil {
		return nil, errors.New("simdon: a node needs a key")
	}
	return &Node{config: c, changed: make(chan struct{}), sockets: make(map[*socket]struct{})}, nil
}

// Name is the node's name.
func (n *Node) Name() string { return n.config.Name }

// ShardID is the id of the node's shard.
func (n *Node) ShardID() string { return n.config.ShardID }

// Address is the node's address.
func (n *Node) Address() common.Address { return Address(n.config.Key) }

// Signer signs with the node's key.
func (n *Node) Signer() auth.Signer { return auth.NewKeySigner(n.config.Key) }

// Behaviour is what the node does with triggers.
func (n *Node) Behaviour() Behaviour {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.behaviour
}

// Set changes what the node does from now on. Triggers that it has begun to handle are finished as they were begun; of
// what a thawed node finds in its socket, each is handled when it is read.
func (n *Node) Set(b Behaviour) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.behaviour = b
	n.notify()
	if b.Kind == Frozen {
		for s := range n.sockets {
			s.shrink()
		}
	}
}

func (n *Node) notify() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Handle makes h answer triggers instead of the node's behaviour; nil undoes it. A frozen or absent node still is.
func (n *Node) Handle(h connector.Handler) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.handler = h
}

// state returns the behaviour and a channel that is closed when it changes.
func (n *Node) state() (Behaviour, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.behaviour, n.changed
}

// SetWorkflows makes list everything the node supports; see connector.Connector.SetWorkflows.
func (n *Node) SetWorkflows(list []workflow.Metadata) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connector != nil {
		if err := n.connector.SetWorkflows(list); err != nil {
			return err
		}
	}
	n.workflows = append([]workflow.Metadata(nil), list...)
	return nil
}

// PutWorkflow adds or replaces one workflow and pushes it to the connected gateways.
func (n *Node) PutWorkflow(m workflow.Metadata) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connector != nil {
		if err := n.connector.PutWorkflow(m); err != nil {
			return err
		}
	}
	n.forget(m.Selector.WorkflowID)
	n.workflows = append(n.workflows, m)
	return nil
}

// RemoveWorkflow makes the node support a workflow no longer.
func (n *Node) RemoveWorkflow(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.connector != nil {
		n.connector.RemoveWorkflow(id)
	}
	n.forget(id)
}

func (n *Node) forget(id string) {
	kept := make([]workflow.Metadata, 0, len(n.workflows))
	for _, w := range n.workflows {
		if w.Selector.WorkflowID != id {
			kept = append(kept, w)
		}
	}
	n.workflows = kept
}

// Connector is the node's connector while Run is running; nil otherwise. Requests of other methods can be handled with
// it, and messages sent.
func (n *Node) Connector() *connector.Connector {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.connector
}

// Run keeps the node connected to the gateways, as far as its behaviour lets it, until ctx ends. It must not be called
// while it is running.
func (n *Node) Run(ctx context.Context, gateways ...connector.Gateway) error {
	c, err := n.newConnector(gateways)
	if err != nil {
		return err
	}
	defer func() {
		n.mu.Lock()
		n.connector = nil
		n.notify()
		n.mu.Unlock()
	}()
	for ctx.Err() == nil {
		b, changed := n.state()
		if b.Kind == Absent {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		if err := n.present(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// WaitConnected waits until the node runs and has a session with every gateway, or is to be absent.
func (n *Node) WaitConnected(ctx context.Context) error { return n.waitConnected(ctx, true) }

// WaitConnectedToOne waits until the node runs and has a session with any gateway, or is to be absent.
func (n *Node) WaitConnectedToOne(ctx context.Context) error { return n.waitConnected(ctx, false) }

func (n *Node) waitConnected(ctx context.Context, all bool) error {
	for {
		n.mu.Lock()
		b, c, changed := n.behaviour, n.connector, n.changed
		n.mu.Unlock()
		if b.Kind == Absent {
			return nil
		}
		if c != nil {
			count := 1
			if all {
				count = len(c.Stats().Gateways)
			}
			return c.WaitConnected(ctx, count)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// present runs the connector until the node is to be absent.
func (n *Node) present(ctx context.Context, c *connector.Connector) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			b, changed := n.state()
			if b.Kind == Absent {
				leave()
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	err := c.Run(ctx)
	leave()
	watcher.Wait()
	return err
}

func (n *Node) newConnector(gateways []connector.Gateway) (*connector.Connector, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	config := connector.Config{
		DONID: n.config.ShardID, Signer: n.Signer(), Gateways: gateways, TLS: n.config.TLS, Log: n.config.Log,
		Backoff: connector.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Multiplier: 2},
		Dial:    n.dial(gateways), MaxConcurrent: 1 << 14,
	}
	if n.config.Observe != nil {
		config.Observe = n.observe
	}
	c, err := connector.New(config)
	if err != nil {
		return nil, err
	}
	if err := c.SetWorkflows(n.workflows); err != nil {
		return nil, err
	}
	c.Handle(connector.MethodExecute, n.execute)
	n.connector = c
	n.notify()
	return c, nil
}

// methodAction is the method of actions and their outcomes (protocol §7).
const methodAction = "http_action"

// observe turns a message into an event.
func (n *Node) observe(m connector.Message) {
	e := Event{Time: time.Now(), Node: n, Gateway: m.Gateway}
	if m.Sent {
		r, err := jsonrpc.DecodeResponse(m.Data)
		if err != nil {
			return
		}
		e.RequestID, e.Kind = r.ID, Answered
		if method, _, ok := strings.Cut(r.ID, "/"); ok && method == methodAction {
			e.Kind = Acting
		} else if ok {
			e.Kind = Reported
		}
	} else {
		r, err := jsonrpc.DecodeNodeRequest(m.Data)
		if err != nil {
			return
		}
		switch e.RequestID = r.ID; r.Method {
		case connector.MethodExecute:
			e.Kind = Asked
		case methodAction:
			e.Kind = Acted
		default:
			e.Kind = Pulled
		}
	}
	e.Data = bytes.Clone(m.Data)
	n.config.Observe(e)
}
