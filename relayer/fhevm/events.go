package fhevm

import (
	"errors"
	"fmt"
	"math"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// EventType is one event of a contract: its signature and its topic.
type EventType struct {
	Signature string      // name and argument types, as they are hashed
	Topic     common.Hash // topic0
	indexed   int         // number of indexed arguments
	decode    func(topics []common.Hash, data words) (Event, error)
}

func newEvent(signature string, indexed int, decode func([]common.Hash, words) (Event, error)) *EventType {
	return &EventType{signature, crypto.Keccak256Hash([]byte(signature)), indexed, decode}
}

// Tuples that several events share (M, H and P of the reference).
const (
	tupleM = "(bytes32,uint256,bytes32,address[])[]"
	tupleH = "(bytes32,address,address)[]"
	tupleP = "(address,bytes,address[],(uint256,uint256),bytes,bytes)"
)

// The events (relayer reference §6.3). Request events come in two forms at a time; the id is topic 1 of each.
var (
	EventPublicRequest        = newEvent("PublicDecryptionRequest(uint256,"+tupleM+",bytes)", 1, decodeRequested(KindPublicDecrypt))
	EventPublicRequestHandles = newEvent("PublicDecryptionRequest(uint256,bytes32[],bytes)", 1, decodeRequested(KindPublicDecrypt))
	EventUserRequest          = newEvent("UserDecryptionRequest(uint256,"+tupleM+",address,bytes,bytes)", 1, decodeRequested(KindUserDecrypt))
	EventUserRequestUnified   = newEvent("UserDecryptionRequest(uint256,"+tupleM+","+tupleH+","+tupleP+")", 1, decodeRequested(KindUserDecrypt))
	EventUserRequestHandles   = newEvent("UserDecryptionRequest(uint256,bytes32[],address,bytes,bytes)", 1, decodeRequested(KindUserDecrypt))
	EventUnifiedHandles       = newEvent("UserDecryptionRequest(uint256,"+tupleH+","+tupleP+")", 1, decodeRequested(KindUserDecrypt))
	EventProofRequest         = newEvent("VerifyProofRequest(uint256,uint256,address,address,bytes,bytes)", 2, decodeRequested(KindInputProof))

	EventPublicResponse = newEvent("PublicDecryptionResponse(uint256,bytes,bytes[],bytes)", 1, decodePublicResponse)
	EventUserResponse   = newEvent("UserDecryptionResponse(uint256,uint256,bytes,bytes,bytes)", 1, decodeUserResponse)
	EventUserThreshold  = newEvent("UserDecryptionResponseThresholdReached(uint256)", 1, decodeThresholdReached)
	EventProofResponse  = newEvent("VerifyProofResponse(uint256,bytes32[],bytes[])", 1, decodeProofResponse)
	EventProofRejected  = newEvent("RejectProofResponse(uint256)", 1, decodeProofRejected)

	EventNewKMSContext = newEvent("NewKmsContext(uint256,uint256,(address,address,string,string,int32,string,bytes,string)[],"+
		"(uint256,uint256,uint256,uint256),string,(bytes,bytes,bytes)[])", 2, decodeNewContext)
)

// EventTypes lists every event this package decodes.
var EventTypes = []*EventType{
	EventPublicRequest, EventPublicRequestHandles, EventUserRequest, EventUserRequestUnified, EventUserRequestHandles, EventUnifiedHandles, EventProofRequest,
	EventPublicResponse, EventUserResponse, EventUserThreshold, EventProofResponse, EventProofRejected, EventNewKMSContext,
}

// ResponseTopics returns the topics of the events that answer requests, those that a listener asks the gateway chain for.
func ResponseTopics() []common.Hash {
	return []common.Hash{EventPublicResponse.Topic, EventUserResponse.Topic, EventUserThreshold.Topic, EventProofResponse.Topic, EventProofRejected.Topic}
}

// Reference is the gateway chain's number of a request (gw_reference_id), big-endian. Its high bytes hold a type tag.
type Reference [32]byte

// String returns "0x" and 64 lower-case hex digits.
func (r Reference) String() string { return prefixed(r[:]) }

// Event is one decoded event: a value of one of the types below.
type Event interface {
	// Ref returns the request the event belongs to, or the context's id of a [NewKMSContext].
	Ref() Reference
}

// Requested says that a request of the kind got its number.
type Requested struct {
	ID   Reference
	Kind Kind
}

// PublicResponse completes a public decryption.
type PublicResponse struct {
	ID     Reference
	Result PublicResult
}

// UserResponse brings one node's share of a user decryption.
type UserResponse struct {
	ID    Reference
	Index int32 // which node's share
	Share Share
}

// UserThresholdReached says that the contract has seen enough shares.
type UserThresholdReached struct{ ID Reference }

// ProofResponse accepts an input proof.
type ProofResponse struct {
	ID     Reference
	Result ProofResult
}

// ProofRejected rejects an input proof.
type ProofRejected struct{ ID Reference }

// NewKMSContext announces the nodes of a KMS context; only what the first node says about its storage is kept.
type NewKMSContext struct {
	ID, Previous              Reference
	StorageURL, StoragePrefix string
}

// Ref returns the request's number.
func (e Requested) Ref() Reference { return e.ID }

// Ref returns the request's number.
func (e PublicResponse) Ref() Reference { return e.ID }

// Ref returns the request's number.
func (e UserResponse) Ref() Reference { return e.ID }

// Ref returns the request's number.
func (e UserThresholdReached) Ref() Reference { return e.ID }

// Ref returns the request's number.
func (e ProofResponse) Ref() Reference { return e.ID }

// Ref returns the request's number.
func (e ProofRejected) Ref() Reference { return e.ID }

// Ref returns the context's id.
func (e NewKMSContext) Ref() Reference { return e.ID }

// ErrUnknownEvent is returned for a log that is none of [EventTypes].
var ErrUnknownEvent = errors.New("unknown event")

// DecodeEvent decodes one log by its first topic. The caller has checked which contract emitted it. The result shares no memory with
// the log and is not larger than it. The error is [ErrUnknownEvent] or wraps [ErrABI].
func DecodeEvent(topics []common.Hash, data []byte) (Event, error) {
	if len(topics) == 0 {
		return nil, ErrUnknownEvent
	}
	for _, t := range EventTypes {
		if t.Topic != topics[0] {
			continue
		}
		if len(topics) != t.indexed+1 {
			return nil, fmt.Errorf("%w: %d topics with %s", ErrABI, len(topics), t.Signature)
		}
		e, err := t.decode(topics, data)
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", t.Signature, err)
		}
		return e, nil
	}
	return nil, ErrUnknownEvent
}

// RequestReference returns the number that a mined transaction's request got: from the first request event of the kind that the
// contract emitted, in whichever form. ok is false where there is none.
func RequestReference(k Kind, contract common.Address, logs []*types.Log) (ref Reference, ok bool) {
	for _, l := range logs {
		if l == nil || l.Address != contract || l.Removed {
			continue
		}
		if e, err := DecodeEvent(l.Topics, nil); err == nil {
			if r, isRequest := e.(Requested); isRequest && r.Kind == k {
				return r.ID, true
			}
		}
	}
	return Reference{}, false
}

// decodeRequested reads the id alone: the forms' bodies differ and hold only what we sent.
func decodeRequested(k Kind) func([]common.Hash, words) (Event, error) {
	return func(topics []common.Hash, _ words) (Event, error) { return Requested{Reference(topics[1]), k}, nil }
}

func decodePublicResponse(topics []common.Hash, data words) (Event, error) {
	result, err1 := data.bytes(0)
	signatures, err2 := data.list(1)
	extra, err3 := data.bytes(2)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	return PublicResponse{Reference(topics[1]), PublicResult{result, signatures, extra}}, nil
}

func decodeUserResponse(topics []common.Hash, data words) (Event, error) {
	index, err1 := data.small(0, math.MaxInt32+1)
	share, err2 := data.bytes(1)
	signature, err3 := data.bytes(2)
	extra, err4 := data.bytes(3)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	return UserResponse{Reference(topics[1]), int32(index), Share{share, signature, extra}}, nil
}

func decodeThresholdReached(topics []common.Hash, _ words) (Event, error) {
	return UserThresholdReached{Reference(topics[1])}, nil
}

func decodeProofResponse(topics []common.Hash, data words) (Event, error) {
	handles, err1 := data.hashes(0)
	signatures, err2 := data.list(1)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return ProofResponse{Reference(topics[1]), ProofResult{true, handles, signatures}}, nil
}

func decodeProofRejected(topics []common.Hash, _ words) (Event, error) {
	return ProofRejected{Reference(topics[1])}, nil
}

// decodeNewContext reads the first node's tuple, whose heads are: sender, signer, address, storage URL, party, identity,
// certificate, storage prefix.
func decodeNewContext(topics []common.Hash, data words) (Event, error) {
	nodes, n, err := data.array(0)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("%w: a context without nodes", ErrABI)
	}
	node, err := nodes.tail(0)
	if err != nil {
		return nil, err
	}
	url, err1 := node.bytes(3)
	prefix, err2 := node.bytes(7)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	return NewKMSContext{Reference(topics[1]), Reference(topics[2]), string(url), string(prefix)}, nil
}
