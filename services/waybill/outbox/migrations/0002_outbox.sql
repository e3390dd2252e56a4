-- What `waybill apply` provisions. Each tenant has its own rows; one outbox may serve several tenants.

CREATE TABLE {schema}.topic (
    route text PRIMARY KEY CHECK (route ~ '^[a-z][a-z0-9-]{0,29}[.]commands$')
);
COMMENT ON TABLE {schema}.topic IS 'Topics that exist: a row routed elsewhere would stop the relay for everybody.';

CREATE TABLE {schema}.tenant (
    name text PRIMARY KEY CHECK ({schema}.is_name(name)),
    source text NOT NULL CHECK ({schema}.is_uri(source)),
    route text NOT NULL REFERENCES {schema}.topic,
    config_version integer NOT NULL CHECK (config_version >= 0),
    max_payload_bytes integer NOT NULL CHECK (max_payload_bytes BETWEEN 1 AND 921600)
);
COMMENT ON TABLE {schema}.tenant IS 'Who may emit here, and under which configuration version and limits.';

CREATE TABLE {schema}.aggregate_type (
    tenant text REFERENCES {schema}.tenant ON DELETE CASCADE,
    name text CHECK ({schema}.is_aggregate_type(name)),
    PRIMARY KEY (tenant, name)
);
COMMENT ON TABLE {schema}.aggregate_type IS 'Aggregate types this outbox numbers; a second counter would break the sequence.';

CREATE TABLE {schema}.destination (
    tenant text REFERENCES {schema}.tenant ON DELETE CASCADE,
    name text CHECK ({schema}.is_name(name)),
    PRIMARY KEY (tenant, name)
);
COMMENT ON TABLE {schema}.destination IS 'Destinations with a consumer group that waits for them.';

CREATE TABLE {schema}.route (
    tenant text REFERENCES {schema}.tenant ON DELETE CASCADE,
    command_type text CHECK ({schema}.is_type(command_type)),
    destinations text[] NOT NULL CHECK (cardinality(destinations) BETWEEN 1 AND 200),
    ttl_s numeric NOT NULL CHECK (ttl_s > 0),
    capability text NOT NULL CHECK ({schema}.is_type(capability)),
    capability_version integer NOT NULL CHECK (capability_version >= 1),
    forms text[] NOT NULL CHECK (forms <@ '{clear,sealed,reference}'::text[]),
    PRIMARY KEY (tenant, command_type)
);
COMMENT ON TABLE {schema}.route IS 'Where a command type goes when its producer names no destination, and for how long.';

CREATE TABLE {schema}.counter (
    tenant text,
    aggregate text,
    numbers jsonb NOT NULL,
    PRIMARY KEY (tenant, aggregate)
) WITH (fillfactor = 70);
COMMENT ON TABLE {schema}.counter IS
    'The last number of each destination, per aggregate. Its row lock is held to the commit: insert order is commit order.';

CREATE TABLE {schema}.outbox (
    created_day date NOT NULL,
    position bigint GENERATED ALWAYS AS IDENTITY,
    route text NOT NULL REFERENCES {schema}.topic,
    spec_version text NOT NULL DEFAULT '1.0',
    command_id uuid NOT NULL,
    source text NOT NULL,
    command_type text NOT NULL,
    aggregate text NOT NULL,
    issued_at timestamptz NOT NULL,
    content_type text NOT NULL,
    data_schema text,
    tenant text NOT NULL,
    sequences jsonb NOT NULL,
    optional_destinations jsonb,
    operation_id text,
    request_id text,
    request_size integer,
    instruction_version integer NOT NULL DEFAULT 1,
    replaces uuid,
    expires_at timestamptz NOT NULL,
    config_version integer NOT NULL,
    capability text NOT NULL,
    capability_version integer NOT NULL,
    legal_versions text,
    config_versions text,
    envelope_version integer NOT NULL DEFAULT 1,
    data_form text NOT NULL DEFAULT 'clear',
    data_key_id text,
    data_ref text,
    data_digest text,
    traceparent text,
    payload bytea NOT NULL,
    PRIMARY KEY (created_day, position),
    -- The rules that keep a row producible, as constraints. All others are in refuse_malformed, which sees every
    -- insert as well: as constraints they would cost each statement half a millisecond of preparation, and their
    -- errors would print the row, payload included.
    CONSTRAINT route_is_the_tenants CHECK (route = tenant || '.commands'),
    CONSTRAINT versions_are_known CHECK (spec_version = '1.0' AND envelope_version = 1),
    CONSTRAINT key_fits CHECK (length(aggregate) BETWEEN 3 AND 255),
    CONSTRAINT payload_fits CHECK (octet_length(payload) <= 921600)
) PARTITION BY RANGE (created_day);
COMMENT ON TABLE {schema}.outbox IS
    'One row per command, kept for days. Nothing changes an issued row; days are dropped whole, behind the relay.';

-- The same for the form in which data travel.
CREATE FUNCTION {schema}.malformed_data(r {schema}.outbox) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE
        WHEN r.data_form NOT IN ('clear', 'sealed', 'reference') THEN 'data_form'
        WHEN (r.data_form = 'sealed') <> (r.data_key_id IS NOT NULL) THEN 'data_key_id'
        WHEN NOT {schema}.is_token(r.data_key_id, 128) THEN 'data_key_id'
        WHEN (r.data_form = 'reference') <> (r.data_ref IS NOT NULL) THEN 'data_ref'
        WHEN NOT {schema}.is_uri(r.data_ref) THEN 'data_ref'
        WHEN (r.data_form = 'reference') <> (r.data_digest IS NOT NULL) THEN 'data_digest'
        WHEN NOT {schema}.is_digest(r.data_digest) THEN 'data_digest'
        WHEN r.data_form = 'sealed' AND octet_length(r.payload) = 0 THEN 'data'
        WHEN r.data_form = 'reference' AND octet_length(r.payload) > 0 THEN 'data'
    END;
END $$;

-- The name of the first malformed field of a row, or null. The whole shape of a command is said here, once.
CREATE FUNCTION {schema}.malformed(r {schema}.outbox) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN CASE
        WHEN {schema}.is_name(r.tenant) IS NOT TRUE OR r.route <> r.tenant || '.commands' THEN 'tenant'
        WHEN {schema}.is_type(r.command_type) IS NOT TRUE THEN 'command_type'
        WHEN {schema}.is_aggregate(r.aggregate) IS NOT TRUE THEN 'aggregate_id'
        WHEN {schema}.is_uri(r.source) IS NOT TRUE THEN 'source'
        WHEN {schema}.is_content_type(r.content_type) IS NOT TRUE THEN 'content_type'
        WHEN NOT {schema}.is_uri(r.data_schema) THEN 'data_schema'
        WHEN {schema}.is_sequences(r.sequences) IS NOT TRUE THEN 'sequences'
        -- only the canary goes to nobody
        WHEN (r.sequences = '{}') <> (r.command_type = 'waybill.canary') THEN 'sequences'
        WHEN r.optional_destinations IS NOT NULL AND NOT {schema}.is_choice_of(r.optional_destinations, r.sequences) THEN 'optional'
        WHEN NOT {schema}.is_token(r.operation_id, 200) THEN 'operation_id'
        WHEN NOT {schema}.is_token(r.request_id, 200) THEN 'request_id'
        WHEN r.request_size < 1 OR r.request_size IS NOT NULL AND r.request_id IS NULL THEN 'request_size'
        -- a correction is a new version that names the one it replaces
        WHEN r.instruction_version < 1 OR (r.replaces IS NOT NULL) <> (r.instruction_version > 1) THEN 'replaces'
        WHEN r.issued_at <> date_trunc('milliseconds', r.issued_at) THEN 'issued_at'
        WHEN r.expires_at <= r.issued_at OR r.expires_at <> date_trunc('milliseconds', r.expires_at) THEN 'expires_at'
        WHEN r.config_version < 0 THEN 'config_version'
        WHEN {schema}.is_type(r.capability) IS NOT TRUE OR r.capability_version < 1 THEN 'capability'
        WHEN NOT {schema}.is_version_range(r.legal_versions) THEN 'legal_versions'
        WHEN NOT {schema}.is_version_range(r.config_versions) THEN 'config_versions'
        WHEN NOT {schema}.is_traceparent(r.traceparent) THEN 'traceparent'
        ELSE {schema}.malformed_data(r)
    END;
END $$;

-- What to do about a malformed field.
CREATE FUNCTION {schema}.field_hint(field text) RETURNS text
LANGUAGE sql IMMUTABLE
RETURN CASE field
    WHEN 'command_type' THEN 'Letters, digits, _ . -, at most 127, like subject.erase.'
    WHEN 'capability' THEN 'Letters, digits, _ . -, at most 127, like subject.erase.'
    WHEN 'aggregate_id' THEN 'type/id is at most 255 characters, without control characters or white space at its ends.'
    WHEN 'content_type' THEN 'A media type in lower case, like application/json.'
    WHEN 'data_schema' THEN 'A URI in visible ASCII, at most 1024.'
    WHEN 'data_ref' THEN 'A URI in visible ASCII, at most 1024; only and always with data_form reference.'
    WHEN 'data_digest' THEN 'sha256: and 64 hexadecimal digits; only and always with data_form reference.'
    WHEN 'data_key_id' THEN 'Visible ASCII, at most 128; only and always with data_form sealed.'
    WHEN 'data_form' THEN 'clear, sealed or reference.'
    WHEN 'data' THEN 'Sealed data are never empty; with a reference the data are elsewhere and none are given here.'
    WHEN 'optional' THEN 'A list of names that are destinations of this command.'
    WHEN 'request_size' THEN 'It needs the request_id it belongs to.'
    WHEN 'replaces' THEN 'A correction has instruction_version above 1 and replaces names what it corrects; nothing else does.'
    WHEN 'traceparent' THEN 'W3C trace context version 00.'
    WHEN 'legal_versions' THEN 'min..max, either side may be empty.'
    WHEN 'config_versions' THEN 'min..max, either side may be empty.'
    WHEN 'operation_id' THEN 'Visible ASCII, at most 200.'
    WHEN 'request_id' THEN 'Visible ASCII, at most 200.'
    ELSE 'Emit through the emit functions: they fill it.'
END;

-- Sees every row on its way in, whoever inserts it and however; its errors never hold the row.
CREATE FUNCTION {schema}.refuse_malformed() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    field text := {schema}.malformed(NEW);
BEGIN
    IF field IS NOT NULL THEN
        PERFORM {schema}.refuse('malformed_field', format('%s is not well formed', field), {schema}.field_hint(field));
    ELSIF octet_length(NEW.payload) > 921600 THEN
        PERFORM {schema}.refuse('payload_too_large',
            format('the payload has %s bytes, no outbox takes more than 921600', octet_length(NEW.payload)),
            'Store it elsewhere and emit a reference: data_form reference with data_ref and data_digest.');
    ELSIF NEW.data_form = 'clear' AND {schema}.is_json_type(NEW.content_type) AND NOT {schema}.is_json(NEW.payload) THEN
        PERFORM {schema}.refuse('payload_not_json',
            format('content type %s, but the payload is not exactly one JSON value in UTF-8', NEW.content_type),
            'Check for trailing text, a NUL byte or another encoding; other data need their own content type.');
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER well_formed BEFORE INSERT ON {schema}.outbox
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_malformed();
ALTER TABLE {schema}.outbox ENABLE ALWAYS TRIGGER well_formed;

CREATE FUNCTION {schema}.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM {schema}.refuse('issued_is_final', format('%s refused: an issued command never changes', TG_OP),
        'Emit a correction: a new command with instruction_version + 1 that names this one in replaces.');
    RETURN NULL;
END $$;

-- Row triggers reach every partition, statement triggers say so even where no row matched. ALWAYS: also for a
-- session that replicates. They bind the owner too.
CREATE TRIGGER no_change BEFORE UPDATE OR DELETE ON {schema}.outbox
    FOR EACH ROW EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER no_change_statement BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.outbox
    FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
ALTER TABLE {schema}.outbox ENABLE ALWAYS TRIGGER no_change;
ALTER TABLE {schema}.outbox ENABLE ALWAYS TRIGGER no_change_statement;

CREATE TABLE {schema}.day_partition (
    name text PRIMARY KEY,
    first_day date NOT NULL,
    after_day date NOT NULL CHECK (after_day > first_day),
    closed_lsn pg_lsn,
    closed_position bigint,
    CHECK ((closed_lsn IS NULL) = (closed_position IS NULL))
);
COMMENT ON TABLE {schema}.day_partition IS
    'Partitions by UTC day, [first_day, after_day). closed_lsn: the WAL position behind which the relay has read it all.';

-- TRUNCATE of a partition by name does not fire the root's trigger, so each has its own.
CREATE FUNCTION {schema}.guard_partition(name text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE format('CREATE TRIGGER no_truncate BEFORE TRUNCATE ON {schema}.%I '
        'FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change()', name);
    EXECUTE format('ALTER TABLE {schema}.%I ENABLE ALWAYS TRIGGER no_truncate', name);
END $$;

-- Makes the partition of one UTC day; returns its name, or null when the day is already covered.
CREATE FUNCTION {schema}.add_partition(day date) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    made text := 'outbox_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF EXISTS (SELECT FROM {schema}.day_partition p WHERE day >= p.first_day AND day < p.after_day) THEN
        RETURN NULL;
    END IF;
    EXECUTE format('CREATE TABLE {schema}.%I PARTITION OF {schema}.outbox FOR VALUES FROM (%L) TO (%L)',
        made, day, day + 1);
    PERFORM {schema}.guard_partition(made);
    INSERT INTO {schema}.day_partition (name, first_day, after_day) VALUES (made, day, day + 1);
    RETURN made;
END $$;

-- Rows of a day nobody prepared: still relayed, but housekeeping is late, and an alarm says so.
CREATE TABLE {schema}.outbox_default PARTITION OF {schema}.outbox DEFAULT;
SELECT {schema}.guard_partition('outbox_default');
SELECT {schema}.add_partition((clock_timestamp() AT TIME ZONE 'UTC')::date + n) FROM generate_series(0, 7) AS n;

-- Insert only, under the root's name: new partitions flow without a change, dropping one reaches no topic.
CREATE PUBLICATION {schema}_outbox FOR TABLE {schema}.outbox
    WITH (publish = 'insert', publish_via_partition_root = true);
