-- The read model: what the topics say about every delivery, one row each, rebuilt from the topics at any time.
-- Written by one process (waybill.readmodel); everybody else reads.


-- One row per delivery. The command columns come from the commands topic (copies counts its records there: a
-- repeat of the relay raises it), the state columns from the record of the highest version in the state topic.
-- A row without command columns is a state that overtook its command; one without a state record is queued.
CREATE TABLE {schema}.delivery (
    tenant                  text        NOT NULL,
    delivery_id             uuid        NOT NULL,
    command_id              uuid        NOT NULL,
    destination             text        NOT NULL,
    aggregate               text        NOT NULL,
    sequence                integer     NOT NULL CHECK (sequence >= 1),
    command_type            text,
    request_id              text,
    request_size            bigint,
    required                boolean,
    operation_id            text,
    instruction_version     bigint,
    replaces                uuid,
    command_config_version  bigint,
    issued_at               timestamptz,
    expires_at              timestamptz,
    in_topic_at             timestamptz,
    command_partition       integer,
    command_offset          bigint,
    copies                  integer     NOT NULL DEFAULT 0 CHECK (copies >= 0),
    state                   text        NOT NULL DEFAULT 'queued' CHECK (state IN (
        'queued', 'delivered', 'acknowledged', 'retrying', 'ambiguous', 'failed', 'exception', 'dead_letter')),
    version                 integer     NOT NULL DEFAULT 0 CHECK (version >= 0),
    error_code              text,
    detail                  text,
    attempt                 integer     NOT NULL DEFAULT 0,
    next_due                timestamptz,
    owner                   text,
    proof_level             text,
    profile                 text,
    config_version          bigint,
    updated_at              timestamptz,
    PRIMARY KEY (tenant, delivery_id)
);
COMMENT ON COLUMN {schema}.delivery.attempt IS 'attempts the owner remembered at its last move; {schema}.attempt holds them all';
COMMENT ON COLUMN {schema}.delivery.command_config_version IS 'the configuration the routes were resolved against; config_version is that of the last move';

CREATE INDEX delivery_by_command ON {schema}.delivery (command_id);
CREATE INDEX delivery_by_id ON {schema}.delivery (delivery_id);
CREATE INDEX delivery_by_number ON {schema}.delivery (tenant, aggregate, destination, sequence);
CREATE INDEX delivery_by_request ON {schema}.delivery (tenant, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX delivery_by_state ON {schema}.delivery (tenant, destination, state, issued_at);

-- Every try that was audited, repeats included; the id makes a record that is read twice one row.
CREATE TABLE {schema}.attempt (
    tenant          text        NOT NULL,
    attempt_id      uuid        NOT NULL,
    delivery_id     uuid        NOT NULL,
    kind            text        NOT NULL CHECK (kind IN ('attempt', 'repeat')),
    attempt         integer     NOT NULL,
    started_at      timestamptz NOT NULL,
    ended_at        timestamptz NOT NULL,
    phase           text,
    http_status     integer,
    error_code      text,
    detail          text,
    state_before    text        NOT NULL,
    state_after     text        NOT NULL,
    version         integer     NOT NULL,
    receipt_status  text,
    source_version  text,
    count           bigint,
    digest          text,
    evidence        text,
    proof_level     text,
    profile         text        NOT NULL,
    config_version  bigint      NOT NULL,
    body_sha256     text        NOT NULL,
    worker          text        NOT NULL,
    PRIMARY KEY (tenant, attempt_id)
);
CREATE INDEX attempt_by_delivery ON {schema}.attempt (tenant, delivery_id, started_at);

-- Every move of a state, with or without a try. A repeated outcome id is the same move.
CREATE TABLE {schema}.move (
    tenant        text        NOT NULL,
    outcome_id    uuid        NOT NULL,
    delivery_id   uuid        NOT NULL,
    version       integer     NOT NULL,
    state_before  text        NOT NULL,
    state_after   text        NOT NULL,
    error_code    text,
    detail        text,
    attempt_id    uuid,
    ended_at      timestamptz NOT NULL,
    PRIMARY KEY (tenant, outcome_id)
);
CREATE INDEX move_by_delivery ON {schema}.move (tenant, delivery_id, version);

CREATE TABLE {schema}.dead_letter (
    tenant          text        NOT NULL,
    dead_letter_id  uuid        NOT NULL,
    topic           text        NOT NULL,
    partition       integer     NOT NULL,
    "offset"        bigint      NOT NULL,
    destination     text,
    delivery_id     uuid,
    aggregate       text,
    sequence        integer,
    code            text        NOT NULL,
    cause           text        NOT NULL,
    detail          text        NOT NULL,
    value_sha256    text        NOT NULL,
    value_bytes     integer     NOT NULL,
    owner           text,
    config_version  bigint      NOT NULL,
    recorded_by     text        NOT NULL,
    recorded_at     timestamptz NOT NULL,
    PRIMARY KEY (tenant, dead_letter_id)
);
CREATE INDEX dead_letter_by_delivery ON {schema}.dead_letter (tenant, delivery_id);

-- The highest number seen per (aggregate, destination): what the next one is compared with.
CREATE TABLE {schema}.numbering (
    tenant       text    NOT NULL,
    aggregate    text    NOT NULL,
    destination  text    NOT NULL,
    top          integer NOT NULL,
    PRIMARY KEY (tenant, aggregate, destination)
);

-- What should not be in the topics. `resolved_at` is set when the hole was filled.
CREATE TABLE {schema}.anomaly (
    tenant          text        NOT NULL,
    kind            text        NOT NULL CHECK (kind IN (
        'hole', 'reused_number', 'unreadable', 'illegal_move', 'skipped')),
    topic           text        NOT NULL,
    partition       integer     NOT NULL,
    "offset"        bigint      NOT NULL,
    destination     text        NOT NULL DEFAULT '',
    aggregate       text,
    first_sequence  integer,
    last_sequence   integer,
    missing         integer     NOT NULL DEFAULT 0,
    delivery_id     uuid,
    other_id        uuid,
    detail          text        NOT NULL,
    seen_at         timestamptz NOT NULL,
    resolved_at     timestamptz,
    PRIMARY KEY (tenant, kind, topic, partition, "offset", destination)
);
COMMENT ON COLUMN {schema}.anomaly.missing IS 'numbers of the hole that are still absent';
CREATE INDEX anomaly_by_aggregate ON {schema}.anomaly (tenant, aggregate, destination) WHERE resolved_at IS NULL;

-- The fold's own offsets, moved in the transaction that writes the rows.
CREATE TABLE {schema}.position (
    topic       text    NOT NULL,
    partition   integer NOT NULL,
    tenant      text    NOT NULL,
    base        bigint  NOT NULL,
    next        bigint  NOT NULL,
    newest_at   timestamptz,
    PRIMARY KEY (topic, partition)
);
COMMENT ON COLUMN {schema}.position.base IS 'where the fold began; above 0 the first numbers of an aggregate may have expired';
COMMENT ON COLUMN {schema}.position.newest_at IS 'broker time of the newest record folded';
