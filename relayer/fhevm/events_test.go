package fhevm

import (
	"bytes"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The figures are the reference's (§6.3).
func TestTopics(t *testing.T) {
	t.Parallel()
	figures := map[string]*EventType{
		"22db480a39bd72556438aadb4a32a3d2a6638b87c03bbec5fef6997e109587ff": EventPublicRequest,
		"9bb088a53f1fe13ec84fa0a1d7b578b589e193268baaccc5e23f7ab785aa3dae": EventPublicRequestHandles,
		"f9011bd6ba0da6049c520d70fe5971f17ed7ab795486052544b51019896c596b": EventUserRequest,
		"1f80a47b51979837976f999a7735fdccbbe570e0d40081644ec88f8ed76c9612": EventUserRequestUnified,
		"c71e32c80f3109c673a9adfcded0b3b2093212ab284084a0e03a281dee2bdd5f": EventUserRequestHandles,
		"8ed4fab8b1d050676cd7d7d9fa448d5d22113375fab8ad4dc690e54593c527bf": EventUnifiedHandles,
		"4ae54f6a6e900d806ffa5bb46ed91459523d2f6ac9b5d62404feab887686d005": EventProofRequest,
		"d7e58a367a0a6c298e76ad5d240004e327aa1423cbe4bd7ff85d4c715ef8d15f": EventPublicResponse,
		"7fcdfb5381917f554a717d0a5470a33f5a49ba6445f05ec43c74c0bc2cc608b2": EventUserResponse,
		"e89752be0ecdb68b2a6eb5ef1a891039e0e92ae3c8a62274c5881e48eea1ed25": EventUserThreshold,
		"fe2c43585786a5a658d2ec5df5dea3fb3385b77c94f60f724ff810896f419835": EventProofResponse,
		"e465e141fa8abd95ab7e0855543307f8506ab0170ef664420fb71ab7de0183de": EventProofRejected,
		"204d6b80121154cd87d99cf54c639a3dd0a53b3084277098de972ebdd34c6be9": EventNewKMSContext,
	}
	require.Len(t, EventTypes, len(figures))
	for want, e := range figures {
		require.Equal(t, "0x"+want, e.Topic.Hex(), e.Signature)
		require.Contains(t, EventTypes, e)
	}
	require.Len(t, ResponseTopics(), 5)
	for _, topic := range ResponseTopics() {
		require.True(t, slices.ContainsFunc(EventTypes, func(e *EventType) bool { return e.Topic == topic && strings.Contains(e.Signature, "Response") }))
	}
}

// pack encodes values with go-ethereum's encoder, which the decoder here shares nothing with.
func pack(tb require.TestingT, typesOf string, values ...any) []byte {
	parsed, err := abi.ParseSelector("f(" + typesOf + ")")
	require.NoError(tb, err)
	var args abi.Arguments
	for _, in := range parsed.Inputs {
		typ, err := abi.NewType(in.Type, "", in.Components)
		require.NoError(tb, err)
		args = append(args, abi.Argument{Type: typ})
	}
	out, err := args.Pack(values...)
	require.NoError(tb, err)
	return out
}

type kmsNode struct {
	Sender      common.Address `abi:"name0"`
	Signer      common.Address `abi:"name1"`
	Address     string         `abi:"name2"`
	URL         string         `abi:"name3"`
	Party       int32          `abi:"name4"`
	Identity    string         `abi:"name5"`
	Certificate []byte         `abi:"name6"`
	Prefix      string         `abi:"name7"`
}

// newContextData encodes the body of a NewKmsContext with the given nodes.
func newContextData(tb require.TestingT, nodes ...kmsNode) []byte {
	type thresholds struct {
		A *big.Int `abi:"name0"`
		B *big.Int `abi:"name1"`
		C *big.Int `abi:"name2"`
		D *big.Int `abi:"name3"`
	}
	type pcr struct {
		A []byte `abi:"name0"`
		B []byte `abi:"name1"`
		C []byte `abi:"name2"`
	}
	one := big.NewInt(1)
	return pack(tb, "(address,address,string,string,int32,string,bytes,string)[],(uint256,uint256,uint256,uint256),string,(bytes,bytes,bytes)[]",
		append([]kmsNode{}, nodes...), thresholds{one, one, one, one}, "v1", []pcr{{[]byte{1}, nil, nil}})
}

func TestDecodeEvent(t *testing.T) {
	t.Parallel()
	id, other := common.Hash{0: 2, 31: 5}, common.Hash{31: 9}
	ref := Reference(id)
	for _, c := range []struct {
		e      *EventType
		topics []common.Hash
		data   []byte
		want   Event
	}{
		{EventPublicRequest, []common.Hash{id}, nil, Requested{ref, KindPublicDecrypt}},
		{EventPublicRequestHandles, []common.Hash{id}, []byte("whatever"), Requested{ref, KindPublicDecrypt}},
		{EventUserRequest, []common.Hash{id}, nil, Requested{ref, KindUserDecrypt}},
		{EventUserRequestUnified, []common.Hash{id}, nil, Requested{ref, KindUserDecrypt}},
		{EventUserRequestHandles, []common.Hash{id}, nil, Requested{ref, KindUserDecrypt}},
		{EventUnifiedHandles, []common.Hash{id}, nil, Requested{ref, KindUserDecrypt}},
		{EventProofRequest, []common.Hash{id, other}, nil, Requested{ref, KindInputProof}},
		{EventPublicResponse, []common.Hash{id}, pack(t, "bytes,bytes[],bytes", []byte{1}, [][]byte{{2}, {}, {3, 4}}, []byte{0}), PublicResponse{ref, PublicResult{[]byte{1}, [][]byte{{2}, {}, {3, 4}}, []byte{0}}}},
		{EventUserResponse, []common.Hash{id}, pack(t, "uint256,bytes,bytes,bytes", big.NewInt(1<<31-1), []byte{1}, []byte{2}, []byte{}), UserResponse{ref, 1<<31 - 1, Share{[]byte{1}, []byte{2}, []byte{}}}},
		{EventUserThreshold, []common.Hash{id}, nil, UserThresholdReached{ref}},
		{EventProofResponse, []common.Hash{id}, pack(t, "bytes32[],bytes[]", [][32]byte{{1}, {2}}, [][]byte{{3}}), ProofResponse{ref, ProofResult{true, [][32]byte{{1}, {2}}, [][]byte{{3}}}}},
		{EventProofResponse, []common.Hash{id}, pack(t, "bytes32[],bytes[]", [][32]byte{}, [][]byte{}), ProofResponse{ref, ProofResult{true, [][32]byte{}, [][]byte{}}}},
		{EventProofRejected, []common.Hash{id}, nil, ProofRejected{ref}},
		{EventNewKMSContext, []common.Hash{id, other}, newContextData(t, kmsNode{URL: "https://one", Prefix: "P1", Party: 1}, kmsNode{URL: "https://two", Prefix: "P2"}), NewKMSContext{ref, Reference(other), "https://one", "P1"}},
	} {
		topics := append([]common.Hash{c.e.Topic}, c.topics...)
		got, err := DecodeEvent(topics, c.data)
		require.NoError(t, err, c.e.Signature)
		require.Equal(t, c.want, got)
		require.Equal(t, ref, got.Ref())
		require.Equal(t, id.Hex(), got.Ref().String())

		before := slices.Clone(c.data)
		for i := range c.data { // the result is its own
			c.data[i] ^= 0xff
		}
		require.Equal(t, c.want, got)
		copy(c.data, before)

		_, err = DecodeEvent(append(topics, other), c.data)
		require.ErrorIs(t, err, ErrABI, "a topic too many")
		_, err = DecodeEvent(topics[:len(topics)-1], c.data)
		require.ErrorIs(t, err, ErrABI, "a topic too few")
		for cut := range len(c.data) / 32 {
			if _, isRequest := c.want.(Requested); isRequest {
				break
			}
			if e, err := DecodeEvent(topics, c.data[:32*cut]); err != nil {
				require.ErrorIs(t, err, ErrABI)
				require.ErrorContains(t, err, c.e.Signature)
			} else {
				require.Equal(t, c.want, e, "only what is not read may be cut off")
			}
		}
	}
	for _, topics := range [][]common.Hash{nil, {}, {other}, {{}}} {
		_, err := DecodeEvent(topics, nil)
		require.ErrorIs(t, err, ErrUnknownEvent)
	}
	_, err := DecodeEvent([]common.Hash{EventUserResponse.Topic, id}, pack(t, "uint256,bytes,bytes,bytes", big.NewInt(1<<31), []byte{}, []byte{}, []byte{}))
	require.ErrorIs(t, err, ErrABI, "a share's index fits the database's column")
	_, err = DecodeEvent([]common.Hash{EventNewKMSContext.Topic, id, other}, newContextData(t))
	require.ErrorIs(t, err, ErrABI, "no nodes")
}

// Many offsets to one long string are refused before they are copied.
func TestDecodeEventOverlap(t *testing.T) {
	t.Parallel()
	const n, long = 1000, 32_000
	word := func(v int) []byte { return common.LeftPadBytes(big.NewInt(int64(v)).Bytes(), 32) }
	data := slices.Concat(word(96), word(128), word(96), word(0), word(n))
	for range n {
		data = append(data, word(32*n)...)
	}
	data = append(append(data, word(long)...), make([]byte, long)...)
	_, err := DecodeEvent([]common.Hash{EventPublicResponse.Topic, {}}, data)
	require.ErrorIs(t, err, ErrABI)
	require.ErrorContains(t, err, "overlap")
}

func TestDecodeEventTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.SliceOfN(rapid.Byte(), 0, 100)
		id := common.Hash(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "id"))
		result, extra, list := some.Draw(t, "result"), some.Draw(t, "extra"), rapid.SliceOf(some).Draw(t, "list")
		got, err := DecodeEvent([]common.Hash{EventPublicResponse.Topic, id}, pack(t, "bytes,bytes[],bytes", result, list, extra))
		require.NoError(t, err)
		p := got.(PublicResponse)
		require.Equal(t, Reference(id), p.ID)
		require.True(t, bytes.Equal(result, p.Result.DecryptedValue) && bytes.Equal(extra, p.Result.ExtraData) && slices.EqualFunc(list, p.Result.Signatures, bytes.Equal))
	})
}

func TestRequestReference(t *testing.T) {
	t.Parallel()
	contract, id := common.HexToAddress(addr1), common.Hash{31: 5}
	on := func(a common.Address, e *EventType, topics ...common.Hash) *types.Log {
		return &types.Log{Address: a, Topics: append([]common.Hash{e.Topic}, topics...)}
	}
	removed := on(contract, EventUserRequest, common.Hash{31: 1})
	removed.Removed = true
	noise := []*types.Log{
		nil, {Address: contract}, removed,
		on(common.HexToAddress(addr2), EventUserRequest, common.Hash{31: 2}),
		on(contract, EventUserRequest), on(contract, EventPublicRequest, common.Hash{31: 3}), on(contract, EventUserResponse, common.Hash{31: 4}),
	}
	_, ok := RequestReference(KindUserDecrypt, contract, noise)
	require.False(t, ok)
	for _, e := range []*EventType{EventUserRequest, EventUserRequestUnified, EventUserRequestHandles, EventUnifiedHandles} {
		ref, ok := RequestReference(KindUserDecrypt, contract, append(slices.Clone(noise), on(contract, e, id), on(contract, e, common.Hash{})))
		require.True(t, ok)
		require.Equal(t, Reference(id), ref)
	}
	ref, ok := RequestReference(KindInputProof, contract, []*types.Log{on(contract, EventProofRequest, id, common.Hash{31: 1})})
	require.True(t, ok)
	require.Equal(t, Reference(id), ref)
	ref, ok = RequestReference(KindPublicDecrypt, contract, noise)
	require.True(t, ok)
	require.Equal(t, Reference{31: 3}, ref)
}

// FuzzDecodeEvent checks that no log makes the decoder panic and that nothing decoded is larger than the log.
func FuzzDecodeEvent(f *testing.F) {
	f.Add(uint8(7), uint8(1), pack(f, "bytes,bytes[],bytes", []byte{1}, [][]byte{{2}, {3}}, []byte{0}))
	f.Add(uint8(8), uint8(1), pack(f, "uint256,bytes,bytes,bytes", big.NewInt(1), []byte{1}, []byte{2}, []byte{3}))
	f.Add(uint8(10), uint8(1), pack(f, "bytes32[],bytes[]", [][32]byte{{1}}, [][]byte{{3}}))
	f.Add(uint8(12), uint8(2), newContextData(f, kmsNode{URL: "https://one", Prefix: "P1"}))
	f.Fuzz(func(t *testing.T, which, topics uint8, data []byte) {
		e := EventTypes[int(which)%len(EventTypes)]
		list := append([]common.Hash{e.Topic}, make([]common.Hash, topics%5)...)
		got, err := DecodeEvent(list, data)
		if err != nil {
			require.True(t, errors.Is(err, ErrABI))
			require.Nil(t, got)
			return
		}
		size := 0
		count := func(parts ...[]byte) {
			for _, p := range parts {
				size = max(size, len(p))
			}
		}
		total := 0
		switch e := got.(type) {
		case PublicResponse:
			count(e.Result.DecryptedValue, e.Result.ExtraData)
			for _, s := range e.Result.Signatures {
				total += len(s) + 32
			}
		case UserResponse:
			count(e.Share.Payload, e.Share.Signature, e.Share.ExtraData)
		case ProofResponse:
			total = 32 * len(e.Result.Handles)
			for _, s := range e.Result.Signatures {
				total += len(s)
			}
		}
		require.LessOrEqual(t, size, len(data))
		require.LessOrEqual(t, total, 2*len(data))
	})
}
