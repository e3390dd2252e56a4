-- The audit chain: every act of people on the fabric, each entry bound to the one before it by its hash.
-- Acts are taken down by triggers on the tables they are written to, in the same transaction: no code can forget it,
-- and a row that is written by hand is an entry as well. `waybill.audit.core.chain` computes the same hashes.

CREATE TABLE {schema}.entry (
    tenant text NOT NULL CHECK (tenant ~ '^[a-z][a-z0-9-]{0,29}$'),
    -- The partition of `commands` that the act is about; -1 where it is about the tenant or is not judged yet.
    partition integer NOT NULL CHECK (partition >= -1),
    number bigint NOT NULL CHECK (number >= 1),
    -- JSON, hashed as it stands here: never read and written again.
    body text NOT NULL,
    -- SHA-256 of this entry and the hash of the one before it, hexadecimal.
    hash text NOT NULL CHECK (hash ~ '^[0-9a-f]{64}$'),
    PRIMARY KEY (tenant, partition, number)
);

-- Signed statements of how far a chain had come; they leave for the topic `audit` with the same transaction.
CREATE TABLE {schema}.anchor (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL,
    statement text NOT NULL
);
CREATE INDEX anchor_of_tenant ON {schema}.anchor (tenant, position);

CREATE FUNCTION {schema}.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $function$
BEGIN
    RAISE EXCEPTION 'the audit chain is only added to: % on %.% is refused', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation';
END
$function$;
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.entry
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.anchor
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();

-- One writer at a time per chain, from here to the caller's commit; the next one sees what this one added.
CREATE FUNCTION {schema}.append(of_tenant text, of_partition integer, body text) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    last_number bigint;
    last_hash text;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('waybill.audit/' || of_tenant || '/' || of_partition, 0));
    SELECT e.number, e.hash INTO last_number, last_hash FROM {schema}.entry AS e
        WHERE e.tenant = of_tenant AND e.partition = of_partition ORDER BY e.number DESC LIMIT 1;
    last_number := coalesce(last_number, 0) + 1;
    INSERT INTO {schema}.entry (tenant, partition, number, body, hash) VALUES (
        of_tenant, of_partition, last_number, body,
        encode(sha256(convert_to(
            concat_ws(E'\n', 'waybill.audit.v1', of_tenant, of_partition, last_number,
                coalesce(last_hash, repeat('0', 64)), body), 'UTF8')), 'hex'));
    RETURN last_number;
END
$function$;
REVOKE ALL ON FUNCTION {schema}.append FROM PUBLIC;

-- Take down what happened to a row. Who made it, and who changed it, stand in the columns that the trigger names; where
-- it names none, and for who removes a row, it is the role of the session. A body of configuration is kept as its digest.
CREATE FUNCTION {schema}.take_down() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    taken jsonb := to_jsonb(CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END);
    doer text := coalesce(
        CASE TG_OP WHEN 'INSERT' THEN taken ->> TG_ARGV[0] WHEN 'UPDATE' THEN taken ->> TG_ARGV[1] END, session_user);
BEGIN
    IF TG_OP = 'UPDATE' AND to_jsonb(OLD) = taken THEN
        RETURN NULL;
    END IF;
    -- What the worker decides by itself is audited in the topic `outcomes`, as the rest of its work.
    IF TG_TABLE_SCHEMA = 'delivery' AND taken ->> 'kind' = 'supersede' THEN
        RETURN NULL;
    END IF;
    IF TG_TABLE_SCHEMA = 'fabric' THEN
        SELECT v.applied_by INTO doer FROM fabric.config_version AS v WHERE v.version = (taken ->> 'version')::bigint;
        taken := taken - 'body' || jsonb_build_object(
            'body_sha256', encode(sha256(convert_to(taken ->> 'body', 'UTF8')), 'hex'));
    END IF;
    PERFORM {schema}.append(
        taken ->> 'tenant',
        coalesce((taken ->> 'partition')::integer, -1),
        jsonb_build_object(
            'act', TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME || '.' || lower(TG_OP),
            'at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'by', doer,
            'role', session_user,
            'row', taken)::text);
    RETURN NULL;
END
$function$;

CREATE FUNCTION {schema}.watch(watched regclass, who_made text, who_changed text DEFAULT '') RETURNS void
LANGUAGE plpgsql AS $function$
BEGIN
    EXECUTE format('CREATE TRIGGER audited AFTER INSERT OR UPDATE OR DELETE ON %s '
        'FOR EACH ROW EXECUTE FUNCTION {schema}.take_down(%L, %L)', watched, who_made, who_changed);
END
$function$;
REVOKE ALL ON FUNCTION {schema}.watch FROM PUBLIC;

SELECT {schema}.watch('fabric.object', 'applied_by');
SELECT {schema}.watch('delivery.decision', 'decided_by');
SELECT {schema}.watch('delivery.destination_control', 'decided_by');
SELECT {schema}.watch('access.event', 'by');
SELECT {schema}.watch('submission.resubmission_rule', 'set_by');
