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
	codeInternal       = -32603
	codeVMError        = -32015
	codeRevert         = 3
	codeSyncTimeout    = 4
	codeTooMany        = 429 // some providers take HTTP's
)

// RPCError is a node's answer that is an error: the node works, the call does not.
type RPCError struct {
	Code    int
	Message string // the node's words: printable, without what may be a host, a URL or a key, at most 256 bytes; a hint only
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

// Busy reports whether the error is a node's answer that says nothing about the call: the node is over its limit of calls, or it failed
// within. Another node, or the same one later, may well do the call. What a contract answers never counts.
func Busy(err error) bool {
	var e *RPCError
	return errors.As(err, &e) && e.busy()
}

func (e *RPCError) busy() bool {
	if e.reverted() || len(e.Data) > 0 {
		return false
	}
	return e.limited() || e.Code == codeInternal || containsAny(strings.ToLower(e.Message), "internal error", "internal server error",
		"service unavailable", "temporarily unavailable", "overloaded", "bad gateway", "gateway timeout")
}

// limited tells a refusal for the number of calls.
func (e *RPCError) limited() bool {
	return e.Code == codeLimitExceeded || e.Code == codeTooMany || e.saysLimited()
}

func (e *RPCError) saysLimited() bool {
	return containsAny(strings.ToLower(e.Message), "rate limit", "rate-limit", "ratelimit", "too many requests", "too many calls", "request rate",
		"rate exceeded", "per second", "compute units", "request count", "throttl", "quota")
}

// noMethod tells that the node cannot do the call: it has no such method, has it in another form, or names it in refusing.
func (e *RPCError) noMethod(method string) bool {
	switch e.Code {
	case codeMethodNotFound, codeInvalidParams, codeNotSupported:
		return true
	}
	return !e.limited() && strings.Contains(strings.ToLower(e.Message), strings.ToLower(method))
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
	Unavailable       SendClass = "unavailable"        // nobody answered, or only with a limit of calls: it may have been sent or not
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
	case e.limited():
		return Unavailable
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

var (
	urls = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://\S*`)
	// hosts are names and addresses with what may follow or come before: a port, a path, a query, credentials; and paths alone.
	hosts = regexp.MustCompile(`\S+@\S+|\[[0-9a-fA-F]*:[0-9a-fA-F:.]*\](:\d+)?([/?]\S*)?|` +
		`\b(([a-zA-Z0-9_-]+\.)+[a-zA-Z]{2,}\b(:\d+)?|\d{1,3}(\.\d{1,3}){3}\b(:\d+)?|[a-zA-Z][a-zA-Z0-9-]*:\d{4,5}\b|localhost\b)([/?]\S*)?|\B/[\w-]+/\S*`)
	// named are keys that are called so.
	named = regexp.MustCompile(`(?i)\b(api[-_ ]?key|key|token|secret|password|project[-_ ]?id)(["']?\s*[=:]\s*)\S+`)
	runs  = regexp.MustCompile(`[a-zA-Z0-9_-]{20,}`)
)

// clean makes a node's words fit for wherever they may end up: nothing that may be a host, a path or a key, printable, bounded. Addresses, hashes and
// other hex with 0x, and amounts, stay.
func clean(s string) string {
	s = hosts.ReplaceAllString(urls.ReplaceAllString(cut(s), "(URL)"), "(URL)")
	s = named.ReplaceAllString(s, "$1$2(key)")
	return short(runs.ReplaceAllStringFunc(s, func(run string) string {
		digits := strings.ContainsAny(run, "0123456789")
		if !digits || allOf(run, "0123456789") || (strings.HasPrefix(run, "0x") && allOf(run[2:], "0123456789abcdefABCDEF")) {
			return run
		}
		return "(key)"
	}))
}

// tidy makes an error's words fit for the log: no URL, printable, bounded.
func tidy(s string) string { return short(urls.ReplaceAllString(cut(s), "(URL)")) }

// cut shortens s to more than enough to see where a word ends that begins within the bound; the last word goes where it was cut, since half a key
// does not look like one.
func cut(s string) string {
	const room = 4 * maxMessage
	if len(s) <= room {
		return s
	}
	s = s[:room]
	if i := strings.LastIndexAny(s, " \t\r\n"); i > 0 {
		s = s[:i]
	}
	return s
}

// short makes s printable and bounds it.
func short(s string) string {
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

func allOf(s, chars string) bool { return strings.Trim(s, chars) == "" }
