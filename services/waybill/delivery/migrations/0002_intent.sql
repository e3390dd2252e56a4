-- What was about to be sent to a destination that cannot bear every repeat: written before the first byte of an
-- attempt, answered before the lane goes on. No answer: that attempt may have acted and nobody knows. Kept as long as
-- a closed row, so that a repeat of the relay finds it.
CREATE TABLE {schema}.intent (
    tenant text NOT NULL,
    destination text NOT NULL,
    delivery_id uuid NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    -- The assignment under which the last attempt was made.
    epoch uuid NOT NULL,
    attempts integer NOT NULL CHECK (attempts > 0),
    -- Attempts of which a byte may have left, and the first of them.
    sends integer NOT NULL CHECK (sends BETWEEN 0 AND attempts),
    first_sent_at timestamptz,
    last_sent_at timestamptz NOT NULL,
    -- What the last attempt came to: codes, numbers and references, never text of the destination.
    answer jsonb,
    PRIMARY KEY (tenant, destination, delivery_id),
    CONSTRAINT intent_first_is_known CHECK ((sends = 0) = (first_sent_at IS NULL)),
    CONSTRAINT intent_unanswered_may_have_left CHECK (answer IS NOT NULL OR sends > 0)
);
CREATE INDEX intent_partition ON {schema}.intent (tenant, destination, partition, last_sent_at);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'waybill_worker') THEN
        GRANT SELECT, INSERT, UPDATE ON {schema}.intent TO waybill_worker;
    END IF;
END;
$$;
