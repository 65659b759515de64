package toyledger

import (
	"context"
	"errors"
	"math/big"
	"strings"

	"dongate/storage"
	"dongate/token"
	"dongate/token/auditdb"
	"dongate/token/auditor"
	"dongate/token/endorserdb"
	"dongate/token/rescan"
	"dongate/token/selector"
	"dongate/token/tokendb"
	"dongate/token/tokenlock"
	"dongate/token/tokens"
	"dongate/token/ttx"
	"dongate/token/ttxdb"
)

// Prefix is that of a node's tables.
const Prefix = "n__c__s__"

// Node is a node of a token network that owns, issues, audits and endorses. Its wallets are called as the identities in them; an identity
// with a + in it belongs to the wallets around it together.
type Node struct {
	Wallets map[string]bool

	Tokens       *tokendb.Store
	Locks        *tokenlock.Store
	Transactions *ttxdb.StoreService
	Audits       *auditdb.StoreService
	Validations  *endorserdb.Store

	Ours     tokens.Ours
	Effects  *tokens.Service
	Selector *selector.Selector
	TTX      *ttx.Service
	Auditor  *auditor.Service
	Rescan   *rescan.Rescanner

	ttxdb   *ttxdb.Store
	auditdb *auditdb.Store
}

// NewNode returns a node with its tokens in one database that has been migrated and its transactions in another or the same.
func NewNode(tokensDB, transactionsDB *storage.DB, wallets ...string) (*Node, error) {
	n := &Node{
		Wallets: map[string]bool{}, Tokens: tokendb.New(tokensDB, Prefix, tokendb.Options{}), Locks: tokenlock.New(tokensDB, Prefix),
		ttxdb: ttxdb.New(transactionsDB, Prefix, ttxdb.Options{}), auditdb: auditdb.New(transactionsDB, Prefix, auditdb.Options{}),
		Validations: endorserdb.New(transactionsDB, Prefix, endorserdb.Options{}),
	}
	for _, w := range wallets {
		n.Wallets[w] = true
	}
	options := ttxdb.ServiceOptions{Anchor: Anchor}
	if transactionsDB != tokensDB {
		options.Consumers = n.Locks
	}
	var err1, err2, err3 error
	n.Transactions, err1 = ttxdb.NewStoreService(n.ttxdb, options)
	n.Audits, err2 = auditdb.NewStoreService(n.auditdb, auditdb.ServiceOptions{Anchor: Anchor})
	is := func(_ context.Context, id token.Identity) (bool, error) { return n.Wallets[string(id)], nil }
	n.Ours = tokens.Ours{Owns: n.Owns, Issues: is, Endorses: is, Formats: []token.Format{"plain"},
		Audits: func(context.Context, *tokens.Transaction) (bool, error) { return n.Wallets["auditor"], nil }}
	n.Effects = tokens.New(n.Tokens, n.Ours)
	n.Selector = selector.New(n.Tokens, n.Locks, selector.Options{Retries: -1})
	n.TTX = ttx.New(ttx.Stores{Transactions: n.Transactions, Tokens: n.Tokens, Locks: n.Locks}, n.Effects, Decode)
	n.Auditor = auditor.New(n.Audits, n.Tokens, n.Effects, Decode)
	n.Rescan, err3 = rescan.New(rescan.Stores{Tokens: n.Tokens, Transactions: n.ttxdb, Audit: n.auditdb, Validations: n.Validations},
		rescan.Options{Anchor: Anchor, Ours: n.Ours, Batch: 5})
	return n, errors.Join(err1, err2, err3)
}

// Close closes the stores, not the databases.
func (n *Node) Close() error {
	return errors.Join(n.Transactions.Close(), n.Audits.Close(), n.Validations.Close(), n.Locks.Close(), n.Tokens.Close())
}

// Owns returns the node's wallets of an identity.
func (n *Node) Owns(_ context.Context, owner token.Identity) (wallets []string, err error) {
	for _, w := range strings.Split(string(owner), "+") {
		if n.Wallets[w] {
			wallets = append(wallets, w)
		}
	}
	return wallets, nil
}

// Out is an output of the type USD; without an owner it is redeemed.
func Out(index uint64, owner string, amount *big.Int) tokens.Output {
	o := tokens.Output{Index: index, EnrollmentID: owner, Type: "USD", Amount: amount, Ledger: []byte(owner + " " + amount.String()), LedgerFormat: "plain"}
	if owner != "" {
		o.OwnerRaw, o.OwnerType = token.Identity(owner), "name"
	}
	return o
}

// In returns inputs of tokens.
func In(ids ...token.ID) (all []tokens.Input) {
	for _, id := range ids {
		all = append(all, tokens.Input{ID: id})
	}
	return all
}

// Issue returns a request that issues a token.
func Issue(txID, issuer, owner string, amount *big.Int) *tokens.Transaction {
	return Request(tokens.Transaction{TxID: txID, Actions: []tokens.Action{{Issuer: token.Identity(issuer), Outputs: []tokens.Output{Out(0, owner, amount)}}}})
}

// Pay returns a request that spends inputs worth total: amount goes to the recipient, or is redeemed where that is "", what is left goes
// back.
func Pay(txID, sender, recipient string, amount, total *big.Int, inputs ...token.ID) *tokens.Transaction {
	a := tokens.Action{Sender: sender, Inputs: In(inputs...), Outputs: []tokens.Output{Out(0, recipient, amount)}}
	if recipient == "" {
		a.Issuer = token.Identity("bank")
	}
	if change := new(big.Int).Sub(total, amount); change.Sign() > 0 {
		a.Outputs = append(a.Outputs, Out(1, sender, change))
	}
	return Request(tokens.Transaction{TxID: txID, Actions: []tokens.Action{a}})
}
