-- +goose Up
-- Twice the same tables: those of the owner's transactions and, with aud_, those of the auditor's.
{{range $i := 2}}{{$p := $.Prefix}}{{if $i}}{{$p = print $.Prefix "aud_"}}{{end}}
-- requests is the parent of everything about a transaction: its raw request and how it ended.
CREATE TABLE {{$p}}requests (
    tx_id                     {{template "text" $}} NOT NULL PRIMARY KEY CHECK (tx_id <> ''),
    request                   {{$.Bytes}} NOT NULL,
    status                    {{template "status" $}},
    status_message            TEXT NOT NULL DEFAULT '',
    application_metadata      {{template "json" $}} NOT NULL,
    public_metadata           {{template "json" $}} NOT NULL,
    pp_hash                   {{$.Bytes}} NOT NULL,
    recovery_claimed_by       TEXT,
    recovery_claim_expires_at {{$.Time}},
    recovery_attempts         {{template "integer" $}} NOT NULL DEFAULT 0 CHECK (recovery_attempts >= 0),
    stored_at                 {{$.Time}} NOT NULL,
    CHECK ((recovery_claimed_by IS NULL) = (recovery_claim_expires_at IS NULL))
){{template "strict" $}};
CREATE INDEX {{$p}}requests_status ON {{$p}}requests (status, stored_at, tx_id);
CREATE INDEX {{$p}}requests_pending ON {{$p}}requests (stored_at, tx_id) WHERE status = 1;
CREATE INDEX {{$p}}requests_claimed ON {{$p}}requests (recovery_claim_expires_at) WHERE recovery_claim_expires_at IS NOT NULL;

CREATE TABLE {{$p}}txs (
    id            {{template "text" $}} NOT NULL PRIMARY KEY,
    tx_id         {{template "text" $}} NOT NULL REFERENCES {{$p}}requests (tx_id) ON DELETE CASCADE,
    action_type   {{template "integer" $}} NOT NULL CHECK (action_type IN (0, 1, 2)),
    sender_eid    {{template "text" $}} NOT NULL,
    recipient_eid {{template "text" $}} NOT NULL,
    token_type    {{template "text" $}} NOT NULL,
    amount        {{$.Amount}} NOT NULL,
    stored_at     {{$.Time}} NOT NULL
){{template "strict" $}};
CREATE INDEX {{$p}}txs_tx_id ON {{$p}}txs (tx_id);
CREATE INDEX {{$p}}txs_stored_at ON {{$p}}txs (stored_at, id);
CREATE INDEX {{$p}}txs_sender ON {{$p}}txs (sender_eid, stored_at, id);
CREATE INDEX {{$p}}txs_recipient ON {{$p}}txs (recipient_eid, stored_at, id);

CREATE TABLE {{$p}}movements (
    id            {{template "text" $}} NOT NULL PRIMARY KEY,
    tx_id         {{template "text" $}} NOT NULL REFERENCES {{$p}}requests (tx_id) ON DELETE CASCADE,
    enrollment_id {{template "text" $}} NOT NULL,
    token_type    {{template "text" $}} NOT NULL,
    amount        {{$.Movement}} NOT NULL,
    stored_at     {{$.Time}} NOT NULL
){{template "strict" $}};
CREATE INDEX {{$p}}movements_tx_id ON {{$p}}movements (tx_id);
CREATE INDEX {{$p}}movements_stored_at ON {{$p}}movements (stored_at, id);
CREATE INDEX {{$p}}movements_eid ON {{$p}}movements (enrollment_id, stored_at, id);

-- No reference to the request: an acknowledgement may come before it.
CREATE TABLE {{$p}}tx_ends (
    id        {{template "text" $}} NOT NULL PRIMARY KEY,
    tx_id     {{template "text" $}} NOT NULL,
    endorser  {{$.Bytes}} NOT NULL,
    sigma     {{$.Bytes}} NOT NULL,
    stored_at {{$.Time}} NOT NULL
){{template "strict" $}};
CREATE INDEX {{$p}}tx_ends_tx_id ON {{$p}}tx_ends (tx_id);
{{end}}
-- What an endorser validated, with all it needs: no reference to the requests.
CREATE TABLE {{.Prefix}}req_vals (
    tx_id          {{template "text" .}} NOT NULL PRIMARY KEY CHECK (tx_id <> ''),
    request        {{.Bytes}} NOT NULL,
    metadata       {{.Bytes}} NOT NULL,
    pp_hash        {{.Bytes}} NOT NULL,
    status         {{template "status" .}},
    status_message TEXT NOT NULL DEFAULT '',
    stored_at      {{.Time}} NOT NULL
){{template "strict" .}};
CREATE INDEX {{.Prefix}}req_vals_stored_at ON {{.Prefix}}req_vals (stored_at, tx_id);

-- What the sweeps that compare the records with the ledger found.
CREATE TABLE {{.Prefix}}findings (
    finding_key {{template "text" .}} NOT NULL PRIMARY KEY,
    checker     {{template "text" .}} NOT NULL,
    code        TEXT NOT NULL,
    severity    {{template "integer" .}} NOT NULL,
    tx_id       {{template "text" .}} NOT NULL,
    token_id    TEXT NOT NULL,
    message     TEXT NOT NULL,
    first_seen  {{.Time}} NOT NULL,
    last_seen   {{.Time}} NOT NULL,
    occurrences {{template "integer" .}} NOT NULL,
    resolved_at {{.Time}}
){{template "strict" .}};
CREATE INDEX {{.Prefix}}findings_open ON {{.Prefix}}findings (checker, last_seen) WHERE resolved_at IS NULL;
CREATE INDEX {{.Prefix}}findings_severity ON {{.Prefix}}findings (severity DESC, last_seen DESC);
CREATE INDEX {{.Prefix}}findings_tx_id ON {{.Prefix}}findings (tx_id);

-- Who may audit an enrolment id until when.
CREATE TABLE {{.Prefix}}eid_leases (
    eid        {{template "text" .}} NOT NULL PRIMARY KEY,
    anchor     {{template "text" .}} NOT NULL,
    owner      TEXT NOT NULL,
    expires_at {{.Time}} NOT NULL
){{template "strict" .}};
CREATE INDEX {{.Prefix}}eid_leases_anchor ON {{.Prefix}}eid_leases (anchor);
CREATE INDEX {{.Prefix}}eid_leases_expiry ON {{.Prefix}}eid_leases (expires_at);

-- Who leads a background service until when.
CREATE TABLE {{.Prefix}}leases (
    name       {{template "text" .}} NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL,
    expires_at {{.Time}} NOT NULL
){{template "strict" .}};

-- A transaction that has ended stays as it ended, whoever writes: 1 pending, 2 confirmed, 3 deleted, 4 orphan.
{{- if .Postgres}}
-- +goose StatementBegin
CREATE FUNCTION {{.Prefix}}tx_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'transaction status: %', TG_ARGV[0] USING ERRCODE = 'check_violation';
END $$;
-- +goose StatementEnd
{{- end}}
{{range $i := 3}}{{$t := print $.Prefix "requests"}}{{if eq $i 1}}{{$t = print $.Prefix "aud_requests"}}{{else if eq $i 2}}{{$t = print $.Prefix "req_vals"}}{{end}}
-- +goose StatementBegin
CREATE TRIGGER {{$t}}_edge BEFORE UPDATE OF status ON {{$t}} FOR EACH ROW WHEN (NEW.status <> OLD.status AND NOT (
    (OLD.status = 1 AND NEW.status IN (2, 3, 4)) OR (OLD.status = 4 AND NEW.status IN (2, 3))))
{{if $.SQLite}}BEGIN SELECT RAISE(ABORT, 'transaction status: no such change'); END{{else}}EXECUTE FUNCTION {{$.Prefix}}tx_refuse('no such change'){{end}};
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER {{$t}}_kept BEFORE UPDATE OF tx_id, request, pp_hash, stored_at ON {{$t}} FOR EACH ROW WHEN (
    NEW.tx_id <> OLD.tx_id OR NEW.request <> OLD.request OR NEW.pp_hash <> OLD.pp_hash OR NEW.stored_at <> OLD.stored_at)
{{if $.SQLite}}BEGIN SELECT RAISE(ABORT, 'transaction status: this may not be overwritten'); END{{else}}EXECUTE FUNCTION {{$.Prefix}}tx_refuse('this may not be overwritten'){{end}};
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER {{$t}}_last BEFORE DELETE ON {{$t}} FOR EACH ROW WHEN (OLD.status = 1)
{{if $.SQLite}}BEGIN SELECT RAISE(ABORT, 'transaction status: a pending transaction may not be removed'); END{{else}}EXECUTE FUNCTION {{$.Prefix}}tx_refuse('a pending transaction may not be removed'){{end}};
-- +goose StatementEnd
{{end}}

{{- define "text"}}TEXT{{if .Postgres}} COLLATE "C"{{end}}{{end}}
{{- define "integer"}}{{if .SQLite}}INTEGER{{else}}BIGINT{{end}}{{end}}
{{- define "json"}}{{if .SQLite}}TEXT{{else}}JSONB{{end}}{{end}}
{{- define "status"}}{{if .SQLite}}INTEGER{{else}}SMALLINT{{end}} NOT NULL CHECK (status IN (1, 2, 3, 4)){{end}}
{{- define "strict"}}{{if .SQLite}} STRICT{{end}}{{end}}
