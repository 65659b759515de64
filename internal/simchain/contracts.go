package simchain

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"

	"dongate/testdata/contracts"
)

// Contract is one compiled test contract.
type Contract struct {
	ABI  abi.ABI
	Code []byte // creation code, without arguments
}

// ContractOf returns a compiled test contract by its name in the sources, such as Decryption. It panics where there is none of
// that name: names are written in code. Nobody may change what it returns.
func ContractOf(name string) *Contract {
	c, ok := compiled()[name]
	if !ok {
		panic("simchain: no contract " + name)
	}
	return c
}

// compiled reads the committed contracts once.
var compiled = sync.OnceValue(func() map[string]*Contract {
	var file struct {
		Contracts map[string]struct {
			ABI      abi.ABI `json:"abi"`
			Bytecode string  `json:"bytecode"`
		} `json:"contracts"`
	}
	if err := json.Unmarshal(contracts.JSON, &file); err != nil {
		panic(fmt.Sprintf("simchain: contracts.json: %v", err)) // a fault in a committed file; every test finds it
	}
	out := make(map[string]*Contract, len(file.Contracts))
	for name, c := range file.Contracts {
		out[name] = &Contract{c.ABI, common.FromHex(c.Bytecode)}
	}
	return out
})

// pack encodes a call; the names and types are written in this package.
func pack(contract, method string, args ...any) []byte {
	data, err := ContractOf(contract).ABI.Pack(method, args...)
	if err != nil {
		panic(fmt.Sprintf("simchain: %s.%s: %v", contract, method, err))
	}
	return data
}

// creation returns the code that deploys a contract with its constructor's arguments.
func creation(contract string, args ...any) []byte {
	c := ContractOf(contract)
	encoded, err := c.ABI.Pack("", args...)
	if err != nil {
		panic(fmt.Sprintf("simchain: constructor of %s: %v", contract, err))
	}
	return append(append([]byte(nil), c.Code...), encoded...)
}
