package ttx_test

import (
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"dongate/storage"
	"dongate/storage/storagetest"
	"dongate/token"
	"dongate/token/internal/toyledger"
	"dongate/token/recovery"
	"dongate/token/selector"
	"dongate/token/tokens"
)

// twin is what a node knows, without a database and without any cleverness.
type twin struct {
	tokens  map[token.ID]*twinToken
	locks   map[token.ID]string
	status  map[string]token.TxStatus // of transactions that are stored
	request map[string]*tokens.Transaction
}

type twinToken struct {
	wallet string
	amount *big.Int
	spent  bool
}

func (w *twin) balance(wallet string) *big.Int {
	sum := new(big.Int)
	for _, t := range w.tokens {
		if t.wallet == wallet && !t.spent {
			sum.Add(sum, t.amount)
		}
	}
	return sum
}

func (w *twin) spendable(wallet string) *big.Int {
	sum := new(big.Int)
	for id, t := range w.tokens {
		if t.wallet == wallet && !t.spent && w.locks[id] == "" {
			sum.Add(sum, t.amount)
		}
	}
	return sum
}

func (w *twin) free(consumer string) {
	maps.DeleteFunc(w.locks, func(_ token.ID, by string) bool { return by == consumer })
}

func (w *twin) apply(tx *tokens.Transaction) {
	for _, a := range tx.Actions {
		for _, in := range a.Inputs {
			if t := w.tokens[in.ID]; t != nil {
				t.spent = true
			}
		}
		for _, o := range a.Outputs {
			id := token.ID{TxID: tx.TxID, Index: o.Index}
			if w.tokens[id] == nil && slices.Contains(ours, string(o.OwnerRaw)) {
				w.tokens[id] = &twinToken{string(o.OwnerRaw), o.Amount, false}
			}
		}
	}
}

func (w *twin) finish(txID string, status token.TxStatus) {
	if status == token.Confirmed && w.status[txID] != token.Confirmed {
		w.apply(w.request[txID])
	}
	w.status[txID] = status
	w.free(txID)
}

var ours = []string{"alice", "bob"}

// Whatever is issued, transferred and redeemed, given up, refused by the ledger and spent behind the node's back, and wherever the process
// dies, the node's balances and locks are those of the twin; and after a recovery and a rescan they are the ledger's.
func TestBalancesAreTheTwins(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		for _, apart := range []bool{false, true} {
			t.Run(map[bool]string{false: "one database", true: "two databases"}[apart], func(t *testing.T) {
				db := open(t)
				require.NoError(t, db.Migrate(t.Context(), token.Tables(toyledger.Prefix)))
				m := &machine{T: t, tokensDB: db, transactionsDB: db}
				if apart {
					m.transactionsDB = storagetest.Open(t, storagetest.Config(t, storage.DriverMemory))
					require.NoError(t, m.transactionsDB.Migrate(t.Context(), token.Tables(toyledger.Prefix)))
				}
				rapid.Check(t, m.sequence)
				require.NoError(t, m.node.Close())
			})
		}
	})
}

type machine struct {
	*testing.T
	r                        *rapid.T
	tokensDB, transactionsDB *storage.DB
	node                     *toyledger.Node
	ledger                   *toyledger.Ledger
	twin                     twin
	txs                      int
}

// crash ends the process between two database transactions: all that is in memory is gone.
func (m *machine) crash() {
	var err error
	if m.node != nil {
		require.NoError(m.r, m.node.Close())
	}
	m.node, err = toyledger.NewNode(m.tokensDB, m.transactionsDB, append([]string{"bank"}, ours...)...)
	require.NoError(m.r, err)
}

func (m *machine) sequence(r *rapid.T) {
	m.r, m.ledger = r, toyledger.New()
	m.twin = twin{map[token.ID]*twinToken{}, map[token.ID]string{}, map[string]token.TxStatus{}, map[string]*tokens.Transaction{}}
	clear(m.T, m.tokensDB)
	clear(m.T, m.transactionsDB)
	m.crash()
	for range rapid.IntRange(1, 14).Draw(r, "steps") {
		switch rapid.SampledFrom([]string{"issue", "pay", "pay", "pay", "redeem", "thief", "recover", "clean"}).Draw(r, "step") {
		case "issue":
			m.issue()
		case "pay":
			m.pay(rapid.SampledFrom([]string{"alice", "bob", "mallory"}).Draw(r, "to"))
		case "redeem":
			m.pay("")
		case "thief":
			m.thief()
		case "recover":
			m.recover()
		case "clean":
			m.clean()
		}
		m.compare()
	}
	m.recover()
	m.clean()
	require.Empty(r, m.twin.locks)
	m.compare()
	for range 2 {
		_, err := m.node.Rescan.Rescan(m.Context(), m.ledger, 0, m.node.Owns, nil)
		require.NoError(r, err)
		for tx := range m.ledger.Transactions(m.Context(), 0) {
			if tx.Status == token.Confirmed {
				m.twin.apply(&tx)
			}
		}
		m.compare()
	}
}

func (m *machine) next() string {
	m.txs++
	return fmt.Sprintf("tx%d", m.txs)
}

// amount draws an amount from 1 to 2^255, the edges often.
func (m *machine) amount() *big.Int {
	v := new(big.Int).Lsh(big.NewInt(1), uint(rapid.SampledFrom([]int{1, 2, 8, 53, 63, 64, 128, 254, 255}).Draw(m.r, "bits")))
	return v.Sub(v, big.NewInt(rapid.Int64Range(0, 1).Draw(m.r, "less")))
}

func (m *machine) issue() {
	m.submit(toyledger.Issue(m.next(), "bank", rapid.SampledFrom(ours).Draw(m.r, "owner"), m.amount()))
}

func (m *machine) pay(to string) {
	from, txID, amount := rapid.SampledFrom(ours).Draw(m.r, "from"), m.next(), m.amount()
	if balance := m.twin.balance(from); balance.Sign() > 0 && balance.Cmp(amount) < 0 {
		amount.Add(amount.Mod(amount, balance), big.NewInt(1))
		amount.Rsh(amount, rapid.SampledFrom([]uint{0, 1, 8}).Draw(m.r, "shift"))
		amount.Or(amount, big.NewInt(1))
	}
	inputs, total, err := m.node.Selector.Select(m.Context(), txID, from, "USD", amount)
	switch {
	case m.twin.balance(from).Cmp(amount) < 0:
		require.ErrorIs(m.r, err, selector.ErrInsufficientFunds)
		return
	case m.twin.spendable(from).Cmp(amount) < 0:
		require.ErrorIs(m.r, err, selector.ErrSufficientButLockedFunds)
		return
	}
	require.NoError(m.r, err)
	for _, id := range inputs {
		require.Empty(m.r, m.twin.locks[id], "a token in two transactions")
		require.False(m.r, m.twin.tokens[id].spent)
		m.twin.locks[id] = txID
	}
	m.submit(toyledger.Pay(txID, from, to, amount, total, inputs...))
}

// submit takes a transaction as far as it gets.
func (m *machine) submit(tx *tokens.Transaction) {
	end := rapid.SampledFrom([]string{"confirmed", "confirmed", "confirmed", "dies selected", "rolled back", "lease ends", "dies appended", "given up", "dies submitted", "dies at the end", "twice"}).Draw(m.r, "end")
	spends := len(tx.Actions[0].Inputs) > 0
	switch {
	case end == "dies selected":
		m.crash()
		return
	case end == "rolled back":
		require.NoError(m.r, m.node.Selector.Unselect(m.Context(), tx.TxID))
		m.twin.free(tx.TxID)
		return
	case end == "lease ends" && spends:
		m.clean()
		require.Error(m.r, m.node.TTX.Append(m.Context(), tx, nil))
		is, _, err := m.node.Transactions.GetStatus(m.Context(), tx.TxID)
		require.NoError(m.r, err)
		require.Equal(m.r, token.Unknown, is)
		return
	}
	times := 1
	if end == "twice" {
		times = 2
	}
	for range times {
		require.NoError(m.r, m.node.TTX.Append(m.Context(), tx, map[string][]byte{"n": []byte(tx.TxID)}))
	}
	m.twin.status[tx.TxID], m.twin.request[tx.TxID] = token.Pending, tx
	switch end {
	case "dies appended":
		m.crash()
		return
	case "given up":
		require.NoError(m.r, m.node.TTX.Finish(m.Context(), tx.TxID, token.Deleted, "given up"))
		m.twin.finish(tx.TxID, token.Deleted)
		require.ErrorIs(m.r, m.node.TTX.Finish(m.Context(), tx.TxID, token.Confirmed, ""), token.ErrAlreadyFinal)
		return
	}
	status, message := m.ledger.Submit(tx.Raw)
	if end == "dies submitted" {
		m.crash()
		return
	}
	for range times {
		require.NoError(m.r, m.node.TTX.Finish(m.Context(), tx.TxID, status, message))
	}
	m.twin.finish(tx.TxID, status)
	if end == "twice" {
		require.NoError(m.r, m.node.TTX.Append(m.Context(), tx, nil))
	}
	if end == "dies at the end" {
		m.crash()
	}
}

// thief spends a token of ours on the ledger, and the node does not hear of it.
func (m *machine) thief() {
	all := slices.SortedFunc(maps.Keys(m.twin.tokens), func(a, b token.ID) int { return slices.Compare([]string{a.String()}, []string{b.String()}) })
	if len(all) == 0 {
		return
	}
	id := rapid.SampledFrom(all).Draw(m.r, "stolen")
	t := m.twin.tokens[id]
	m.ledger.Submit(toyledger.Pay(m.next(), t.wallet, "mallory", t.amount, t.amount, id).Raw)
}

// recover finds out what became of what is pending; what the ledger does not know is given up as an orphan.
func (m *machine) recover() {
	for r, err := range m.node.Transactions.QueryTokenRequests(m.Context(), token.Pending) {
		require.NoError(m.r, err)
		status, message, err := m.ledger.TransactionStatus(m.Context(), r.TxID)
		if errors.Is(err, recovery.ErrNotFound) {
			status = token.Orphan
		}
		require.NoError(m.r, m.node.TTX.Finish(m.Context(), r.TxID, status, message))
		m.twin.finish(r.TxID, status)
	}
	for txID, status := range m.twin.status {
		require.NotEqual(m.r, token.Pending, status, txID)
	}
}

// clean ends every lease.
func (m *machine) clean() {
	_, err := m.node.TTX.SyncConsumers(m.Context(), 0)
	require.NoError(m.r, err)
	_, err = m.node.Locks.Cleanup(m.Context(), 0)
	require.NoError(m.r, err)
	maps.DeleteFunc(m.twin.locks, func(_ token.ID, by string) bool { return m.twin.status[by] != token.Pending })
}

func (m *machine) compare() {
	for _, wallet := range ours {
		got, err := m.node.Tokens.Balance(m.Context(), wallet, "USD")
		require.NoError(m.r, err)
		require.Equal(m.r, m.twin.balance(wallet).String(), got.String(), "balance of %s", wallet)
		sum := new(big.Int)
		for v, err := range m.node.Tokens.SpendableTokensBy(m.Context(), wallet, "USD") {
			require.NoError(m.r, err)
			sum.Add(sum, v.Amount)
		}
		require.Equal(m.r, m.twin.spendable(wallet).String(), sum.String(), "what %s can spend", wallet)
	}
	locks := map[token.ID]string{}
	for l, err := range m.node.Locks.ListLocks(m.Context()) {
		require.NoError(m.r, err)
		locks[l.ID] = l.ConsumerTxID
	}
	require.Equal(m.r, m.twin.locks, locks)
}

// clear empties the tables of a sequence before.
func clear(t *testing.T, db *storage.DB) {
	for _, statement := range []string{"UPDATE %srequests SET status = 3 WHERE status = 1", "DELETE FROM %srequests", "DELETE FROM %stkn_consumers", "DELETE FROM %stokens"} {
		_, err := db.Write().ExecContext(t.Context(), fmt.Sprintf(statement, toyledger.Prefix))
		require.NoError(t, err)
	}
}
