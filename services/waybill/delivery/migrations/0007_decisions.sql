-- What people decided, and what became of it. The row is written together with its record for the topic; the owner of
-- the partition writes the verdict in the transaction that moves the delivery, so that a decision that is read again
-- is not carried out again. `early`: nothing is known of the delivery here, it was settled or has not come yet.
CREATE TABLE {schema}.decision (
    tenant text NOT NULL,
    destination text NOT NULL,
    decision_id uuid NOT NULL,
    partition integer,
    aggregate text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('cancel', 'redrive', 'skip', 'supersede')),
    delivery_id uuid,
    sequence integer CHECK (sequence > 0),
    version integer CHECK (version >= 0),
    states text[] NOT NULL,
    decided_by text NOT NULL CHECK (decided_by <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    decided_at timestamptz NOT NULL,
    verdict text NOT NULL DEFAULT 'open' CHECK (verdict IN ('open', 'early', 'applied', 'void')),
    detail text,
    judged_at timestamptz,
    PRIMARY KEY (tenant, destination, decision_id),
    CONSTRAINT decision_names_a_delivery CHECK (delivery_id IS NOT NULL OR sequence IS NOT NULL),
    CONSTRAINT decision_judged CHECK ((verdict = 'open') = (judged_at IS NULL))
);
CREATE INDEX decision_newest ON {schema}.decision (tenant, decided_at);
CREATE INDEX decision_early ON {schema}.decision (tenant, destination, partition) WHERE verdict = 'early';

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'waybill_worker') THEN
        GRANT SELECT, INSERT, UPDATE ON {schema}.decision TO waybill_worker;
    END IF;
END;
$$;
