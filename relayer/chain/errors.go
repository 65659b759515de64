package chain

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"dongate/relayer/fhevm"
)

// Errors of a pool's calls, for errors.Is. A context's own error is returned where the caller's context ended.
var (
	// ErrUnavailable: no node answered; whether one has acted on a transaction is unknown.
	ErrUnavailable = errors.New("no node answered")
	// ErrNotFound: the node that answered knows no such block or receipt.
	ErrNotFound = errors.New("not known to the node")
	// ErrTooMany: the range holds more logs than the node, or this package, is ready to hand out. Ask for a smaller one.
	ErrTooMany = errors.New("too many logs for one answer")
	// ErrNoSync: the node cannot send and wait for the receipt in one call; the transaction was not sent.
	ErrNoSync = errors.New("the node has no eth_sendRawTransactionSync")
	// ErrSyncTimeout: the node has taken the transaction and waited in vain for its receipt.
	ErrSyncTimeout = errors.New("the transaction was sent but not mined in time")
)

// Codes of JSON-RPC errors.
const (
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeNotSupported   = -32004
	codeLimitExceeded  = -32005
	codeVMError        = -32015
	codeRevert         = 3
	codeSyncTimeout    = 4
)

// RPCError is a node's answer that is an error: the node works, the call does not.
type RPCError struct {
	Code    int
	Message string // the node's words: printable, without URLs, at most 256 bytes; a hint only
	Data    []byte // what a contract reverted with; nil where there is none
}

// Error returns code and message.
func (e *RPCError) Error() string {
	return fmt.Sprintf("the node answers with error %d: %s", e.Code, e.Message)
}

// Revert returns why a call or an estimate reverted; ok is false for an error that is none of the contract's. A call that broke off in
// another way, such as by running out of gas, counts as reverted without a reason.
func Revert(err error) (revert fhevm.Revert, ok bool) {
	var e *RPCError
	if !errors.As(err, &e) || !e.reverted() {
		return fhevm.Revert{}, false
	}
	return fhevm.DecodeRevert(e.Data), true
}

// reverted tells a contract's refusal from the node's. Nodes differ in code and words; only go-ethereum's code is sure.
func (e *RPCError) reverted() bool {
	if e.Code == codeRevert || e.Code == codeVMError {
		return true
	}
	return containsAny(strings.ToLower(e.Message), "revert", "vm execution error", "out of gas", "invalid opcode", "invalid jump", "stack underflow",
		"stack limit reached", "intrinsic gas", "floor data gas", "write protection")
}

// noMethod tells that the node cannot do the call: it has no such method, has it in another form, or names it in refusing.
func (e *RPCError) noMethod(method string) bool {
	switch e.Code {
	case codeMethodNotFound, codeInvalidParams, codeNotSupported:
		return true
	}
	return strings.Contains(strings.ToLower(e.Message), strings.ToLower(method))
}

// SendClass says what became of an attempt to send. It is read from a node's words and so is a hint: receipts and the account's nonce decide.
type SendClass string

// The classes.
const (
	Known             SendClass = "known"              // the node has these very bytes
	NonceTooLow       SendClass = "nonce_too_low"      // a transaction with this nonce is mined, perhaps this one
	NonceTooHigh      SendClass = "nonce_too_high"     // transactions before it are missing
	Underpriced       SendClass = "underpriced"        // another with this nonce is waiting and pays as much, or the fee is below what the node takes
	InsufficientFunds SendClass = "insufficient_funds" // the account cannot pay for the gas
	Reverted          SendClass = "reverted"           // the contract would refuse it
	Unavailable       SendClass = "unavailable"        // nobody answered: it may have been sent or not
	Other             SendClass = "other"              // anything else, a context's end included
)

// SendError classifies the error of a send or of an estimate before it. A nil error is [Known].
func SendError(err error) SendClass {
	var e *RPCError
	switch {
	case err == nil, errors.Is(err, ErrSyncTimeout):
		return Known
	case errors.Is(err, ErrUnavailable):
		return Unavailable
	case !errors.As(err, &e):
		return Other
	}
	switch text := strings.ToLower(e.Message); {
	case containsAny(text, "already known", "known transaction", "already imported", "alreadyknown", "already exists", "already in mempool"):
		return Known
	case containsAny(text, "nonce too low", "nonce is too low", "oldnonce"):
		return NonceTooLow
	case containsAny(text, "nonce too high", "nonce is too high", "nonce gap", "noncegap"):
		return NonceTooHigh
	case containsAny(text, "underpriced", "gas price below minimum", "less than block base fee", "feetoolow", "fee too low", "gas price too low"):
		return Underpriced
	case containsAny(text, "insufficient funds", "insufficientfunds", "insufficient balance", "upfront cost exceeds"):
		return InsufficientFunds
	case e.reverted():
		return Reverted
	}
	return Other
}

func containsAny(s string, parts ...string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// maxMessage bounds, in bytes, what is kept of an outsider's words.
const maxMessage = 256

var urls = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://\S*`)

// clean makes an outsider's words fit for a log or a stored reason: no URL, printable, bounded.
func clean(s string) string {
	const room = 4 * maxMessage // more than enough to see where a URL ends that begins within the bound
	if len(s) > room {
		s = s[:room]
	}
	s = urls.ReplaceAllString(s, "(URL)")
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	if len(s) > maxMessage {
		s = strings.ToValidUTF8(s[:maxMessage], "")
	}
	return s
}
