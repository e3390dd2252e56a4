-- Emitting. `issue` does it; `emit` and `emit_many` are the doors. Errors name the rule, never the data.

-- Refuses options nobody knows, and values of a shape no option has.
CREATE FUNCTION {schema}.check_options(command jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    lists constant text[] := '{destinations,optional}';
    known constant text[] := lists || '{aggregate_type,aggregate_id,command_type,ttl_s,operation_id,request_id,
        request_size,instruction_version,replaces,content_type,data_schema,capability,capability_version,
        legal_versions,config_versions,data_form,data_key_id,data_ref,data_digest,traceparent}';
    whole constant text := '^[1-9][0-9]{0,8}$';
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
        WHEN command ->> 'command_type' LIKE 'waybill.%' THEN 'command types that begin with waybill. are reserved'
    END;
    IF wrong IS NOT NULL THEN
        PERFORM {schema}.refuse('malformed_field', wrong, '');
    END IF;
END $$;

-- The destinations a command names, or null.
CREATE FUNCTION {schema}.named_destinations(tenant text, command jsonb) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    named text[];
    missing text;
BEGIN
    IF coalesce(jsonb_typeof(command -> 'destinations'), 'null') = 'null' THEN
        RETURN NULL;
    END IF;
    named := ARRAY(SELECT DISTINCT d FROM jsonb_array_elements_text(command -> 'destinations') AS d ORDER BY d);
    IF cardinality(named) = 0 THEN
        PERFORM {schema}.refuse('unknown_destination', 'destinations is empty', 'Leave the option out to follow the route.');
    END IF;
    SELECT coalesce(d, '') INTO missing FROM unnest(named) AS d WHERE NOT EXISTS (
        SELECT FROM {schema}.destination x WHERE x.tenant = named_destinations.tenant AND x.name = d) LIMIT 1;
    IF FOUND THEN
        PERFORM {schema}.refuse('unknown_destination',
            CASE WHEN {schema}.is_name(missing) THEN format('tenant %s has no destination %s', tenant, missing)
                ELSE format('a name in destinations is no destination of tenant %s', tenant) END,
            'Declare it in fabric.yaml and run waybill apply.');
    END IF;
    RETURN named;
END $$;

-- Refuses what the tenant's limit or the route does not permit.
CREATE FUNCTION {schema}.check_data(r {schema}.outbox, max_payload_bytes integer, forms text[]) RETURNS void
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
END $$;

-- The route of a command type with its TTL; `destinations` are the command's own where it names any.
CREATE FUNCTION {schema}.resolve_route(tenant text, command jsonb) RETURNS {schema}.route
LANGUAGE plpgsql AS $$
DECLARE
    path {schema}.route;
BEGIN
    SELECT * INTO path FROM {schema}.route x
    WHERE x.tenant = resolve_route.tenant AND x.command_type = command ->> 'command_type';
    path.destinations := coalesce({schema}.named_destinations(tenant, command), path.destinations);
    path.ttl_s := coalesce((command ->> 'ttl_s')::numeric, path.ttl_s);
    IF path.destinations IS NULL OR path.ttl_s IS NULL THEN
        PERFORM {schema}.refuse('unknown_route',
            CASE WHEN {schema}.is_type(command ->> 'command_type')
                THEN format('tenant %s has no route for %s', tenant, command ->> 'command_type')
                ELSE format('tenant %s has no route for this command type', tenant) END,
            'Declare the route in fabric.yaml and run waybill apply, or give both destinations and ttl_s.');
    ELSIF path.ttl_s <= 0 OR path.ttl_s > 315360000 THEN
        PERFORM {schema}.refuse('ttl_out_of_range', 'ttl_s must be above 0 and at most ten years', '');
    END IF;
    path.capability := coalesce(command ->> 'capability', path.capability, command ->> 'command_type');
    path.capability_version := coalesce((command ->> 'capability_version')::integer, path.capability_version, 1);
    path.forms := coalesce(path.forms, '{clear,sealed,reference}');
    RETURN path;
END $$;

-- One command as a row without numbers: `sequences` holds its destinations, each with 1.
CREATE FUNCTION {schema}.draft(settings {schema}.tenant, command jsonb, payload bytea) RETURNS {schema}.outbox
LANGUAGE plpgsql AS $$
DECLARE
    r {schema}.outbox;
    path {schema}.route;
BEGIN
    PERFORM {schema}.check_options(command);
    PERFORM FROM {schema}.aggregate_type t WHERE t.tenant = settings.name AND t.name = command ->> 'aggregate_type';
    IF NOT FOUND THEN
        PERFORM {schema}.refuse('foreign_aggregate_type',
            CASE WHEN {schema}.is_aggregate_type(command ->> 'aggregate_type')
                THEN format('aggregate type %s of tenant %s is not numbered by this outbox', command ->> 'aggregate_type', settings.name)
                ELSE format('what tenant %s gave as aggregate type is none', settings.name) END,
            'fabric.yaml maps each aggregate type to the one outbox that numbers it; emit there, or add it and apply.');
    END IF;
    path := {schema}.resolve_route(settings.name, command);
    r.issued_at := date_trunc('milliseconds', clock_timestamp());
    r.expires_at := date_trunc('milliseconds', r.issued_at + greatest(path.ttl_s, 0.001) * interval '1 second');
    r.created_day := (r.issued_at AT TIME ZONE 'UTC')::date;
    r.command_id := {schema}.new_id();
    r.tenant := settings.name;
    r.route := settings.route;
    r.source := settings.source;
    r.config_version := settings.config_version;
    r.command_type := command ->> 'command_type';
    r.aggregate := (command ->> 'aggregate_type') || '/' || (command ->> 'aggregate_id');
    r.sequences := (SELECT jsonb_object_agg(d, 1) FROM unnest(path.destinations) AS d);
    r.optional_destinations := nullif(nullif(command -> 'optional', 'null'), '[]');
    r.capability := path.capability;
    r.capability_version := path.capability_version;
    r.content_type := coalesce(command ->> 'content_type', 'application/json');
    r.data_schema := command ->> 'data_schema';
    r.operation_id := command ->> 'operation_id';
    r.request_id := command ->> 'request_id';
    r.request_size := (command ->> 'request_size')::integer;
    r.instruction_version := coalesce((command ->> 'instruction_version')::integer, 1);
    r.replaces := (command ->> 'replaces')::uuid;
    r.legal_versions := command ->> 'legal_versions';
    r.config_versions := command ->> 'config_versions';
    r.data_form := coalesce(command ->> 'data_form', 'clear');
    r.data_key_id := command ->> 'data_key_id';
    r.data_ref := command ->> 'data_ref';
    r.data_digest := command ->> 'data_digest';
    r.traceparent := command ->> 'traceparent';
    r.payload := coalesce(payload, '');
    IF {schema}.is_aggregate(r.aggregate) IS NOT TRUE THEN -- before it becomes a counter's key
        PERFORM {schema}.refuse('malformed_field', 'aggregate_id is not well formed', {schema}.field_hint('aggregate_id'));
    END IF;
    PERFORM {schema}.check_data(r, settings.max_payload_bytes, path.forms);
    RETURN r;
END $$;

-- Takes the next number at each destination and the aggregate's row lock, held to the end of the transaction.
CREATE FUNCTION {schema}.take_numbers(tenant text, aggregate text, destinations jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    now_at jsonb;
BEGIN
    INSERT INTO {schema}.counter AS c (tenant, aggregate, numbers)
    VALUES (take_numbers.tenant, take_numbers.aggregate, take_numbers.destinations)
    ON CONFLICT (tenant, aggregate) DO UPDATE SET numbers = {schema}.raised(c.numbers, excluded.numbers)
    RETURNING numbers INTO now_at;
    IF now_at = destinations THEN
        RETURN now_at;
    END IF;
    RETURN (SELECT jsonb_object_agg(d, now_at -> d) FROM jsonb_object_keys(destinations) AS d);
END $$;

CREATE FUNCTION {schema}.raised(numbers jsonb, destinations jsonb) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN numbers || (SELECT jsonb_object_agg(d, coalesce((numbers ->> d)::integer, 0) + 1)
        FROM jsonb_object_keys(destinations) AS d);
END $$;

-- Resolves all commands, takes all counter rows in the order of their aggregates, then inserts in the order given.
CREATE FUNCTION {schema}.issue(p_tenant text, p_commands jsonb, p_payloads bytea[])
RETURNS TABLE (place integer, command_id uuid, aggregate text, sequences jsonb,
    issued_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    settings {schema}.tenant;
    r {schema}.outbox;
    drafts {schema}.outbox[] := '{}';
    aggregates text[] := '{}';
    numbers jsonb[];
    i integer;
BEGIN
    SELECT * INTO settings FROM {schema}.tenant t WHERE t.name = p_tenant;
    IF NOT FOUND THEN
        PERFORM {schema}.refuse('unknown_tenant',
            CASE WHEN {schema}.is_name(p_tenant) THEN format('tenant %s may not emit in this outbox', p_tenant)
                ELSE 'what was given as tenant is no tenant' END,
            'Declare this outbox under the tenant in fabric.yaml and run waybill apply.');
    END IF;
    FOR i IN 1 .. jsonb_array_length(p_commands) LOOP
        r := {schema}.draft(settings, p_commands -> (i - 1), p_payloads[i]);
        drafts := drafts || r;
        aggregates := aggregates || r.aggregate;
    END LOOP;
    numbers := array_fill(NULL::jsonb, ARRAY[cardinality(drafts)]);
    FOR i IN SELECT n FROM unnest(aggregates) WITH ORDINALITY AS u (a, n) ORDER BY a COLLATE "C", n LOOP
        numbers[i] := {schema}.take_numbers(p_tenant, aggregates[i], drafts[i].sequences);
    END LOOP;
    FOR i IN 1 .. cardinality(drafts) LOOP
        r := drafts[i];
        INSERT INTO {schema}.outbox (
            created_day, route, command_id, source, command_type, aggregate, issued_at, content_type, data_schema,
            tenant, sequences, optional_destinations, operation_id, request_id, request_size, instruction_version,
            replaces, expires_at, config_version, capability, capability_version, legal_versions, config_versions,
            data_form, data_key_id, data_ref, data_digest, traceparent, payload)
        VALUES (
            r.created_day, r.route, r.command_id, r.source, r.command_type, r.aggregate, r.issued_at, r.content_type,
            r.data_schema, r.tenant, numbers[i], r.optional_destinations, r.operation_id, r.request_id, r.request_size,
            r.instruction_version, r.replaces, r.expires_at, r.config_version, r.capability, r.capability_version,
            r.legal_versions, r.config_versions, r.data_form, r.data_key_id, r.data_ref, r.data_digest, r.traceparent,
            r.payload);
        RETURN QUERY SELECT i, r.command_id, r.aggregate, numbers[i], r.issued_at, r.expires_at;
    END LOOP;
END $$;

-- One command; `data` is JSON text, kept byte for byte (1.10 stays 1.10).
CREATE FUNCTION {schema}.emit(tenant text, aggregate_type text, aggregate_id text, command_type text, data text,
    options jsonb DEFAULT '{}')
RETURNS TABLE (command_id uuid, aggregate text, sequences jsonb, issued_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT i.command_id, i.aggregate, i.sequences, i.issued_at, i.expires_at
    FROM {schema}.issue(emit.tenant, jsonb_build_array(coalesce(emit.options, '{}') || jsonb_build_object('aggregate_type',
        emit.aggregate_type, 'aggregate_id', emit.aggregate_id, 'command_type', emit.command_type)),
        ARRAY[convert_to(emit.data, 'UTF8')]) AS i;
END $$;

-- One command whose data PostgreSQL made: `jsonb_build_object(…)`.
CREATE FUNCTION {schema}.emit(tenant text, aggregate_type text, aggregate_id text, command_type text, data jsonb,
    options jsonb DEFAULT '{}')
RETURNS TABLE (command_id uuid, aggregate text, sequences jsonb, issued_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY SELECT * FROM {schema}.emit(emit.tenant, emit.aggregate_type, emit.aggregate_id, emit.command_type,
        emit.data::text, emit.options);
END $$;

-- One command whose data are bytes: sealed, Avro, or text of another content type.
CREATE FUNCTION {schema}.emit(tenant text, aggregate_type text, aggregate_id text, command_type text, data bytea,
    options jsonb DEFAULT '{}')
RETURNS TABLE (command_id uuid, aggregate text, sequences jsonb, issued_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT i.command_id, i.aggregate, i.sequences, i.issued_at, i.expires_at
    FROM {schema}.issue(emit.tenant, jsonb_build_array(coalesce(emit.options, '{}') || jsonb_build_object('aggregate_type',
        emit.aggregate_type, 'aggregate_id', emit.aggregate_id, 'command_type', emit.command_type)),
        ARRAY[emit.data]) AS i;
END $$;

-- Many commands at once: an array of option objects, each with `data` (any JSON value, in PostgreSQL's text form)
-- or `data_base64` (bytes as they are). All counter rows are taken in one order: no two calls can wait for each other.
CREATE FUNCTION {schema}.emit_many(tenant text, commands jsonb)
RETURNS TABLE (place integer, command_id uuid, aggregate text, sequences jsonb,
    issued_at timestamptz, expires_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    bare jsonb;
    payloads bytea[];
BEGIN
    IF jsonb_typeof(emit_many.commands) IS DISTINCT FROM 'array' THEN
        PERFORM {schema}.refuse('malformed_field', 'emit_many takes a JSON array of commands', '');
    END IF;
    IF EXISTS (SELECT FROM jsonb_array_elements(emit_many.commands) AS c
            WHERE c ? 'data' AND c ? 'data_base64'
            OR coalesce(c ->> 'data_base64', '') !~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$') THEN
        PERFORM {schema}.refuse('malformed_field', 'a command has data or data_base64, and base64 is padded', '');
    END IF;
    SELECT jsonb_agg(CASE WHEN jsonb_typeof(c) = 'object' THEN c - 'data' - 'data_base64' ELSE 'null' END ORDER BY n),
        array_agg(coalesce(decode(c ->> 'data_base64', 'base64'), convert_to((c -> 'data')::text, 'UTF8')) ORDER BY n)
    INTO bare, payloads
    FROM jsonb_array_elements(emit_many.commands) WITH ORDINALITY AS e (c, n);
    RETURN QUERY SELECT * FROM {schema}.issue(emit_many.tenant, coalesce(bare, '[]'), payloads);
END $$;

-- The row that proves the pipe end to end: it goes to the tenant's topic and to no destination.
CREATE FUNCTION {schema}.canary(tenant text, aggregate_id text DEFAULT 'pipe') RETURNS uuid
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    settings {schema}.tenant;
    now_ms timestamptz := date_trunc('milliseconds', clock_timestamp());
    made uuid := {schema}.new_id();
BEGIN
    SELECT * INTO settings FROM {schema}.tenant t WHERE t.name = canary.tenant;
    IF NOT FOUND THEN
        PERFORM {schema}.refuse('unknown_tenant', 'what was given as tenant may not emit in this outbox', '');
    ELSIF {schema}.is_aggregate('waybill.canary/' || canary.aggregate_id) IS NOT TRUE THEN
        PERFORM {schema}.refuse('malformed_field', 'aggregate_id is not well formed', {schema}.field_hint('aggregate_id'));
    END IF;
    INSERT INTO {schema}.outbox (created_day, route, command_id, source, command_type, aggregate, issued_at, content_type,
        tenant, sequences, expires_at, config_version, capability, capability_version, payload)
    VALUES ((now_ms AT TIME ZONE 'UTC')::date, settings.route, made, settings.source, 'waybill.canary',
        'waybill.canary/' || canary.aggregate_id, now_ms, 'application/json', settings.name, '{}',
        now_ms + interval '1 hour', settings.config_version, 'waybill.canary', 1, '{}');
    RETURN made;
END $$;
