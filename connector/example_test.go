package connector_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/ethereum/go-ethereum/crypto"

	"dongate/auth"
	"dongate/connector"
	"dongate/jsonrpc"
	"dongate/workflow"
)

// A node that serves two gateways until it is interrupted, and accepts every trigger.
func ExampleConnector() {
	key, err := crypto.LoadECDSA("node.key")
	if err != nil {
		log.Print(err)
		return
	}
	node, err := connector.New(connector.Config{
		DONID:  "workflow_1",
		Signer: auth.NewKeySigner(key),
		Gateways: []connector.Gateway{
			{URL: "wss://gateway-a.example.com:5003/node", ID: "gateway-a"},
			{URL: "wss://gateway-b.example.com:5003/node", ID: "gateway-b"},
		},
	})
	if err != nil {
		log.Print(err)
		return
	}
	err = node.SetWorkflows([]workflow.Metadata{{
		Selector: workflow.Selector{
			WorkflowID:    "0x0000000000000000000000000000000000000000000000000000000000000abc",
			WorkflowOwner: "0x00000000000000000000000000000000000000aa",
			WorkflowName:  workflow.HashName("price-feed"),
			WorkflowTag:   "v1",
		},
		AuthorizedKeys: []workflow.Key{{KeyType: workflow.KeyTypeECDSAEVM, PublicKey: "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"}},
	}})
	if err != nil {
		log.Print(err)
		return
	}
	node.Handle(connector.MethodExecute, func(_ context.Context, r *jsonrpc.Request) (any, error) {
		trigger, err := connector.DecodeTrigger(r)
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
		return struct {
			WorkflowID  string `json:"workflow_id"`
			ExecutionID string `json:"workflow_execution_id"`
			Status      string `json:"status"`
		}{trigger.Workflow.ID, workflow.ExecutionID(trigger.Workflow.ID, trigger.ID), "ACCEPTED"}, nil
	})

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := node.Run(ctx); err != nil {
		log.Print(err)
	}
}

// A handler that needs a web page. All nodes that are asked at the same time share one call of the gateway's, and what it
// fetched serves them for ten seconds. The latency is left out of the result, because it differs between nodes.
func ExampleConnector_Action() {
	var node *connector.Connector // as in the example of Connector
	price := func(ctx context.Context, r *jsonrpc.Request) (any, error) {
		trigger, err := connector.DecodeTrigger(r)
		if err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: err.Error()}
		}
		response, err := node.Action(ctx, connector.ActionRequest{
			WorkflowID:    trigger.Workflow.ID,
			WorkflowOwner: "0x00000000000000000000000000000000000000aa",
			ExecutionID:   workflow.ExecutionID(trigger.Workflow.ID, trigger.ID),
			URL:           "https://api.example.com/price?pair=ETH-USD",
			Timeout:       2 * time.Second,
			Cache:         connector.ActionCache{MaxAge: 10 * time.Second, Store: true},
		})
		var failed *connector.ActionError
		switch {
		case errors.As(err, &failed) && failed.Validation:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: failed.Message}
		case err != nil:
			return nil, err
		}
		return struct {
			WorkflowID string `json:"workflow_id"`
			Status     int    `json:"status"`
			Price      string `json:"price"`
		}{trigger.Workflow.ID, response.StatusCode, string(response.Body)}, nil
	}
	_ = price // node.Handle(connector.MethodExecute, price)
}

func ExampleDecodeTrigger() {
	request := &jsonrpc.Request{ID: "order-7", Method: connector.MethodExecute, Params: []byte(`{
		"input": {"amount": "9007199254740993"},
		"key": {"keyType": "ecdsa_evm", "publicKey": "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266"},
		"workflow": {"workflowID": "0x0000000000000000000000000000000000000000000000000000000000000abc"}
	}`)}
	trigger, err := connector.DecodeTrigger(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(trigger.ID, string(trigger.Input))
	fmt.Println("signed by", trigger.Key.PublicKey)
	fmt.Println("execution", workflow.ExecutionID(trigger.Workflow.ID, trigger.ID))
	// Output:
	// order-7 {"amount": "9007199254740993"}
	// signed by 0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266
	// execution 0fbc26f166db703c6039c3253fcf2a16fffe8255540478311828a8a0384b41c3
}
