package records

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sort"
	"time"

	"dongate/token"
)

// Input is a token that an action spends.
type Input struct {
	EnrollmentID string // whose it is
	TokenType    string
	Amount       *big.Int
}

// Output is a token that an action makes.
type Output struct {
	EnrollmentID string // whose it becomes; "": it is redeemed
	TokenType    string
	Amount       *big.Int
}

// Action is a part of a request: an issue has no inputs, a redeem outputs for nobody, and all its inputs are of one.
type Action struct {
	Inputs  []Input
	Outputs []Output
}

// Request is a transaction to be stored.
type Request struct {
	TxID                string
	Raw                 []byte // as on the ledger
	ApplicationMetadata map[string][]byte
	PublicMetadata      map[string][]byte
	PPHash              []byte // of the public parameters it was made under
	Actions             []Action
	Timestamp           time.Time // of its records; zero: now
}

// ErrTwoSenders: the inputs of an action belong to more than one.
var ErrTwoSenders = errors.New("token: inputs of one action belong to several enrolment ids")

// pair is a position in a sum.
type pair struct{ eid, tokenType string }

// sums adds amounts up by pair. Its order is that in which pairs came.
type sums struct {
	of    map[pair]*big.Int
	order []pair
}

func (s *sums) add(p pair, v *big.Int, sign int) error {
	if v == nil {
		return token.ErrAmountMissing
	}
	if s.of == nil {
		s.of = map[pair]*big.Int{}
	}
	if s.of[p] == nil {
		s.of[p] = new(big.Int)
		s.order = append(s.order, p)
	}
	if sign < 0 {
		s.of[p].Sub(s.of[p], v)
	} else {
		s.of[p].Add(s.of[p], v)
	}
	return nil
}

// TransactionRecords returns a record for each action, recipient and token type. The sender is whose the inputs are: without inputs it is
// an issue; without a recipient, a redeem; else a transfer. The ids depend on nothing but the transaction and the order.
func TransactionRecords(r Request) ([]token.TransactionRecord, error) {
	var all []token.TransactionRecord
	for i, a := range r.Actions {
		sender := ""
		for _, in := range a.Inputs {
			if in.EnrollmentID != a.Inputs[0].EnrollmentID {
				return nil, fmt.Errorf("action %d of transaction %.200q: %w", i, r.TxID, ErrTwoSenders)
			}
			sender = in.EnrollmentID
		}
		var out sums
		for _, o := range a.Outputs {
			if err := out.add(pair{o.EnrollmentID, o.TokenType}, o.Amount, 1); err != nil {
				return nil, fmt.Errorf("action %d of transaction %.200q: %w", i, r.TxID, err)
			}
		}
		for _, p := range out.order {
			action := token.Transfer
			switch {
			case len(a.Inputs) == 0:
				action = token.Issue
			case p.eid == "":
				action = token.Redeem
			}
			all = append(all, token.TransactionRecord{ID: RecordID(r.TxID, len(all)), TxID: r.TxID, ActionType: action, SenderEID: sender,
				RecipientEID: p.eid, TokenType: p.tokenType, Amount: out.of[p], Timestamp: r.Timestamp})
		}
	}
	return all, nil
}

// Movements returns what the whole request changes of each enrolment id's holdings of each token type that it makes tokens of, if anything:
// what is received less what is sent. Ids are as with [TransactionRecords].
func Movements(r Request) ([]token.MovementRecord, error) {
	var net sums
	made := map[string]bool{}
	for i, a := range r.Actions {
		for _, o := range a.Outputs {
			made[o.TokenType] = true
			if err := net.add(pair{o.EnrollmentID, o.TokenType}, o.Amount, 1); err != nil {
				return nil, fmt.Errorf("action %d of transaction %.200q: %w", i, r.TxID, err)
			}
		}
		for _, in := range a.Inputs {
			if err := net.add(pair{in.EnrollmentID, in.TokenType}, in.Amount, -1); err != nil {
				return nil, fmt.Errorf("action %d of transaction %.200q: %w", i, r.TxID, err)
			}
		}
	}
	sort.Slice(net.order, func(i, j int) bool {
		a, b := net.order[i], net.order[j]
		return a.eid < b.eid || a.eid == b.eid && a.tokenType < b.tokenType
	})
	var all []token.MovementRecord
	for _, p := range net.order {
		if p.eid == "" || !made[p.tokenType] || net.of[p].Sign() == 0 {
			continue
		}
		all = append(all, token.MovementRecord{ID: RecordID(r.TxID, len(all)), TxID: r.TxID, EnrollmentID: p.eid, TokenType: p.tokenType,
			Amount: net.of[p], Timestamp: r.Timestamp})
	}
	return all, nil
}

// EnrollmentIDs returns whose holdings the request touches, sorted, each once.
func (r Request) EnrollmentIDs() []string {
	seen := map[string]bool{"": true}
	var all []string
	add := func(eid string) {
		if !seen[eid] {
			seen[eid] = true
			all = append(all, eid)
		}
	}
	for _, a := range r.Actions {
		for _, in := range a.Inputs {
			add(in.EnrollmentID)
		}
		for _, o := range a.Outputs {
			add(o.EnrollmentID)
		}
	}
	sort.Strings(all)
	return all
}

// Append stores a request, as pending, with its records and movements. The same request again changes nothing; its time may differ.
func (x *Tx) Append(ctx context.Context, r Request) error {
	transactions, err := TransactionRecords(r)
	if err != nil {
		return err
	}
	movements, err := Movements(r)
	if err != nil {
		return err
	}
	if err := x.AddTokenRequest(ctx, r.TxID, r.Raw, r.ApplicationMetadata, r.PublicMetadata, r.PPHash); err != nil {
		return err
	}
	if err := x.AddTransaction(ctx, transactions...); err != nil {
		return err
	}
	return x.AddMovement(ctx, movements...)
}
