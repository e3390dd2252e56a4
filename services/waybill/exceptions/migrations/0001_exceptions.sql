-- Exceptions: deliveries that may stay unacknowledged, for a reason that is linked, by the word of a second person, and
-- for a time. What was opened never changes; only its state moves, and an end is final.

CREATE TABLE {schema}.exception (
    exception_id uuid PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant ~ '^[a-z][a-z0-9-]{0,29}$'),
    destination text NOT NULL CHECK (destination <> ''),
    delivery_id uuid NOT NULL,
    -- Where the law, the contract or the ticket can be read: a link.
    source text NOT NULL CHECK (source ~ '^[a-z][a-z0-9+.-]*:[^[:space:]]+$'),
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    -- Whether a request may be complete although this delivery is not acknowledged.
    permits_closure boolean NOT NULL,
    opened_by text NOT NULL CHECK (btrim(opened_by) <> ''),
    opened_at timestamptz NOT NULL,
    reviewer text NOT NULL CHECK (btrim(reviewer) <> ''),
    expires_at timestamptz NOT NULL,
    state text NOT NULL DEFAULT 'opened' CHECK (state IN ('opened', 'approved', 'rejected', 'expired')),
    -- Of the last move.
    moved_by text,
    moved_at timestamptz,
    moved_why text,
    CONSTRAINT exception_ends CHECK (expires_at > opened_at),
    CONSTRAINT exception_maker_is_no_checker CHECK (lower(btrim(reviewer)) <> lower(btrim(opened_by))),
    CONSTRAINT exception_judged_by_its_reviewer CHECK (state NOT IN ('approved', 'rejected') OR moved_by = reviewer),
    CONSTRAINT exception_moved CHECK ((state = 'opened') = (moved_by IS NULL) AND (moved_by IS NULL) = (moved_at IS NULL))
);
-- One at a time that is asked for or in force.
CREATE UNIQUE INDEX exception_live ON {schema}.exception (tenant, destination, delivery_id)
    WHERE state IN ('opened', 'approved');
CREATE INDEX exception_newest ON {schema}.exception (tenant, opened_at);

-- What a request may be closed with at this moment; it needs nobody to mark what expired.
CREATE VIEW {schema}.closing AS
    SELECT tenant, destination, delivery_id, exception_id, source, reviewer, expires_at
    FROM {schema}.exception
    WHERE state = 'approved' AND permits_closure AND expires_at > now();

CREATE FUNCTION {schema}.refuse_another_exception() RETURNS trigger
LANGUAGE plpgsql AS $function$
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(NEW) - ARRAY['state', 'moved_by', 'moved_at', 'moved_why']
            = to_jsonb(OLD) - ARRAY['state', 'moved_by', 'moved_at', 'moved_why']
            AND (OLD.state, NEW.state) IN (('opened', 'approved'), ('opened', 'rejected'), ('opened', 'expired'),
                ('approved', 'rejected'), ('approved', 'expired')) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'an exception only moves to its end: % is refused', TG_OP
        USING ERRCODE = 'restrict_violation', HINT = 'open another one with waybill exceptions open';
END
$function$;
CREATE TRIGGER only_moves BEFORE UPDATE OR DELETE ON {schema}.exception
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_another_exception();
CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.exception
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_another_exception();
