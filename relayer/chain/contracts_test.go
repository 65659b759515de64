package chain

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"dongate/relayer/fhevm"

	"github.com/ethereum/go-ethereum/accounts/abi"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/stretchr/testify/require"
)

var (
	aclAddress = addr(0xac)
	decryption = addr(0xde)
	config     = addr(0xcf)
	generation = addr(0x6e)
	pausedData = hexutil.Encode(crypto.Keccak256([]byte("EnforcedPause()"))[:4])
)

// handle returns a handle of a host chain.
func handle(chainID uint64, n byte) (h fhevm.Handle) {
	h[0] = n
	copy(h[22:30], hexutil.MustDecode(fmt.Sprintf("0x%016x", chainID)))
	return h
}

// multicallResult encodes what multicall returns for calls that return booleans.
func multicallResult(t require.TestingT, values ...int) hexutil.Bytes {
	list, err := abi.NewType("bytes[]", "", nil)
	require.NoError(t, err)
	var results [][]byte
	for _, v := range values {
		results = append(results, words(v))
	}
	out, err := abi.Arguments{{Type: list}}.Pack(results)
	require.NoError(t, err)
	return out
}

func TestACL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one, s1, _ := newPool(t, 1)
		two, s2, _ := newPool(t, 1, func(o *PoolOptions) { o.ChainID = testChain; o.Name = "second" })
		r := &Readiness{Hosts: map[uint64]Host{1: {one, aclAddress}, 2: {two, addr(0xad)}}}
		var checks []fhevm.ACLCheck
		for i, id := range []uint64{1, 2, 1} {
			req := &fhevm.PublicDecrypt{CiphertextHandles: []fhevm.Handle{handle(id, byte(i))}}
			checks = append(checks, req.ACLChecks()...)
		}
		s1[0].onCall(aclAddress, fhevm.FuncMulticall.Selector(), result(multicallResult(t, 1, 0)))
		s2[0].onCall(addr(0xad), fhevm.FuncMulticall.Selector(), status(500)).times(1)
		s2[0].onCall(addr(0xad), fhevm.FuncMulticall.Selector(), result(multicallResult(t, 0, 0))).times(1)
		s2[0].onCall(addr(0xad), fhevm.FuncMulticall.Selector(), result(multicallResult(t, 0)))
		start := time.Now()
		denied, err := r.ACL(t.Context(), checks)
		require.NoError(t, err)
		require.Equal(t, checks[1:], denied)
		require.Equal(t, 2*time.Second, time.Since(start), "three tries, a second apart")
		require.Len(t, s1[0].seen(), 1)

		s2[0].clear()
		s2[0].onCall(addr(0xad), fhevm.FuncMulticall.Selector(), fail(3, "execution reverted", pausedData))
		s2[0].seen()
		_, err = r.ACL(t.Context(), checks)
		require.EqualError(t, err, "second: access control: execution reverted: EnforcedPause")
		require.Len(t, s2[0].seen(), 3)

		s2[0].clear()
		s2[0].onCall(addr(0xad), fhevm.FuncMulticall.Selector(), result("0x"))
		_, err = r.ACL(t.Context(), checks)
		require.ErrorIs(t, err, fhevm.ErrABI)

		checks[2].ChainID = 3
		s1[0].seen()
		_, err = r.ACL(t.Context(), checks)
		require.ErrorIs(t, err, ErrUnsupportedChain)
		require.Empty(t, s1[0].seen())

		denied, err = r.ACL(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, denied)

		ctx, cancel := context.WithCancel(t.Context())
		s2[0].clear()
		time.AfterFunc(time.Second/2, cancel)
		_, err = r.ACL(ctx, checks[1:2])
		require.Error(t, err)
	})
}

func TestReady(t *testing.T) {
	t.Parallel()
	p, s, _ := newPool(t, 1)
	r := &Readiness{Gateway: p, Decryption: decryption}
	data := (&fhevm.PublicDecrypt{CiphertextHandles: []fhevm.Handle{handle(1, 1)}}).ReadinessCalldata()
	for _, want := range []int{0, 1} {
		s[0].onCall(decryption, fhevm.FuncPublicReady.Selector(), result(words(want))).times(1)
		ready, err := r.Ready(t.Context(), data)
		require.NoError(t, err)
		require.Equal(t, want == 1, ready)
	}
	missing := append(crypto.Keccak256([]byte("CiphertextMaterialNotFound(bytes32)"))[:4], words(1)...)
	s[0].on("eth_call", fail(3, "execution reverted", hexutil.Encode(missing))).times(1)
	_, err := r.Ready(t.Context(), data)
	var revert *RevertError
	require.ErrorAs(t, err, &revert)
	require.True(t, revert.Retry)
	require.Equal(t, "execution reverted: CiphertextMaterialNotFound", revert.Error())

	s[0].on("eth_call", result("0x")).times(1)
	_, err = r.Ready(t.Context(), data)
	require.ErrorIs(t, err, fhevm.ErrABI)
	s[0].on("eth_call", status(500)).times(1)
	_, err = r.Ready(t.Context(), data)
	require.ErrorIs(t, err, ErrUnavailable)
	ready, err := r.Ready(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, ready, "an input proof waits for nothing")
}

// signedRequest returns a request and signs it with key.
func signedRequest(t *testing.T, key *ecdsa.PrivateKey, user common.Address) *fhevm.UnifiedUserDecrypt {
	t.Helper()
	r := &fhevm.UnifiedUserDecrypt{Entries: []fhevm.HandleOwner{{Handle: handle(1, 1), Owner: user}}, UserAddress: user, PublicKey: []byte{1}, DurationSeconds: 5}
	hash := r.SigningHash(decryption)
	sig, err := crypto.Sign(hash[:], key)
	require.NoError(t, err)
	r.Signature = sig
	return r
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	key, err := crypto.HexToECDSA(testKey)
	require.NoError(t, err)
	yes := words(string(crypto.Keccak256([]byte("isValidSignature(bytes32,bytes)"))[:4]))
	other := func(r *fhevm.UnifiedUserDecrypt) { r.UserAddress = addr(7) }
	for name, c := range map[string]struct {
		change  func(*fhevm.UnifiedUserDecrypt)
		answer  answer
		calls   int
		outcome string
		text    string
	}{
		"the user's own":   {nil, nil, 0, "accepted", ""},
		"wallet says yes":  {other, result(yes), 1, "accepted", ""},
		"approved before":  {func(r *fhevm.UnifiedUserDecrypt) { r.Signature = nil }, result(yes), 1, "accepted", ""},
		"no contract":      {other, result("0x"), 1, "rejected", "the user is no contract"},
		"wallet says no":   {other, result(words(0)), 1, "rejected", "does not accept"},
		"too short":        {other, result(yes[:31]), 1, "rejected", "does not accept"},
		"wallet reverts":   {other, fail(3, "execution reverted", "0x12345678"), 1, "rejected", "error 0x12345678"},
		"reverts silently": {other, fail(-32000, "execution reverted", nil), 1, "rejected", "without a reason"},
		"out of gas":       {other, fail(-32000, "out of gas", nil), 1, "rejected", "reverted"},
		"node errs":        {other, fail(-32000, "header not found", nil), 3, "host_call_failed", "header not found"},
		"node is down":     {other, status(503), 3, "host_call_failed", "HTTP status 503"},
		"too long":         {func(r *fhevm.UnifiedUserDecrypt) { r.Signature = make([]byte, 60_000) }, nil, 0, "rejected", "too long"},
		"other chain":      {func(r *fhevm.UnifiedUserDecrypt) { other(r); r.Entries[0].Handle = handle(2, 1) }, nil, 0, "host_call_failed", "not supported"},
		"no handle":        {func(r *fhevm.UnifiedUserDecrypt) { other(r); r.Entries = nil }, nil, 0, "rejected", "no handle"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, s, _ := newPool(t, 1)
				var outcomes []string
				check := &Signatures{Hosts: map[uint64]Host{1: {p, aclAddress}}, Decryption: decryption, Observe: func(o string) { outcomes = append(outcomes, o) }}
				r := signedRequest(t, key, crypto.PubkeyToAddress(key.PublicKey))
				if c.change != nil {
					c.change(r)
				}
				if c.answer != nil {
					s[0].onCall(r.UserAddress, fhevm.FuncValidSignature.Selector(), c.answer)
				}
				signed := check.Signed(r)
				require.Equal(t, c.outcome == "accepted" && c.calls == 0, signed)
				require.Empty(t, s[0].seen())
				if signed {
					require.Equal(t, []string{"accepted"}, outcomes)
					outcomes = nil
				}
				err := check.Check(t.Context(), r)
				require.Equal(t, []string{c.outcome}, outcomes, err)
				require.Equal(t, c.outcome == "rejected", errors.Is(err, fhevm.ErrSignature), err)
				if c.outcome == "accepted" {
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, c.text)
				}
				calls := s[0].seen()
				require.Len(t, calls, c.calls)
				for _, got := range calls {
					require.Contains(t, got.String(), `"gas":"0x3d090"`)
				}
			})
		})
	}
}

// More wallets than can be asked at once wait, and those who give up are told.
func TestWalletsAreBounded(t *testing.T) {
	t.Parallel()
	key, err := crypto.HexToECDSA(testKey)
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPool(t, 1)
		s[0].on("eth_call", hang)
		check := &Signatures{Hosts: map[uint64]Host{1: {p, aclAddress}}, Retry: Retry{Tries: 1}}
		r := signedRequest(t, key, addr(7))
		var wg sync.WaitGroup
		for range maxWalletCalls {
			wg.Go(func() { check.Check(t.Context(), r) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, check.Check(ctx, r), context.DeadlineExceeded)
		require.Len(t, s[0].seen(), maxWalletCalls)
		wg.Wait()
	})
}

// extra returns extra data of version 1 that names a context.
func extra(n int) []byte { return append([]byte{1}, words(n)...) }

func TestThresholds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPool(t, 1)
		_, err := NewThresholds(ThresholdOptions{})
		require.ErrorContains(t, err, "0 shares")
		th, err := NewThresholds(ThresholdOptions{Pool: p, ProtocolConfig: config, Static: 9})
		require.NoError(t, err)
		for _, e := range [][]byte{nil, {0}, {0, 1, 2}} {
			n, err := th.Resolve(t.Context(), e)
			require.NoError(t, err)
			require.EqualValues(t, 9, n)
			n, known := th.Known(e)
			require.True(t, known)
			require.EqualValues(t, 9, n)
		}
		for _, e := range [][]byte{{1}, {3}, extra(1)[:32], append([]byte{2}, make([]byte, 63)...)} {
			_, err := th.Resolve(t.Context(), e)
			require.ErrorIs(t, err, fhevm.ErrABI)
			_, known := th.Known(e)
			require.False(t, known)
		}
		_, known := th.Known(extra(1))
		require.False(t, known)
		require.Empty(t, s[0].seen())

		answerWith := func(a answer) *rule { return s[0].onCall(config, fhevm.FuncThreshold.Selector(), a) }
		for _, bad := range []answer{result(words(0)), result("0x"), fail(3, "execution reverted", pausedData)} {
			answerWith(bad).times(3)
			_, err = th.Resolve(t.Context(), extra(1))
			require.Error(t, err)
			s[0].clear()
		}
		s[0].seen()
		answerWith(status(500)).times(2)
		answerWith(result(words(7))).times(1)
		start := time.Now()
		n, err := th.Resolve(t.Context(), extra(1))
		require.NoError(t, err)
		require.EqualValues(t, 7, n)
		require.Equal(t, 400*time.Millisecond, time.Since(start))
		require.Len(t, s[0].seen(), 3)

		// Kept, and asked for again once it is old.
		time.Sleep(thresholdsExpire - time.Millisecond)
		n, err = th.Resolve(t.Context(), extra(1))
		require.NoError(t, err)
		require.EqualValues(t, 7, n)
		n, known = th.Known(extra(1))
		require.True(t, known)
		require.EqualValues(t, 7, n)
		time.Sleep(time.Millisecond)
		_, known = th.Known(extra(1))
		require.False(t, known, "it has expired")
		answerWith(result(words(8)))
		n, err = th.Resolve(t.Context(), extra(1))
		require.NoError(t, err)
		require.EqualValues(t, 8, n)
		require.Len(t, s[0].seen(), 1)

		static, err := NewThresholds(ThresholdOptions{Static: 4})
		require.NoError(t, err)
		n, err = static.Resolve(t.Context(), extra(1))
		require.NoError(t, err)
		require.EqualValues(t, 4, n)
		n, known = static.Known(extra(1))
		require.True(t, known)
		require.EqualValues(t, 4, n)
	})
}

// Questions for one context are one call, and who gives up takes nobody along.
func TestThresholdsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, _ := newPool(t, 1)
		th, err := NewThresholds(ThresholdOptions{Pool: p, ProtocolConfig: config, Static: 9})
		require.NoError(t, err)
		s[0].on("eth_call", hang).times(1)
		s[0].on("eth_call", result(words(5)))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := th.Resolve(ctx, extra(1))
			require.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		for range 20 {
			wg.Go(func() {
				n, err := th.Resolve(t.Context(), extra(1))
				require.NoError(t, err)
				require.EqualValues(t, 5, n)
			})
		}
		synctest.Wait()
		_, known := th.Known(extra(1)) // does not wait
		require.False(t, known)
		cancel()
		wg.Wait()
		require.Len(t, s[0].seen(), 2)
	})
}

func TestThresholdsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		th, err := NewThresholds(ThresholdOptions{Static: 1})
		require.NoError(t, err)
		for i := range maxThresholds + 10 {
			th.keep([32]byte(words(i)), 3)
		}
		require.Len(t, th.known, maxThresholds)
		require.Len(t, th.order, maxThresholds)
		require.NotContains(t, th.known, [32]byte(words(9)))
		require.Contains(t, th.known, [32]byte(words(10)))
		time.Sleep(thresholdsExpire)
		th.keep([32]byte(words(10)), 4)
		require.Len(t, th.known, 1)
		require.Len(t, th.order, 1)
	})
}

// announcement is the log of a context whose first node stores material at url.
func announcement(t require.TestingT, context int, url, prefix string) map[string]any {
	node := []abi.ArgumentMarshaling{
		{Name: "a", Type: "address"}, {Name: "b", Type: "address"}, {Name: "c", Type: "string"}, {Name: "url", Type: "string"},
		{Name: "e", Type: "int32"}, {Name: "f", Type: "string"}, {Name: "g", Type: "bytes"}, {Name: "prefix", Type: "string"},
	}
	nodes, err := abi.NewType("tuple[]", "", node)
	require.NoError(t, err)
	type n struct {
		A, B   common.Address
		C, Url string //revive:disable-line
		E      int32
		F      string
		G      []byte
		Prefix string
	}
	data, err := abi.Arguments{{Type: nodes}}.Pack([]n{{Url: url, Prefix: prefix}, {Url: "https://second"}})
	require.NoError(t, err)
	l := logJSON(3, 0, config, fhevm.EventNewKMSContext.Topic, common.Hash(words(context)), common.Hash{})
	l["data"] = hexutil.Bytes(data)
	return l
}

func TestKeyURL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, logs := newPool(t, 1)
		s[0].on("eth_getBlockByNumber", status(500)).times(1)
		s[0].on("eth_getBlockByNumber", result(headerJSON(77)))
		view := func(a common.Address, f *fhevm.Function, v hexutil.Bytes) *rule {
			return s[0].onCall(a, f.Selector(), result(v))
		}
		view(generation, fhevm.FuncActiveKey, words(4)).times(2)
		view(generation, fhevm.FuncActiveKey, words(6))
		view(generation, fhevm.FuncActiveCRS, words(5))
		view(config, fhevm.FuncCurrentContext, words(7, 8))
		view(generation, fhevm.FuncKeyMaterials, words(0))
		view(generation, fhevm.FuncCRSMaterials, words(0))
		view(config, fhevm.FuncContextAnchor, words(3, 1))
		s[0].on("eth_getLogs", result([]any{announcement(t, 1, "https://wrong", "P"), with(announcement(t, 7, "https://store/", "PUB"), "logIndex", "0x1")}))
		k := NewKeyURL(KeyURLOptions{Pool: p, KMSGeneration: generation, ProtocolConfig: config, Log: p.log})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { k.Run(ctx); close(done) }()
		synctest.Wait()
		_, _, ok := k.Current()
		require.False(t, ok)
		time.Sleep(DefaultKeyURLPoll)
		synctest.Wait()
		key, crs, ok := k.Current()
		require.True(t, ok)
		require.Equal(t, fhevm.KeyMaterial{ID: [32]byte(words(4)), URLs: []string{"https://store/PUB/PublicKey/" + strings.Repeat("0", 63) + "4"}}, key)
		require.Equal(t, fhevm.KeyMaterial{ID: [32]byte(words(5)), URLs: []string{"https://store/PUB/CRS/" + strings.Repeat("0", 63) + "5"}}, crs)
		for _, c := range s[0].seen() {
			if c.Method == "eth_call" {
				require.Equal(t, `"0x4d"`, string(c.Params[1]), "everything is read in the final block")
			}
		}
		time.Sleep(DefaultKeyURLPoll)
		synctest.Wait()
		require.Len(t, s[0].seen(), 4, "nothing new")
		time.Sleep(DefaultKeyURLPoll)
		synctest.Wait()
		key, _, _ = k.Current()
		require.Equal(t, [32]byte(words(6)), key.ID, "rotated")

		s[0].clear()
		time.Sleep(10 * DefaultKeyURLPoll)
		synctest.Wait()
		key, _, ok = k.Current()
		require.True(t, ok)
		require.Equal(t, [32]byte(words(6)), key.ID, "the last reading stays")
		require.Equal(t, 2, logs.FilterMessageSnippet("cannot be read").Len())
		cancel()
		<-done
	})
}

func TestKeyURLRefuses(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*stub){
		"no contract at": func(s *stub) { s.onCall(generation, fhevm.FuncActiveKey.Selector(), result("0x")) },
		"the active CRS": func(s *stub) {
			s.onCall(generation, fhevm.FuncActiveCRS.Selector(), fail(3, "execution reverted", pausedData))
		},
		"the key's materi": func(s *stub) {
			s.onCall(generation, fhevm.FuncKeyMaterials.Selector(), fail(3, "execution reverted", "0x"))
		},
		"CRS's material": func(s *stub) {
			s.onCall(generation, fhevm.FuncCRSMaterials.Selector(), fail(3, "execution reverted", "0x"))
		},
		"current KMS":      func(s *stub) { s.onCall(config, fhevm.FuncCurrentContext.Selector(), result(words(1))) },
		"anchor":           func(s *stub) { s.onCall(config, fhevm.FuncContextAnchor.Selector(), result(words([32]byte{1}, 1))) },
		"not in block 3":   func(s *stub) { s.on("eth_getLogs", result([]any{})) },
		"no http or https": func(s *stub) { s.on("eth_getLogs", result([]any{announcement(t, 7, "s3://bucket", "P")})) },
		"http or https UR": func(s *stub) {
			s.on("eth_getLogs", result([]any{announcement(t, 7, "https://"+strings.Repeat("a", 3000), "P")}))
		},
		"malformed contra": func(s *stub) { s.on("eth_getLogs", result([]any{with(announcement(t, 7, "", ""), "data", "0x")})) },
		"the final block":  func(s *stub) { s.on("eth_getBlockByNumber", result(nil)) },
	} {
		p, s, _ := newPool(t, 1)
		broken(s[0])
		s[0].on("eth_getBlockByNumber", result(headerJSON(77)))
		s[0].onCall(config, fhevm.FuncCurrentContext.Selector(), result(words(7, 8)))
		s[0].onCall(config, fhevm.FuncContextAnchor.Selector(), result(words(3, 1)))
		s[0].on("eth_call", result(words(1)))
		s[0].on("eth_getLogs", result([]any{announcement(t, 7, "https://store", "P")}))
		k := NewKeyURL(KeyURLOptions{Pool: p, KMSGeneration: generation, ProtocolConfig: config})
		require.ErrorContains(t, k.poll(t.Context()), name)
		_, _, ok := k.Current()
		require.False(t, ok)
	}
	static := NewKeyURL(KeyURLOptions{Static: &KeyMaterials{Key: fhevm.KeyMaterial{ID: [32]byte{1}}}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	static.Run(ctx)
	key, _, ok := static.Current()
	require.True(t, ok)
	require.Equal(t, [32]byte{1}, key.ID)
}

func TestAccount(t *testing.T) {
	t.Parallel()
	token, spender := addr(0x70), addr(0x5e)
	for _, c := range []struct {
		name                      string
		balance, token, allowance int
		floor                     *big.Int
		native                    bool
		want                      fhevm.Label
	}{
		{"can pay", 1, 1, 1, nil, false, ""},
		{"empty", 0, 1, 1, nil, false, fhevm.LabelInsufficientBalance},
		{"no token", 1, 0, 0, nil, false, fhevm.LabelInsufficientBalance},
		{"no allowance", 1, 1, 0, nil, false, fhevm.LabelInsufficientAllowance},
		{"below a floor", 9, 10, 10, num(10), false, fhevm.LabelInsufficientBalance},
		{"token below a floor", 10, 9, 10, num(10), false, fhevm.LabelInsufficientBalance},
		{"allowance below a floor", 10, 10, 9, num(10), false, fhevm.LabelInsufficientAllowance},
		{"on a floor", 10, 10, 10, num(10), false, ""},
		{"native alone", 1, 0, 0, nil, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, s, _ := newPool(t, 1)
			s[0].on("eth_getBalance", result(hexutil.EncodeUint64(uint64(c.balance))))
			s[0].onCall(token, fhevm.FuncBalanceOf.Selector(), result(words(c.token)))
			s[0].onCall(token, fhevm.FuncAllowance.Selector(), result(words(c.allowance)))
			o := AccountOptions{Pool: p, Address: addr(1), FeeToken: token, FeeSpender: spender, MinBalance: c.floor, MinToken: c.floor, MinAllowance: c.floor}
			if c.native {
				o.FeeSpender = common.Address{}
			}
			a := NewAccount(o)
			_, blocked := a.Label()
			require.False(t, blocked, "nothing is known yet")
			require.NoError(t, a.Refresh(t.Context()))
			label, blocked := a.Label()
			require.Equal(t, c.want, label)
			require.Equal(t, c.want != "", blocked)
			m := a.Snapshot()
			require.EqualValues(t, c.balance, m.Balance.Int64())
			require.Equal(t, c.native, m.Token == nil && m.Allowance == nil)

			s[0].clear()
			s[0].on("eth_getBalance", status(500))
			require.Error(t, a.Refresh(t.Context()))
			label, _ = a.Label()
			require.Equal(t, c.want, label, "what was read stays")
			require.Error(t, a.Snapshot().Err)
			require.Equal(t, m.Balance, a.Snapshot().Balance)
		})
	}
}

func TestAccountRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, s, logs := newPool(t, 1)
		s[0].on("eth_getBalance", result("0x0")).times(2)
		s[0].on("eth_getBalance", status(500)).times(2)
		s[0].on("eth_getBalance", result("0x1"))
		a := NewAccount(AccountOptions{Pool: p, Address: addr(1), Log: p.log})
		ctx, cancel := context.WithTimeout(t.Context(), 5*DefaultAccountPoll)
		defer cancel()
		a.Run(ctx)
		for text, n := range map[string]int{"cannot pay": 1, "can pay again": 1, "cannot be read": 1} {
			require.Equal(t, n, logs.FilterMessageSnippet(text).Len(), text)
		}
	})
}

func TestRetryUsesItsTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		err := Retry{Tries: 5, Pause: time.Minute}.do(t.Context(), func(context.Context) error { n++; return errMalformed }, never)
		require.ErrorIs(t, err, errMalformed)
		require.Equal(t, 5, n)
	})
}
