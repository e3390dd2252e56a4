-- One row per delivery that was executed here, written in the transaction that executed it.
-- A repeat finds its receipt; the same identifier with another body finds that it differs.
CREATE TABLE {schema}.delivery (
    tenant text NOT NULL,
    destination text NOT NULL,
    delivery_id uuid NOT NULL,
    -- What the effect is deduplicated on: the delivery id unless the producer chose another.
    operation_id text NOT NULL,
    command_type text NOT NULL,
    aggregate text NOT NULL,
    -- SHA-256 over the body as it came.
    body_digest bytea NOT NULL CHECK (octet_length(body_digest) = 32),
    -- SHA-256 over what is to be done: type, aggregate and data, whatever the delivery is called.
    operation_digest bytea NOT NULL CHECK (octet_length(operation_digest) = 32),
    received_at timestamptz NOT NULL,
    expires_at timestamptz,
    -- Both empty only inside the transaction that executes.
    executed_at timestamptz,
    receipt text,
    PRIMARY KEY (tenant, destination, delivery_id),
    UNIQUE (tenant, destination, operation_id)
);

-- For the purge behind the retention.
CREATE INDEX delivery_received_at ON {schema}.delivery (received_at);
