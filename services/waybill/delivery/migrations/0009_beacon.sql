-- Marks by which an owner knows its database again: a random id with every statement that writes rows or intents. The
-- committed offset names one, so that a database that was set back in time is noticed by what it lacks.
CREATE TABLE {schema}.beacon (
    tenant text NOT NULL,
    destination text NOT NULL,
    partition integer NOT NULL,
    beacon uuid NOT NULL,
    -- Order within one past of the database; the same numbers are given again after it was set back.
    number bigint GENERATED ALWAYS AS IDENTITY,
    -- The committed offset when it was written: what is written after it concerns no record below, unless it has a row.
    committed bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, destination, partition, beacon)
);
CREATE INDEX beacon_number ON {schema}.beacon (tenant, destination, partition, number);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'waybill_worker') THEN
        GRANT SELECT, INSERT, DELETE ON {schema}.beacon TO waybill_worker;
    END IF;
END;
$$;
