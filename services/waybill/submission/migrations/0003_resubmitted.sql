-- Notes a resubmission; one that is not allowed makes the submission wait for a person. So the server needs no right to
-- change records: what it cannot do is take back that a person has to look.
CREATE FUNCTION {schema}.resubmitted(p_submission_id uuid, p_now timestamptz, p_is_allowed boolean)
RETURNS SETOF {schema}.submission
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    UPDATE {schema}.submission SET resubmissions = resubmissions + 1, last_resubmitted_at = p_now,
        ambiguous_at = CASE WHEN p_is_allowed THEN ambiguous_at ELSE coalesce(ambiguous_at, p_now) END
    WHERE submission_id = p_submission_id
    RETURNING *
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC;
