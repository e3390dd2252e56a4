-- Fabric events about destinations, beside those about deliveries: each type belongs to the aggregate it is named after.

CREATE OR REPLACE FUNCTION {schema}.check_options(command jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lists constant text[] := '{destinations,optional}';
    known constant text[] := lists || '{aggregate_type,aggregate_id,command_type,ttl_s,operation_id,request_id,
        request_size,instruction_version,replaces,content_type,data_schema,capability,capability_version,
        legal_versions,config_versions,data_form,data_key_id,data_ref,data_digest,traceparent}';
    whole constant text := '^[1-9][0-9]{0,8}$';
    events constant text[] := '{waybill.delivery,waybill.destination}';
    wrong text;
BEGIN
    IF jsonb_typeof(command) IS DISTINCT FROM 'object' THEN
        PERFORM {schema}.refuse('malformed_field', 'the options of a command are one JSON object', '');
    ELSIF command - known <> '{}' THEN
        SELECT left(k, 40) INTO wrong FROM jsonb_object_keys(command - known) AS k LIMIT 1;
        PERFORM {schema}.refuse('unknown_option', format('%I is not an option of emit', wrong),
            'Known: ' || array_to_string(known[1:2] || known[6:], ', '));
    END IF;
    wrong := CASE
        WHEN jsonb_path_exists(command - lists, 'strict $.* ? (@.type() != "string" && @.type() != "number" && @.type() != "null")')
            THEN 'options other than destinations and optional are text or numbers'
        WHEN jsonb_typeof(command -> 'destinations') NOT IN ('array', 'null')
            OR jsonb_typeof(command -> 'optional') NOT IN ('array', 'null') THEN 'destinations and optional are lists of names'
        WHEN command ->> 'ttl_s' !~ '^-?[0-9]+([.][0-9]+)?$' THEN 'ttl_s is a number of seconds'
        WHEN command ->> 'request_size' !~ whole THEN 'request_size is a whole number from 1'
        WHEN command ->> 'instruction_version' !~ whole THEN 'instruction_version is a whole number from 1'
        WHEN command ->> 'capability_version' !~ whole THEN 'capability_version is a whole number from 1'
        WHEN command ->> 'replaces' !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN 'replaces is a command id, a UUID'
        WHEN command ->> 'command_type' LIKE 'waybill.%' AND NOT coalesce(command ->> 'aggregate_type' = ANY (events)
            AND starts_with(command ->> 'command_type', (command ->> 'aggregate_type') || '.'), false)
            THEN 'command types that begin with waybill. are reserved'
        WHEN command ->> 'aggregate_type' = ANY (events)
            AND NOT starts_with(command ->> 'command_type', (command ->> 'aggregate_type') || '.')
            THEN format('aggregate type %s is for fabric events', command ->> 'aggregate_type')
    END;
    IF wrong IS NOT NULL THEN
        PERFORM {schema}.refuse('malformed_field', wrong, '');
    END IF;
END $$;
