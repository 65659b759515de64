package token

import (
	"fmt"
	"math/big"
	"time"
)

// Identity is an identity as the ledger spells it.
type Identity []byte

// Format names how a ledger spells tokens.
type Format string

// ID names a token: an output of a transaction.
type ID struct {
	TxID  string
	Index uint64 // up to 2^63-1
}

// String returns the transaction and the index, in brackets.
func (i ID) String() string { return fmt.Sprintf("[%s:%d]", i.TxID, i.Index) }

// Record is a token as it is stored.
type Record struct {
	ID
	Type           string
	Quantity       string   // the amount as the ledger spells it, decimal or 0x and hexadecimal; "": is made from the amount
	Amount         *big.Int // 0 to 2^256-1
	OwnerRaw       Identity // the owner as on the ledger
	OwnerType      string   // what kind of identity that is
	OwnerIdentity  Identity // the identity inside
	OwnerWalletID  string   // the wallet that can spend it; "": none alone can
	IssuerRaw      Identity // may be nil
	Ledger         []byte   // the output as on the ledger
	LedgerMetadata []byte
	LedgerFormat   Format
	Owner          bool // one of our wallets owns it
	Auditor        bool // we audit it
	Issuer         bool // we issued it
	Redeemed       bool // it was made by a redeem, and nobody can spend it
}

// Unspent is a token that a wallet owns and nobody spent.
type Unspent struct {
	ID
	WalletID string // one of the owning wallets, or ""
	Owner    Identity
	Type     string
	Quantity string
	Amount   *big.Int
}

// Spendable is a token that a wallet alone can spend.
type Spendable struct {
	ID
	WalletID string
	Type     string
	Quantity string
	Amount   *big.Int
}

// SpendableQuery restricts a listing of spendable tokens; the zero value lists all of them in no order.
type SpendableQuery struct {
	WalletID string   // "": any
	Type     string   // "": any
	Min, Max *big.Int // inclusive; nil: no bound
	Order    AmountOrder
	Limit    int // tokens at most; 0 or below: no limit
	// After continues behind this token of an earlier listing in the same order, which must not be Unordered. Only its ID and Amount count.
	After *Spendable
}

// LedgerToken is a token's output as on the ledger.
type LedgerToken struct {
	ID
	Format   Format
	Token    []byte
	Metadata []byte
}

// Issued is a token that we issued.
type Issued struct {
	ID
	Owner    Identity
	Issuer   Identity
	Type     string
	Quantity string
	Amount   *big.Int
}

// Token is what a token is worth and whose it is.
type Token struct {
	ID
	Owner    Identity
	Type     string
	Quantity string
	Amount   *big.Int
}

// Details is a token with its fate, once for each wallet that owns it.
type Details struct {
	ID
	WalletID      string // one of the owning wallets, or ""
	OwnerIdentity Identity
	OwnerType     string
	Type          string
	Amount        *big.Int
	LedgerFormat  Format
	Spendable     bool
	IsSpent       bool
	SpentBy       string
	SpentAt       time.Time // zero unless spent
	StoredAt      time.Time
}

// DetailsQuery restricts a listing of tokens with their details. Only tokens that one of our wallets owns are listed.
type DetailsQuery struct {
	WalletID       string
	WalletIDs      []string // wins over WalletID
	OwnerType      string
	Type           string
	IDs            []ID
	TransactionIDs []string
	IncludeDeleted bool // spent ones too
	Spendable      SpendableFilter
	LedgerFormats  []Format
	Min, Max       *big.Int // inclusive; nil: no bound
}

// Certification is what a certifier said of a token.
type Certification struct {
	ID
	Certification []byte
}

// Lock is a token that a transaction is about to spend.
type Lock struct {
	ID
	ConsumerTxID string
	WalletID     string
	CreatedAt    time.Time     // by the database's clock
	Age          time.Duration // by the database's clock
	Status       TxStatus      // of the consumer's request; Unknown: there is none
}

// TransactionRecord is one action of a transaction as its owner or auditor sees it.
type TransactionRecord struct {
	ID                  string // unique; "": the store makes one
	TxID                string
	ActionType          ActionType
	SenderEID           string // enrolment id; "" where an issuer sends
	RecipientEID        string // "" where tokens are redeemed
	TokenType           string
	Amount              *big.Int
	Timestamp           time.Time
	Status              TxStatus          // of the request; not stored with the record
	StatusMessage       string            // likewise
	ApplicationMetadata map[string][]byte // likewise
	PublicMetadata      map[string][]byte // likewise
}

// MovementRecord is what a transaction changed of an enrolment id's holdings of one token type.
type MovementRecord struct {
	ID           string // unique; "": the store makes one
	TxID         string
	EnrollmentID string
	TokenType    string
	Amount       *big.Int // below zero: sent
	Timestamp    time.Time
	Status       TxStatus // of the request; not stored with the record
}

// TokenRequestRecord is a raw request and how it fares.
type TokenRequestRecord struct {
	TxID     string
	Request  []byte
	Status   TxStatus
	StoredAt time.Time
}

// ValidationRecord is what an endorser validated.
type ValidationRecord struct {
	TxID          string
	Request       []byte
	Metadata      map[string][]byte
	PPHash        []byte // of the public parameters it was validated against
	Status        TxStatus
	StatusMessage string
	Timestamp     time.Time
}

// TransactionsQuery restricts a listing of transactions; what is empty restricts nothing.
type TransactionsQuery struct {
	IDs             []string
	ExcludeToSelf   bool   // leaves out those whose sender is the recipient
	SenderWallet    string // counts together with RecipientWallet only: either of the two
	RecipientWallet string
	From, To        *time.Time // inclusive
	ActionTypes     []ActionType
	Statuses        []TxStatus
	TokenTypes      []string
	SearchDirection SearchDirection
}

// MovementsQuery restricts a listing of movements; what is empty restricts nothing, save that without statuses those of deleted
// transactions are left out.
type MovementsQuery struct {
	EnrollmentIDs     []string
	TokenTypes        []string
	Statuses          []TxStatus
	SearchDirection   SearchDirection
	MovementDirection MovementDirection
	NumRecords        int // 0 or below: no limit
}

// ValidationsQuery restricts a listing of validations; what is empty restricts nothing.
type ValidationsQuery struct {
	From, To *time.Time // inclusive
	Statuses []TxStatus
	Filter   func(*ValidationRecord) bool // nil: all
}

// PendingTransaction is a transaction whose fate recovery looks up.
type PendingTransaction struct {
	TxID     string
	StoredAt time.Time
	Age      time.Duration // by the database's clock
	Attempts int           // how often it was claimed, this time included
}

// IdentityConfiguration is where an identity comes from. ID, Type and URL together are its key.
type IdentityConfiguration struct {
	ID     string
	Type   string
	URL    string
	Config []byte
	Raw    []byte
}
