package tokendb

import (
	"dongate/storage"
	"dongate/storage/query"
)

// tables are the tables of one TMS that this store reads and writes.
type tables struct {
	tokens                                      query.Table
	txID                                        query.Column[string]
	idx                                         query.Column[int64]
	amount                                      query.Column[any]
	tokenType, quantity, ownerType, ownerWallet query.Column[string]
	issuerRaw, ownerRaw, ownerIdentity          query.Column[[]byte]
	ledger, ledgerMetadata                      query.Column[[]byte]
	ledgerType                                  query.Column[string]
	storedAt, spentAt                           query.Column[storage.Time]
	isDeleted                                   query.Column[bool]
	spentBy                                     query.Column[string]
	owner, auditor, issuer, redeemed, canSpend  query.Column[bool]

	own       query.Table
	ownTxID   query.Column[string]
	ownIdx    query.Column[int64]
	ownWallet query.Column[string]

	locks     query.Table
	lockTxID  query.Column[string]
	lockIdx   query.Column[int64]
	crts      query.Table
	crtTxID   query.Column[string]
	crtIdx    query.Column[int64]
	crt       query.Column[[]byte]
	crtStored query.Column[storage.Time]

	cleanups  query.Table
	cleanTxID query.Column[string]
	cleanIdx  query.Column[int64]
	cleanedAt query.Column[storage.Time]
	cleanedBy query.Column[string]

	params     query.Table
	paramSeq   query.Column[int64]
	paramHash  query.Column[[]byte]
	paramRaw   query.Column[[]byte]
	paramStore query.Column[storage.Time]
}

func newTables(prefix string) tables {
	tokens, own, locks := query.NewTable(prefix+"tokens"), query.NewTable(prefix+"tkn_own"), query.NewTable(prefix+"tkn_locks")
	crts, cleanups, params := query.NewTable(prefix+"tkn_crts"), query.NewTable(prefix+"tkn_ski_cleanups"), query.NewTable(prefix+"public_params")
	return tables{
		tokens: tokens, txID: query.NewColumn[string](tokens, "tx_id"), idx: query.NewColumn[int64](tokens, "idx"),
		amount: query.NewColumn[any](tokens, "amount"), tokenType: query.NewColumn[string](tokens, "token_type"),
		quantity: query.NewColumn[string](tokens, "quantity"), ownerType: query.NewColumn[string](tokens, "owner_type"),
		ownerWallet: query.NewColumn[string](tokens, "owner_wallet_id"), issuerRaw: query.NewColumn[[]byte](tokens, "issuer_raw"),
		ownerRaw: query.NewColumn[[]byte](tokens, "owner_raw"), ownerIdentity: query.NewColumn[[]byte](tokens, "owner_identity"),
		ledger: query.NewColumn[[]byte](tokens, "ledger"), ledgerMetadata: query.NewColumn[[]byte](tokens, "ledger_metadata"),
		ledgerType: query.NewColumn[string](tokens, "ledger_type"), storedAt: query.NewColumn[storage.Time](tokens, "stored_at"),
		spentAt: query.NewColumn[storage.Time](tokens, "spent_at"), isDeleted: query.NewColumn[bool](tokens, "is_deleted"),
		spentBy: query.NewColumn[string](tokens, "spent_by"), owner: query.NewColumn[bool](tokens, "owner"),
		auditor: query.NewColumn[bool](tokens, "auditor"), issuer: query.NewColumn[bool](tokens, "issuer"),
		redeemed: query.NewColumn[bool](tokens, "redeemed"), canSpend: query.NewColumn[bool](tokens, "spendable"),

		own: own, ownTxID: query.NewColumn[string](own, "tx_id"), ownIdx: query.NewColumn[int64](own, "idx"),
		ownWallet: query.NewColumn[string](own, "wallet_id"),

		locks: locks, lockTxID: query.NewColumn[string](locks, "tx_id"), lockIdx: query.NewColumn[int64](locks, "idx"),

		crts: crts, crtTxID: query.NewColumn[string](crts, "tx_id"), crtIdx: query.NewColumn[int64](crts, "idx"),
		crt: query.NewColumn[[]byte](crts, "certification"), crtStored: query.NewColumn[storage.Time](crts, "stored_at"),

		cleanups: cleanups, cleanTxID: query.NewColumn[string](cleanups, "tx_id"), cleanIdx: query.NewColumn[int64](cleanups, "idx"),
		cleanedAt: query.NewColumn[storage.Time](cleanups, "cleaned_at"), cleanedBy: query.NewColumn[string](cleanups, "cleaned_by"),

		params: params, paramSeq: query.NewColumn[int64](params, "seq"), paramHash: query.NewColumn[[]byte](params, "raw_hash"),
		paramRaw: query.NewColumn[[]byte](params, "raw"), paramStore: query.NewColumn[storage.Time](params, "stored_at"),
	}
}

// unspent is true of tokens that one of our wallets owns and nobody spent, in the words of the index tokens_owner_live.
func (t *tables) unspent() query.Cond {
	return query.And(query.IsTrue(t.owner), query.Not(query.IsTrue(t.isDeleted)))
}

// spendable is true of unspent tokens that can be spent, in the words of the index tokens_canSpendamount.
func (t *tables) spendable() query.Cond {
	return query.And(query.IsTrue(t.owner), query.IsTrue(t.canSpend), query.Not(query.IsTrue(t.isDeleted)))
}

// named is the condition c = v, absent where v is empty.
func named(c query.Column[string], v string) query.Cond {
	if v == "" {
		return query.Cond{}
	}
	return c.Eq(v)
}
