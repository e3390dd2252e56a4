-- Who owns which partition of which destination. A fresh epoch at every assignment; every write of rows checks it.
CREATE TABLE {schema}.partition_owner (
    tenant text NOT NULL,
    destination text NOT NULL,
    partition integer NOT NULL,
    epoch uuid NOT NULL,
    owner text NOT NULL,
    taken_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, destination, partition)
);

-- One row per delivery that left the happy path. `record` are the producer's bytes as they lie in the topic and may
-- hold personal data; sealed data stay sealed. `pending_*` are framed Avro bytes that Kafka does not have yet.
CREATE TABLE {schema}.open_task (
    tenant text NOT NULL,
    destination text NOT NULL,
    delivery_id uuid NOT NULL,
    command_id uuid NOT NULL,
    aggregate text NOT NULL,
    sequence integer NOT NULL CHECK (sequence > 0),
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    state text NOT NULL CONSTRAINT open_task_state CHECK (state IN (
        'queued', 'delivered', 'acknowledged', 'retrying', 'ambiguous', 'failed', 'exception', 'dead_letter')),
    version integer NOT NULL CHECK (version >= 0),
    attempt integer NOT NULL CHECK (attempt >= 0),
    next_due timestamptz,
    expires_at timestamptz NOT NULL,
    blocks boolean NOT NULL,
    error_code text CONSTRAINT open_task_error_code CHECK (error_code IN (
        'AUTH', 'AUTHZ', 'RATE_LIMIT', 'TRANSIENT_NETWORK', 'SOURCE_UNAVAILABLE', 'SCHEMA_CHANGED', 'NOT_FOUND',
        'MULTIPLE_MATCH', 'VERSION_CONFLICT', 'POLICY_BLOCK', 'VALIDATION', 'PARTIAL_SOURCE', 'AMBIGUOUS_RESULT',
        'PERMANENT_UNSUPPORTED')),
    detail text,
    sent boolean NOT NULL,
    may_have_acted boolean NOT NULL,
    record bytea NOT NULL,
    pending_outcome bytea,
    pending_state bytea,
    pending_dead_letter bytea,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, destination, delivery_id),
    CONSTRAINT open_task_unmoved_is_queued CHECK (version > 0 OR state = 'queued'),
    CONSTRAINT open_task_acknowledged_never_blocks CHECK (NOT (blocks AND state = 'acknowledged'))
);
CREATE INDEX open_task_lane ON {schema}.open_task (tenant, destination, partition, aggregate, sequence) WHERE blocks;
CREATE INDEX open_task_unpublished ON {schema}.open_task (tenant, destination, partition)
    WHERE pending_outcome IS NOT NULL;
CREATE INDEX open_task_expiry ON {schema}.open_task (tenant, destination, partition, expires_at)
    WHERE blocks AND state IN ('queued', 'retrying');

-- Every move the state machine has, and no other; a version rises by one with each.
CREATE FUNCTION {schema}.check_move() RETURNS trigger LANGUAGE plpgsql AS $$
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
        ('failed', 'exception'), ('failed', 'dead_letter'), ('failed', 'queued'),
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
CREATE TRIGGER check_move BEFORE UPDATE OF state, version ON {schema}.open_task
    FOR EACH ROW EXECUTE FUNCTION {schema}.check_move();

-- The worker's role, where the database has it. A holder of a row lock that freezes must not block the next owner.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'waybill_worker') THEN
        GRANT USAGE ON SCHEMA {schema} TO waybill_worker;
        GRANT SELECT, INSERT, UPDATE ON {schema}.partition_owner, {schema}.open_task TO waybill_worker;
        BEGIN
            ALTER ROLE waybill_worker SET idle_in_transaction_session_timeout = '3s';
            ALTER ROLE waybill_worker SET statement_timeout = '10s';
            ALTER ROLE waybill_worker SET synchronous_commit = 'on';
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'waybill_worker keeps its settings: the worker sets them on each connection';
        END;
    END IF;
END;
$$;
