-- Predicates: each shape a command may have is said once, here. The table's constraints and the emit functions
-- call the same ones, so that what emit refuses and what the table refuses cannot drift apart.

DO $$
BEGIN
    IF current_setting('server_version_num')::int < 140000 THEN
        RAISE EXCEPTION 'the outbox needs PostgreSQL 14 or newer, this is %', current_setting('server_version');
    END IF;
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'the outbox needs a database with encoding UTF8, this one has %',
            current_setting('server_encoding');
    END IF;
END $$;

-- Tenants, destinations: parts of topic names, group ids and metric labels.
CREATE FUNCTION {schema}.is_name(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value ~ '^[a-z][a-z0-9-]{0,29}$';

CREATE FUNCTION {schema}.is_aggregate_type(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value ~ '^[a-z][a-z0-9_.-]{0,62}$';

-- Text for people or machines that becomes a header: no control character of any kind, no line separator,
-- no edge of white space, bounded.
CREATE FUNCTION {schema}.is_plain(value text, max_length integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN length(value) BETWEEN 1 AND max_length
    AND value !~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029]|^\s|\s$';

-- `type/id`, the Kafka key.
CREATE FUNCTION {schema}.is_aggregate(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN {schema}.is_plain(value, 255) AND value ~ '^[a-z][a-z0-9_.-]{0,62}/\S';

-- A command type or capability: `subject.erase`.
CREATE FUNCTION {schema}.is_type(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value ~ '^[A-Za-z][A-Za-z0-9_.-]{0,126}$';

-- An identifier somebody else gave out: visible ASCII only.
CREATE FUNCTION {schema}.is_token(value text, max_length integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN length(value) <= max_length AND value ~ '^[\u0021-\u007e]+$';

CREATE FUNCTION {schema}.is_uri(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN length(value) <= 1024 AND value ~ '^[a-z][a-z0-9+.-]*:[\u0021-\u007e]+$';

-- Lower case only: `Application/JSON` would be JSON to a reader and not to our JSON rule.
CREATE FUNCTION {schema}.is_content_type(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN length(value) <= 127 AND value ~ '^[a-z]+/[a-z0-9][a-z0-9.+_-]*(; ?[a-z]+=[a-z0-9._-]+)*$';

-- The content types whose data are spliced into the envelope as they are.
CREATE FUNCTION {schema}.is_json_type(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN split_part(value, ';', 1) ~ '[/+]json$';

-- `min..max`, inclusive, either side may be empty.
CREATE FUNCTION {schema}.is_version_range(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN length(value) <= 66
    AND value ~ '^([A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*)?[.][.]([A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*)?$';

-- W3C trace context, version 00; an all-zero id is invalid there.
CREATE FUNCTION {schema}.is_traceparent(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$'
    AND value !~ '^00-0{32}-' AND value !~ '-0{16}-[0-9a-f]{2}$';

CREATE FUNCTION {schema}.is_digest(value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value ~ '^sha256:[0-9a-f]{64}$';

-- destination → number. jsonb has one text form, so one pattern covers keys and numbers: whole, positive, no 1.0.
CREATE FUNCTION {schema}.is_sequences(value jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN jsonb_typeof(value) = 'object'
    AND length(value::text) <= 8192
    AND value::text ~ '^\{("[a-z][a-z0-9-]{0,29}": [1-9][0-9]{0,9}(, "[a-z][a-z0-9-]{0,29}": [1-9][0-9]{0,9})*)?\}$'
    AND NOT jsonb_path_exists(value, '$.* ? (@ > 2147483647)');

-- A list of names, each of them a destination of this command.
CREATE FUNCTION {schema}.is_choice_of(value jsonb, sequences jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN value::text ~ '^\["[a-z][a-z0-9-]{0,29}"(, "[a-z][a-z0-9-]{0,29}")*\]$'
    AND sequences ?& ARRAY(SELECT jsonb_array_elements_text(value));

-- Exactly one JSON value in UTF-8, without a NUL byte, with nothing behind it.
DO $$
DECLARE
    test text := CASE
        WHEN current_setting('server_version_num')::int >= 160000
        THEN 'RETURN convert_from(payload, ''UTF8'') IS JSON;'
        ELSE 'RETURN convert_from(payload, ''UTF8'')::json IS NOT NULL;'
    END;
BEGIN
    EXECUTE format($body$
        CREATE FUNCTION {schema}.is_json(payload bytea) RETURNS boolean
        LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $function$
        BEGIN
            %s
        EXCEPTION
            -- not UTF-8, a NUL byte, not JSON, or nested deeper than this server reads
            WHEN data_exception OR program_limit_exceeded THEN RETURN false;
        END $function$
    $body$, test);
END $$;

-- UUIDv7 in time order: native on 18, here milliseconds over a random UUID below.
DO $$
BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        EXECUTE 'CREATE FUNCTION {schema}.new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE RETURN uuidv7()';
    ELSE
        EXECUTE $body$
            CREATE FUNCTION {schema}.new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE
            RETURN encode(
                set_bit(set_bit(
                    overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                        FROM 1 FOR 6),
                    52, 1), 53, 1), 'hex')::uuid
        $body$;
    END IF;
END $$;

-- Every refusal has a rule, the rule is the error's constraint name, and its SQLSTATE never changes.
CREATE FUNCTION {schema}.rule_state(rule text) RETURNS text
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
END;

CREATE FUNCTION {schema}.refuse(rule text, message text, hint text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING
        ERRCODE = {schema}.rule_state(rule), MESSAGE = message, HINT = hint, CONSTRAINT = rule, SCHEMA = '{schema}';
END $$;
