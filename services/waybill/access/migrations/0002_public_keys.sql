-- Keys that sign requests: of them the public half is stored. And which signed requests came already.

ALTER TABLE {schema}.api_key
    ALTER COLUMN digest DROP NOT NULL,
    ADD COLUMN public_key bytea CHECK (octet_length(public_key) = 32),
    ADD CONSTRAINT one_kind CHECK (num_nonnulls(digest, public_key) = 1);
COMMENT ON COLUMN {schema}.api_key.public_key IS 'Ed25519; its holder signs requests with the private half, which never comes here';

CREATE OR REPLACE FUNCTION {schema}.refuse_another_key() RETURNS trigger
LANGUAGE plpgsql AS $function$
BEGIN
    IF (NEW.key_id, NEW.tenant, NEW.principal, NEW.scopes, NEW.digest, NEW.public_key, NEW.created_at, NEW.created_by)
            IS DISTINCT FROM
            (OLD.key_id, OLD.tenant, OLD.principal, OLD.scopes, OLD.digest, OLD.public_key, OLD.created_at, OLD.created_by)
            OR coalesce(NEW.expires_at, 'infinity') > coalesce(OLD.expires_at, 'infinity')
            OR (OLD.revoked_at IS NOT NULL AND NEW.revoked_at IS DISTINCT FROM OLD.revoked_at) THEN
        RAISE EXCEPTION 'a key only ends: make another one' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$function$;

-- Kept until a request is too old by itself.
CREATE TABLE {schema}.seen_nonce (
    key_id text NOT NULL,
    nonce text NOT NULL,
    until timestamptz NOT NULL,
    PRIMARY KEY (key_id, nonce)
);
CREATE INDEX seen_nonce_until ON {schema}.seen_nonce (until);
