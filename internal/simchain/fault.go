package simchain

import (
	"bytes"
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
)

// Fault is one thing that goes wrong between a relayer and its node.
type Fault string

// The faults. Those of the first group happen instead of the call, those of the second although it was made.
const (
	FaultError   Fault = "error"   // the answer is a JSON-RPC error: Code (0: -32603) and Message
	FaultStatus  Fault = "status"  // the answer is the HTTP status Code (0: 503); over WebSocket as FaultCut
	FaultHang    Fault = "hang"    // there is no answer until the caller gives up
	FaultCut     Fault = "cut"     // the connection is closed
	FaultSlow    Fault = "slow"    // the call is made after Delay
	FaultDrop    Fault = "drop"    // the call is made and its answer lost: the connection is closed; a notification is left out
	FaultGarbage Fault = "garbage" // the answer is not JSON
	FaultNull    Fault = "null"    // the result is null, as where a node does not know a receipt
	FaultResult  Fault = "result"  // the result is Result
	FaultOffset  Fault = "offset"  // Delta is added to the result, a quantity such as a nonce, down to 0
	FaultShuffle Fault = "shuffle" // the elements of the result, such as logs, come in another order
	FaultRepeat  Fault = "repeat"  // each element of the result comes twice; a notification is sent twice
)

// Faults lists every fault.
var Faults = []Fault{FaultError, FaultStatus, FaultHang, FaultCut, FaultSlow, FaultDrop, FaultGarbage, FaultNull, FaultResult, FaultOffset, FaultShuffle, FaultRepeat}

// Rule says when a fault happens: at calls of a method, by chance, from the After-th call of it on, Times times. Of several rules the
// first one that hits applies.
type Rule struct {
	Method string // "": every one; "eth_subscription": the notifications of a WebSocket
	Fault  Fault
	Chance float64 // 0 and 1: always
	After  int     // so many calls pass first
	Times  int     // 0: no limit

	Code    int
	Message string
	Delay   time.Duration
	Delta   int64
	Result  json.RawMessage
}

// ruleState is a rule and what became of it.
type ruleState struct {
	Rule
	calls, hits int
}

// decide reports whether the rule hits at its next call. The same seed, rule number and call number give the same decision, whatever
// happens at the same time.
func (s *ruleState) decide(seed uint64, rule int, method string) (hit bool, r *rand.Rand) {
	if s.Method != "" && s.Method != method {
		return false, nil
	}
	call := s.calls
	s.calls++
	if call < s.After || s.Times > 0 && s.hits >= s.Times {
		return false, nil
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.Method + string(s.Fault)))
	r = rand.New(rand.NewPCG(seed, h.Sum64()^uint64(rule)<<48^uint64(call)))
	if s.Chance > 0 && s.Chance < 1 && r.Float64() >= s.Chance {
		return false, nil
	}
	s.hits++
	return true, r
}

// alter returns the result that the caller gets instead of the node's. What the fault does not fit stays as it is.
func alter(rule Rule, r *rand.Rand, result json.RawMessage) json.RawMessage {
	switch rule.Fault {
	case FaultNull:
		return json.RawMessage("null")
	case FaultResult:
		return rule.Result
	case FaultOffset:
		var n hexutil.Uint64
		if json.Unmarshal(result, &n) != nil {
			return result
		}
		if rule.Delta < 0 && uint64(n) < uint64(-rule.Delta) {
			return mustJSON(hexutil.Uint64(0))
		}
		return mustJSON(hexutil.Uint64(uint64(n) + uint64(rule.Delta)))
	case FaultShuffle, FaultRepeat:
		var list []json.RawMessage
		if json.Unmarshal(result, &list) != nil || list == nil {
			return result
		}
		if rule.Fault == FaultShuffle {
			r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			return mustJSON(list)
		}
		twice := make([]json.RawMessage, 0, 2*len(list))
		for _, e := range list {
			twice = append(twice, e, e)
		}
		return mustJSON(twice)
	default:
		return result
	}
}

func mustJSON(v any) json.RawMessage {
	out, err := json.Marshal(v)
	if err != nil {
		panic("simchain: " + err.Error()) // numbers and valid JSON
	}
	return out
}

// message is one JSON-RPC message of any sort; members that are not named pass through a proxy only in messages it leaves alone.
type message struct {
	Version string          `json:"jsonrpc,omitempty"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// errorReply is the answer of [FaultError].
func errorReply(id json.RawMessage, rule Rule) message {
	code, text := rule.Code, rule.Message
	if code == 0 {
		code = -32603
	}
	if text == "" {
		text = "internal error"
	}
	return message{Version: "2.0", ID: id, Error: mustJSON(map[string]any{"code": code, "message": text})}
}

func isBatch(body []byte) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && body[0] == '['
}
