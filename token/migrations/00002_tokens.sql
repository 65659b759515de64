-- +goose Up
CREATE TABLE {{.Prefix}}tokens (
    tx_id           {{template "text" .}} NOT NULL CHECK (tx_id <> ''),
    idx             {{template "integer" .}} NOT NULL CHECK (idx >= 0),
    amount          {{.Amount}} NOT NULL,
    token_type      {{template "text" .}} NOT NULL,
    quantity        TEXT NOT NULL, -- the amount as the ledger spells it
    issuer_raw      {{.Bytes}},
    owner_raw       {{.Bytes}} NOT NULL,
    owner_type      TEXT NOT NULL,
    owner_identity  {{.Bytes}} NOT NULL,
    owner_wallet_id {{template "text" .}},
    ledger          {{.Bytes}} NOT NULL,
    ledger_metadata {{.Bytes}} NOT NULL,
    ledger_type     {{template "text" .}} NOT NULL DEFAULT '', -- the token's format
    stored_at       {{.Time}} NOT NULL,
    is_deleted      {{template "bool" .}} DEFAULT FALSE,
    spent_by        {{template "text" .}} NOT NULL DEFAULT '',
    spent_at        {{.Time}},
    owner           {{template "bool" .}} DEFAULT FALSE,
    auditor         {{template "bool" .}} DEFAULT FALSE,
    issuer          {{template "bool" .}} DEFAULT FALSE,
    redeemed        {{template "bool" .}} DEFAULT FALSE,
    spendable       {{template "bool" .}} DEFAULT TRUE,
    PRIMARY KEY (tx_id, idx),
{{- if .SQLite}}
    CHECK (is_deleted IN (0, 1) AND owner IN (0, 1) AND auditor IN (0, 1) AND issuer IN (0, 1) AND redeemed IN (0, 1) AND spendable IN (0, 1)),
{{- end}}
    CHECK (is_deleted = (spent_at IS NOT NULL))
){{template "strict" .}};
-- What the selector reads: a range in its order. The key at the end makes every place in it one row's.
CREATE INDEX {{.Prefix}}tokens_spendable_amount ON {{.Prefix}}tokens (owner_wallet_id, token_type, amount, tx_id, idx)
    WHERE owner AND spendable AND NOT is_deleted;
CREATE INDEX {{.Prefix}}tokens_owner_live ON {{.Prefix}}tokens (owner_wallet_id, token_type) WHERE owner AND NOT is_deleted;
CREATE INDEX {{.Prefix}}tokens_owner_spent ON {{.Prefix}}tokens (owner_wallet_id) WHERE owner AND is_deleted;
CREATE INDEX {{.Prefix}}tokens_spent ON {{.Prefix}}tokens (spent_at, tx_id, idx) WHERE is_deleted;
CREATE INDEX {{.Prefix}}tokens_issued ON {{.Prefix}}tokens (redeemed, token_type) WHERE issuer;

-- Which wallets own a token.
CREATE TABLE {{.Prefix}}tkn_own (
    tx_id     {{template "text" .}} NOT NULL,
    idx       {{template "integer" .}} NOT NULL,
    wallet_id {{template "text" .}} NOT NULL,
    PRIMARY KEY (tx_id, idx, wallet_id),
    {{template "token" .}}
){{template "keyed" .}};
CREATE INDEX {{.Prefix}}tkn_own_wallet ON {{.Prefix}}tkn_own (wallet_id, tx_id, idx);

CREATE TABLE {{.Prefix}}tkn_crts (
    tx_id         {{template "text" .}} NOT NULL,
    idx           {{template "integer" .}} NOT NULL,
    certification {{.Bytes}} NOT NULL,
    stored_at     {{.Time}} NOT NULL,
    PRIMARY KEY (tx_id, idx),
    {{template "token" .}}
){{template "strict" .}};

-- Who is about to spend a token: the key decides, one per token. The consumer's request may not exist yet.
CREATE TABLE {{.Prefix}}tkn_locks (
    tx_id          {{template "text" .}} NOT NULL,
    idx            {{template "integer" .}} NOT NULL,
    consumer_tx_id {{template "text" .}} NOT NULL CHECK (consumer_tx_id <> ''),
    wallet_id      {{template "text" .}} NOT NULL DEFAULT '',
    created_at     {{.Time}} NOT NULL, -- by the database's clock
    PRIMARY KEY (tx_id, idx),
    {{template "token" .}}
){{template "keyed" .}};
CREATE INDEX {{.Prefix}}tkn_locks_consumer ON {{.Prefix}}tkn_locks (consumer_tx_id);
CREATE INDEX {{.Prefix}}tkn_locks_created ON {{.Prefix}}tkn_locks (created_at);

-- How the consumers of locks fared, where their requests are in another database: a copy of the status alone.
CREATE TABLE {{.Prefix}}tkn_consumers (
    tx_id  {{template "text" .}} NOT NULL PRIMARY KEY CHECK (tx_id <> ''),
    status {{if .SQLite}}INTEGER{{else}}SMALLINT{{end}} NOT NULL CHECK (status IN (1, 2, 3, 4))
){{template "keyed" .}};

-- Whose keys were removed after the token was spent.
CREATE TABLE {{.Prefix}}tkn_ski_cleanups (
    tx_id      {{template "text" .}} NOT NULL,
    idx        {{template "integer" .}} NOT NULL,
    cleaned_at {{.Time}} NOT NULL,
    cleaned_by TEXT NOT NULL,
    PRIMARY KEY (tx_id, idx),
    {{template "token" .}}
){{template "keyed" .}};
CREATE INDEX {{.Prefix}}tkn_ski_cleanups_at ON {{.Prefix}}tkn_ski_cleanups (cleaned_at);

CREATE TABLE {{.Prefix}}public_params (
    seq       {{if .SQLite}}INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT{{else}}BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY{{end}}, -- in the order they came
    raw_hash  {{.Bytes}} NOT NULL UNIQUE CHECK (length(raw_hash) = 32),
    raw       {{.Bytes}} NOT NULL,
    stored_at {{.Time}} NOT NULL
){{template "strict" .}};

{{- define "token"}}FOREIGN KEY (tx_id, idx) REFERENCES {{.Prefix}}tokens (tx_id, idx) ON DELETE CASCADE{{end}}
{{- define "text"}}TEXT{{if .Postgres}} COLLATE "C"{{end}}{{end}}
{{- define "integer"}}{{if .SQLite}}INTEGER{{else}}BIGINT{{end}}{{end}}
{{- define "bool"}}{{if .SQLite}}INTEGER{{else}}BOOLEAN{{end}} NOT NULL{{end}}
{{- define "strict"}}{{if .SQLite}} STRICT{{end}}{{end}}
{{- define "keyed"}}{{if .SQLite}} STRICT, WITHOUT ROWID{{end}}{{end}}
