-- Beside the outbox that events are written to: how far states were read, and what was told, so that both are in the
-- transaction of the commands.

CREATE TABLE {schema}.position (
    topic text NOT NULL,
    partition integer NOT NULL,
    next bigint NOT NULL CHECK (next >= 0),
    PRIMARY KEY (topic, partition)
);

CREATE TABLE {schema}.told (
    event_id uuid PRIMARY KEY,
    -- When it was last read: an open delivery's state is written again before its topic drops it.
    read_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX told_age ON {schema}.told (read_at);
