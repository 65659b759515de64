package store

import (
	"fmt"
	"slices"
	"strings"
)

// Kind is what a request asks for. Each kind has a table.
type Kind string

// The kinds.
const (
	InputProof    Kind = "input_proof"
	PublicDecrypt Kind = "public_decrypt"
	UserDecrypt   Kind = "user_decrypt"
)

// Kinds are all kinds.
var Kinds = []Kind{InputProof, PublicDecrypt, UserDecrypt}

// table is the kind's table.
func (k Kind) table() string { return string(k) + "_req" }

// First is the state that a request of this kind begins in: an input proof has nothing to wait for.
func (k Kind) First() State {
	if k == InputProof {
		return Processing
	}
	return Queued
}

// State is how far a request is.
type State string

// The states.
const (
	Queued          State = "queued"           // waits for its ciphertexts to be ready
	Processing      State = "processing"       // waits for its transaction to be made
	TxInFlight      State = "tx_in_flight"     // a transaction is signed and may have been sent
	ReceiptReceived State = "receipt_received" // the gateway contract has taken the request; waits for the response
	Completed       State = "completed"
	TimedOut        State = "timed_out"
	Failure         State = "failure"
)

// States are all states, in the order in which a request meets them.
var States = []State{Queued, Processing, TxInFlight, ReceiptReceived, Completed, TimedOut, Failure}

// Final tells that a request never leaves this state.
func (s State) Final() bool { return s == Completed || s == TimedOut || s == Failure }

// Edge is a move of the state graph. From is empty where the row is inserted.
type Edge struct {
	From, To State
	Kinds    []Kind
	Fenced   bool   // only the dispatcher of the newest epoch, and only on rows it has claimed
	Guard    string // what else must hold, for people
}

var decrypts = []Kind{PublicDecrypt, UserDecrypt}

// Edges is the whole state graph: there are no other moves, and the database refuses them.
var Edges = []Edge{
	{"", Queued, decrypts, false, "no live or completed row has this int_job_id"},
	{"", Processing, []Kind{InputProof}, false, "no live or completed row has this int_job_id"},
	{Queued, Processing, decrypts, true, ""},
	{Queued, TimedOut, decrypts, true, ""},
	{Queued, Failure, decrypts, true, ""},
	{Processing, TxInFlight, Kinds, true, "the attempt is stored with it; no other request has its nonce"},
	{Processing, Failure, Kinds, true, ""},
	{TxInFlight, ReceiptReceived, Kinds, false, "the receipt is of one of the request's attempts"},
	{TxInFlight, Failure, Kinds, true, "no attempt is pending"},
	{ReceiptReceived, Completed, Kinds, false, "user_decrypt: as many shares as the threshold"},
	{ReceiptReceived, TimedOut, Kinds, false, "older than the kind's limit"},
	{ReceiptReceived, Failure, Kinds, false, "no attempt is pending"},
}

// findEdge returns the edge of a kind, and panics where there is none: a caller within this package asked for a move that does not exist.
func findEdge(k Kind, from, to State) Edge {
	for _, e := range Edges {
		if e.From == from && e.To == to && slices.Contains(e.Kinds, k) {
			return e
		}
	}
	panic(fmt.Sprintf("store: %s has no edge from %q to %q", k, from, to))
}

// HasEdge tells whether a request of this kind can move from one state to another.
func HasEdge(k Kind, from, to State) bool {
	return slices.ContainsFunc(Edges, func(e Edge) bool { return e.From == from && e.To == to && slices.Contains(e.Kinds, k) })
}

// GraphTable is the state graph as a table in Markdown.
func GraphTable() string {
	var b strings.Builder
	b.WriteString("| from | to | kinds | who | guard |\n| --- | --- | --- | --- | --- |\n")
	for _, e := range Edges {
		from, who, kinds := "(insert)", "anyone", "all"
		if e.From != "" {
			from = "`" + string(e.From) + "`"
		}
		if e.Fenced {
			who = "the owner"
		}
		if len(e.Kinds) < len(Kinds) {
			names := make([]string, len(e.Kinds))
			for i, k := range e.Kinds {
				names[i] = string(k)
			}
			kinds = strings.Join(names, ", ")
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", from, e.To, kinds, who, e.Guard)
	}
	return b.String()
}
