package query_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"dongate/storage"
	"dongate/storage/query"
	"dongate/storage/storagetest"
)

// form is one way to put a statement together, with its text and values per backend.
type form struct {
	name      string
	statement query.Statement
	text      string // on both backends
	postgres  string // where it is another
	args      []any
}

func ptr[T any](v T) *T { return &v }

func one(c query.Cond) query.Statement { return query.Select(idx).From(tokens).Where(c) }

const oneText = `SELECT "tokens"."idx" FROM "tokens"`

func conditionForms() []form {
	lock := query.Select(query.Literal(1)).From(locks).Where(query.And(lockTxID.EqColumn(txID), lockIdx.EqColumn(idx)))
	return []form{
		{name: "absent", statement: one(query.Cond{}), text: oneText},
		{name: "everything", statement: one(query.Everything()), text: oneText + ` WHERE 1 = 1`},
		{name: "nothing", statement: one(query.Nothing()), text: oneText + ` WHERE 1 = 0`},
		{name: "eq", statement: one(txID.Eq("a")), text: oneText + ` WHERE "tokens"."tx_id" = $1`, args: []any{"a"}},
		{name: "ne", statement: one(idx.Ne(1)), text: oneText + ` WHERE "tokens"."idx" <> $1`, args: []any{1}},
		{name: "lt", statement: one(amount.Lt(1)), text: oneText + ` WHERE "tokens"."amount" < $1`, args: []any{int64(1)}},
		{name: "le", statement: one(amount.Le(1)), text: oneText + ` WHERE "tokens"."amount" <= $1`, args: []any{int64(1)}},
		{name: "gt", statement: one(amount.Gt(1)), text: oneText + ` WHERE "tokens"."amount" > $1`, args: []any{int64(1)}},
		{name: "ge", statement: one(amount.Ge(1)), text: oneText + ` WHERE "tokens"."amount" >= $1`, args: []any{int64(1)}},
		{name: "bytes", statement: one(id.Eq([]byte{1})), text: oneText + ` WHERE "tokens"."id" = $1`, args: []any{[]byte{1}}},
		{name: "field to field", statement: one(txID.EqColumn(wallet)), text: oneText + ` WHERE "tokens"."tx_id" = "tokens"."owner_wallet"`},
		{name: "value to field", statement: one(query.Compare(query.Value(5), query.LT, amount)), text: oneText + ` WHERE $1 < "tokens"."amount"`, args: []any{5}},
		{name: "null", statement: one(wallet.IsNull()), text: oneText + ` WHERE "tokens"."owner_wallet" IS NULL`},
		{name: "not null", statement: one(query.Not(wallet.IsNull())), text: oneText + ` WHERE "tokens"."owner_wallet" IS NOT NULL`},
		{name: "between", statement: one(amount.Between(ptr[int64](1), ptr[int64](9))), text: oneText + ` WHERE "tokens"."amount" >= $1 AND "tokens"."amount" <= $2`, args: []any{int64(1), int64(9)}},
		{name: "from", statement: one(amount.Between(ptr[int64](1), nil)), text: oneText + ` WHERE "tokens"."amount" >= $1`, args: []any{int64(1)}},
		{name: "to", statement: one(amount.Between(nil, ptr[int64](9))), text: oneText + ` WHERE "tokens"."amount" <= $1`, args: []any{int64(9)}},
		{name: "no bounds", statement: one(amount.Between(nil, nil)), text: oneText},
		{name: "half open", statement: one(txID.HalfOpen(ptr("a"), ptr("b"))), text: oneText + ` WHERE "tokens"."tx_id" >= $1 AND "tokens"."tx_id" < $2`, args: []any{"a", "b"}},
		{name: "half open to", statement: one(txID.HalfOpen(nil, ptr("b"))), text: oneText + ` WHERE "tokens"."tx_id" < $1`, args: []any{"b"}},
		{name: "in", statement: one(txID.In("a", "b", "c")), text: oneText + ` WHERE "tokens"."tx_id" IN ($1, $2, $3)`, args: []any{"a", "b", "c"}},
		{name: "in one", statement: one(txID.In("a")), text: oneText + ` WHERE "tokens"."tx_id" = $1`, args: []any{"a"}},
		{name: "in none", statement: one(txID.In()), text: oneText},
		{name: "tuples", statement: one(query.InPairs(txID, idx, query.Pair[string, int]{First: "a", Second: 1}, query.Pair[string, int]{First: "b", Second: 2})),
			text:     oneText + ` WHERE ("tokens"."tx_id", "tokens"."idx") IN (VALUES ($1, $2), ($3, $4))`,
			postgres: oneText + ` WHERE ("tokens"."tx_id", "tokens"."idx") IN (($1, $2), ($3, $4))`, args: []any{"a", 1, "b", 2}},
		{name: "one tuple", statement: one(query.InPairs(txID, idx, query.Pair[string, int]{First: "a", Second: 1})),
			text: oneText + ` WHERE "tokens"."tx_id" = $1 AND "tokens"."idx" = $2`, args: []any{"a", 1}},
		{name: "no tuple", statement: one(query.InPairs(txID, idx)), text: oneText},
		{name: "triples", statement: one(query.InTriples(txID, idx, amount, query.Triple[string, int, int64]{First: "a", Second: 1, Third: 2}, query.Triple[string, int, int64]{First: "b", Second: 3, Third: 4})),
			text:     oneText + ` WHERE ("tokens"."tx_id", "tokens"."idx", "tokens"."amount") IN (VALUES ($1, $2, $3), ($4, $5, $6))`,
			postgres: oneText + ` WHERE ("tokens"."tx_id", "tokens"."idx", "tokens"."amount") IN (($1, $2, $3), ($4, $5, $6))`, args: []any{"a", 1, int64(2), "b", 3, int64(4)}},
		{name: "one triple", statement: one(query.InTriples(txID, idx, amount, query.Triple[string, int, int64]{First: "a", Second: 1, Third: 2})),
			text: oneText + ` WHERE "tokens"."tx_id" = $1 AND "tokens"."idx" = $2 AND "tokens"."amount" = $3`, args: []any{"a", 1, int64(2)}},
		{name: "no triple", statement: one(query.InTriples(txID, idx, amount)), text: oneText},
		{name: "in select", statement: one(query.InSelect(query.Select(lockTxID, lockIdx).From(locks).Where(holder.Eq("h")), txID, idx)),
			text: oneText + ` WHERE ("tokens"."tx_id", "tokens"."idx") IN (SELECT "locks"."tx_id", "locks"."idx" FROM "locks" WHERE "locks"."holder" = $1)`, args: []any{"h"}},
		{name: "in select of one", statement: one(query.InSelect(query.Select(lockTxID).From(locks), txID)),
			text: oneText + ` WHERE "tokens"."tx_id" IN (SELECT "locks"."tx_id" FROM "locks")`},
		{name: "exists", statement: one(query.Exists(lock)),
			text: oneText + ` WHERE EXISTS (SELECT 1 FROM "locks" WHERE "locks"."tx_id" = "tokens"."tx_id" AND "locks"."idx" = "tokens"."idx")`},
		{name: "not exists", statement: one(query.And(amount.Gt(0), query.Not(query.Exists(lock)))),
			text: oneText + ` WHERE "tokens"."amount" > $1 AND NOT EXISTS (SELECT 1 FROM "locks" WHERE "locks"."tx_id" = "tokens"."tx_id" AND "locks"."idx" = "tokens"."idx")`, args: []any{int64(0)}},
		{name: "literal booleans", statement: one(query.And(query.EqLiteral(isDeleted, false), query.EqLiteral(isDeleted, true))),
			text: oneText + ` WHERE "tokens"."is_deleted" = FALSE AND "tokens"."is_deleted" = TRUE`},
		{name: "boolean columns", statement: one(query.Or(query.IsTrue(isDeleted), query.Not(query.IsTrue(isDeleted)))),
			text: oneText + ` WHERE "tokens"."is_deleted" OR NOT ("tokens"."is_deleted")`},
		{name: "literal integers", statement: one(query.And(query.EqLiteral(state, confirmed), query.InLiteral(state, pending, confirmed), query.EqLiteral(idx, -1))),
			text: oneText + ` WHERE "tokens"."status" = 2 AND "tokens"."status" IN (1, 2) AND "tokens"."idx" = -1`},
		{name: "literal strings", statement: one(query.InLiteral(txID, "a b", "c-1")), text: oneText + ` WHERE "tokens"."tx_id" IN ('a b', 'c-1')`},
		{name: "literal lists", statement: one(query.Or(query.InLiteral(txID), query.InLiteral(idx, 7))), text: oneText + ` WHERE "tokens"."idx" = 7`},
		{name: "or in and", statement: one(query.And(idx.Eq(1), query.Or(idx.Eq(2), query.And(idx.Eq(3), idx.Eq(4))))),
			text: oneText + ` WHERE "tokens"."idx" = $1 AND ("tokens"."idx" = $2 OR "tokens"."idx" = $3 AND "tokens"."idx" = $4)`, args: []any{1, 2, 3, 4}},
		{name: "and in or", statement: one(query.Or(query.And(idx.Eq(1), idx.Eq(2)), query.Or(idx.Eq(3), idx.Eq(4)))),
			text: oneText + ` WHERE "tokens"."idx" = $1 AND "tokens"."idx" = $2 OR "tokens"."idx" = $3 OR "tokens"."idx" = $4`, args: []any{1, 2, 3, 4}},
		{name: "not", statement: one(query.Not(query.Or(idx.Eq(1), idx.Eq(2)))),
			text: oneText + ` WHERE NOT ("tokens"."idx" = $1 OR "tokens"."idx" = $2)`, args: []any{1, 2}},
		{name: "not not", statement: one(query.Not(query.Not(idx.Eq(1)))), text: oneText + ` WHERE "tokens"."idx" = $1`, args: []any{1}},
	}
}

func timeForms() []form {
	const lite, pg = `strftime('%Y-%m-%d %H:%M:%f', 'now')`, `date_trunc('milliseconds', NOW())`
	const liteOff, pgOff = `strftime('%Y-%m-%d %H:%M:%f', 'now', $1)`, `date_trunc('milliseconds', NOW() + CAST($1 AS interval))`
	const at = oneText + ` WHERE "tokens"."stored_at"`
	return []form{
		{name: "in past", statement: one(query.InPast(storedAt)), text: at + ` <= ` + lite, postgres: at + ` <= ` + pg},
		{name: "in future", statement: one(query.InFuture(storedAt)), text: at + ` > ` + lite, postgres: at + ` > ` + pg},
		{name: "older than", statement: one(query.OlderThan(storedAt, 90*time.Minute)), text: at + ` <= ` + liteOff, postgres: at + ` <= ` + pgOff, args: []any{"-5400 seconds"}},
		{name: "newer than", statement: one(query.NewerThan(storedAt, 1500*time.Millisecond)), text: at + ` > ` + liteOff, postgres: at + ` > ` + pgOff, args: []any{"-1.5 seconds"}},
		{name: "before next", statement: one(query.BeforeNext(storedAt, time.Nanosecond)), text: at + ` <= ` + liteOff, postgres: at + ` <= ` + pgOff, args: []any{"+0.000000001 seconds"}},
		{name: "after next", statement: one(query.AfterNext(storedAt, 30*time.Millisecond)), text: at + ` > ` + liteOff, postgres: at + ` > ` + pgOff, args: []any{"+0.03 seconds"}},
		{name: "set now", statement: query.Update(locks).Set(expiresAt.SetNow(0)).Where(holder.Eq("h")),
			text:     `UPDATE "locks" SET "expires_at" = ` + lite + ` WHERE "locks"."holder" = $1`,
			postgres: `UPDATE "locks" SET "expires_at" = ` + pg + ` WHERE "locks"."holder" = $1`, args: []any{"h"}},
		{name: "lease", statement: query.InsertInto(locks).Row(lockTxID.Set("a"), lockIdx.Set(1), holder.Set("h"), expiresAt.SetNow(time.Minute)),
			text:     `INSERT INTO "locks" ("tx_id", "idx", "holder", "expires_at") VALUES ($1, $2, $3, strftime('%Y-%m-%d %H:%M:%f', 'now', $4))`,
			postgres: `INSERT INTO "locks" ("tx_id", "idx", "holder", "expires_at") VALUES ($1, $2, $3, date_trunc('milliseconds', NOW() + CAST($4 AS interval)))`,
			args:     []any{"a", 1, "h", "+60 seconds"}},
	}
}

func selectForms() []form {
	u := tokens.As("u")
	joined := query.Select(txID, holder).From(tokens)
	match := lockTxID.EqColumn(txID)
	const sel = `SELECT "tokens"."tx_id", "locks"."holder" FROM "tokens"`
	const on = ` ON "locks"."tx_id" = "tokens"."tx_id"`
	byWallet := query.Select(txID, amount).From(tokens).Where(wallet.Eq("w"))
	byLock := query.Select(txID, amount).From(tokens).InnerJoin(locks, match).Where(holder.Eq("w"))
	const union = `SELECT "tokens"."tx_id", "tokens"."amount" FROM "tokens" WHERE "tokens"."owner_wallet" = $1` +
		` UNION ALL SELECT "tokens"."tx_id", "tokens"."amount" FROM "tokens" JOIN "locks"` + on + ` WHERE "locks"."holder" = $2`
	return []form{
		{name: "distinct", statement: query.SelectDistinct(wallet).From(tokens), text: `SELECT DISTINCT "tokens"."owner_wallet" FROM "tokens"`},
		{name: "aggregates", statement: query.Select(query.Count(), query.Min(amount), query.Max(amount), query.Sum(amount)).From(tokens),
			text: `SELECT COUNT(*), MIN("tokens"."amount"), MAX("tokens"."amount"), SUM("tokens"."amount") FROM "tokens"`},
		{name: "alias", statement: query.Select(txID.Of(u)).From(u).Where(amount.Of(u).Gt(1)), text: `SELECT "u"."tx_id" FROM "tokens" AS "u" WHERE "u"."amount" > $1`, args: []any{int64(1)}},
		{name: "left join", statement: joined.LeftJoin(locks, match), text: sel + ` LEFT JOIN "locks"` + on},
		{name: "inner join", statement: joined.InnerJoin(locks, match), text: sel + ` JOIN "locks"` + on},
		{name: "right join", statement: joined.RightJoin(locks, match), text: sel + ` RIGHT JOIN "locks"` + on},
		{name: "full join", statement: joined.FullJoin(locks, match), text: sel + ` FULL JOIN "locks"` + on},
		{name: "cross join", statement: joined.CrossJoin(locks), text: sel + ` CROSS JOIN "locks"`},
		{name: "join on absent", statement: joined.LeftJoin(locks, query.Cond{}), text: sel + ` LEFT JOIN "locks" ON 1 = 1`},
		{name: "self join", statement: query.Select(txID).From(tokens).InnerJoin(u, query.And(txID.EqColumn(txID.Of(u)), query.Compare(idx, query.NE, idx.Of(u)))).Where(wallet.Of(u).Eq("w")),
			text: `SELECT "tokens"."tx_id" FROM "tokens" JOIN "tokens" AS "u" ON "tokens"."tx_id" = "u"."tx_id" AND "tokens"."idx" <> "u"."idx" WHERE "u"."owner_wallet" = $1`, args: []any{"w"}},
		{name: "order", statement: query.Select(idx).From(tokens).OrderBy(amount.Desc(), txID.Asc()), text: oneText + ` ORDER BY "tokens"."amount" DESC, "tokens"."tx_id"`},
		{name: "limit", statement: query.Select(idx).From(tokens).Limit(5), text: oneText + ` LIMIT $1`, args: []any{5}},
		{name: "limit and offset", statement: query.Select(idx).From(tokens).Where(idx.Eq(1)).OrderBy(txID.Asc()).Limit(5).Offset(6),
			text: oneText + ` WHERE "tokens"."idx" = $1 ORDER BY "tokens"."tx_id" LIMIT $2 OFFSET $3`, args: []any{1, 5, 6}},
		{name: "no limit", statement: query.Select(idx).From(tokens).Limit(0), text: oneText},
		{name: "limit to none", statement: query.Select(idx).From(tokens).Limit(-1), text: oneText + ` LIMIT 0`},
		{name: "skip locked", statement: query.Select(idx).From(tokens).OrderBy(txID.Asc()).Limit(5).ForUpdateSkipLocked(),
			text: oneText + ` ORDER BY "tokens"."tx_id" LIMIT $1`, postgres: oneText + ` ORDER BY "tokens"."tx_id" LIMIT $1 FOR UPDATE SKIP LOCKED`, args: []any{5}},
		{name: "union all", statement: query.UnionAll(byWallet, byLock), text: union, args: []any{"w", "w"}},
		{name: "union all in order", statement: query.UnionAll(byWallet, byLock).OrderBy(amount.Desc(), txID.Asc()).Limit(3),
			text: union + ` ORDER BY "amount" DESC, "tx_id" LIMIT $3`, args: []any{"w", "w", 3}},
		{name: "union of distinct", statement: query.UnionDistinct(query.Select(idx).From(tokens), query.Select(lockIdx).From(locks)).Limit(2),
			text: oneText + ` UNION SELECT "locks"."idx" FROM "locks" LIMIT $1`, args: []any{2}},
		{name: "in union", statement: one(query.And(amount.Gt(1), query.InSelect(query.UnionAll(query.Select(lockTxID).From(locks).Where(holder.Eq("h")), query.Select(txID).From(tokens).Where(idx.Eq(2))), txID), idx.Lt(3))),
			text: oneText + ` WHERE "tokens"."amount" > $1 AND "tokens"."tx_id" IN (SELECT "locks"."tx_id" FROM "locks" WHERE "locks"."holder" = $2 UNION ALL SELECT "tokens"."tx_id" FROM "tokens" WHERE "tokens"."idx" = $3) AND "tokens"."idx" < $4`,
			args: []any{int64(1), "h", 2, 3}},
	}
}

func changeForms() []form {
	row := query.InsertInto(locks).Row(lockTxID.Set("a"), lockIdx.Set(1), holder.Set("h"))
	const ins = `INSERT INTO "locks" ("tx_id", "idx", "holder") VALUES ($1, $2, $3)`
	args := []any{"a", 1, "h"}
	claim := query.InSelect(query.Select(txID, idx).From(tokens).Where(query.EqLiteral(state, pending)).OrderBy(storedAt.Asc()).Limit(10).ForUpdateSkipLocked(), txID, idx)
	const claimText = `UPDATE "tokens" SET "owner_wallet" = $1 WHERE ("tokens"."tx_id", "tokens"."idx") IN (SELECT "tokens"."tx_id", "tokens"."idx" FROM "tokens" WHERE "tokens"."status" = 1 ORDER BY "tokens"."stored_at" LIMIT $2`
	return []form{
		{name: "insert", statement: row, text: ins, args: args},
		{name: "insert rows", statement: query.InsertInto(locks).Rows([]query.Assignment{lockTxID.Set("a"), holder.Set("h"), lockIdx.Set(1)}, []query.Assignment{lockTxID.Set("b"), holder.Set("i"), lockIdx.SetExpr(query.Literal(2))}),
			text: `INSERT INTO "locks" ("tx_id", "holder", "idx") VALUES ($1, $2, $3), ($4, $5, 2)`, args: []any{"a", "h", 1, "b", "i"}},
		{name: "insert row by row", statement: row.Row(lockTxID.Set("b"), lockIdx.Set(1), holder.Set("i")), text: ins + `, ($4, $5, $6)`, args: []any{"a", 1, "h", "b", 1, "i"}},
		{name: "insert null", statement: query.InsertInto(tokens).Row(txID.Set("n"), idx.Set(1), amount.Set(2), wallet.SetNull()),
			text: `INSERT INTO "tokens" ("tx_id", "idx", "amount", "owner_wallet") VALUES ($1, $2, $3, $4)`, args: []any{"n", 1, int64(2), nil}},
		{name: "insert returning", statement: row.Returning(lockIdx, expiresAt), text: ins + ` RETURNING "locks"."idx", "locks"."expires_at"`, args: args},
		{name: "do nothing on any", statement: row.OnConflictDoNothing(), text: ins + ` ON CONFLICT DO NOTHING`, args: args},
		{name: "do nothing", statement: row.OnConflict(lockTxID, lockIdx).DoNothing(), text: ins + ` ON CONFLICT ("tx_id", "idx") DO NOTHING`, args: args},
		{name: "partial target", statement: row.OnConflict(holder).Where(query.EqLiteral(released, false)).DoNothing().Returning(lockIdx),
			text: ins + ` ON CONFLICT ("holder") WHERE "locks"."released" = FALSE DO NOTHING RETURNING "locks"."idx"`, args: args},
		{name: "do update", statement: row.OnConflict(lockTxID, lockIdx).DoUpdate(holder.Set("x"), expiresAt.SetExpr(query.Now())),
			text:     ins + ` ON CONFLICT ("tx_id", "idx") DO UPDATE SET "holder" = $4, "expires_at" = strftime('%Y-%m-%d %H:%M:%f', 'now')`,
			postgres: ins + ` ON CONFLICT ("tx_id", "idx") DO UPDATE SET "holder" = $4, "expires_at" = date_trunc('milliseconds', NOW())`, args: append(args[:3:3], "x")},
		{name: "overwrite", statement: row.OnConflict(lockTxID, lockIdx).DoUpdate(holder.Overwrite()).Where(query.InPast(expiresAt)).Returning(holder),
			text:     ins + ` ON CONFLICT ("tx_id", "idx") DO UPDATE SET "holder" = excluded."holder" WHERE "locks"."expires_at" <= strftime('%Y-%m-%d %H:%M:%f', 'now') RETURNING "locks"."holder"`,
			postgres: ins + ` ON CONFLICT ("tx_id", "idx") DO UPDATE SET "holder" = excluded."holder" WHERE "locks"."expires_at" <= date_trunc('milliseconds', NOW()) RETURNING "locks"."holder"`, args: args},
		{name: "increment", statement: row.OnConflict(lockTxID, lockIdx).DoUpdate(uses.Increment(2)), text: ins + ` ON CONFLICT ("tx_id", "idx") DO UPDATE SET "uses" = "locks"."uses" + $4`, args: append(args[:3:3], int64(2))},
		{name: "increment by new", statement: row.OnConflict(lockTxID, lockIdx).DoUpdate(uses.IncrementByNew()).Where(query.Compare(uses, query.LT, query.Excluded(uses))),
			text: ins + ` ON CONFLICT ("tx_id", "idx") DO UPDATE SET "uses" = "locks"."uses" + excluded."uses" WHERE "locks"."uses" < excluded."uses"`, args: args},
		{name: "update", statement: query.Update(tokens).Set(state.Set(confirmed), wallet.SetNull()).Where(txID.Eq("a")),
			text: `UPDATE "tokens" SET "status" = $1, "owner_wallet" = $2 WHERE "tokens"."tx_id" = $3`, args: []any{confirmed, nil, "a"}},
		{name: "update all", statement: query.Update(tokens).Set(amount.Increment(1)).Where(query.Everything()), text: `UPDATE "tokens" SET "amount" = "tokens"."amount" + $1 WHERE 1 = 1`, args: []any{int64(1)}},
		{name: "claim", statement: query.Update(tokens).Set(wallet.Set("me")).Where(claim).Returning(txID),
			text:     claimText + `) RETURNING "tokens"."tx_id"`,
			postgres: claimText + ` FOR UPDATE SKIP LOCKED) RETURNING "tokens"."tx_id"`, args: []any{"me", 10}},
		{name: "delete", statement: query.DeleteFrom(locks).Where(holder.Eq("h")).Returning(lockTxID), text: `DELETE FROM "locks" WHERE "locks"."holder" = $1 RETURNING "locks"."tx_id"`, args: []any{"h"}},
		{name: "delete nothing", statement: query.DeleteFrom(locks).Where(query.Nothing()), text: `DELETE FROM "locks" WHERE 1 = 0`},
		{name: "delete a batch", statement: query.DeleteFrom(locks).Where(query.InSelect(query.Select(lockTxID, lockIdx).From(locks).Where(query.InPast(expiresAt)).Limit(100), lockTxID, lockIdx)),
			text:     `DELETE FROM "locks" WHERE ("locks"."tx_id", "locks"."idx") IN (SELECT "locks"."tx_id", "locks"."idx" FROM "locks" WHERE "locks"."expires_at" <= strftime('%Y-%m-%d %H:%M:%f', 'now') LIMIT $1)`,
			postgres: `DELETE FROM "locks" WHERE ("locks"."tx_id", "locks"."idx") IN (SELECT "locks"."tx_id", "locks"."idx" FROM "locks" WHERE "locks"."expires_at" <= date_trunc('milliseconds', NOW()) LIMIT $1)`, args: []any{100}},
	}
}

func pageForms(t *testing.T) []form {
	list := query.Select(idx).From(tokens).Where(amount.Gt(0))
	by := query.SortBy(amount, txID)
	const text = oneText + ` WHERE "tokens"."amount" > $1`
	const asc, desc = ` ORDER BY "tokens"."amount", "tokens"."tx_id"`, ` ORDER BY "tokens"."amount" DESC, "tokens"."tx_id" DESC`
	zero := int64(0)
	second := by.Read(query.KeysetPage(0, 2), 2, 7, "k").Next()
	back := by.Desc().Read(query.KeysetPage(0, 2), 2, 7, "k").Next()
	return []form{
		{name: "unbounded", statement: list.PaginateUnbounded(by, query.Pagination{}), text: text + asc, args: []any{zero}},
		{name: "empty page", statement: list.Paginate(by, query.EmptyPage()), text: text + asc + ` LIMIT 0`, args: []any{zero}},
		{name: "offset page", statement: list.Paginate(by.Desc(), query.OffsetPage(40, 20)), text: text + desc + ` LIMIT $2 OFFSET $3`, args: []any{zero, int64(20), int64(40)}},
		{name: "first page", statement: list.Paginate(by, query.KeysetPage(0, 2)), text: text + asc + ` LIMIT $2`, args: []any{zero, int64(2)}},
		{name: "next page", statement: list.Paginate(by, second), text: text + ` AND ("tokens"."amount", "tokens"."tx_id") > ($2, $3)` + asc + ` LIMIT $4`, args: []any{zero, int64(7), "k", int64(2)}},
		{name: "next page backwards", statement: list.Paginate(by.Desc(), back), text: text + ` AND ("tokens"."amount", "tokens"."tx_id") < ($2, $3)` + desc + ` LIMIT $4`, args: []any{zero, int64(7), "k", int64(2)}},
		{name: "page after next", statement: list.Paginate(by, second.Next()), text: text + asc + ` LIMIT $2 OFFSET $3`, args: []any{zero, int64(2), int64(4)}},
		{name: "page before", statement: list.Paginate(by, second.Prev()), text: text + asc + ` LIMIT $2`, args: []any{zero, int64(2)}},
		{name: "by id alone", statement: query.Select(idx).From(tokens).Paginate(query.SortByID(txID), query.SortByID(txID).Read(query.KeysetPage(3, 1), 1, "k", "k").Next()),
			text: oneText + ` WHERE "tokens"."tx_id" > $1 ORDER BY "tokens"."tx_id" LIMIT $2`, args: []any{"k", int64(1)}},
	}
}

func allForms(t *testing.T) []form {
	var all []form
	for _, forms := range [][]form{conditionForms(), timeForms(), selectForms(), changeForms(), pageForms(t)} {
		all = append(all, forms...)
	}
	return all
}

func TestTextAndValuesOfEachForm(t *testing.T) {
	t.Parallel()
	for _, f := range allForms(t) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			wantArgs := f.args
			if wantArgs == nil {
				wantArgs = []any{}
			}
			text, args, err := f.statement.Format(query.SQLite)
			require.NoError(t, err)
			require.Equal(t, f.text, text)
			require.Equal(t, wantArgs, args)

			want := f.text
			if f.postgres != "" {
				want = f.postgres
			}
			text, args, err = f.statement.Format(query.Postgres)
			require.NoError(t, err)
			require.Equal(t, want, text)
			require.Equal(t, wantArgs, args)
		})
	}
}

func TestEachFormRunsOnBothBackends(t *testing.T) {
	t.Parallel()
	storagetest.Each(t, func(t *testing.T, open func(t *testing.T) *storage.DB) {
		db := open(t)
		create(t, db)
		for _, f := range allForms(t) {
			text, args, err := f.statement.Format(query.For(db.Backend()))
			require.NoError(t, err, f.name)
			tx, err := db.Write().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			rows, err := tx.QueryContext(t.Context(), text, args...)
			require.NoError(t, err, "%s: %s", f.name, text)
			for rows.Next() {
			}
			require.NoError(t, rows.Err(), "%s: %s", f.name, text)
			require.NoError(t, rows.Close())
			require.NoError(t, tx.Rollback())
		}
	})
}
