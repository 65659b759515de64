package gateway

import (
	"bytes"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"dongate/aggregation"
	"dongate/jsonrpc"
)

// answer is one distinct answer: the bytes of the first vote for it.
type answer struct {
	vote    aggregation.Vote
	method  string
	payload jsontext.Value // the result, or nil
	failure *jsonrpc.Error // the error, or nil
	size    int64          // bytes accounted; 0 while there is no room to keep the payload
	votes   int
	agreed  bool // a quorum stood behind it once: kept, as an agreed error stays the answer
}

// known returns the vote for an answer whose bytes equal one already digested,
// which spares the canonical form: honest answers are mostly identical to the byte.
// more is false for what is past the votes a node has in one request, so that
// it is not even digested.
func (f *flight) known(shardIndex int, n *node, r *jsonrpc.Response) (v aggregation.Vote, known, more bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if count := &f.shards[shardIndex].deliveries[f.shards[shardIndex].roster.index(n)].answers; *count < aggregation.MaxVotesPerNode {
		*count++
	} else {
		return aggregation.Vote{}, false, false
	}
	for _, a := range f.answers {
		if r.Result != nil && a.payload != nil && a.method == r.Method && bytes.Equal(a.payload, r.Result) {
			return a.vote, true, true
		}
	}
	return aggregation.Vote{}, false, true
}

// vote counts a node's answer, unless the request is decided: then it is Late, also
// when time alone has decided it and the waiter has not woken up yet. shardIndex is
// the index in f.shards. r may alias a buffer that is reused after the call.
func (f *flight) vote(shardIndex int, n *node, v aggregation.Vote, r *jsonrpc.Response) aggregation.VoteStatus {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered.Load() {
		return aggregation.Late
	}
	index := f.shards[shardIndex].roster.index(n)
	status := f.trigger.Vote(shardIndex, index, v, now)
	switch status {
	case aggregation.Counted, aggregation.Moved:
		f.keepLocked(shardIndex, index, v, r)
		f.decideLocked(now)
	}
	return status
}

// keepLocked moves the node's vote to the answer r, keeping r's bytes if it is
// the first such vote and there is room.
func (f *flight) keepLocked(shardIndex, index int, v aggregation.Vote, r *jsonrpc.Response) {
	fs := &f.shards[shardIndex]
	if old := fs.votes[index]; old != nil {
		old.votes--
		if old.votes == 0 && !old.agreed {
			f.dropLocked(old)
		}
	}
	var a *answer
	for _, x := range f.answers {
		if x.vote == v {
			a = x
			break
		}
	}
	if a == nil {
		a = &answer{vote: v}
		f.answers = append(f.answers, a)
	}
	a.votes++
	fs.votes[index] = a
	if agreed, ok := f.trigger.Shard(shardIndex).Agreed(); ok && agreed == v {
		a.agreed = true
	}
	if a.payload == nil && a.failure == nil {
		f.fillLocked(a, r)
	}
}

// fillLocked copies r into a when the service has room for it. Where it has not,
// the vote counts all the same and the bytes are those of a later equal vote;
// those of the vote that completes a quorum are kept in any case.
func (f *flight) fillLocked(a *answer, r *jsonrpc.Response) {
	size := int64(len(r.Method) + len(r.Result))
	if r.Error != nil {
		size += int64(len(r.Error.Message) + len(r.Error.Data))
	}
	if !f.service.open.takeAnswer(size, a.agreed) {
		return
	}
	a.size = size
	f.held += size
	a.method = strings.Clone(r.Method)
	if r.Error != nil {
		a.failure = &jsonrpc.Error{Code: r.Error.Code, Message: strings.Clone(r.Error.Message), Data: r.Error.Data.Clone()}
	} else {
		a.payload = r.Result.Clone()
	}
}

func (f *flight) dropLocked(a *answer) {
	for i, x := range f.answers {
		if x == a {
			f.answers = append(f.answers[:i], f.answers[i+1:]...)
			break
		}
	}
	f.service.open.giveAnswer(a.size)
	f.held -= a.size
}

// take returns the answer a decision is for.
func (f *flight) take(v aggregation.Vote) *answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.answers {
		if a.vote == v && (a.payload != nil || a.failure != nil) {
			return a
		}
	}
	return nil
}
