-- Results that were posted and refused: who tried, and why. Of the body only its digest: anybody may post anything.
CREATE TABLE {schema}.refused_result (
    position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    refused_at timestamptz NOT NULL,
    tenant text NOT NULL,
    principal text NOT NULL,
    key_id text NOT NULL,
    reason text NOT NULL CHECK (reason <> ''),
    -- As the header says it, where it is an id; nobody vouches for it.
    result_id uuid,
    body_sha256 text NOT NULL CHECK (body_sha256 ~ '^[0-9a-f]{64}$')
);
CREATE INDEX refused_result_of_tenant ON {schema}.refused_result (tenant, position);

CREATE FUNCTION {schema}.refuse_change_of_refused() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'what was refused is history: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER history_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.refused_result
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change_of_refused();
