-- Many submissions of one command each in one statement, for who reads them from a topic: what is refused, or was taken
-- before, leaves the others alone, and the commands are issued in their order.

-- Issues and remembers the submissions at these places, all or none.
CREATE FUNCTION {schema}.take(p_tenant text, p_principal text, p_accepted_at timestamptz, p_ids uuid[], p_keys text[],
    p_digests bytea[], p_commands jsonb, p_places integer[]) RETURNS void
LANGUAGE sql AS $$
    INSERT INTO {schema}.submission (submission_id, tenant, principal, idempotency_key, digest, accepted_at, commands)
    SELECT p_ids[at.n], p_tenant, p_principal, p_keys[at.n], p_digests[at.n], p_accepted_at,
        jsonb_build_array(jsonb_build_object('commandId', e.command_id, 'aggregate', e.aggregate,
            'issuedAt', to_char(e.issued_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
            'expiresAt', to_char(e.expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
            'sequences', e.sequences))
    FROM {outbox}.emit_many(p_tenant,
            (SELECT jsonb_agg(p_commands -> (n - 1) ORDER BY n) FROM unnest(p_places) AS n)) AS e
        CROSS JOIN LATERAL (SELECT p_places[e.place] AS n) AS at
    ORDER BY e.place
$$;

-- Takes them all or, where one is refused, each half by itself: the halves keep their order, and only what is refused
-- is left out. Answers 'taken' or the SQLSTATE of the rule, for each place.
CREATE FUNCTION {schema}.take_or_halve(p_tenant text, p_principal text, p_accepted_at timestamptz, p_ids uuid[],
    p_keys text[], p_digests bytea[], p_commands jsonb, p_places integer[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    many integer := cardinality(p_places);
    half integer := cardinality(p_places) / 2;
    refused text;
BEGIN
    BEGIN
        PERFORM {schema}.take(p_tenant, p_principal, p_accepted_at, p_ids, p_keys, p_digests, p_commands, p_places);
        RETURN array_fill('taken'::text, ARRAY[many]);
    EXCEPTION WHEN OTHERS THEN
        GET STACKED DIAGNOSTICS refused = RETURNED_SQLSTATE;
        IF left(refused, 2) <> 'WB' THEN
            RAISE;
        END IF;
    END;
    IF many = 1 THEN
        RETURN ARRAY[refused];
    END IF;
    RETURN {schema}.take_or_halve(p_tenant, p_principal, p_accepted_at, p_ids, p_keys, p_digests, p_commands,
            p_places[1:half])
        || {schema}.take_or_halve(p_tenant, p_principal, p_accepted_at, p_ids, p_keys, p_digests, p_commands,
            p_places[half + 1:]);
END $$;

-- Answers for each, in their order: 'taken'; 'repeated' or 'reused' where the id is known with the same or another
-- digest; or the SQLSTATE of the rule that refuses its command. No id comes twice in one call. Of two calls at once
-- with one id the second fails at the primary key and is made again.
CREATE FUNCTION {schema}.submit_each(p_tenant text, p_principal text, p_accepted_at timestamptz, p_ids uuid[],
    p_keys text[], p_digests bytea[], p_commands jsonb) RETURNS text[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    answers text[] := array_fill(NULL::text, ARRAY[cardinality(p_ids)]);
    fresh integer[];
    taken text[];
    known record;
    i integer;
BEGIN
    FOR known IN
        SELECT n, CASE WHEN s.digest = p_digests[n] THEN 'repeated' ELSE 'reused' END AS answer
        FROM unnest(p_ids) WITH ORDINALITY AS u (id, n) JOIN {schema}.submission s ON s.submission_id = u.id
    LOOP
        answers[known.n] := known.answer;
    END LOOP;
    IF 'repeated' = ANY (answers) THEN
        UPDATE {schema}.submission s SET resubmissions = s.resubmissions + 1, last_resubmitted_at = p_accepted_at
        FROM unnest(p_ids, answers) AS u (id, answer) WHERE s.submission_id = u.id AND u.answer = 'repeated';
    END IF;
    SELECT array_agg(n::integer ORDER BY n) INTO fresh FROM unnest(answers) WITH ORDINALITY AS u (answer, n) WHERE answer IS NULL;
    IF fresh IS NOT NULL THEN
        taken := {schema}.take_or_halve(p_tenant, p_principal, p_accepted_at, p_ids, p_keys, p_digests, p_commands, fresh);
        FOR i IN 1 .. cardinality(fresh) LOOP
            answers[fresh[i]] := taken[i];
        END LOOP;
    END IF;
    RETURN answers;
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
