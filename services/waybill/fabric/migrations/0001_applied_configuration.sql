-- Applied configuration: versions that rise by one, and every object as it was at each version it changed in.
-- Rows are history: workers name the version they used, so nothing here is ever changed or removed.

DO $roles$
DECLARE
    role_name text;
BEGIN
    FOREACH role_name IN ARRAY ARRAY['waybill_worker', 'waybill_relay'] LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = role_name) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role_name);
            END IF;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN
            NULL;  -- another database of this server made it at this moment
        END;
    END LOOP;
END
$roles$;

CREATE TABLE {schema}.config_version (
    version bigint PRIMARY KEY CHECK (version >= 1),
    applied_at timestamptz NOT NULL,
    applied_by text NOT NULL CHECK (applied_by <> ''),
    -- SHA-256 of all objects at this version, hexadecimal.
    digest text NOT NULL CHECK (digest ~ '^[0-9a-f]{64}$'),
    comment text NOT NULL DEFAULT ''
);

CREATE TABLE {schema}.object (
    kind text NOT NULL CHECK (kind IN ('tenant', 'outbox', 'destination', 'route')),
    tenant text NOT NULL CHECK (tenant ~ '^[a-z][a-z0-9-]{0,29}$'),
    name text NOT NULL CHECK (name <> ''),
    version bigint NOT NULL REFERENCES {schema}.config_version,
    -- The object with the keys and units of fabric.yaml; null from the version that retired it.
    body jsonb CHECK (jsonb_typeof(body) = 'object'),
    PRIMARY KEY (kind, tenant, name, version),
    CONSTRAINT only_routes_retire CHECK (body IS NOT NULL OR kind = 'route')
);

CREATE FUNCTION {schema}.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $function$
BEGIN
    RAISE EXCEPTION 'applied configuration is history: % on %.% is refused', TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', HINT = 'apply another fabric.yaml: it becomes a new version';
END
$function$;

CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.config_version
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.object
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();

GRANT USAGE ON SCHEMA {schema} TO waybill_worker;
GRANT SELECT ON {schema}.config_version, {schema}.object TO waybill_worker;
