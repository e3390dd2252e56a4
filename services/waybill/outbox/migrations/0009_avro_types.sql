-- Command types whose data are Avro: plain binary that only the named version can read, or JSON where the route wants it.

ALTER TABLE {schema}.type_version
    DROP CONSTRAINT type_version_format_check,
    ADD CONSTRAINT type_version_format_check CHECK (format IN ('json-schema', 'avro'));

ALTER TABLE {schema}.route
    ADD COLUMN rendering text NOT NULL DEFAULT 'avro' CHECK (rendering IN ('avro', 'json'));
COMMENT ON COLUMN {schema}.route.rendering IS 'In which form data of an Avro type are stored, signed and sent.';

-- As before, and says in which form the route wants Avro data.
DROP FUNCTION {schema}.type_versions(text, jsonb);
CREATE FUNCTION {schema}.type_versions(tenant text, command_types jsonb)
RETURNS TABLE (command_type text, version text, format text, definition text, rendering text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.command_type, t.version, t.format, t.definition, coalesce(r.rendering, 'avro')
    FROM {schema}.type_version t LEFT JOIN {schema}.route r ON r.tenant = t.tenant AND r.command_type = t.command_type
    WHERE t.tenant = type_versions.tenant
        AND t.command_type IN (SELECT jsonb_array_elements_text(type_versions.command_types))
    ORDER BY t.command_type, t.version
$$;
REVOKE ALL ON FUNCTION {schema}.type_versions(text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {schema}.type_versions(text, jsonb) TO {app_role};

-- As before; Avro data are told by their content type and name the version that can read them.
CREATE OR REPLACE FUNCTION {schema}.check_type(r {schema}.outbox) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    base constant text := format('waybill://%s/types/%s/', r.tenant, r.command_type);
    is_avro constant boolean := split_part(r.content_type, ';', 1) = 'application/avro';
    known text[];
    formats text[];
BEGIN
    SELECT array_agg(t.version ORDER BY t.version), array_agg(DISTINCT t.format) INTO known, formats
    FROM {schema}.type_version t WHERE t.tenant = r.tenant AND t.command_type = r.command_type;
    IF known IS NULL THEN
        RETURN;
    ELSIF starts_with(r.data_schema, base) AND NOT substr(r.data_schema, length(base) + 1) = ANY (known) THEN
        PERFORM {schema}.refuse('unknown_type_version', format('the catalogue has no such version of %s', r.command_type),
            'Known: ' || array_to_string(known, ', '));
    ELSIF r.data_form <> 'clear' THEN
        RETURN;
    ELSIF 'avro' = ANY (formats) AND is_avro AND starts_with(r.data_schema, base) IS NOT TRUE THEN
        PERFORM {schema}.refuse('unknown_type_version',
            format('Avro data of %s can be read with the version they were written with alone', r.command_type),
            'Give data_schema: ' || base || 'v…');
    ELSIF {schema}.is_json_type(r.content_type) IS NOT TRUE AND NOT ('avro' = ANY (formats) AND is_avro) THEN
        PERFORM {schema}.refuse('payload_invalid',
            format('the data of %s are not in the form the catalogue says, by their content type', r.command_type),
            'Give the content type of JSON, or application/avro where the catalogue has an Avro schema.');
    END IF;
END $$;
