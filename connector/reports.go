package connector

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"golang.org/x/time/rate"

	"dongate/jsonrpc"
	"dongate/workflow"
)

// pullBatch is how many workflows one message of an answer to a pull holds, as existing nodes have it (protocol §6).
const pullBatch = 50

// SetWorkflows makes list everything the node supports, and pushes what is new or changed to the connected gateways. They
// learn of what is gone with their next pull. An error names the first workflow that breaks a rule of protocol §6, or is
// there twice; nothing is changed then. list itself is not kept.
func (c *Connector) SetWorkflows(list []workflow.Metadata) error {
	entries := make([]entry, 0, len(list))
	for i, m := range list {
		e, err := newEntry(m)
		if err != nil {
			return fmt.Errorf("connector: workflow %d: %w", i, err)
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.id, b.id) })
	for i := 1; i < len(entries); i++ {
		if entries[i].id == entries[i-1].id {
			return fmt.Errorf("connector: workflow %s is there twice", entries[i].id)
		}
	}
	c.push(c.store.replace(entries))
	return nil
}

// PutWorkflow adds or replaces one workflow and pushes it to the connected gateways, also when it has not changed. The
// error names the rule of protocol §6 that m breaks.
func (c *Connector) PutWorkflow(m workflow.Metadata) error {
	e, err := newEntry(m)
	if err != nil {
		return fmt.Errorf("connector: %w", err)
	}
	c.store.put(e)
	c.push([]string{e.id})
	return nil
}

// RemoveWorkflow makes the node support a workflow no longer, by its id in normal form; removing an unknown one does
// nothing. The protocol has no message for it: gateways learn of it with their next pull.
func (c *Connector) RemoveWorkflow(id string) { c.store.remove(id) }

// push has workflows reported to every connected gateway, in this order. A gateway that is not connected asks for all
// of them when it is.
func (c *Connector) push(ids []string) {
	if len(ids) == 0 {
		return
	}
	for _, l := range c.links {
		l.mu.Lock()
		if l.open {
			for _, id := range ids {
				l.pushes.add(id)
			}
			l.signal()
		}
		l.mu.Unlock()
	}
}

// entry is one workflow, encoded once for all gateways.
type entry struct {
	id     string
	raw    jsontext.Value
	digest [32]byte
}

func newEntry(m workflow.Metadata) (entry, error) {
	m.AuthorizedKeys = slices.Clone(m.AuthorizedKeys)
	if err := m.Normalize(); err != nil {
		return entry{}, err
	}
	raw, err := json.Marshal(&m)
	if err != nil {
		return entry{}, fmt.Errorf("encode the metadata: %w", err)
	}
	return entry{id: m.Selector.WorkflowID, raw: raw, digest: m.Digest()}, nil
}

// store holds the node's workflows, sorted by id.
type store struct {
	mu      sync.Mutex
	entries []entry
}

func (s *store) search(id string) (int, bool) {
	return slices.BinarySearchFunc(s.entries, id, func(e entry, id string) int { return strings.Compare(e.id, id) })
}

// replace takes sorted entries for the old ones and returns the ids of those that are new or differ.
func (s *store) replace(entries []entry) (changed []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if i, ok := s.search(e.id); !ok || s.entries[i].digest != e.digest {
			changed = append(changed, e.id)
		}
	}
	s.entries = entries
	return changed
}

func (s *store) put(e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.search(e.id); ok {
		s.entries[i] = e
	} else {
		s.entries = slices.Insert(s.entries, i, e)
	}
}

func (s *store) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.search(id); ok {
		s.entries = slices.Delete(s.entries, i, i+1)
	}
}

func (s *store) get(id string) (jsontext.Value, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.search(id)
	if !ok {
		return nil, false
	}
	return s.entries[i].raw, true
}

// after returns up to n entries whose ids come after the given one.
func (s *store) after(id string, n int) []entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.search(id)
	if ok {
		i++
	}
	return slices.Clone(s.entries[i:min(i+n, len(s.entries))])
}

func (s *store) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.entries)
}

// pushes are the workflows whose latest word one connection has still to report: ids, not messages, so that a workflow
// which changes faster than the socket takes it is reported once, as it is then. The link's mutex guards them.
type pushes struct {
	limiter *rate.Limiter
	order   []string            // may hold ids that are no longer due
	due     map[string]struct{} // never more than there are workflows
}

func (p *pushes) add(id string) {
	if _, ok := p.due[id]; ok {
		return
	}
	if p.due == nil {
		p.due = make(map[string]struct{})
	}
	p.due[id] = struct{}{}
	p.order = append(p.order, id)
}

// next takes the oldest id that is due. With none, wait says how long the pace holds the next one back; 0: there is none.
func (p *pushes) next(now time.Time) (id string, wait time.Duration) {
	for len(p.order) > 0 {
		id := p.order[0]
		_, due := p.due[id]
		if due {
			r := p.limiter.ReserveN(now, 1)
			if wait := r.DelayFrom(now); wait > 0 {
				r.CancelAt(now)
				return "", wait
			}
			delete(p.due, id)
		}
		if p.order = p.order[1:]; len(p.order) == 0 {
			p.order = nil
		}
		if due {
			return id, 0
		}
	}
	return "", 0
}

func (p *pushes) clear() { p.order, p.due = nil, nil }

// pull is a gateway's request for all workflows that is being answered.
type pull struct {
	id    string
	after string // the last workflow that was reported
}

// startPull begins to answer a pull. A newer one ends the one before, at the gateway (protocol §6) as here.
func (l *link) startPull(id string) {
	l.mu.Lock()
	l.pull = &pull{id: id}
	l.stats.Pulls++
	l.mu.Unlock()
	l.signal()
}

// nextReport returns the next message about workflows; nil when there is none to write now. wait is then how long until
// there may be one, 0 for ever.
//
// Reports are made here, by the one writer, from the node's workflows as they are now. So a message never carries an
// older word on a workflow than one written before it, and whoever changes a workflow afterwards marks it as due again.
// l.mu is held while the store is read, which makes "reported, so no longer due" one step.
func (l *link) nextReport(now time.Time) (message []byte, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		id, held := l.pushes.next(now)
		wait = held
		if id == "" {
			break
		}
		if raw, ok := l.c.store.get(id); ok {
			l.stats.Pushes++
			return jsonrpc.AppendResult(nil, methodPush+"/"+id+"/"+uuid.NewString(), methodPush, raw), 0
		}
	}
	if l.pull == nil {
		return nil, wait
	}
	batch := l.c.store.after(l.pull.after, pullBatch)
	if len(batch) == 0 { // an empty list is reported by no message at all, as existing nodes do
		l.pull = nil
		return nil, wait
	}
	list := make([]byte, 0, len(batch)*(len(batch[0].raw)+64))
	separator := byte('[')
	for _, e := range batch {
		list = append(append(list, separator), e.raw...)
		separator = ','
		delete(l.pushes.due, e.id)
	}
	message = jsonrpc.AppendResult(nil, l.pull.id, methodPull, append(list, ']'))
	if l.pull.after = batch[len(batch)-1].id; len(batch) < pullBatch {
		l.pull = nil
	}
	return message, 0
}
