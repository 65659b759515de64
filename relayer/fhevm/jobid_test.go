package fhevm

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
)

type jobVector struct {
	Kind    Variant        `json:"kind"`
	Request jsontext.Value `json:"request"`
	JobID   string         `json:"int_job_id"`
}

func loadJobVectors(tb testing.TB) []jobVector {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "int_job_id.json"))
	require.NoError(tb, err)
	var out []jobVector
	require.NoError(tb, json.Unmarshal(data, &out))
	return out
}

// vectorRequest is every member a vector's request may have.
type vectorRequest struct {
	ContractChainID   string           `json:"contractChainId"`
	ContractAddress   common.Address   `json:"contractAddress"`
	UserAddress       common.Address   `json:"userAddress"`
	Ciphertext        string           `json:"ciphertextWithInputVerification"`
	CiphertextHandles []common.Hash    `json:"ciphertextHandles"`
	ContractsChainID  string           `json:"contractsChainId"`
	ContractAddresses []common.Address `json:"contractAddresses"`
	Delegator         common.Address   `json:"delegatorAddress"`
	Delegate          common.Address   `json:"delegateAddress"`
	AllowedContracts  []common.Address `json:"allowedContracts"`
	PublicKey         string           `json:"publicKey"`
	ExtraData         string           `json:"extraData"`
	Pairs             []struct {
		Handle   common.Hash    `json:"handle"`
		Contract common.Address `json:"contractAddress"`
	} `json:"handleContractPairs"`
	Entries []struct {
		Handle   common.Hash    `json:"ctHandle"`
		Contract common.Address `json:"contractAddress"`
		Owner    common.Address `json:"ownerAddress"`
	} `json:"handles"`
}

// request builds the request of a vector without the decoder of the HTTP API, which has a test of its own.
func (v *jobVector) request(tb testing.TB) Request {
	tb.Helper()
	var r vectorRequest
	require.NoError(tb, json.Unmarshal(v.Request, &r))
	const chain = 11155111
	var handles []Handle
	for _, h := range r.CiphertextHandles {
		handles = append(handles, Handle(h))
	}
	var pairs []HandleContract
	for _, p := range r.Pairs {
		pairs = append(pairs, HandleContract{Handle(p.Handle), p.Contract})
	}
	var entries []HandleOwner
	for _, e := range r.Entries {
		entries = append(entries, HandleOwner{Handle(e.Handle), e.Contract, e.Owner})
	}
	extra, key := common.FromHex(r.ExtraData), common.FromHex(r.PublicKey)
	switch v.Kind {
	case VariantInputProof:
		return &InputProof{ContractChainID: chain, ContractAddress: r.ContractAddress, UserAddress: r.UserAddress, Ciphertext: common.FromHex(r.Ciphertext), ExtraData: extra}
	case VariantPublicDecrypt:
		return &PublicDecrypt{CiphertextHandles: handles, ExtraData: extra}
	case VariantLegacyDirect:
		return &UserDecrypt{Pairs: pairs, ContractsChainID: chain, ContractAddresses: r.ContractAddresses, UserAddress: r.UserAddress, PublicKey: key, ExtraData: extra}
	case VariantLegacyDelegated:
		return &DelegatedUserDecrypt{Pairs: pairs, ContractsChainID: chain, ContractAddresses: r.ContractAddresses, DelegatorAddress: r.Delegator, DelegateAddress: r.Delegate, PublicKey: key, ExtraData: extra}
	case VariantUnified:
		return &UnifiedUserDecrypt{Entries: entries, UserAddress: r.UserAddress, AllowedContracts: r.AllowedContracts, PublicKey: key, ExtraData: extra}
	}
	require.Fail(tb, "unknown kind", v.Kind)
	return nil
}

func TestJobIDVectors(t *testing.T) {
	t.Parallel()
	var seen []Variant
	for _, v := range loadJobVectors(t) {
		seen = append(seen, v.Kind)
		r := v.request(t)
		require.Equal(t, v.JobID, r.JobID().String(), v.Kind)
		require.Equal(t, v.JobID, r.JobID().String(), "a second call says the same")
		require.Equal(t, v.Kind, r.Variant())
	}
	for _, v := range []Variant{VariantInputProof, VariantPublicDecrypt, VariantLegacyDirect, VariantLegacyDelegated, VariantUnified} {
		require.True(t, slices.Contains(seen, v), "no vector for %s", v)
	}
}

// Signature and validity do not count; everything else does, the order of lists included.
func TestJobIDSensitivity(t *testing.T) {
	t.Parallel()
	a, b := common.HexToAddress("0x01"), common.HexToAddress("0x02")
	h1, h2 := Handle{1}, Handle{2}
	base := UserDecrypt{Pairs: []HandleContract{{h1, a}, {h2, b}}, ContractsChainID: 1, ContractAddresses: []common.Address{a, b}, UserAddress: a, PublicKey: []byte{7}, ExtraData: []byte{0}}
	same := base
	same.Signature, same.StartTimestamp, same.DurationDays = []byte{1}, 2, 3
	require.Equal(t, base.JobID(), same.JobID())
	for name, change := range map[string]func(*UserDecrypt){
		"pairs":     func(r *UserDecrypt) { r.Pairs = []HandleContract{{h2, b}, {h1, a}} },
		"chain":     func(r *UserDecrypt) { r.ContractsChainID++ },
		"contracts": func(r *UserDecrypt) { r.ContractAddresses = []common.Address{b, a} },
		"user":      func(r *UserDecrypt) { r.UserAddress = b },
		"key":       func(r *UserDecrypt) { r.PublicKey = []byte{8} },
		"extra":     func(r *UserDecrypt) { r.ExtraData = []byte{1} },
	} {
		other := base
		change(&other)
		require.NotEqual(t, base.JobID(), other.JobID(), name)
	}

	unified := UnifiedUserDecrypt{Entries: []HandleOwner{{h1, a, b}}, UserAddress: a, AllowedContracts: []common.Address{a}, PublicKey: []byte{7}, ExtraData: []byte{0}}
	again := unified
	again.Signature, again.StartTimestamp, again.DurationSeconds = []byte{1}, 2, 3
	require.Equal(t, unified.JobID(), again.JobID())
	again.Entries = []HandleOwner{{h1, a, a}}
	require.NotEqual(t, unified.JobID(), again.JobID())

	delegated := DelegatedUserDecrypt{Pairs: base.Pairs, ContractAddresses: base.ContractAddresses, DelegatorAddress: a, DelegateAddress: b, PublicKey: []byte{7}, ExtraData: []byte{0}}
	swapped := delegated
	swapped.DelegatorAddress, swapped.DelegateAddress = b, a
	require.NotEqual(t, delegated.JobID(), swapped.JobID())
}

func TestHandle(t *testing.T) {
	t.Parallel()
	raw, err := hex.DecodeString("000102030405060708090a0b0c0d0e0f1011121314150000000000aa36a70100")
	require.NoError(t, err)
	h := Handle(raw)
	require.EqualValues(t, 11155111, h.ChainID())
	require.Equal(t, "0x"+hex.EncodeToString(raw), h.String())
	require.Equal(t, ^uint64(0), Handle([]byte(strings.Repeat("\xff", 32))).ChainID())
	for _, r := range []Request{&PublicDecrypt{CiphertextHandles: []Handle{h}}, &UserDecrypt{Pairs: []HandleContract{{Handle: h}}}, &DelegatedUserDecrypt{Pairs: []HandleContract{{Handle: h}}}, &UnifiedUserDecrypt{Entries: []HandleOwner{{Handle: h}}}} {
		got := r.Handles()
		require.Equal(t, []Handle{h}, got)
		got[0] = Handle{}
		require.Equal(t, []Handle{h}, r.Handles(), "the request's own handles stay")
		require.Equal(t, r.Kind() == KindPublicDecrypt, r.Variant() == VariantPublicDecrypt)
	}
	require.Empty(t, (&InputProof{}).Handles())
	require.Equal(t, KindInputProof, (&InputProof{}).Kind())
}
