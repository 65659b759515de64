package simchain

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"dongate/relayer/fhevm"
)

// Request is one request that the chain accepts, and how it is found there.
type Request struct {
	Endpoint fhevm.Endpoint
	Body     []byte        // of the POST
	Decoded  fhevm.Request // what the body says
	Content  common.Hash   // see [Content]
}

// Handle returns the n-th ciphertext of the chain: a 64-bit number.
func Handle(n uint64) fhevm.Handle {
	h := fhevm.Handle(crypto.Keccak256Hash(binary.BigEndian.AppendUint64([]byte("handle "), n)))
	binary.BigEndian.PutUint64(h[22:30], ChainID)
	h[30], h[31] = typeUint64, 0
	return h
}

const (
	typeUint64 = 5
	users      = 16
	days       = 30
)

// HandleContract is the contract that owns the ciphertexts of [Config.NewRequest].
var HandleContract = named("contract").Address

// NewRequest makes the n-th request for an endpoint: equal arguments give equal requests, and different n different contents.
// It asks for [Handle](n) of [HandleContract]; its user is [UserAccount](n mod 16), who is also the delegator where there is one, and
// then the delegate is UserAccount(16 + n mod 16). Decryptions name the KMS context of the chain's start and are valid for 30 days
// from an hour before now. An unknown endpoint panics.
func (c Config) NewRequest(e fhevm.Endpoint, n uint64, now time.Time) Request {
	user, delegate := UserAccount(int(n%users)), UserAccount(int(users+n%users))
	start, extra, handle := now.Add(-time.Hour).Unix(), c.extraData(), Handle(n)
	publicKey := crypto.Keccak256(handle[:])
	text := func(b []byte) string { return "0x" + hex.EncodeToString(b) }
	chain, begin := strconv.Itoa(ChainID), strconv.FormatInt(start, 10)
	type object = map[string]any
	validity := object{"startTimestamp": begin, "durationDays": strconv.Itoa(days)}
	pairs := []object{{"handle": text(handle[:]), "contractAddress": HandleContract}}
	older := func(signature []byte) object {
		return object{"handleContractPairs": pairs, "contractsChainId": chain, "contractAddresses": []common.Address{HandleContract},
			"signature": hex.EncodeToString(signature), "publicKey": hex.EncodeToString(publicKey), "extraData": text(extra)}
	}

	var body object
	switch e {
	case fhevm.EndpointInputProof:
		body = object{"contractChainId": chain, "contractAddress": HandleContract, "userAddress": user.Address,
			"ciphertextWithInputVerification": hex.EncodeToString(slices.Concat(publicKey, publicKey)), "extraData": "0x00"}
	case fhevm.EndpointPublicDecrypt:
		body = object{"ciphertextHandles": []string{text(handle[:])}, "extraData": text(extra)}
	case fhevm.EndpointUserDecrypt:
		message := crypto.Keccak256(typeDirect[:], crypto.Keccak256(publicKey), crypto.Keccak256(addressWord(HandleContract)),
			word(uint64(start)), word(days), crypto.Keccak256(extra))
		body = older(c.signTyped(user, message))
		body["requestValidity"], body["userAddress"] = validity, user.Address
	case fhevm.EndpointDelegatedUserDecrypt:
		message := crypto.Keccak256(typeDelegated[:], crypto.Keccak256(publicKey), crypto.Keccak256(addressWord(HandleContract)),
			addressWord(user.Address), word(uint64(start)), word(days), crypto.Keccak256(extra))
		body = older(c.signTyped(delegate, message))
		body["delegatorAddress"], body["delegateAddress"] = user.Address, delegate.Address
		body["startTimestamp"], body["durationDays"] = begin, strconv.Itoa(days)
	case fhevm.EndpointUserDecryptV3:
		return c.unified(n, start, user.Address, extra, user.signHash)
	default:
		panic("simchain: no endpoint " + string(e))
	}
	return newRequest(e, body, now)
}

// NewWalletRequest makes the n-th v3 request of the chain's ERC-1271 user. signed says that its owner signed; otherwise the
// signature is empty, and [Control.ApproveHash] must be told hash.
func (c Config) NewWalletRequest(n uint64, now time.Time, signed bool) (r Request, hash common.Hash) {
	r = c.unified(n, now.Add(-time.Hour).Unix(), c.Wallet, c.extraData(), func(h common.Hash) []byte {
		hash = h
		if !signed {
			return nil
		}
		return UserAccount(0).signHash(h)
	})
	return r, hash
}

// extraData names the context of the chain's start.
func (c Config) extraData() []byte {
	if c.Context == (common.Hash{}) {
		return []byte{0}
	}
	return slices.Concat([]byte{1}, c.Context[:])
}

func (c Config) unified(n uint64, start int64, user common.Address, extra []byte, sign func(common.Hash) []byte) Request {
	handle := Handle(n)
	u := &fhevm.UnifiedUserDecrypt{Entries: []fhevm.HandleOwner{{Handle: handle, Contract: HandleContract, Owner: user}}, UserAddress: user,
		AllowedContracts: []common.Address{HandleContract}, StartTimestamp: uint64(start), DurationSeconds: days * 86400,
		PublicKey: crypto.Keccak256(handle[:]), ExtraData: extra}
	u.Signature = sign(u.SigningHash(c.Decryption))
	type object = map[string]any
	signature := ""
	if len(u.Signature) > 0 {
		signature = "0x" + hex.EncodeToString(u.Signature)
	}
	return newRequest(fhevm.EndpointUserDecryptV3, object{
		"attestationType": "eip712-unified-user-decrypt-v1", "signature": signature,
		"attestedPayload": object{
			"version": "2.0", "type": "user_decryption", "userAddress": user, "allowedContracts": u.AllowedContracts,
			"handles":         []object{{"ctHandle": "0x" + hex.EncodeToString(handle[:]), "contractAddress": HandleContract, "ownerAddress": user}},
			"requestValidity": object{"startTimestamp": strconv.FormatInt(start, 10), "durationSeconds": strconv.Itoa(days * 86400)},
			"publicKey":       "0x" + hex.EncodeToString(u.PublicKey), "extraData": "0x" + hex.EncodeToString(extra),
		},
	}, time.Unix(start+3600, 0))
}

func newRequest(e fhevm.Endpoint, object map[string]any, now time.Time) Request {
	body, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("simchain: body for %s: %v", e, err)) // strings and maps
	}
	decoded, err := fhevm.Decode(e, body, fhevm.Options{Now: now})
	if err != nil {
		panic(fmt.Sprintf("simchain: body for %s: %v", e, err)) // every test finds it
	}
	content, err := Content(decoded.Calldata())
	if err != nil {
		panic(err.Error())
	}
	return Request{e, body, decoded, content}
}

// What users of the older forms sign.
var (
	typeDirect    = crypto.Keccak256Hash([]byte("UserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,uint256 startTimestamp,uint256 durationDays,bytes extraData)"))
	typeDelegated = crypto.Keccak256Hash([]byte("DelegatedUserDecryptRequestVerification(bytes publicKey,address[] contractAddresses,address delegatorAddress,uint256 startTimestamp,uint256 durationDays,bytes extraData)"))
)

func (c Config) signTyped(by Account, message []byte) []byte {
	domain := crypto.Keccak256(fhevm.DomainTypeHash[:], crypto.Keccak256([]byte("Decryption")), crypto.Keccak256([]byte("1")),
		word(ChainID), addressWord(c.Decryption))
	return by.signHash(crypto.Keccak256Hash([]byte{0x19, 0x01}, domain, message))
}

// signHash signs with v of 27 or 28, as wallets do.
func (a Account) signHash(hash common.Hash) []byte {
	signature, err := crypto.Sign(hash[:], a.Private())
	if err != nil {
		panic(fmt.Sprintf("simchain: sign: %v", err)) // 32 bytes and a valid key
	}
	signature[64] += 27
	return signature
}

func addressWord(a common.Address) []byte { return common.LeftPadBytes(a[:], 32) }

func word(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 24, 32), n) }
