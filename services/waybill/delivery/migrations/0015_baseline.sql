-- Baselines: what a new or restored listener is to be told, proposed by one person, approved by another, then sent.
-- Rows of history throughout. What was approved is the digest, so the parts cannot become others afterwards.
CREATE TABLE {schema}.baseline (
    baseline_id uuid PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant <> ''),
    destination text NOT NULL CHECK (destination <> ''),
    -- What the listener made when it asked.
    nonce text NOT NULL CHECK (nonce <> ''),
    digest text NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
    parts integer NOT NULL CHECK (parts > 0),
    lanes bigint NOT NULL CHECK (lanes > 0),
    config_version bigint NOT NULL,
    proposed_by text NOT NULL CHECK (proposed_by <> ''),
    proposed_at timestamptz NOT NULL,
    reason text NOT NULL CHECK (reason <> ''),
    expires_at timestamptz NOT NULL,
    UNIQUE (baseline_id, proposed_by, digest),
    CONSTRAINT baseline_expires CHECK (expires_at > proposed_at)
);
CREATE INDEX baseline_of_destination ON {schema}.baseline (tenant, destination, proposed_at DESC);

-- The data of each part, byte for byte as they are signed.
CREATE TABLE {schema}.baseline_part (
    baseline_id uuid NOT NULL REFERENCES {schema}.baseline,
    part integer NOT NULL CHECK (part > 0),
    data text NOT NULL,
    PRIMARY KEY (baseline_id, part)
);

-- At most one, of exactly what was proposed, by somebody else.
CREATE TABLE {schema}.baseline_approval (
    baseline_id uuid PRIMARY KEY,
    proposed_by text NOT NULL,
    digest text NOT NULL,
    approved_by text NOT NULL CHECK (approved_by <> ''),
    approved_at timestamptz NOT NULL,
    reason text NOT NULL CHECK (reason <> ''),
    FOREIGN KEY (baseline_id, proposed_by, digest) REFERENCES {schema}.baseline (baseline_id, proposed_by, digest),
    CONSTRAINT baseline_approval_by_another CHECK (lower(approved_by) <> lower(proposed_by))
);

-- Every part that was sent, and what the listener said; none of a statement that nobody approved.
CREATE TABLE {schema}.baseline_sending (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    baseline_id uuid NOT NULL REFERENCES {schema}.baseline_approval,
    part integer NOT NULL,
    sent_by text NOT NULL CHECK (sent_by <> ''),
    sent_at timestamptz NOT NULL,
    outcome text NOT NULL CONSTRAINT baseline_sending_outcome CHECK (outcome IN (
        'written', 'staged', 'applied', 'refused', 'unanswered')),
    detail text NOT NULL DEFAULT '',
    FOREIGN KEY (baseline_id, part) REFERENCES {schema}.baseline_part
);
CREATE INDEX baseline_sending_of ON {schema}.baseline_sending (baseline_id, number);

CREATE FUNCTION {schema}.refuse_baseline_change() RETURNS trigger
LANGUAGE plpgsql AS $function$
BEGIN
    RAISE EXCEPTION 'baselines are history: % on %.% is refused', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', HINT = 'propose another one with waybill baseline propose';
END
$function$;
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.baseline
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_baseline_change();
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.baseline_part
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_baseline_change();
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.baseline_approval
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_baseline_change();
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.baseline_sending
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_baseline_change();
