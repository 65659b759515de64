package tokens

import (
	"math/big"
	"time"

	"dongate/token"
	"dongate/token/ttxdb"
)

// Transaction is a transaction as it is, or is to be, on the ledger, with its request decoded.
type Transaction struct {
	Block     uint64         // that has it; of no meaning before the ledger has it
	TxID      string         // not empty
	Status    token.TxStatus // Confirmed or Deleted on the ledger, else Pending or Unknown
	Message   string         // what the ledger says about the status
	Raw       []byte         // the request
	PPHash    []byte         // of the public parameters it was made under
	Metadata  map[string][]byte
	Timestamp time.Time // zero: when it is stored
	Actions   []Action

	// Endorsements are who signed the transaction.
	Endorsements []Endorsement
	// PublicParams are those that the transaction gave the token management system; nil: it left them as they were.
	PublicParams []byte
}

// Action is a part of a request. An issue has no inputs; a redeem has outputs without an owner.
type Action struct {
	Sender  string         // enrolment id of whoever owns the inputs; "" in an issue, or if it is not known
	Issuer  token.Identity // who issues, or lets redeem; nil: nobody
	Inputs  []Input
	Outputs []Output
}

// Input is a token that an action spends. A nil Amount is looked up among the tokens that are stored; of one that is not, nothing is known
// and nothing is recorded.
type Input struct {
	token.ID
	Type   string
	Amount *big.Int
}

// Output is a token that an action makes.
type Output struct {
	Index          uint64 // in the transaction
	EnrollmentID   string // whose it becomes; "": it is redeemed, or that is not known, and then it is in no record
	Type           string
	Quantity       string   // as in token.Record
	Amount         *big.Int // nil: it is hidden from us, so it is not ours and in no record
	OwnerRaw       token.Identity
	OwnerType      string
	OwnerIdentity  token.Identity // nil: OwnerRaw
	Ledger         []byte
	LedgerMetadata []byte
	LedgerFormat   token.Format
	Certification  []byte // nil: none
}

// redeemed tells whether nobody will own the token.
func (o *Output) redeemed() bool { return len(o.OwnerRaw) == 0 }

// Endorsement is somebody's signature of a transaction.
type Endorsement struct {
	Endorser  token.Identity
	Signature []byte
}

// request returns what is stored of the transaction in the records of its owner or auditor. What is not known is left out.
func (t *Transaction) request(amount func(Input) (tokenType string, v *big.Int)) ttxdb.Request {
	r := ttxdb.Request{TxID: t.TxID, Raw: t.Raw, PublicMetadata: t.Metadata, PPHash: t.PPHash, Timestamp: t.Timestamp}
	for _, a := range t.Actions {
		var action ttxdb.Action
		for _, in := range a.Inputs {
			tokenType, v := amount(in)
			action.Inputs = append(action.Inputs, ttxdb.Input{EnrollmentID: a.Sender, TokenType: tokenType, Amount: v})
		}
		for _, o := range a.Outputs {
			if o.Amount == nil || o.EnrollmentID == "" && !o.redeemed() {
				continue
			}
			action.Outputs = append(action.Outputs, ttxdb.Output{EnrollmentID: o.EnrollmentID, TokenType: o.Type, Amount: o.Amount})
		}
		r.Actions = append(r.Actions, action)
	}
	return r
}
