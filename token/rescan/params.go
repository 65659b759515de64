package rescan

import (
	"bytes"

	"dongate/token/tokendb"
)

// params says which public parameters of the ledger to store when. Those that are stored last count as current, so older ones must not be
// stored behind those that are stored already, while newer ones must. Which of the two they are is known once the stored ones come by: until
// then they wait.
type params struct {
	current []byte // hash of those that were current before; nil: there were none, or they came by
	waiting [][]byte
	since   uint64 // block of the first that waits
	leftOut int
}

func newParams(current []byte) *params {
	if current == nil {
		return &params{}
	}
	return &params{current: tokendb.PPHash(current)}
}

// next returns what to store now.
func (p *params) next(block uint64, raw []byte) (store []byte) {
	switch {
	case p.current == nil:
		return raw
	case bytes.Equal(p.current, tokendb.PPHash(raw)):
		p.leftOut += len(p.waiting)
		p.current, p.waiting = nil, nil
		return nil
	}
	if len(p.waiting) == 0 {
		p.since = block
	}
	p.waiting = append(p.waiting, raw)
	return nil
}
