package chain

import (
	"fmt"
	"strings"
	"testing"

	"dongate/relayer/fhevm"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/stretchr/testify/require"
)

func TestOnline(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 3)
	down, _, _ := newPool(t, 1, func(o *PoolOptions) { o.Name, o.URLs = "host chain", []string{"http://gone.test/" + secret} })
	s[1].on("eth_chainId", result("0x1"))
	s[2].on("eth_chainId", fail(-32000, "no "+secret, nil))
	s[0].on("eth_getCode", result("0x6001")).times(1)
	s[0].on("eth_getCode", result("0x"))
	s[0].on("eth_getBalance", result("0x5"))
	s[0].onCall(addr(5), fhevm.FuncBalanceOf.Selector(), result(words(0)))
	s[0].onCall(addr(5), fhevm.FuncAllowance.Selector(), result(words(9)))
	w := newWSServer(t, p, s[0])
	findings := Online(t.Context(), OnlineOptions{
		Pools: []*Pool{p, down},
		Contracts: []Contract{
			{"relayer.contracts.decryption", decryption, p}, {"relayer.contracts.inputVerification", config, p}, {"relayer.hostChains[0].acl", aclAddress, down},
		},
		Account:       NewAccount(AccountOptions{Pool: p, Address: addr(1), FeeToken: addr(5), FeeSpender: addr(6), MinBalance: num(6)}),
		Subscriptions: []string{"ws://ws.test/" + secret, "http://ws.test/" + secret}, Gateway: p,
	})
	lines := strings.Builder{}
	for _, f := range findings {
		lines.WriteString(f.String() + "\n")
		require.Equal(t, f.OK, f.Do == "", "what to do")
	}
	require.Equal(t, fmt.Sprintf(`ok: test chain, node a.test: chain id 654321
problem: test chain, node b.test: its chain id is 1, not 654321: correct the URL or the chain id
problem: test chain, node c.test: no node answered: malformed answer: check the URL and that the node runs
problem: host chain, node gone.test: no node answered: connection refused: check the URL and that the node runs
ok: test chain, listener ws.test: takes subscriptions
problem: test chain, listener: not a ws or wss URL: correct the URL
ok: relayer.contracts.decryption %s: 2 bytes of code
problem: relayer.contracts.inputVerification %s: no contract on test chain: correct the address
problem: signer %s: balance in wei 5 is less than 6: send it native tokens of test chain
problem: signer %[3]s: balance of the fee token 0 is less than 1: send it fee tokens (%[4]s)
ok: signer %[3]s: allowance of the fee token 9
`, decryption, config, addr(1), addr(5)), lines.String())

	s[0].clear()
	s[0].on("eth_getBalance", result("0x5"))
	s[0].on("eth_chainId", result(hexutil.Uint64(7)))
	f := p.subscriptionFinding(t.Context(), "ws://ws.test")
	require.Equal(t, "problem: test chain, listener ws.test: the node is of another chain: correct the URL", f.String())
	w.refuse(403)
	f = p.subscriptionFinding(t.Context(), "ws://ws.test")
	require.Equal(t, "problem: test chain, listener ws.test: HTTP status 403: check the URL and that the node takes WebSocket connections", f.String())

	a := NewAccount(AccountOptions{Pool: p, Address: common.Address{}, FeeToken: addr(5), FeeSpender: addr(6)})
	require.Contains(t, a.findings(t.Context())[0].String(), "feeToken")
}
