// Package toyledger is a ledger in memory for tests and examples. Its requests are JSON, its tokens are in the clear, and it does the one
// thing that matters here: it lets nobody spend a token twice.
package toyledger

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"sync"
	"time"

	"dongate/token"
	"dongate/token/recovery"
	"dongate/token/tokens"
)

// Ledger is a ledger with one transaction in each block. It is safe for concurrent use.
type Ledger struct {
	mu    sync.Mutex // guards all
	txs   []tokens.Transaction
	at    map[string]int
	spent map[token.ID]bool
	made  map[token.ID]bool
}

// New returns an empty ledger.
func New() *Ledger {
	return &Ledger{at: map[string]int{}, spent: map[token.ID]bool{}, made: map[token.ID]bool{}}
}

// Start is when the first block was made; a second passes between two.
var Start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Request completes a transaction with its raw request.
func Request(tx tokens.Transaction) *tokens.Transaction {
	tx.Raw = nil
	raw, err := json.Marshal(tx)
	if err != nil {
		panic(err) // plain data
	}
	tx.Raw = raw
	return &tx
}

// Decode is the inverse of Request.
func Decode(_ context.Context, _ string, raw []byte) (*tokens.Transaction, error) { return decode(raw) }

func decode(raw []byte) (*tokens.Transaction, error) {
	tx := new(tokens.Transaction)
	err := json.Unmarshal(raw, tx)
	tx.Raw = raw
	return tx, err
}

// Anchor returns which transaction a request was made for.
func Anchor(raw []byte) (string, error) {
	tx, err := decode(raw)
	return tx.TxID, err
}

// Submit adds a transaction and returns what became of it.
func (l *Ledger) Submit(raw []byte) (token.TxStatus, string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	tx, err := decode(raw)
	if err != nil {
		return token.Deleted, err.Error()
	}
	if i, ok := l.at[tx.TxID]; ok {
		return l.txs[i].Status, l.txs[i].Message
	}
	tx.Block, tx.Status = uint64(len(l.txs)), token.Confirmed
	tx.Timestamp = Start.Add(time.Duration(tx.Block) * time.Second)
	for _, a := range tx.Actions {
		for _, in := range a.Inputs {
			if l.spent[in.ID] || !l.made[in.ID] {
				tx.Status, tx.Message = token.Deleted, fmt.Sprintf("%s cannot be spent", in.ID)
			}
		}
	}
	if tx.Status == token.Confirmed {
		for _, a := range tx.Actions {
			for _, in := range a.Inputs {
				l.spent[in.ID] = true
			}
			for _, o := range a.Outputs {
				l.made[token.ID{TxID: tx.TxID, Index: o.Index}] = true
			}
		}
	}
	l.at[tx.TxID] = len(l.txs)
	l.txs = append(l.txs, *tx)
	return tx.Status, tx.Message
}

// Height returns how many blocks there are.
func (l *Ledger) Height() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return uint64(len(l.txs))
}

// TransactionStatus implements recovery.Ledger.
func (l *Ledger) TransactionStatus(_ context.Context, txID string) (token.TxStatus, string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, ok := l.at[txID]
	if !ok {
		return token.Unknown, "", recovery.ErrNotFound
	}
	return l.txs[i].Status, l.txs[i].Message, nil
}

// Transactions implements rescan.Ledger.
func (l *Ledger) Transactions(_ context.Context, from uint64) iter.Seq2[tokens.Transaction, error] {
	return func(yield func(tokens.Transaction, error) bool) {
		for i := from; ; i++ {
			l.mu.Lock()
			if i >= uint64(len(l.txs)) {
				l.mu.Unlock()
				return
			}
			tx := l.txs[i]
			l.mu.Unlock()
			if !yield(tx, nil) {
				return
			}
		}
	}
}
