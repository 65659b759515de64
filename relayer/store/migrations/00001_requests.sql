-- +goose Up
{{if .Postgres -}}
CREATE TYPE req_status AS ENUM ('queued', 'processing', 'tx_in_flight', 'receipt_received', 'completed', 'timed_out', 'failure');
CREATE TYPE user_decrypt_req_type AS ENUM ('user_decrypt', 'delegated_user_decrypt', 'unified');
CREATE SEQUENCE dispatcher_epoch_seq AS BIGINT;
{{- else -}}
CREATE TABLE dispatcher_epoch_seq (
    id         INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    last_value INTEGER NOT NULL
) STRICT;
INSERT INTO dispatcher_epoch_seq (id, last_value) VALUES (1, 0);
{{- end}}

CREATE TABLE input_proof_req (
{{template "request" .}}
    req_status      {{template "status" .}} DEFAULT 'processing',
    res             {{template "json" .}},
    accepted        {{if .Postgres}}BOOLEAN{{else}}INTEGER CHECK (accepted IN (0, 1)){{end}},
    gw_response_tx_hash TEXT,
    CHECK (req_status <> 'queued')
){{if .SQLite}} STRICT{{end}};

CREATE TABLE public_decrypt_req (
{{template "request" .}}
    req_status      {{template "status" .}} DEFAULT 'queued',
    res             {{template "json" .}},
    gw_response_tx_hash TEXT
){{if .SQLite}} STRICT{{end}};

CREATE TABLE user_decrypt_req (
{{template "request" .}}
    req_status      {{template "status" .}} DEFAULT 'queued',
    gw_consensus_tx_hash TEXT,
    req_type        {{if .Postgres}}user_decrypt_req_type NOT NULL{{else}}TEXT NOT NULL CHECK (req_type IN ('user_decrypt', 'delegated_user_decrypt', 'unified')){{end}},
    resolved_threshold {{template "integer" .}} CHECK (resolved_threshold > 0) -- null: the configured one
){{if .SQLite}} STRICT{{end}};

-- A share stays its request's whatever the chain comes to call the request, or calls by that number, after a re-organisation.
CREATE TABLE user_decrypt_share (
    id              {{template "id" .}},
    req_id          {{template "integer" .}} NOT NULL,
    gw_reference_id {{.Bytes}} NOT NULL CHECK (length(gw_reference_id) = 32),
    tx_hash         TEXT,
    share_index     {{template "integer" .}} NOT NULL,
    share           TEXT NOT NULL,
    kms_signature   TEXT NOT NULL,
    extra_data      TEXT NOT NULL,
    block_hash      {{.Bytes}} NOT NULL CHECK (length(block_hash) = 32), -- a share goes when its block goes
    created_at      {{.Time}} NOT NULL,
    updated_at      {{.Time}} NOT NULL,
    UNIQUE (req_id, share_index)
){{if .SQLite}} STRICT{{end}};
CREATE INDEX user_decrypt_share_block ON user_decrypt_share (block_hash);

-- Every transaction that was ever signed for a request, written before it is sent. The first with a nonce has replaces null, and there is one
-- such row per nonce: no two requests can hold the same. The others with that nonce name an earlier one of the same request.
CREATE TABLE tx_attempt (
    id            {{template "id" .}},
    req_kind      TEXT NOT NULL CHECK (req_kind IN ('input_proof', 'public_decrypt', 'user_decrypt')),
    req_id        {{template "integer" .}} NOT NULL,
    signer        {{.Bytes}} NOT NULL CHECK (length(signer) = 20),
    nonce         {{template "integer" .}} NOT NULL CHECK (nonce >= 0),
    replaces      {{template "integer" .}},
    cancels       {{if .Postgres}}BOOLEAN NOT NULL{{else}}INTEGER NOT NULL CHECK (cancels IN (0, 1)){{end}}, -- a transfer to ourselves that frees the nonce
    fee_cap       {{.Amount}} NOT NULL, -- wei per gas
    tip_cap       {{.Amount}} NOT NULL,
    tx_hash       {{.Bytes}} NOT NULL UNIQUE CHECK (length(tx_hash) = 32),
    raw_tx        {{.Bytes}} NOT NULL,
    owner_epoch   {{template "integer" .}} NOT NULL,
    outcome       TEXT NOT NULL CHECK (outcome IN ('pending', 'mined', 'reverted', 'lost')),
    block_number  {{template "integer" .}},
    block_hash    {{.Bytes}} CHECK (length(block_hash) = 32),
    created_at    {{.Time}} NOT NULL,
    UNIQUE (id, req_kind, req_id, signer, nonce),
    FOREIGN KEY (replaces, req_kind, req_id, signer, nonce) REFERENCES tx_attempt (id, req_kind, req_id, signer, nonce)
){{if .SQLite}} STRICT{{end}};
CREATE UNIQUE INDEX tx_attempt_nonce ON tx_attempt (signer, nonce) WHERE replaces IS NULL;
CREATE INDEX tx_attempt_request ON tx_attempt (req_kind, req_id, id);
CREATE INDEX tx_attempt_replaces ON tx_attempt (replaces) WHERE replaces IS NOT NULL;

-- Events whose request does not know its reference id yet.
CREATE TABLE early_event (
    id              {{template "id" .}},
    req_kind        TEXT NOT NULL CHECK (req_kind IN ('input_proof', 'public_decrypt', 'user_decrypt')),
    gw_reference_id {{.Bytes}} NOT NULL CHECK (length(gw_reference_id) = 32),
    block_hash      {{.Bytes}} NOT NULL CHECK (length(block_hash) = 32),
    log_index       {{template "integer" .}} NOT NULL,
    event           {{.Bytes}} NOT NULL,
    created_at      {{.Time}} NOT NULL,
    UNIQUE (block_hash, log_index)
){{if .SQLite}} STRICT{{end}};
CREATE INDEX early_event_reference ON early_event (req_kind, gw_reference_id, id);

{{if .Postgres}}
{{template "indexes" "input_proof_req"}}{{template "guards_postgres" "input_proof_req"}}
{{template "indexes" "public_decrypt_req"}}{{template "guards_postgres" "public_decrypt_req"}}
{{template "indexes" "user_decrypt_req"}}{{template "guards_postgres" "user_decrypt_req"}}
{{else}}
{{template "indexes" "input_proof_req"}}{{template "guards_sqlite" "input_proof_req"}}
{{template "indexes" "public_decrypt_req"}}{{template "guards_sqlite" "public_decrypt_req"}}
{{template "indexes" "user_decrypt_req"}}{{template "guards_sqlite" "user_decrypt_req"}}
{{end}}

{{- define "integer"}}{{if .SQLite}}INTEGER{{else}}BIGINT{{end}}{{end}}
{{- define "id"}}{{if .SQLite}}INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT{{else}}BIGSERIAL PRIMARY KEY{{end}}{{end}}
{{- define "json"}}{{if .SQLite}}TEXT{{else}}JSONB{{end}}{{end}}
{{- define "status"}}{{if .Postgres}}req_status NOT NULL{{else}}TEXT NOT NULL CHECK (req_status IN
        ('queued', 'processing', 'tx_in_flight', 'receipt_received', 'completed', 'timed_out', 'failure')){{end}}{{end}}

{{- define "request"}}    id              {{template "id" .}},
    ext_job_id      {{if .Postgres}}UUID{{else}}TEXT{{end}} NOT NULL UNIQUE,
    int_job_id      {{.Bytes}} NOT NULL CHECK (length(int_job_id) = 32),
    gw_reference_id {{.Bytes}} CHECK (length(gw_reference_id) = 32),
    req             {{template "json" .}} NOT NULL,
    gw_req_tx_hash  TEXT,
    err_code        TEXT,
    err_reason      TEXT,
    owner_epoch     {{template "integer" .}} NOT NULL DEFAULT 0 CHECK (owner_epoch >= 0),
    state_since     {{.Time}} NOT NULL,
    created_at      {{.Time}} NOT NULL,
    updated_at      {{.Time}} NOT NULL,{{end}}

{{- define "indexes"}}
CREATE UNIQUE INDEX {{.}}_live_job ON {{.}} (int_job_id) WHERE req_status NOT IN ('failure', 'timed_out');
CREATE INDEX {{.}}_reference ON {{.}} (gw_reference_id) WHERE gw_reference_id IS NOT NULL;
CREATE INDEX {{.}}_sweep ON {{.}} (owner_epoch, id) WHERE req_status IN ('queued', 'processing', 'tx_in_flight');
CREATE INDEX {{.}}_active ON {{.}} (req_status, id) WHERE req_status IN ('queued', 'processing', 'tx_in_flight');
CREATE INDEX {{.}}_timeout ON {{.}} (state_since, id) WHERE req_status = 'receipt_received';
CREATE INDEX {{.}}_expiry ON {{.}} (state_since, id) WHERE req_status IN ('completed', 'timed_out', 'failure');
{{end}}

{{- define "first"}}{{if eq . "input_proof_req"}}'processing'{{else}}'queued'{{end}}{{end}}

{{- define "edge"}}(OLD.req_status = 'queued' AND NEW.req_status IN ('processing', 'timed_out', 'failure'))
        OR (OLD.req_status = 'processing' AND NEW.req_status IN ('tx_in_flight', 'failure'))
        OR (OLD.req_status = 'tx_in_flight' AND NEW.req_status IN ('receipt_received', 'failure'))
        OR (OLD.req_status = 'receipt_received' AND NEW.req_status IN ('completed', 'timed_out', 'failure')){{end}}

{{- define "overwritten"}}NEW.id <> OLD.id OR NEW.ext_job_id <> OLD.ext_job_id OR NEW.int_job_id <> OLD.int_job_id OR NEW.req <> OLD.req
        OR NEW.created_at <> OLD.created_at OR NEW.owner_epoch < OLD.owner_epoch
        OR (NEW.req_status = OLD.req_status AND NEW.state_since <> OLD.state_since)
{{- if eq . "user_decrypt_req"}}
        OR NEW.req_type <> OLD.req_type OR (OLD.gw_consensus_tx_hash IS NOT NULL AND NEW.gw_consensus_tx_hash IS DISTINCT FROM OLD.gw_consensus_tx_hash)
{{- end}}
        OR (OLD.req_status IN ('completed', 'timed_out', 'failure') AND (NEW.owner_epoch <> OLD.owner_epoch
            OR NEW.err_code IS DISTINCT FROM OLD.err_code OR NEW.err_reason IS DISTINCT FROM OLD.err_reason
            OR {{if eq . "user_decrypt_req"}}NEW.resolved_threshold IS DISTINCT FROM OLD.resolved_threshold
            {{- else}}NEW.res IS DISTINCT FROM OLD.res OR NEW.gw_response_tx_hash IS DISTINCT FROM OLD.gw_response_tx_hash{{end}}
            {{- if eq . "input_proof_req"}} OR NEW.accepted IS DISTINCT FROM OLD.accepted{{end}})){{end}}

{{- define "guards_sqlite"}}
-- +goose StatementBegin
CREATE TRIGGER {{.}}_first BEFORE INSERT ON {{.}} WHEN NEW.req_status <> {{template "first" .}}
BEGIN SELECT RAISE(ABORT, 'state graph: a request does not begin in this state'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER {{.}}_edge BEFORE UPDATE ON {{.}} WHEN NEW.req_status <> OLD.req_status AND NOT (
        {{template "edge"}})
BEGIN SELECT RAISE(ABORT, 'state graph: no such edge'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER {{.}}_kept BEFORE UPDATE ON {{.}} WHEN {{template "overwritten" .}}
BEGIN SELECT RAISE(ABORT, 'state graph: this may not be overwritten'); END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER {{.}}_last BEFORE DELETE ON {{.}} WHEN OLD.req_status NOT IN ('completed', 'timed_out', 'failure')
BEGIN SELECT RAISE(ABORT, 'state graph: only a final row may be deleted'); END;
-- +goose StatementEnd
{{end}}

{{- define "guards_postgres"}}
-- +goose StatementBegin
CREATE FUNCTION {{.}}_guard() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        IF NEW.req_status <> {{template "first" .}} THEN
            RAISE EXCEPTION 'state graph: a request does not begin in %', NEW.req_status USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    ELSIF TG_OP = 'DELETE' THEN
        IF OLD.req_status NOT IN ('completed', 'timed_out', 'failure') THEN
            RAISE EXCEPTION 'state graph: only a final row may be deleted' USING ERRCODE = 'check_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF NEW.req_status <> OLD.req_status AND NOT (
        {{template "edge"}}) THEN
        RAISE EXCEPTION 'state graph: no edge from % to %', OLD.req_status, NEW.req_status USING ERRCODE = 'check_violation';
    END IF;
    IF {{template "overwritten" .}} THEN
        RAISE EXCEPTION 'state graph: this may not be overwritten' USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER {{.}}_guard BEFORE INSERT OR UPDATE OR DELETE ON {{.}} FOR EACH ROW EXECUTE FUNCTION {{.}}_guard();
{{end}}
