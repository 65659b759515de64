package simchain

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// Config is what somebody needs to use a chain: where it is, its contracts, and the keys of funded accounts.
type Config struct {
	ChainID uint64 `json:"chainId"`
	HTTP    string `json:"http"` // http://127.0.0.1:port
	WS      string `json:"ws"`   // ws://127.0.0.1:port

	Decryption        common.Address `json:"decryption"`
	InputVerification common.Address `json:"inputVerification"`
	ACL               common.Address `json:"acl"`
	ProtocolConfig    common.Address `json:"protocolConfig"`
	KMSGeneration     common.Address `json:"kmsGeneration"`
	FeeToken          common.Address `json:"feeToken"`
	FeeSpender        common.Address `json:"feeSpender"` // the payment contract
	Wallet            common.Address `json:"wallet"`     // an ERC-1271 user that [UserAccount](0) owns

	Accounts   []Account   `json:"accounts"` // for relayers: funded with the chain's coin and fee tokens, which the spender may take
	Nodes      int         `json:"nodes"`
	Threshold  int64       `json:"threshold"`
	Context    common.Hash `json:"context"`    // the KMS context in force at the start
	Epoch      common.Hash `json:"epoch"`      // and its epoch
	StartBlock int64       `json:"startBlock"` // the first block in which requests can be
}

const deployGas = 8_000_000

// deploy creates the contracts and sets them up in one block or two.
func (d *dev) deploy(ctx context.Context) error {
	admin := Admin()
	var txs []*types.Transaction
	create := func(code []byte) common.Address {
		at := crypto.CreateAddress(admin.Address, uint64(len(txs)))
		txs = append(txs, admin.signGas(uint64(len(txs)), nil, new(big.Int), code, deployGas))
		return at
	}
	call := func(to common.Address, data []byte) {
		txs = append(txs, admin.sign(uint64(len(txs)), &to, new(big.Int), data))
	}
	o := d.options
	c := Config{ChainID: ChainID, HTTP: d.backend.stack.HTTPEndpoint(), WS: d.backend.stack.WSEndpoint(), Nodes: o.Nodes, Threshold: o.Threshold}
	c.FeeToken = create(creation("FeeToken"))
	c.FeeSpender = create(creation("Payment", c.FeeToken, new(big.Int).SetUint64(o.Fee)))
	c.Decryption = create(creation("Decryption", c.FeeSpender, big.NewInt(o.Threshold), !o.Closed))
	c.InputVerification = create(creation("InputVerification", c.FeeSpender))
	c.ACL = create(creation("ACL", !o.Closed))
	c.ProtocolConfig = create(creation("ProtocolConfig"))
	c.KMSGeneration = create(creation("KMSGeneration"))
	c.Wallet = create(creation("Wallet1271", UserAccount(0).Address))
	call(c.ProtocolConfig, pack("ProtocolConfig", "newContext", []string{storageURL}, []string{storageDir}, big.NewInt(o.Threshold)))
	for i := range o.Accounts {
		a := AccountOf(i)
		c.Accounts = append(c.Accounts, a)
		call(c.FeeToken, pack("FeeToken", "setBalance", a.Address, ether(1_000_000)))
		call(c.FeeToken, pack("FeeToken", "setAllowance", a.Address, c.FeeSpender, ether(1_000_000)))
	}
	for i, tx := range txs {
		if err := d.eth.SendTransaction(ctx, tx); err != nil {
			return fmt.Errorf("transaction %d: %w", i, err)
		}
	}
	if err := d.mined(ctx, txs[len(txs)-1].Hash()); err != nil {
		return err
	}
	for i, tx := range txs {
		if r, err := d.eth.TransactionReceipt(ctx, tx.Hash()); err != nil || r.Status != types.ReceiptStatusSuccessful {
			return fmt.Errorf("transaction %d did not succeed (%w)", i, err)
		}
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !d.backend.indexed() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the index of transactions: %w", ctx.Err())
		}
	}
	c.StartBlock = d.backend.head().Number.Int64() + 1
	c.Context[0], c.Context[31], c.Epoch[0], c.Epoch[31] = 7, 1, 8, 1
	d.config = c
	return nil
}
