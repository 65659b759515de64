-- +goose Up
-- Neither table has an index on expires_at: what has expired is found by going through the keys, a few with every claim, which costs less
-- than keeping an index in order.
CREATE TABLE claimed_tokens (
    token_key  {{.Bytes}} NOT NULL PRIMARY KEY CHECK (length(token_key) = 16), -- of signer and jti
    holder     {{template "integer" .}} NOT NULL,                              -- random, of the claim that took it
    expires_at {{template "integer" .}} NOT NULL                               -- ms since 1970
){{if .SQLite}} STRICT, WITHOUT ROWID{{end}};

CREATE TABLE request_ids (
    request_key {{.Bytes}} NOT NULL PRIMARY KEY CHECK (length(request_key) = 16), -- of workflow and request id
    holder      {{template "integer" .}} NOT NULL,
    signer      {{.Bytes}} NOT NULL CHECK (length(signer) = 20),
    state       TEXT NOT NULL CHECK (state IN ('open', 'answered', 'failed')),
    answer      {{.Bytes}},
    expires_at  {{template "integer" .}} NOT NULL,
    CHECK (answer IS NULL OR state = 'answered')
){{if .SQLite}} STRICT{{end}};
{{- define "integer"}}{{if .SQLite}}INTEGER{{else}}BIGINT{{end}}{{end}}
