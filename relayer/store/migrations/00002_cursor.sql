-- +goose Up
-- One row at most: the last block of which everything has been handled.
CREATE TABLE gateway_chain_cursor (
    id                {{if .Postgres}}BOOLEAN NOT NULL PRIMARY KEY DEFAULT TRUE CHECK (id){{else}}INTEGER NOT NULL PRIMARY KEY CHECK (id = 1){{end}},
    last_block_number {{if .Postgres}}BIGINT{{else}}INTEGER{{end}} NOT NULL CHECK (last_block_number >= 0),
    last_block_hash   {{.Bytes}} NOT NULL CHECK (length(last_block_hash) = 32),
    owner_epoch       {{if .Postgres}}BIGINT{{else}}INTEGER{{end}} NOT NULL DEFAULT 0,
    created_at        {{.Time}} NOT NULL,
    updated_at        {{.Time}} NOT NULL
){{if .SQLite}} STRICT{{end}};
