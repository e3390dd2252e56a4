-- A delivery whose time was over is issued again as a new command. Which one stays here, so that it is issued once
-- however often it is asked for.
CREATE TABLE {schema}.reissued (
    tenant text NOT NULL,
    delivery_id uuid NOT NULL,
    reissued_by text NOT NULL CHECK (reissued_by <> ''),
    reason text NOT NULL CHECK (reason <> ''),
    command_id uuid,
    aggregate text,
    sequences jsonb,
    issued_at timestamptz,
    expires_at timestamptz,
    PRIMARY KEY (tenant, delivery_id)
);
COMMENT ON TABLE {schema}.reissued IS 'Deliveries that were issued again, the command each became, who and why.';
REVOKE ALL ON {schema}.reissued FROM PUBLIC;

-- Issues a command in the place of a delivery, once; without a command it only says which one was. Two calls at one
-- time wait for each other at the row.
CREATE FUNCTION {schema}.reissue(tenant text, delivery_id uuid, command jsonb, reissued_by text, reason text)
RETURNS TABLE (is_new boolean, command_id uuid, aggregate text, sequences jsonb, issued_at timestamptz,
    expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    made record;
BEGIN
    IF reissue.command IS NOT NULL THEN
        INSERT INTO {schema}.reissued (tenant, delivery_id, reissued_by, reason)
        VALUES (reissue.tenant, reissue.delivery_id, reissue.reissued_by, reissue.reason)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            SELECT * INTO made FROM {schema}.emit_many(reissue.tenant, jsonb_build_array(reissue.command));
            UPDATE {schema}.reissued AS r SET command_id = made.command_id, aggregate = made.aggregate,
                sequences = made.sequences, issued_at = made.issued_at, expires_at = made.expires_at
            WHERE r.tenant = reissue.tenant AND r.delivery_id = reissue.delivery_id;
            RETURN QUERY SELECT true, made.command_id, made.aggregate, made.sequences, made.issued_at, made.expires_at;
            RETURN;
        END IF;
    END IF;
    RETURN QUERY SELECT false, r.command_id, r.aggregate, r.sequences, r.issued_at, r.expires_at
    FROM {schema}.reissued AS r WHERE r.tenant = reissue.tenant AND r.delivery_id = reissue.delivery_id;
END $$;
REVOKE ALL ON FUNCTION {schema}.reissue(text, uuid, jsonb, text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {schema}.reissue(text, uuid, jsonb, text, text) TO {app_role};
