-- People may say that a delivery was done, and where that can be seen.
ALTER TABLE {schema}.decision
    DROP CONSTRAINT decision_kind_check,
    ADD CONSTRAINT decision_kind_check CHECK (kind IN ('cancel', 'redrive', 'skip', 'supersede', 'acknowledge')),
    ADD COLUMN evidence text,
    ADD COLUMN evidence_digest text CHECK (evidence_digest ~ '^sha256:[0-9a-f]{64}$'),
    ADD CONSTRAINT decision_has_evidence CHECK (kind <> 'acknowledge' OR evidence <> '');

-- As before, and from failed to acknowledged: by evidence of people only, no worker moves a failed delivery by itself.
CREATE OR REPLACE FUNCTION {schema}.check_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.version = OLD.version AND NEW.state = OLD.state THEN
        RETURN NEW;
    END IF;
    IF NEW.version <> OLD.version + 1 THEN
        RAISE EXCEPTION 'delivery %: version % may not become %', OLD.delivery_id, OLD.version, NEW.version
            USING ERRCODE = 'check_violation';
    END IF;
    IF (OLD.state, NEW.state) NOT IN (
        ('queued', 'acknowledged'), ('queued', 'delivered'), ('queued', 'retrying'), ('queued', 'ambiguous'),
        ('queued', 'failed'), ('queued', 'exception'), ('queued', 'dead_letter'),
        ('delivered', 'acknowledged'), ('delivered', 'retrying'), ('delivered', 'ambiguous'),
        ('delivered', 'failed'), ('delivered', 'exception'),
        ('retrying', 'acknowledged'), ('retrying', 'delivered'), ('retrying', 'retrying'), ('retrying', 'queued'),
        ('retrying', 'ambiguous'), ('retrying', 'failed'), ('retrying', 'exception'), ('retrying', 'dead_letter'),
        ('ambiguous', 'acknowledged'), ('ambiguous', 'retrying'), ('ambiguous', 'failed'),
        ('ambiguous', 'exception'), ('ambiguous', 'dead_letter'),
        ('failed', 'acknowledged'), ('failed', 'exception'), ('failed', 'dead_letter'), ('failed', 'queued'),
        ('exception', 'acknowledged'), ('exception', 'failed'),
        ('dead_letter', 'acknowledged'), ('dead_letter', 'failed'), ('dead_letter', 'exception'),
        ('dead_letter', 'queued')
    ) THEN
        RAISE EXCEPTION 'delivery %: no move from % to %', OLD.delivery_id, OLD.state, NEW.state
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END;
$$;
