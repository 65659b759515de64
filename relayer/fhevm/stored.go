package fhevm

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/go-json-experiment/json"
)

// ErrStored is wrapped by the errors of everything that decodes what a database gave back.
var ErrStored = errors.New("malformed stored data")

// The forms in which requests and results are stored (relayer reference §2.3). Bytes are hex with 0x, times and durations hex numbers, chain ids
// decimal numbers. One member's name is spelt as the network's own relayer spells it.
type (
	storedProof struct {
		ContractChainID uint64         `json:"contract_chain_id"`
		ContractAddress common.Address `json:"contract_address"`
		UserAddress     common.Address `json:"user_address"`
		Ciphertext      hexutil.Bytes  `json:"ciphetext_with_zk_proof"`
		ExtraData       hexutil.Bytes  `json:"extra_data"`
	}
	storedPublic struct {
		Handles   []common.Hash `json:"ct_handles"`
		ExtraData hexutil.Bytes `json:"extra_data"`
	}
	// storedUser is all forms of a user decryption; each leaves out what it has not.
	storedUser struct {
		Kind              Variant          `json:"kind"`
		Pairs             []storedPair     `json:"ct_handle_contract_pairs,omitempty"`
		Entries           []storedEntry    `json:"handles,omitempty"`
		Validity          storedValidity   `json:"request_validity"`
		ContractsChainID  uint64           `json:"contracts_chain_id,omitzero"`
		ContractAddresses []common.Address `json:"contract_addresses,omitempty"`
		AllowedContracts  []common.Address `json:"allowed_contracts,omitempty"`
		UserAddress       *common.Address  `json:"user_address,omitzero"`
		DelegatorAddress  *common.Address  `json:"delegator_address,omitzero"`
		DelegateAddress   *common.Address  `json:"delegate_address,omitzero"`
		Signature         hexutil.Bytes    `json:"signature"`
		PublicKey         hexutil.Bytes    `json:"public_key"`
		ExtraData         hexutil.Bytes    `json:"extra_data"`
	}
	storedPair struct {
		Handle   common.Hash    `json:"handle"`
		Contract common.Address `json:"contractAddress"`
	}
	storedEntry struct {
		Handle   common.Hash    `json:"ctHandle"`
		Contract common.Address `json:"contractAddress"`
		Owner    common.Address `json:"ownerAddress"`
	}
	storedValidity struct {
		StartTimestamp  hexutil.Uint64  `json:"startTimestamp"`
		DurationDays    *hexutil.Uint64 `json:"durationDays,omitzero"`
		DurationSeconds *hexutil.Uint64 `json:"durationSeconds,omitzero"`
	}
	storedProofResult struct {
		Handles    []common.Hash   `json:"handles"`
		Signatures []hexutil.Bytes `json:"signatures"`
	}
	storedPublicResult struct {
		Reference      Reference       `json:"gateway_request_id"`
		DecryptedValue hexutil.Bytes   `json:"decrypted_value"`
		Signatures     []hexutil.Bytes `json:"signatures"`
		ExtraData      hexutil.Bytes   `json:"extra_data"`
	}
)

// MarshalText is [Reference.String].
func (r Reference) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads "0x" and 64 hex digits.
func (r *Reference) UnmarshalText(text []byte) error {
	return hexutil.UnmarshalFixedText("Reference", text, r[:])
}

// ReqType returns the text of the column req_type for a user decryption of this form (relayer reference §3.1), "" for the other kinds.
func (v Variant) ReqType() string {
	switch v {
	case VariantLegacyDirect:
		return "user_decrypt"
	case VariantLegacyDelegated:
		return "delegated_user_decrypt"
	case VariantUnified:
		return "unified"
	}
	return ""
}

// EncodeStored returns the JSON in which a request is stored (relayer reference §2.3), for [DecodeStored]. It is longer than the body that was
// posted by at most a few hundred bytes. The error is for a type that is not one of [Request]'s.
func EncodeStored(r Request) ([]byte, error) {
	switch r := r.(type) {
	case *InputProof:
		return json.Marshal(storedProof{r.ContractChainID, r.ContractAddress, r.UserAddress, r.Ciphertext, r.ExtraData})
	case *PublicDecrypt:
		return json.Marshal(storedPublic{convert[common.Hash](r.CiphertextHandles), r.ExtraData})
	case *UserDecrypt:
		s := storedLegacy(r.Pairs, r.StartTimestamp, r.DurationDays, r.ContractsChainID, r.ContractAddresses)
		s.Kind, s.UserAddress = r.Variant(), &r.UserAddress
		s.Signature, s.PublicKey, s.ExtraData = r.Signature, r.PublicKey, r.ExtraData
		return json.Marshal(s)
	case *DelegatedUserDecrypt:
		s := storedLegacy(r.Pairs, r.StartTimestamp, r.DurationDays, r.ContractsChainID, r.ContractAddresses)
		s.Kind, s.DelegatorAddress, s.DelegateAddress = r.Variant(), &r.DelegatorAddress, &r.DelegateAddress
		s.Signature, s.PublicKey, s.ExtraData = r.Signature, r.PublicKey, r.ExtraData
		return json.Marshal(s)
	case *UnifiedUserDecrypt:
		seconds := hexutil.Uint64(r.DurationSeconds)
		s := storedUser{
			Kind: r.Variant(), Validity: storedValidity{StartTimestamp: hexutil.Uint64(r.StartTimestamp), DurationSeconds: &seconds},
			AllowedContracts: r.AllowedContracts, UserAddress: &r.UserAddress,
			Signature: r.Signature, PublicKey: r.PublicKey, ExtraData: r.ExtraData,
		}
		for _, e := range r.Entries {
			s.Entries = append(s.Entries, storedEntry{common.Hash(e.Handle), e.Contract, e.Owner})
		}
		return json.Marshal(s)
	}
	return nil, fmt.Errorf("a request of type %T cannot be stored", r)
}

func storedLegacy(pairs []HandleContract, start uint64, days uint32, chainID uint64, contracts []common.Address) storedUser {
	duration := hexutil.Uint64(days)
	s := storedUser{
		Validity:         storedValidity{StartTimestamp: hexutil.Uint64(start), DurationDays: &duration},
		ContractsChainID: chainID, ContractAddresses: contracts,
	}
	for _, p := range pairs {
		s.Pairs = append(s.Pairs, storedPair{common.Hash(p.Handle), p.Contract})
	}
	return s
}

// DecodeStored returns the request that [EncodeStored] encoded, whatever became of the order of its members. reqType is the row's req_type, ""
// unless k is [KindUserDecrypt]; a row without a kind of its own is read by it. The error wraps [ErrStored]. Everything in it but signature and
// validity is in the content hash: compare its JobID with the row's.
func DecodeStored(k Kind, reqType string, data []byte) (Request, error) {
	r, err := decodeStored(k, reqType, data)
	if err != nil {
		return nil, fmt.Errorf("%w: a request of %s: %w", ErrStored, k, err)
	}
	return r, nil
}

var errIncomplete = errors.New("something is missing in it")

func decodeStored(k Kind, reqType string, data []byte) (Request, error) {
	switch k {
	case KindInputProof:
		var s storedProof
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, err
		}
		if len(s.Ciphertext) == 0 {
			return nil, errIncomplete
		}
		return &InputProof{s.ContractChainID, s.ContractAddress, s.UserAddress, s.Ciphertext, s.ExtraData}, nil
	case KindPublicDecrypt:
		var s storedPublic
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, err
		}
		if len(s.Handles) == 0 {
			return nil, errIncomplete
		}
		return &PublicDecrypt{convert[Handle](s.Handles), s.ExtraData}, nil
	case KindUserDecrypt:
		var s storedUser
		if err := json.Unmarshal(data, &s); err != nil {
			return nil, err
		}
		return s.request(reqType)
	}
	return nil, errors.New("no such kind")
}

func (s *storedUser) request(reqType string) (Request, error) {
	v := s.Kind
	if v == "" {
		for _, candidate := range []Variant{VariantLegacyDirect, VariantLegacyDelegated, VariantUnified} {
			if candidate.ReqType() == reqType {
				v = candidate
			}
		}
	}
	if v.ReqType() == "" || v.ReqType() != reqType {
		return nil, fmt.Errorf("kind %q in a row of type %q", s.Kind, reqType)
	}
	if len(s.PublicKey) == 0 {
		return nil, errIncomplete
	}
	start := uint64(s.Validity.StartTimestamp)
	if v == VariantUnified {
		if len(s.Entries) == 0 || s.UserAddress == nil || s.Validity.DurationSeconds == nil {
			return nil, errIncomplete
		}
		r := &UnifiedUserDecrypt{
			UserAddress: *s.UserAddress, AllowedContracts: append([]common.Address{}, s.AllowedContracts...),
			StartTimestamp: start, DurationSeconds: uint64(*s.Validity.DurationSeconds), PublicKey: s.PublicKey, Signature: s.Signature, ExtraData: s.ExtraData,
		}
		for _, e := range s.Entries {
			r.Entries = append(r.Entries, HandleOwner{Handle(e.Handle), e.Contract, e.Owner})
		}
		return r, nil
	}
	if len(s.Pairs) == 0 || len(s.ContractAddresses) == 0 || s.Validity.DurationDays == nil || *s.Validity.DurationDays > 1<<32-1 {
		return nil, errIncomplete
	}
	var pairs []HandleContract
	for _, p := range s.Pairs {
		pairs = append(pairs, HandleContract{Handle(p.Handle), p.Contract})
	}
	days := uint32(*s.Validity.DurationDays)
	switch {
	case v == VariantLegacyDirect && s.UserAddress != nil:
		return &UserDecrypt{pairs, start, days, s.ContractsChainID, s.ContractAddresses, *s.UserAddress, s.Signature, s.PublicKey, s.ExtraData}, nil
	case v == VariantLegacyDelegated && s.DelegatorAddress != nil && s.DelegateAddress != nil:
		return &DelegatedUserDecrypt{
			pairs, start, days, s.ContractsChainID, s.ContractAddresses, *s.DelegatorAddress, *s.DelegateAddress, s.Signature, s.PublicKey, s.ExtraData,
		}, nil
	}
	return nil, errIncomplete
}

// EncodeResult returns the JSON in which the result of an input proof or a public decryption is stored (column res, relayer reference §2.3), for
// [DecodeResult]. ref is the request's number and is kept with a public decryption. A proof that was rejected has none: nil. The result of a user
// decryption is its shares, see [EncodeShare]: an error.
func EncodeResult(r Result, ref Reference) ([]byte, error) {
	switch r := r.(type) {
	case ProofResult:
		if !r.Accepted {
			return nil, nil
		}
		return json.Marshal(storedProofResult{convert[common.Hash](r.Handles), texts(r.Signatures)})
	case PublicResult:
		return json.Marshal(storedPublicResult{ref, r.DecryptedValue, texts(r.Signatures), r.ExtraData})
	}
	return nil, fmt.Errorf("a result of type %T is not stored as JSON", r)
}

// DecodeResult returns the result that [EncodeResult] encoded. accepted is the row's column, false unless k is [KindInputProof]. The error wraps
// [ErrStored].
func DecodeResult(k Kind, accepted bool, data []byte) (Result, error) {
	fail := func(err error) (Result, error) {
		return nil, fmt.Errorf("%w: a result of %s: %w", ErrStored, k, err)
	}
	switch k {
	case KindInputProof:
		if !accepted {
			return ProofResult{}, nil
		}
		var s storedProofResult
		if err := json.Unmarshal(data, &s); err != nil {
			return fail(err)
		}
		return ProofResult{true, convert[[32]byte](s.Handles), plain(s.Signatures)}, nil
	case KindPublicDecrypt:
		var s storedPublicResult
		if err := json.Unmarshal(data, &s); err != nil {
			return fail(err)
		}
		return PublicResult{s.DecryptedValue, plain(s.Signatures), s.ExtraData}, nil
	}
	return fail(errors.New("this kind has no such column"))
}

// EncodeShare returns the columns in which a share is stored: share and signature without 0x, extra data with it (relayer reference §3.2).
func EncodeShare(s Share) (share, signature, extraData string) {
	return hex.EncodeToString(s.Payload), hex.EncodeToString(s.Signature), prefixed(s.ExtraData)
}

// DecodeShare returns the share that [EncodeShare] encoded. The error wraps [ErrStored].
func DecodeShare(share, signature, extraData string) (s Share, err error) {
	for to, from := range map[*[]byte]string{&s.Payload: share, &s.Signature: signature, &s.ExtraData: strings.TrimPrefix(extraData, "0x")} {
		if *to, err = hex.DecodeString(from); err != nil {
			return Share{}, fmt.Errorf("%w: a share: %w", ErrStored, err)
		}
	}
	return s, nil
}

func convert[To, From ~[32]byte](in []From) []To {
	out := make([]To, len(in))
	for i, v := range in {
		out[i] = To(v)
	}
	return out
}

func texts(in [][]byte) []hexutil.Bytes {
	out := make([]hexutil.Bytes, len(in))
	for i, b := range in {
		out[i] = b
	}
	return out
}

func plain(in []hexutil.Bytes) [][]byte {
	out := make([][]byte, len(in))
	for i, b := range in {
		out[i] = b
	}
	return out
}
