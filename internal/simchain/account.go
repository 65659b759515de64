package simchain

import (
	"crypto/ecdsa"
	"encoding/hex"
	"fmt"
	"math/big"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// Account is a key of the simulation, derived from a name that anybody can read: worth nothing anywhere else.
type Account struct {
	Address common.Address `json:"address"`
	Key     string         `json:"key"` // 64 hex digits
}

// Private returns the account's key.
func (a Account) Private() *ecdsa.PrivateKey {
	key, err := a.private()
	if err != nil {
		panic(fmt.Sprintf("simchain: key of %s: %v", a.Address, err)) // made below
	}
	return key
}

func (a Account) private() (*ecdsa.PrivateKey, error) { return crypto.HexToECDSA(a.Key) }

func addressOf(key *ecdsa.PrivateKey) common.Address { return crypto.PubkeyToAddress(key.PublicKey) }

// AccountOf returns the i-th account for relayers, whether a chain has funded it or not.
func AccountOf(i int) Account { return named(fmt.Sprintf("relayer %d", i)) }

// NodeAccount returns the account from which the i-th KMS node answers.
func NodeAccount(i int) Account { return named(fmt.Sprintf("node %d", i)) }

// UserAccount returns the i-th user, who signs requests and has no coins.
func UserAccount(i int) Account { return named(fmt.Sprintf("user %d", i)) }

// Admin returns the account that deployed the contracts and turns their knobs.
func Admin() Account { return named("admin") }

func named(name string) Account {
	seed := crypto.Keccak256([]byte("dongate simchain " + name))
	key, err := crypto.ToECDSA(seed)
	if err != nil {
		panic(fmt.Sprintf("simchain: key of %s: %v", name, err)) // a hash outside the curve's order: no name has one
	}
	return Account{addressOf(key), hex.EncodeToString(seed)}
}

// What a transaction of the simulation offers per gas. The chain's base fee stays far below.
var (
	feeCap = big.NewInt(100_000_000_000)
	tipCap = big.NewInt(1_000_000_000)
)

// sign makes a transaction with enough gas for any call of the test contracts.
func (a Account) sign(nonce uint64, to *common.Address, value *big.Int, data []byte) *types.Transaction {
	return a.signGas(nonce, to, value, data, 2_500_000+100*uint64(len(data)))
}

func (a Account) signGas(nonce uint64, to *common.Address, value *big.Int, data []byte, gas uint64) *types.Transaction {
	chainID := big.NewInt(ChainID)
	return types.MustSignNewTx(a.Private(), types.LatestSignerForChainID(chainID), &types.DynamicFeeTx{
		ChainID: chainID, Nonce: nonce, GasTipCap: tipCap, GasFeeCap: feeCap, Gas: gas, To: to, Value: value, Data: data,
	})
}

func callMsg(from, to common.Address, value *big.Int, data []byte) ethereum.CallMsg {
	return ethereum.CallMsg{From: from, To: &to, Value: value, Data: data}
}
