package connector_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

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
