-- Each time this listener asked for a baseline, and what came of it; the newest is the one whose statement is taken.
CREATE TABLE {schema}.baseline (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    destination text NOT NULL,
    nonce text NOT NULL UNIQUE CHECK (nonce <> ''),
    asked_at timestamptz NOT NULL,
    -- From the first part that came.
    baseline_id uuid,
    digest text CHECK (digest ~ '^[0-9a-f]{64}$'),
    parts integer CHECK (parts > 0),
    applied_at timestamptz,
    -- Aggregates that were moved on; those that had come as far already stayed.
    moved integer,
    CONSTRAINT baseline_begun_whole CHECK (
        (baseline_id IS NULL) = (digest IS NULL) AND (digest IS NULL) = (parts IS NULL)),
    CONSTRAINT baseline_applied_whole CHECK (
        (applied_at IS NULL) = (moved IS NULL) AND (applied_at IS NULL OR baseline_id IS NOT NULL))
);
CREATE INDEX baseline_newest ON {schema}.baseline (tenant, destination, number DESC);

-- The parts as they were signed. Nothing of them counts before all are here; they stay, as what was said.
CREATE TABLE {schema}.baseline_part (
    number bigint NOT NULL REFERENCES {schema}.baseline,
    part integer NOT NULL CHECK (part > 0),
    data_sha256 text NOT NULL CHECK (data_sha256 ~ '^[0-9a-f]{64}$'),
    lanes jsonb NOT NULL,
    staged_at timestamptz NOT NULL,
    PRIMARY KEY (number, part)
);
