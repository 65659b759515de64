package config

import (
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/common"
)

// maxShardIDBytes is the width of the DON id's field in the node handshake
// (protocol §4); a longer id is refused, never cut.
const maxShardIDBytes = 64

// topology checks services and DONs against each other and moves them, from
// whichever form the file has, into c.
func (b *binder) topology(c *Config, t *topology) {
	newer := len(t.services) > 0 || len(t.sharded) > 0
	older := len(t.legacy) > 0 && !newer
	if len(t.legacy) > 0 && newer {
		b.fail("dons", "the older form beside services or shardedDONs; move these DONs to shardedDONs and their handlers to services, and remove dons")
	}
	if older {
		b.legacyDONs(c, t)
	} else {
		b.shardedDONs(c, t)
		b.servedDONs(c, b.services(c, t))
	}
	b.uniqueNodes(c, older)
}

func (b *binder) shardedDONs(c *Config, t *topology) {
	if len(t.sharded) == 0 && b.ok("shardedDONs") && (b.ok("dons") || len(t.legacy) > 0) {
		b.fail("shardedDONs", "required: write at least one DON with its nodes")
	}
	ids := make(map[string]string) // shard id -> whose
	for i, d := range t.sharded {
		path := index("shardedDONs", i)
		if b.bad[path] {
			c.DONs = append(c.DONs, DON{}) // keeps c.DONs in step with the file
			continue
		}
		b.faulty(path, d.name)
		if d.name == "" && b.ok(path+".donName") {
			b.fail(path+".donName", "required: write the DON's name")
		}
		if len(d.shards) == 0 && b.ok(path+".shards") {
			b.fail(path+".shards", "required: write at least one shard with its nodes")
		}
		don := DON{Name: d.name, F: d.f}
		for k, s := range d.shards {
			id := d.name
			if k > 0 {
				id = fmt.Sprintf("%s_%d", d.name, k)
			}
			don.Shards = append(don.Shards, Shard{ID: id, Nodes: s.nodes})
			b.shardSize(index(path+".shards", k), "nodes", s.nodes, d.f, path+".f")
		}
		b.uniqueShards(don, path+".donName", ids)
		c.DONs = append(c.DONs, don)
	}
}

// faulty warns of a DON without f: 0 means that no node may ever be wrong.
func (b *binder) faulty(path, name string) {
	if !b.written(path + ".f") {
		b.warn(path+".f", "not set, so 0: one faulty node of DON %s can already do harm", shownText(name))
	}
}

func (b *binder) shardSize(path, list string, nodes []Node, f int, fPath string) {
	if !b.ok(path, path+"."+list) {
		return
	}
	if len(nodes) == 0 {
		b.fail(path+"."+list, "required: write at least one node")
	} else if len(nodes) < 3*f+1 && b.ok(fPath) {
		b.fail(path+"."+list, "found %d nodes; with f = %d write at least %d (3f+1), or lower f to %d", len(nodes), f, 3*f+1, (len(nodes)-1)/3)
	}
	for i, n := range nodes {
		at := index(path+"."+list, i)
		if b.ok(at, at+".address") && !b.written(at+".address") {
			b.fail(at+".address", "required: write the node's address, 0x and 40 hex digits")
		}
		if n.Name == "" {
			nodes[i].Name = n.Address.Hex()
		}
	}
}

// uniqueShards reports shard ids that are too long for the handshake or taken.
func (b *binder) uniqueShards(d DON, namePath string, ids map[string]string) {
	if d.Name == "" || !b.ok(namePath) {
		return
	}
	for k, s := range d.Shards {
		if len(s.ID) > maxShardIDBytes {
			b.fail(namePath, "the id of shard %d, %s, has %d bytes; write a name short enough for %d", k, shownText(s.ID), len(s.ID), maxShardIDBytes)
			return
		}
		if other, taken := ids[s.ID]; taken {
			b.fail(namePath, "the id of shard %d, %s, is also that of %s; rename one", k, shownText(s.ID), other)
			return
		}
		ids[s.ID] = fmt.Sprintf("shard %d of DON %s", k, shownText(d.Name))
	}
}

// services returns the path of each element of c.Services.
func (b *binder) services(c *Config, t *topology) (paths []string) {
	if len(t.services) == 0 && b.ok("services") && (b.ok("dons") || len(t.legacy) > 0) {
		b.fail("services", "required: write at least one service with its DONs and handler")
	}
	names := make(map[string]string)
	for i, s := range t.services {
		path := index("services", i)
		if b.bad[path] {
			continue
		}
		if first, taken := names[s.name]; taken && s.name != "" {
			b.fail(path+".serviceName", "service %s is already at %s; give it another name, or merge the two", shownText(s.name), first)
		} else if s.name == "" && b.ok(path+".serviceName") {
			b.fail(path+".serviceName", "required: write the service's name, such as %q", ServiceWorkflows)
		}
		names[s.name] = path
		b.serviceDONs(c, s, path)
		if len(s.handlers) == 0 && b.ok(path+".handlers") {
			b.fail(path+".handlers", "required: write one handler, %q", HandlerHTTPCapabilities)
		}
		if h := b.handler(c, s.handlers, s.name, path+".handlers"); h != nil {
			c.Services = append(c.Services, Service{Name: s.name, DONs: s.dons, HandlerName: h.name, Handler: h.config})
			paths = append(paths, path)
		}
	}
	if len(t.services) > 0 && len(c.Services) == 0 && len(b.problems) == 0 {
		b.fail("services", "no service has a handler that this gateway implements; add one with %q", HandlerHTTPCapabilities)
	}
	return paths
}

func (b *binder) serviceDONs(c *Config, s serviceEntry, path string) {
	if len(s.dons) == 0 && b.ok(path+".dons") {
		b.fail(path+".dons", "required: write at least one donName of shardedDONs")
	}
	if !b.ok(path + ".dons") {
		return // positions in s.dons are not those of the file
	}
	var known []string
	readable := b.ok("shardedDONs")
	for i, d := range c.DONs {
		known = append(known, d.Name)
		readable = readable && b.ok(index("shardedDONs", i), index("shardedDONs", i)+".donName")
	}
	for k, name := range s.dons {
		at := index(path+".dons", k)
		switch near := nearest(name, known); {
		case slices.Contains(s.dons[:k], name):
			b.fail(at, "DON %s is listed twice; remove one", shownText(name))
		case slices.Contains(known, name), !readable:
		case near != "":
			b.fail(at, "shardedDONs has no DON %s; did you mean %q?", shownText(name), near)
		default:
			b.fail(at, "shardedDONs has no DON %s; write one that it has, or add it there", shownText(name))
		}
	}
}

// handler picks the one handler of a list that we implement, nil when there is
// none, and reports the others.
func (b *binder) handler(c *Config, handlers []handlerEntry, service, path string) *handlerEntry {
	var chosen *handlerEntry
	for i := range handlers {
		h, at := &handlers[i], index(path, i)
		if b.bad[at] || !b.implemented(c, h.name, at+".name") {
			continue
		}
		if h.service != "" && h.service != service && b.ok(at+".serviceName") {
			b.fail(at+".serviceName", "found %s inside service %s; write the same name, or leave it out", shownText(h.service), shownText(service))
		}
		if chosen != nil {
			b.fail(at+".name", "a second %q in one service; remove one", h.name)
			continue
		}
		b.handlerRules(&h.config, at+".config")
		chosen = h
	}
	return chosen
}

// implemented reports whether we implement the handler named at path.
func (b *binder) implemented(c *Config, name, path string) bool {
	near := nearest(name, []string{HandlerHTTPCapabilities})
	switch {
	case name == HandlerHTTPCapabilities:
		return true
	case !b.ok(path):
	case name == "":
		b.fail(path, "required: write the handler's name, %q", HandlerHTTPCapabilities)
	case near != "":
		b.fail(path, "unknown handler %s; did you mean %q?", shownText(name), near)
	case c.IgnoreUnknownHandlers:
		b.warn(path, "handler %s is not implemented and left out (ignoreUnknownHandlers)", shownText(name))
	default:
		b.fail(path, "this gateway does not implement handler %s; remove it, or set ignoreUnknownHandlers to leave it out", shownText(name))
	}
	return false
}

// uniqueNodes reports addresses that stand twice in the file: a node belongs
// to exactly one shard (protocol §4).
func (b *binder) uniqueNodes(c *Config, older bool) {
	first := make(map[common.Address]string)
	for _, m := range b.nodePaths(c, older) {
		if !b.ok(m.path, m.path+".address") {
			continue
		}
		if other, taken := first[m.address]; taken {
			b.fail(m.path+".address", "%s is already the node at %s; a node belongs to one shard only", m.address.Hex(), other)
			continue
		}
		first[m.address] = m.path
		if m.address == (common.Address{}) {
			b.warn(m.path+".address", "no key has the zero address, so this node can never connect")
		}
	}
}

type placedNode struct {
	path    string
	address common.Address
}

func (b *binder) nodePaths(c *Config, older bool) []placedNode {
	var list []placedNode
	for i, d := range c.DONs {
		for k, s := range d.Shards {
			path := fmt.Sprintf("shardedDONs[%d].shards[%d].nodes", i, k)
			if older {
				path = fmt.Sprintf("dons[%d].members", i)
			}
			for j, n := range s.Nodes {
				list = append(list, placedNode{index(path, j), n.Address})
			}
		}
	}
	return list
}

// servedDONs reports DONs that two http-capabilities handlers would serve, and
// warns of DONs that none does.
func (b *binder) servedDONs(c *Config, paths []string) {
	by := make(map[string]string)
	for i, s := range c.Services {
		for k, name := range s.DONs {
			if other, taken := by[name]; taken && other != s.Name {
				b.fail(index(paths[i]+".dons", k), "DON %s is already served by the %q of service %s; a DON has at most one", shownText(name), HandlerHTTPCapabilities, shownText(other))
				continue
			}
			by[name] = s.Name
		}
	}
	for i, d := range c.DONs {
		if by[d.Name] == "" && d.Name != "" {
			b.warn(index("shardedDONs", i), "no service serves DON %s", shownText(d.Name))
		}
	}
}
