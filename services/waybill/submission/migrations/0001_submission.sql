-- What was submitted over HTTP, beside the outbox it went to: row and commands are one transaction.
-- Not a queue: nothing is read from here but the answer to whoever asks again.

CREATE TABLE {schema}.submission (
    submission_id uuid PRIMARY KEY,
    tenant text NOT NULL,
    principal text NOT NULL,
    idempotency_key text NOT NULL,
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    accepted_at timestamptz NOT NULL,
    -- What the outbox fixed for each command, in the order they came; no data.
    commands jsonb NOT NULL CHECK (jsonb_typeof(commands) = 'array'),
    resubmissions integer NOT NULL DEFAULT 0,
    last_resubmitted_at timestamptz,
    ambiguous_at timestamptz,
    settled_at timestamptz,
    settled_by text,
    settled_why text,
    CONSTRAINT settled_by_somebody_for_a_reason CHECK (
        (settled_at IS NULL) = (settled_by IS NULL) AND (settled_at IS NULL) = (settled_why IS NULL))
);
COMMENT ON COLUMN {schema}.submission.ambiguous_at IS
    'first resubmission that the rule of its principal did not allow: a person decides, until settled_at';
CREATE INDEX submission_ambiguous ON {schema}.submission (tenant, ambiguous_at)
    WHERE ambiguous_at IS NOT NULL AND settled_at IS NULL;
CREATE INDEX submission_age ON {schema}.submission (accepted_at);
