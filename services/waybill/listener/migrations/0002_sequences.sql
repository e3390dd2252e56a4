-- For a listener that takes each aggregate's deliveries in order only. Written in the transaction that executes a
-- delivery or hears a gap resolution; a lane's row is also the lock between two deliveries of one aggregate.
CREATE TABLE {schema}.lane (
    tenant text NOT NULL,
    destination text NOT NULL,
    aggregate text NOT NULL,
    -- Everything up to here was executed, or will not come in its turn.
    last_sequence integer NOT NULL CHECK (last_sequence >= 0),
    PRIMARY KEY (tenant, destination, aggregate)
);

-- What gap resolutions said and is still needed: numbers ahead, and older ones that may still come.
CREATE TABLE {schema}.gap (
    tenant text NOT NULL,
    destination text NOT NULL,
    aggregate text NOT NULL,
    sequence integer NOT NULL CHECK (sequence > 0),
    delivery_id uuid NOT NULL,
    resolution text NOT NULL CHECK (resolution IN ('final', 'deferred')),
    PRIMARY KEY (tenant, destination, aggregate, sequence)
);
