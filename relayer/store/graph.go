package store

import (
	"fmt"
	"slices"
	"strings"

	"dongate/relayer/fhevm"
)

// Kind and State are the network's words for what a request asks for and for how far it is. Each kind has a table.
type (
	Kind  = fhevm.Kind
	State = fhevm.State
)

// table is the table of a kind.
func table(k Kind) string { return string(k) + "_req" }

// Edge is a move of the state graph. From is empty where the row is inserted.
type Edge struct {
	From, To State
	Kinds    []Kind
	Fenced   bool   // only the dispatcher of the newest epoch, and only on rows it has claimed
	Guard    string // what else must hold, for people
}

var decrypts = []Kind{fhevm.KindPublicDecrypt, fhevm.KindUserDecrypt}

// Edges is the whole state graph: there are no other moves, and the database refuses them.
var Edges = []Edge{
	{"", fhevm.StateQueued, decrypts, false, "no live or completed row has this int_job_id"},
	{"", fhevm.StateProcessing, []Kind{fhevm.KindInputProof}, false, "no live or completed row has this int_job_id"},
	{fhevm.StateQueued, fhevm.StateProcessing, decrypts, true, ""},
	{fhevm.StateQueued, fhevm.StateTimedOut, decrypts, true, ""},
	{fhevm.StateQueued, fhevm.StateFailure, decrypts, true, ""},
	{fhevm.StateProcessing, fhevm.StateTxInFlight, fhevm.Kinds, true, "the attempt is stored with it; no other request has its nonce"},
	{fhevm.StateProcessing, fhevm.StateFailure, fhevm.Kinds, true, ""},
	{fhevm.StateTxInFlight, fhevm.StateReceiptReceived, fhevm.Kinds, false, "the receipt is of one of the request's attempts"},
	{fhevm.StateTxInFlight, fhevm.StateFailure, fhevm.Kinds, true, "no attempt is pending"},
	{fhevm.StateReceiptReceived, fhevm.StateCompleted, fhevm.Kinds, false, "user_decrypt: as many shares as the threshold"},
	{fhevm.StateReceiptReceived, fhevm.StateTimedOut, fhevm.Kinds, false, "older than the kind's limit"},
	{fhevm.StateReceiptReceived, fhevm.StateFailure, fhevm.Kinds, false, "no attempt is pending"},
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
		if len(e.Kinds) < len(fhevm.Kinds) {
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
