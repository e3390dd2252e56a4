-- API keys, known by their digest, and who did what to them.

CREATE TABLE {schema}.api_key (
    key_id text PRIMARY KEY CHECK (key_id ~ '^[0-9a-f]{16}$'),
    tenant text NOT NULL CHECK (tenant ~ '^[a-z][a-z0-9-]{0,29}$'),
    principal text NOT NULL CHECK (principal ~ '^[a-z][a-z0-9-]{0,29}$'),
    scopes text[] NOT NULL CHECK (cardinality(scopes) >= 1),
    digest bytea NOT NULL CHECK (octet_length(digest) = 32),
    created_at timestamptz NOT NULL,
    created_by text NOT NULL CHECK (created_by <> ''),
    expires_at timestamptz CHECK (expires_at >= created_at),
    revoked_at timestamptz
);
COMMENT ON COLUMN {schema}.api_key.digest IS 'SHA-256 of the key; the key itself is told once and kept nowhere';
CREATE INDEX api_key_of_principal ON {schema}.api_key (tenant, principal, created_at);

-- What identifies a key, and what it lets somebody do, never changes; only its end may come nearer.
CREATE FUNCTION {schema}.refuse_another_key() RETURNS trigger
LANGUAGE plpgsql AS $function$
BEGIN
    IF (NEW.key_id, NEW.tenant, NEW.principal, NEW.scopes, NEW.digest, NEW.created_at, NEW.created_by)
            IS DISTINCT FROM (OLD.key_id, OLD.tenant, OLD.principal, OLD.scopes, OLD.digest, OLD.created_at, OLD.created_by)
            OR coalesce(NEW.expires_at, 'infinity') > coalesce(OLD.expires_at, 'infinity')
            OR (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at) THEN
        RAISE EXCEPTION 'an API key only ends: make another one' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$function$;
CREATE TRIGGER only_ends BEFORE UPDATE ON {schema}.api_key
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_another_key();

CREATE TABLE {schema}.event (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    by text NOT NULL CHECK (by <> ''),
    action text NOT NULL CHECK (action IN ('created', 'shortened', 'revoked')),
    key_id text NOT NULL REFERENCES {schema}.api_key,
    tenant text NOT NULL,
    principal text NOT NULL,
    detail text NOT NULL
);
CREATE INDEX event_of_tenant ON {schema}.event (tenant, position);

CREATE FUNCTION {schema}.refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $function$
BEGIN
    RAISE EXCEPTION 'who gave out and took back keys is history: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END
$function$;
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.event
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
