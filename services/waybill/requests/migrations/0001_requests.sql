-- Requests, folded from commands and states. Positions move in the transaction of the rows they stand for, and what is
-- told about a request is a row of `turn` together with one of the control outbox: told once, by constraint.

CREATE TABLE {schema}.position (
    topic      text    NOT NULL,
    partition  integer NOT NULL,
    next       bigint  NOT NULL CHECK (next >= 0),
    PRIMARY KEY (topic, partition)
);

-- One command of a request at one destination; it exists because its command was read.
CREATE TABLE {schema}.delivery (
    tenant        text    NOT NULL,
    delivery_id   uuid    NOT NULL,
    request_id    text    NOT NULL,
    command_id    uuid    NOT NULL,
    destination   text    NOT NULL,
    required      boolean NOT NULL,
    replaces      uuid,
    request_size  integer,
    PRIMARY KEY (tenant, delivery_id)
);
CREATE INDEX delivery_by_request ON {schema}.delivery (tenant, request_id);

-- The newest state of a delivery. It may come before its command is read, and then counts for nothing until it is.
CREATE TABLE {schema}.outcome (
    tenant       text        NOT NULL,
    delivery_id  uuid        NOT NULL,
    version      integer     NOT NULL,
    state        text        NOT NULL,
    error_code   text,
    detail       text,
    at           timestamptz NOT NULL,
    PRIMARY KEY (tenant, delivery_id)
);

-- Exceptions that counted when the fold looked last: what is approved, permits closure and has not expired.
CREATE TABLE {schema}.excuse (
    tenant        text        NOT NULL,
    delivery_id   uuid        NOT NULL,
    exception_id  uuid        PRIMARY KEY,
    expires_at    timestamptz NOT NULL
);
CREATE INDEX excuse_by_delivery ON {schema}.excuse (tenant, delivery_id);

CREATE TABLE {schema}.request (
    tenant       text        NOT NULL,
    request_id   text        NOT NULL,
    commands     integer     NOT NULL DEFAULT 0,
    size         integer,
    done         integer     NOT NULL DEFAULT 0,
    excused      integer     NOT NULL DEFAULT 0,
    open         integer     NOT NULL DEFAULT 0,
    is_complete  boolean     NOT NULL DEFAULT false,
    completions  integer     NOT NULL DEFAULT 0,
    leans_until  timestamptz,
    settled_at   timestamptz,
    changed_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant, request_id)
);
COMMENT ON COLUMN {schema}.request.size IS 'how many commands there are to be; null while nobody said so';
COMMENT ON COLUMN {schema}.request.open IS 'required deliveries that are in the way';
COMMENT ON COLUMN {schema}.request.leans_until IS 'when the first exception it leans on runs out';
CREATE INDEX request_open ON {schema}.request (tenant, request_id) WHERE NOT is_complete;

-- What was told. A request has one completion of each number, and that has at most one reopening.
CREATE TABLE {schema}.turn (
    tenant      text        NOT NULL,
    request_id  text        NOT NULL,
    number      integer     NOT NULL CHECK (number >= 1),
    turn        text        NOT NULL CHECK (turn IN ('completed', 'reopened')),
    at          timestamptz NOT NULL,
    PRIMARY KEY (tenant, request_id, number, turn),
    FOREIGN KEY (tenant, request_id) REFERENCES {schema}.request
);
