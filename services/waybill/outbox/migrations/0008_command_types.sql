-- The catalogue of command types. The database itself cannot hold data against a schema; it hands the schemas to those
-- who can before they emit, and refuses what it can see: a version that is not there, data that are no JSON.

CREATE TABLE {schema}.type_version (
    tenant text REFERENCES {schema}.tenant ON DELETE CASCADE,
    command_type text CHECK ({schema}.is_type(command_type)),
    version text CHECK (version ~ '^v[1-9][0-9]{0,3}[.](0|[1-9][0-9]{0,3})$'),
    format text NOT NULL CHECK (format IN ('json-schema')),
    definition text NOT NULL,
    PRIMARY KEY (tenant, command_type, version)
);
COMMENT ON TABLE {schema}.type_version IS 'What the data of a command type may be; a type without a row carries anything.';
REVOKE ALL ON {schema}.type_version FROM PUBLIC;

CREATE OR REPLACE FUNCTION {schema}.rule_state(rule text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE rule
    WHEN 'unknown_tenant' THEN 'WB001'
    WHEN 'foreign_aggregate_type' THEN 'WB002'
    WHEN 'unknown_route' THEN 'WB003'
    WHEN 'unknown_destination' THEN 'WB004'
    WHEN 'payload_too_large' THEN 'WB005'
    WHEN 'payload_not_json' THEN 'WB006'
    WHEN 'form_not_permitted' THEN 'WB007'
    WHEN 'ttl_out_of_range' THEN 'WB008'
    WHEN 'malformed_field' THEN 'WB009'
    WHEN 'unknown_option' THEN 'WB010'
    WHEN 'issued_is_final' THEN 'WB011'
    WHEN 'payload_invalid' THEN 'WB012'
    WHEN 'unknown_type_version' THEN 'WB013'
END;

-- The versions of the types an emission is about, for whoever checks data before it.
CREATE FUNCTION {schema}.type_versions(tenant text, command_types jsonb)
RETURNS TABLE (command_type text, version text, format text, definition text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT t.command_type, t.version, t.format, t.definition
    FROM {schema}.type_version t
    WHERE t.tenant = type_versions.tenant
        AND t.command_type IN (SELECT jsonb_array_elements_text(type_versions.command_types))
    ORDER BY t.command_type, t.version
$$;
REVOKE ALL ON FUNCTION {schema}.type_versions(text, jsonb) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION {schema}.type_versions(text, jsonb) TO {app_role};

-- Refuses what the catalogue does not have, as far as it can be seen without reading the data.
CREATE FUNCTION {schema}.check_type(r {schema}.outbox) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    base constant text := format('waybill://%s/types/%s/', r.tenant, r.command_type);
    known text[];
BEGIN
    known := ARRAY(SELECT t.version FROM {schema}.type_version t
        WHERE t.tenant = r.tenant AND t.command_type = r.command_type ORDER BY 1);
    IF cardinality(known) = 0 THEN
        RETURN;
    ELSIF starts_with(r.data_schema, base) AND NOT substr(r.data_schema, length(base) + 1) = ANY (known) THEN
        PERFORM {schema}.refuse('unknown_type_version', format('the catalogue has no such version of %s', r.command_type),
            'Known: ' || array_to_string(known, ', '));
    ELSIF r.data_form = 'clear' AND {schema}.is_json_type(r.content_type) IS NOT TRUE THEN
        PERFORM {schema}.refuse('payload_invalid',
            format('the data of %s are JSON by the catalogue, by their content type they are not', r.command_type),
            'Give content_type application/json, or another that ends in +json.');
    END IF;
END $$;
REVOKE ALL ON FUNCTION {schema}.check_type({schema}.outbox) FROM PUBLIC;

-- As before, and refuses what the catalogue does not have.
CREATE OR REPLACE FUNCTION {schema}.check_data(r {schema}.outbox, max_payload_bytes integer, forms text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF octet_length(r.payload) > max_payload_bytes THEN
        PERFORM {schema}.refuse('payload_too_large',
            format('the payload has %s bytes, tenant %s may send %s', octet_length(r.payload), r.tenant, max_payload_bytes),
            'Store it elsewhere and emit a reference: data_form reference with data_ref and data_digest.');
    ELSIF NOT r.data_form = ANY (forms) AND r.data_form IN ('clear', 'sealed', 'reference') THEN
        PERFORM {schema}.refuse('form_not_permitted',
            format('the route of %s does not permit data_form %s', r.command_type, r.data_form),
            'Permitted: ' || array_to_string(forms, ', '));
    END IF;
    PERFORM {schema}.check_type(r);
END $$;
