package aggregation

import (
	"hash/maphash"
	"iter"
	"slices"
	"strings"

	"dongate/workflow"
)

// Workflow is what the gateway knows about a workflow. It is immutable, its slices included, and may be read by any number of goroutines.
type Workflow struct {
	ID       string         // "0x" and 64 hex digits
	Owner    string         // "0x" and 40 hex digits
	NameHash string         // see workflow.HashName
	Tag      string         //
	Keys     []workflow.Key // the signers that may trigger it, sorted by (type, key)
	DON      string         // the DON that owns it
	Shards   []string       // the ids of the shards it is assigned to, in the order of the configuration; at least one
}

// Authorized reports whether the key may trigger the workflow. publicKey is a lower-case address with "0x" (protocol §3).
func (w *Workflow) Authorized(keyType, publicKey string) bool {
	_, found := slices.BinarySearchFunc(w.Keys, workflow.Key{KeyType: keyType, PublicKey: publicKey}, func(a, b workflow.Key) int {
		if c := strings.Compare(a.KeyType, b.KeyType); c != 0 {
			return c
		}
		return strings.Compare(a.PublicKey, b.PublicKey)
	})
	return found
}

// View is an immutable snapshot of the workflows that are known: it never changes, whatever is reported later, and any number of goroutines may read it.
type View struct {
	ids, references snapshot
	count           int
}

// ByID returns the workflow with that id in normal form, or nil.
func (v *View) ByID(id string) *Workflow {
	for _, w := range v.ids.bucket(hashID(id)) {
		if w.ID == id {
			return w
		}
	}
	return nil
}

// ByReference returns the workflow known by owner, hash of the name and tag, or nil. Of several ids under one reference it is the newest (protocol §6).
func (v *View) ByReference(owner, nameHash, tag string) *Workflow {
	key := referenceKey{owner, nameHash, tag}
	for _, w := range v.references.bucket(key.hash()) {
		if w.reference() == key {
			return w
		}
	}
	return nil
}

// Len is the number of workflows.
func (v *View) Len() int { return v.count }

// All yields every workflow once, in no particular order.
func (v *View) All() iter.Seq[*Workflow] {
	return func(yield func(*Workflow) bool) {
		if v.ids.root == nil {
			return
		}
		for _, p := range v.ids.root {
			if p == nil {
				continue
			}
			for _, bucket := range p.buckets {
				for _, w := range bucket {
					if !yield(w) {
						return
					}
				}
			}
		}
	}
}

// referenceKey is how a workflow is named instead of by its id.
type referenceKey struct{ owner, nameHash, tag string }

func (w *Workflow) reference() referenceKey { return referenceKey{w.Owner, w.NameHash, w.Tag} }

// The hashes are seeded, so that nobody can aim ids at one bucket.
var seed = maphash.MakeSeed()

func hashID(id string) uint64 { return maphash.String(seed, id) }

func (k referenceKey) hash() uint64 {
	// The parts need no separator: owner and hash have fixed widths, and a collision only fills a bucket.
	h := maphash.String(seed, k.owner)
	h = h*31 + maphash.String(seed, k.nameHash)
	return h*31 + maphash.String(seed, k.tag)
}

// A table is a hash table in two levels of which snapshots are cheap: a snapshot shares everything, and a later change copies the root, one page and one bucket
// (about 4 kB), root and page at most once per snapshot.
type table struct {
	root       *root
	generation uint64
	shared     bool // root belongs to a snapshot
}

const (
	rootBits = 7
	pageBits = 7
)

type root [1 << rootBits]*page

type page struct {
	generation uint64 // of the table when the page was made: an older page may belong to a snapshot
	buckets    [1 << pageBits][]*Workflow
}

// snapshot is a state of a table; nothing reachable from it changes any more.
type snapshot struct{ root *root }

func (s snapshot) bucket(hash uint64) []*Workflow {
	if s.root == nil {
		return nil
	}
	i, bucket := place(hash)
	if s.root[i] == nil {
		return nil
	}
	return s.root[i].buckets[bucket]
}

func place(hash uint64) (page, bucket uint64) {
	return hash >> (64 - rootBits), hash >> (64 - rootBits - pageBits) & (1<<pageBits - 1)
}

func (t *table) freeze() snapshot {
	t.shared = true
	t.generation++
	return snapshot{t.root}
}

// replace puts w where old was; either may be nil.
func (t *table) replace(hash uint64, old, w *Workflow) {
	bucket := t.writable(hash)
	var next []*Workflow
	if n := len(*bucket); n > 1 || w != nil {
		next = make([]*Workflow, 0, n+1)
	}
	for _, e := range *bucket {
		if e != old {
			next = append(next, e)
		}
	}
	if w != nil {
		next = append(next, w)
	}
	*bucket = next
}

// writable returns the bucket, in a root and a page that no snapshot shares.
func (t *table) writable(hash uint64) *[]*Workflow {
	switch {
	case t.root == nil:
		t.root = new(root)
	case t.shared:
		copied := *t.root
		t.root = &copied
	}
	t.shared = false
	i, bucket := place(hash)
	switch p := t.root[i]; {
	case p == nil:
		t.root[i] = &page{generation: t.generation}
	case p.generation != t.generation:
		t.root[i] = &page{generation: t.generation, buckets: p.buckets}
	}
	return &t.root[i].buckets[bucket]
}
