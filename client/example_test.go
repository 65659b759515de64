package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/ethereum/go-ethereum/crypto"
	"github.com/go-json-experiment/json/jsontext"

	"dongate/auth"
	"dongate/client"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// exampleGateway stands in for a gateway whose nodes accept every trigger, or which refuses all of them.
func exampleGateway(refusal *jsonrpc.Error, status int) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		request, _ := jsonrpc.DecodeRequest(body)
		if refusal != nil {
			w.Header().Set("Retry-After", "2")
			w.WriteHeader(status)
			_, _ = w.Write(jsonrpc.AppendError(nil, &request.ID, refusal))
			return
		}
		_, _ = w.Write(jsonrpc.AppendResult(nil, request.ID, request.Method,
			jsontext.Value(`{"workflow_id":"0x0abc","workflow_execution_id":"6b1c","status":"ACCEPTED"}`)))
	}))
}

func exampleSigner() auth.Signer {
	key, err := crypto.HexToECDSA("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80")
	if err != nil {
		panic(err)
	}
	return auth.NewKeySigner(key)
}

func ExampleClient_Trigger() {
	gateway := exampleGateway(nil, 0)
	defer gateway.Close()

	c, err := client.New(client.Config{URLs: []string{gateway.URL}, Signer: exampleSigner()})
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := c.Trigger(context.Background(), client.Request{
		ID:       "order-7",
		Workflow: workflow.Reference{ID: "0xabc"},
		Input:    struct{ Amount string }{"9007199254740993"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	execution, err := response.Execution()
	fmt.Println(response.ID, execution.Status, execution.ExecutionID, err)
	// Output: order-7 ACCEPTED 6b1c <nil>
}

// What a caller can do about an error depends on its kind.
func ExampleError() {
	gateway := exampleGateway(&jsonrpc.Error{
		Code: jsonrpc.CodeLimitExceeded, Message: "rate limit exceeded", Data: jsontext.Value(`{"reason":"rate_limited"}`),
	}, http.StatusTooManyRequests)
	defer gateway.Close()

	c, err := client.New(client.Config{URLs: []string{gateway.URL}, Signer: exampleSigner()})
	if err != nil {
		fmt.Println(err)
		return
	}
	signed, err := c.Sign(client.Request{Workflow: workflow.Reference{ID: "0xabc"}, Input: jsontext.Value(`{}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Send(context.Background(), signed)
	var refused *client.Error
	var agreed *client.NodeError
	switch {
	case errors.Is(err, client.ErrRateLimited) && errors.As(err, &refused):
		fmt.Println("send the same bytes again after", refused.RetryAfter)
	case errors.Is(err, client.ErrUnknownOutcome):
		fmt.Println("it may have run: ask with Outcome")
	case errors.As(err, &agreed):
		fmt.Println("the nodes agreed that it failed:", agreed.Message)
	default:
		fmt.Println(err)
	}
	// Output: send the same bytes again after 2s
}

// A request whose connection was lost is asked for under its id.
func ExampleClient_Outcome() {
	gateway := exampleGateway(&jsonrpc.Error{Code: jsonrpc.CodeConflict, Message: "the request id is in use", Data: jsontext.Value(
		`{"reason":"conflict","state":"answered","workflow_execution_id":"6b1c","response":{"jsonrpc":"2.0","id":"order-7","method":"workflows.execute","result":{"status":"ACCEPTED"}}}`,
	)}, http.StatusConflict)
	defer gateway.Close()

	c, err := client.New(client.Config{URLs: []string{gateway.URL}, Signer: exampleSigner()})
	if err != nil {
		fmt.Println(err)
		return
	}
	outcome, err := c.Outcome(context.Background(), client.Request{
		ID: "order-7", Workflow: workflow.Reference{ID: "0xabc"}, Input: jsontext.Value(`{"amount":"1"}`),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(outcome.State, outcome.ExecutionID, string(outcome.Response.Result))
	// Output: answered 6b1c {"status":"ACCEPTED"}
}

// A request can be signed in one place and sent from another.
func ExampleSign() {
	prepared, err := client.BuildRequest(client.Request{ID: "order-7", Workflow: workflow.Reference{ID: "0xabc"}, Input: jsontext.Value(`{"amount":"1"}`)})
	if err != nil {
		fmt.Println(err)
		return
	}
	signed, err := client.Sign(prepared, exampleSigner(), auth.TokenOptions{Now: time.Unix(1764500000, 0), TTL: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(signed.Body))
	fmt.Printf("digest %x\n", signed.Digest)
	fmt.Println("good until", signed.Expires.UTC().Format(time.TimeOnly))
	// Output:
	// {"jsonrpc":"2.0","id":"order-7","method":"workflows.execute","params":{"input":{"amount":"1"},"workflow":{"workflowID":"0xabc"}}}
	// digest 65702c11d17e0d34f4de21e22b4593c1e7978e6a8107df01bf9cb739413b13dc
	// good until 10:54:20
}
