-- A submission is one statement, which is one transaction of its own: one round trip, and no lock is held between two.

-- Issues the commands and remembers them under the key; returns what the outbox fixed for each, in their order, or
-- null where this submission was taken before. Of two at once the second fails at the primary key and asks again.
CREATE FUNCTION {schema}.submit(p_submission_id uuid, p_tenant text, p_principal text, p_key text, p_digest bytea,
    p_accepted_at timestamptz, p_commands jsonb) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    shape constant text := 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"';
    issued jsonb;
BEGIN
    IF EXISTS (SELECT FROM {schema}.submission s WHERE s.submission_id = p_submission_id) THEN
        RETURN NULL;
    END IF;
    SELECT jsonb_agg(jsonb_build_object('commandId', e.command_id, 'aggregate', e.aggregate,
        'issuedAt', to_char(e.issued_at AT TIME ZONE 'UTC', shape),
        'expiresAt', to_char(e.expires_at AT TIME ZONE 'UTC', shape), 'sequences', e.sequences) ORDER BY e.place)
    INTO issued FROM {outbox}.emit_many(p_tenant, p_commands) AS e;
    INSERT INTO {schema}.submission (submission_id, tenant, principal, idempotency_key, digest, accepted_at, commands)
    VALUES (p_submission_id, p_tenant, p_principal, p_key, p_digest, p_accepted_at, issued);
    RETURN issued;
END $$;

-- Drops what is older than submissions are remembered and waits for nobody; never what is younger, whoever asks.
CREATE FUNCTION {schema}.forget(p_before timestamptz) RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH gone AS (
        DELETE FROM {schema}.submission
        WHERE accepted_at < least(p_before, clock_timestamp() - interval '90 days')
            AND (ambiguous_at IS NULL OR settled_at IS NOT NULL)
        RETURNING 1)
    SELECT count(*) FROM gone
$$;

REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
