-- The control database's own outbox: what must be atomic with a row here and then lie in a topic.
-- One connector reads it for all tenants, so a row that cannot be produced would stop everybody: the constraints
-- below and the foreign key to topics that exist keep such a row out.

-- Topics made by `waybill apply`, without their `waybill.` prefix.
CREATE TABLE {schema}.control_route (
    route text PRIMARY KEY CHECK (route ~ '^[a-z][a-z0-9-]{0,29}\.config$')
);

-- A plain table: an apply writes one row for each changed object, and removes rows older than a month. Removal is not
-- published, and what the topic's reader needs is the whole state of an object, which its next change repeats.
CREATE TABLE {schema}.control_outbox (
    -- In UTC, whatever time zone the session has.
    created_day date NOT NULL DEFAULT ((clock_timestamp() AT TIME ZONE 'UTC')::date),
    position bigint GENERATED ALWAYS AS IDENTITY,
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    route text NOT NULL REFERENCES {schema}.control_route,
    -- Becomes the record key; never null, since a compacted topic refuses a record without one.
    key text NOT NULL CHECK (char_length(key) BETWEEN 1 AND 255),
    -- Null becomes a tombstone.
    payload bytea CHECK (octet_length(payload) BETWEEN 1 AND 524288),
    PRIMARY KEY (created_day, position)
);

CREATE PUBLICATION fabric_control_outbox FOR TABLE {schema}.control_outbox
    WITH (publish = 'insert', publish_via_partition_root = true);

GRANT USAGE ON SCHEMA {schema} TO waybill_relay;
GRANT SELECT ON {schema}.control_outbox TO waybill_relay;
