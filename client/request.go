package client

import (
	"fmt"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"dongate/auth"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// DefaultMethod is the method of a trigger (protocol §2).
const DefaultMethod = "workflows.execute"

// Request is one trigger.
type Request struct {
	// ID is 1 to 200 bytes without '/', unique per workflow: a gateway runs each id once, however often it is sent. "": a
	// random UUID.
	ID string
	// Workflow is named by ID, or by Owner, Name and Tag. Hex is lower case, with or without 0x; shorter ids and
	// addresses are padded with zeros. If ID comes with the others, they must agree with it.
	Workflow workflow.Reference
	// Input encodes to a JSON object or array. Raw JSON is a jsontext.Value, a json.RawMessage or a []byte. Numbers that a
	// double cannot hold must be sent as strings.
	Input any
	// Method is DefaultMethod when "".
	Method string
}

// Prepared is a request ready to be signed: the bytes that are sent, and their digest.
type Prepared struct {
	ID     string
	Method string
	Body   []byte
	// Digest is the request digest that a token is signed for (protocol §1).
	Digest [32]byte
}

// Signed is a request with its token. It is good for one dispatch, until Expires; what refuses it before that leaves it
// good, so the same Signed may be sent again.
type Signed struct {
	Prepared
	Token   string
	Signer  common.Address
	Expires time.Time
}

// wireParams are the params of a trigger as a client sends them.
type wireParams struct {
	Input    jsontext.Value `json:"input"`
	Workflow struct {
		ID    string `json:"workflowID,omitzero"`
		Owner string `json:"workflowOwner,omitzero"`
		Name  string `json:"workflowName,omitzero"`
		Tag   string `json:"workflowTag,omitzero"`
	} `json:"workflow"`
}

// BuildRequest encodes r after applying the rules that a gateway would (protocol §1, §2). The error is an *Error that
// matches [ErrInvalidParams] or [ErrInvalidRequest] and has no HTTP status.
func BuildRequest(r Request) (*Prepared, error) {
	out := &Prepared{ID: r.ID, Method: r.Method}
	if out.ID == "" {
		out.ID = uuid.NewString()
	}
	if out.Method == "" {
		out.Method = DefaultMethod
	}
	invalid := func(err error) error {
		return &Error{Code: jsonrpc.CodeInvalidParams, Reason: reasonInvalidParams, Message: err.Error(), RequestID: out.ID}
	}
	var params wireParams
	var err error
	if params.Input, err = encodeInput(r.Input); err != nil {
		return nil, invalid(err)
	}
	params.Workflow.ID, params.Workflow.Owner = r.Workflow.ID, r.Workflow.Owner
	params.Workflow.Name, params.Workflow.Tag = r.Workflow.Name, r.Workflow.Tag
	raw, err := json.Marshal(&params)
	if err != nil {
		return nil, invalid(fmt.Errorf("params cannot be encoded: %w", err))
	}
	if _, err := workflow.DecodeTriggerParams(raw); err != nil {
		return nil, invalid(err)
	}
	if err := jsonrpc.CheckExactNumbers(raw); err != nil {
		return nil, invalid(err)
	}
	request := jsonrpc.Request{ID: out.ID, Method: out.Method, Params: raw}
	out.Body = jsonrpc.AppendRequest(make([]byte, 0, len(raw)+len(out.ID)+96), &request)
	// Decoding what was just encoded finds what is left to find: depth, text that is not UTF-8, the id's rules.
	decoded, err := jsonrpc.DecodeRequest(out.Body)
	if err == nil {
		err = decoded.Validate()
	}
	if err == nil && (decoded.ID != out.ID || decoded.Method != out.Method) {
		err = fmt.Errorf("id and method must be valid UTF-8")
	}
	if err == nil {
		out.Digest, err = request.Digest()
	}
	if err != nil {
		return nil, &Error{Code: jsonrpc.CodeInvalidRequest, Reason: reasonInvalidRequest, Message: err.Error(), RequestID: out.ID}
	}
	return out, nil
}

// encodeInput returns the input as raw JSON.
func encodeInput(input any) (jsontext.Value, error) {
	var raw jsontext.Value
	switch v := input.(type) {
	case jsontext.Value:
		raw = v
	case []byte:
		raw = v
	default:
		var err error
		if raw, err = json.Marshal(input, json.Deterministic(true)); err != nil {
			return nil, fmt.Errorf("params.input cannot be encoded: %w", err)
		}
		return raw, nil
	}
	if len(raw) == 0 {
		return nil, fmt.Errorf("params.input is missing: send a JSON object or array")
	}
	if !raw.IsValid() {
		return nil, fmt.Errorf("params.input is not valid JSON, or names a member twice")
	}
	return raw, nil
}

// Sign signs a token for p. The zero TokenOptions make one that is good for 5 minutes from now.
func Sign(p *Prepared, s auth.Signer, o auth.TokenOptions) (*Signed, error) {
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	token, err := auth.NewToken(s, p.Digest, o)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	parsed, err := auth.ParseToken(token, o.Now, auth.MaxTokenTTL)
	if err != nil {
		return nil, fmt.Errorf("client: a token that no gateway would accept: %w", err)
	}
	return &Signed{Prepared: *p, Token: token, Signer: s.Address(), Expires: parsed.Expires}, nil
}

// Curl returns a command line that sends s to a gateway, quoted for a POSIX shell. It holds the token, with which anybody
// can send this request once.
func (s *Signed) Curl(url string) string {
	return "curl -sS -H " + quote("Content-Type: application/json") + " -H " + quote("Authorization: Bearer "+s.Token) +
		" --data-binary " + quote(string(s.Body)) + " " + quote(url)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
