-- +goose Up
-- The blocks read of late that had events or ended a range: what a re-organisation took away is found by them, after a restart too.
CREATE TABLE gateway_chain_block (
    block_hash   {{.Bytes}} NOT NULL PRIMARY KEY CHECK (length(block_hash) = 32),
    block_number {{template "integer" .}} NOT NULL CHECK (block_number >= 0)
){{if .SQLite}} STRICT{{end}};
CREATE INDEX gateway_chain_block_number ON gateway_chain_block (block_number);

CREATE INDEX tx_attempt_block ON tx_attempt (block_number, id) WHERE block_number IS NOT NULL;
CREATE INDEX tx_attempt_pending ON tx_attempt (id) WHERE outcome = 'pending';

-- A row while an operator has stopped the sending.
CREATE TABLE dispatcher_pause (
    id        {{template "integer" .}} NOT NULL PRIMARY KEY CHECK (id = 1),
    paused_at {{.Time}} NOT NULL
){{if .SQLite}} STRICT{{end}};
{{- define "integer"}}{{if .SQLite}}INTEGER{{else}}BIGINT{{end}}{{end}}
