-- What each running worker says of the destinations that are not plain in it, for people to read; nothing is decided
-- from it. Unlogged: it tells of now, so neither a crash of the database nor a restore brings an old one back.
CREATE UNLOGGED TABLE {schema}.worker_report (
    worker text PRIMARY KEY CHECK (worker <> ''),
    reported_at timestamptz NOT NULL,
    destinations jsonb NOT NULL CONSTRAINT worker_report_is_a_list CHECK (jsonb_typeof(destinations) = 'array')
);

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'waybill_worker') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON {schema}.worker_report TO waybill_worker;
    END IF;
END;
$$;
