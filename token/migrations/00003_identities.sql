-- +goose Up
-- None of this can be rebuilt from the ledger.
CREATE TABLE {{.Prefix}}id_cfgs (
    id      {{template "text" .}} NOT NULL,
    type    {{template "text" .}} NOT NULL,
    url     {{template "text" .}} NOT NULL,
    conf    {{.Bytes}},
    raw     {{.Bytes}},
    conf_id {{template "text" .}} NOT NULL UNIQUE,
    PRIMARY KEY (id, type, url)
){{template "strict" .}};
CREATE INDEX {{.Prefix}}id_cfgs_type ON {{.Prefix}}id_cfgs (type);

CREATE TABLE {{.Prefix}}wallets (
    identity_hash {{template "text" .}} NOT NULL,
    wallet_id     {{template "text" .}} NOT NULL,
    role_id       {{template "integer" .}} NOT NULL,
    meta          {{.Bytes}},
    enrollment_id {{template "text" .}} NOT NULL,
    created_at    {{.Time}} NOT NULL,
    conf_id       {{template "text" .}} NOT NULL REFERENCES {{.Prefix}}id_cfgs (conf_id),
    PRIMARY KEY (identity_hash, wallet_id, role_id)
){{template "strict" .}};
CREATE INDEX {{.Prefix}}wallets_identity ON {{.Prefix}}wallets (identity_hash, role_id);
CREATE INDEX {{.Prefix}}wallets_wallet ON {{.Prefix}}wallets (wallet_id, role_id);
CREATE INDEX {{.Prefix}}wallets_role ON {{.Prefix}}wallets (role_id, wallet_id);
CREATE INDEX {{.Prefix}}wallets_conf ON {{.Prefix}}wallets (conf_id);

CREATE TABLE {{.Prefix}}id_info (
    identity_hash             {{template "text" .}} NOT NULL PRIMARY KEY,
    identity                  {{.Bytes}} NOT NULL CHECK (length(identity) > 0),
    identity_audit_info       {{.Bytes}} NOT NULL,
    token_metadata            {{.Bytes}},
    token_metadata_audit_info {{.Bytes}}
){{template "strict" .}};

CREATE TABLE {{.Prefix}}id_signers (
    identity_hash {{template "text" .}} NOT NULL PRIMARY KEY,
    identity      {{.Bytes}} NOT NULL CHECK (length(identity) > 0),
    info          {{.Bytes}}
){{template "strict" .}};

CREATE TABLE {{.Prefix}}key_store (
    key {{template "text" .}} NOT NULL PRIMARY KEY CHECK (key <> ''),
    val {{.Bytes}} NOT NULL
){{template "strict" .}};

{{- define "text"}}TEXT{{if .Postgres}} COLLATE "C"{{end}}{{end}}
{{- define "integer"}}{{if .SQLite}}INTEGER{{else}}BIGINT{{end}}{{end}}
{{- define "strict"}}{{if .SQLite}} STRICT{{end}}{{end}}
