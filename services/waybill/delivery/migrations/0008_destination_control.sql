-- What people, or a guard of the worker, decided about a destination: rows of history, the newest of a destination is
-- in force. An empty destination stands for all of its tenant: such rows carry limits only.
CREATE TABLE {schema}.destination_control (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text NOT NULL CHECK (tenant <> ''),
    destination text NOT NULL,
    standing text NOT NULL CONSTRAINT destination_control_standing CHECK (standing IN (
        'running', 'paused', 'draining', 'closed')),
    -- Attempts begun per second and attempts in flight, over all workers; null leaves what fabric.yaml says.
    rate_per_s double precision CHECK (rate_per_s > 0),
    in_flight integer CHECK (in_flight > 0),
    decided_at timestamptz NOT NULL,
    decided_by text NOT NULL CHECK (decided_by <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    CONSTRAINT destination_control_tenant_runs CHECK (destination <> '' OR standing = 'running')
);
CREATE INDEX destination_control_newest ON {schema}.destination_control (tenant, destination, number DESC);

CREATE FUNCTION {schema}.refuse_control_change() RETURNS trigger
LANGUAGE plpgsql AS $function$
BEGIN
    RAISE EXCEPTION 'controls of destinations are history: % on %.% is refused', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', HINT = 'decide anew with waybill destinations: it becomes a new row';
END
$function$;
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.destination_control
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_control_change();

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'waybill_worker') THEN
        GRANT SELECT, INSERT ON {schema}.destination_control TO waybill_worker;
    END IF;
END;
$$;
