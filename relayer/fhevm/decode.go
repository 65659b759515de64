package fhevm

import "github.com/ethereum/go-ethereum/common"

// Endpoint is one of the paths that take requests.
type Endpoint string

// The endpoints (POST), each a path.
const (
	EndpointInputProof           Endpoint = "/v2/input-proof"
	EndpointPublicDecrypt        Endpoint = "/v2/public-decrypt"
	EndpointUserDecrypt          Endpoint = "/v2/user-decrypt"
	EndpointDelegatedUserDecrypt Endpoint = "/v2/delegated-user-decrypt"
	EndpointUserDecryptV3        Endpoint = "/v3/user-decrypt"
)

// Endpoints lists every endpoint.
var Endpoints = []Endpoint{EndpointInputProof, EndpointPublicDecrypt, EndpointUserDecrypt, EndpointDelegatedUserDecrypt, EndpointUserDecryptV3}

// Kind returns the kind of job that is made and read at the endpoint; "" for another path.
func (e Endpoint) Kind() Kind {
	switch e {
	case EndpointInputProof:
		return KindInputProof
	case EndpointPublicDecrypt:
		return KindPublicDecrypt
	case EndpointUserDecrypt, EndpointDelegatedUserDecrypt, EndpointUserDecryptV3:
		return KindUserDecrypt
	}
	return ""
}

// The tables of rules, one per endpoint (relayer reference §1.4). The order of fields is the order of details.
var (
	entryAddress = &field{shape: text, rule: ruleAddress}
	entryHandle  = &field{shape: text, rule: ruleHandle}
	entryPair    = &field{shape: object, fields: []field{
		{name: "handle", shape: text, rule: ruleHandle},
		{name: "contractAddress", shape: text, rule: ruleAddress},
	}}
	entryOwned = &field{shape: object, fields: []field{
		{name: "ctHandle", shape: text, rule: ruleHandle},
		{name: "contractAddress", shape: text, rule: ruleAddress},
		{name: "ownerAddress", shape: text, rule: ruleAddress},
	}}

	schemaInputProof = &field{shape: object, fields: []field{
		{name: "contractChainId", shape: textOrNumber, rule: ruleChainID},
		{name: "contractAddress", shape: text, rule: ruleAddress},
		{name: "userAddress", shape: text, rule: ruleAddress},
		{name: "ciphertextWithInputVerification", shape: text, rule: rulePlainHex},
		{name: "extraData", shape: text, rule: literal("0x00", issueProofExtra)},
	}}
	schemaPublicDecrypt = &field{shape: object, fields: []field{
		{name: "ciphertextHandles", shape: list, elem: entryHandle, filled: true, limit: maxHandles},
		{name: "extraData", shape: text, rule: ruleExtraData},
	}}
	schemaUserDecrypt = &field{shape: object, fields: []field{
		{name: "handleContractPairs", shape: list, elem: entryPair, filled: true, limit: maxHandles},
		{name: "requestValidity", shape: object, fields: []field{
			{name: "startTimestamp", shape: text, rule: ruleTimestamp},
			{name: "durationDays", shape: text, rule: ruleU32},
		}},
		{name: "contractsChainId", shape: textOrNumber, rule: ruleChainID},
		{name: "contractAddresses", shape: list, elem: entryAddress, filled: true, limit: maxContracts},
		{name: "userAddress", shape: text, rule: ruleAddress},
		{name: "signature", shape: text, rule: ruleSignature},
		{name: "publicKey", shape: text, rule: rulePlainHex},
		{name: "extraData", shape: text, rule: ruleExtraData},
	}}
	schemaDelegated = &field{shape: object, fields: []field{
		{name: "handleContractPairs", shape: list, elem: entryPair, filled: true, limit: maxHandles},
		{name: "contractsChainId", shape: textOrNumber, rule: ruleChainID},
		{name: "contractAddresses", shape: list, elem: entryAddress, filled: true, limit: maxContracts},
		{name: "delegatorAddress", shape: text, rule: ruleAddress},
		{name: "delegateAddress", shape: text, rule: ruleAddress},
		{name: "startTimestamp", shape: text, rule: ruleTimestamp},
		{name: "durationDays", shape: text, rule: ruleU32},
		{name: "signature", shape: text, rule: ruleSignature},
		{name: "publicKey", shape: text, rule: rulePlainHex},
		{name: "extraData", shape: text, rule: ruleExtraData},
	}}
	schemaUnified = &field{shape: object, closed: true, fields: []field{
		{name: "attestationType", shape: text, rule: literal(attestationUnified, issueAttestation)},
		{name: "signature", shape: text, rule: ruleOptionalHex},
		{name: "attestedPayload", shape: object, closed: true, fields: []field{
			{name: "version", shape: text, rule: literal(payloadVersion, issueVersion)},
			{name: "type", shape: text, rule: literal(payloadType, issuePayloadType)},
			{name: "handles", shape: list, elem: entryOwned, filled: true, limit: maxHandles},
			{name: "userAddress", shape: text, rule: ruleAddress},
			{name: "allowedContracts", shape: list, elem: entryAddress, limit: maxContracts},
			{name: "requestValidity", shape: object, whole: wholeValiditySeconds, fields: []field{
				{name: "startTimestamp", shape: text, rule: ruleDecimalTimestamp},
				{name: "durationSeconds", shape: text, rule: ruleU64},
			}},
			{name: "publicKey", shape: text, rule: rulePrefixedHex},
			{name: "extraData", shape: text, rule: ruleExtraData},
		}},
	}}
)

// Decode decodes and checks the body of a POST to e. In this order: size, JSON syntax (repeated names and invalid UTF-8
// included), types and, under /v3, unknown members; then all missing members at once; then every rule, one detail per
// field, at most 100 details. The error is an *[Error] with the answer for the client. The result shares no memory with body.
func Decode(e Endpoint, body []byte, o Options) (Request, error) {
	var schema *field
	var build func(*node) Request
	switch e {
	case EndpointInputProof:
		schema, build = schemaInputProof, buildInputProof
	case EndpointPublicDecrypt:
		schema, build = schemaPublicDecrypt, buildPublicDecrypt
	case EndpointUserDecrypt:
		schema, build = schemaUserDecrypt, buildUserDecrypt
	case EndpointDelegatedUserDecrypt:
		schema, build = schemaDelegated, buildDelegated
	case EndpointUserDecryptV3:
		schema, build = schemaUnified, buildUnified
	default:
		return nil, ErrPathNotFound()
	}
	n, bad := parse(body, schema, &o)
	if bad != nil {
		return nil, bad
	}
	return build(n), nil
}

// The builders turn checked nodes into requests; the index of each node is its field's place in the schema.

func buildInputProof(n *node) Request {
	return &InputProof{
		ContractChainID: n.at(0).chainID(), ContractAddress: n.at(1).address(), UserAddress: n.at(2).address(),
		Ciphertext: n.at(3).bytes(), ExtraData: n.at(4).bytes(),
	}
}

func buildPublicDecrypt(n *node) Request {
	r := &PublicDecrypt{CiphertextHandles: make([]Handle, len(n.at(0).nodes)), ExtraData: n.at(1).bytes()}
	for i := range r.CiphertextHandles {
		r.CiphertextHandles[i] = n.at(0).at(i).handle()
	}
	return r
}

func buildUserDecrypt(n *node) Request {
	return &UserDecrypt{
		Pairs: n.at(0).pairs(), StartTimestamp: n.at(1).at(0).timestamp(), DurationDays: uint32(n.at(1).at(1).decimal()),
		ContractsChainID: n.at(2).chainID(), ContractAddresses: n.at(3).addresses(), UserAddress: n.at(4).address(),
		Signature: n.at(5).bytes(), PublicKey: n.at(6).bytes(), ExtraData: n.at(7).bytes(),
	}
}

func buildDelegated(n *node) Request {
	return &DelegatedUserDecrypt{
		Pairs: n.at(0).pairs(), ContractsChainID: n.at(1).chainID(), ContractAddresses: n.at(2).addresses(),
		DelegatorAddress: n.at(3).address(), DelegateAddress: n.at(4).address(),
		StartTimestamp: n.at(5).timestamp(), DurationDays: uint32(n.at(6).decimal()),
		Signature: n.at(7).bytes(), PublicKey: n.at(8).bytes(), ExtraData: n.at(9).bytes(),
	}
}

func buildUnified(n *node) Request {
	p := n.at(2)
	r := &UnifiedUserDecrypt{
		Entries: make([]HandleOwner, len(p.at(2).nodes)), UserAddress: p.at(3).address(), AllowedContracts: p.at(4).addresses(),
		StartTimestamp: p.at(5).at(0).timestamp(), DurationSeconds: p.at(5).at(1).decimal(),
		PublicKey: p.at(6).bytes(), Signature: n.at(1).bytes(), ExtraData: p.at(7).bytes(),
	}
	for i := range r.Entries {
		e := p.at(2).at(i)
		r.Entries[i] = HandleOwner{Handle: e.at(0).handle(), Contract: e.at(1).address(), Owner: e.at(2).address()}
	}
	return r
}

func (n *node) bytes() []byte           { return unhex(n.text) }
func (n *node) address() common.Address { return common.BytesToAddress(unhex(n.text)) }
func (n *node) chainID() uint64         { id, _ := parseChainID(n.text); return id }
func (n *node) decimal() uint64         { v, _ := parseDecimal(n.text, 64); return v }

func (n *node) handle() (h Handle) { copy(h[:], unhex(n.text)); return h }

func (n *node) timestamp() uint64 {
	v, ok := parseU256(n.text)
	if !ok || !v.IsUint64() {
		return 0
	}
	return v.Uint64()
}

func (n *node) addresses() []common.Address {
	out := make([]common.Address, len(n.nodes))
	for i := range out {
		out[i] = n.at(i).address()
	}
	return out
}

func (n *node) pairs() []HandleContract {
	out := make([]HandleContract, len(n.nodes))
	for i := range out {
		out[i] = HandleContract{Handle: n.at(i).at(0).handle(), Contract: n.at(i).at(1).address()}
	}
	return out
}
