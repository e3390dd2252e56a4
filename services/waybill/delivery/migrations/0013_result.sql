-- What destinations said later of deliveries they accepted, as it arrived, and what became of it. Written down before
-- the position of the topic moves on, so that nothing that was heard is lost, and a copy is known for one. Of what is
-- not believed only the digest is kept: anybody may write anything.
CREATE TABLE {schema}.result (
    tenant text NOT NULL,
    destination text NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL CHECK (record_offset >= 0),
    result_id uuid,
    delivery_id uuid,
    aggregate text,
    weighed text NOT NULL CHECK (weighed IN ('waiting', 'settled', 'late', 'refused')),
    reason text,
    key_id text,
    skew_ms bigint,
    is_quarantined boolean NOT NULL,
    said jsonb,
    signed_timestamp text,
    signature text,
    body bytea,
    body_sha256 text NOT NULL CHECK (body_sha256 ~ '^[0-9a-f]{64}$'),
    arrived_at timestamptz NOT NULL,
    weighed_at timestamptz,
    PRIMARY KEY (tenant, destination, partition, record_offset),
    CONSTRAINT result_refused CHECK ((weighed = 'refused') = (reason IS NOT NULL)),
    CONSTRAINT result_believed CHECK (weighed = 'refused' OR (result_id IS NOT NULL AND delivery_id IS NOT NULL
        AND aggregate IS NOT NULL AND said IS NOT NULL AND body IS NOT NULL AND key_id IS NOT NULL))
);
CREATE UNIQUE INDEX result_said_once ON {schema}.result (tenant, destination, result_id) WHERE weighed <> 'refused';
CREATE INDEX result_waiting ON {schema}.result (tenant, destination, partition) WHERE weighed = 'waiting';
CREATE INDEX result_of ON {schema}.result (tenant, destination, delivery_id);
CREATE INDEX result_old ON {schema}.result (tenant, destination, partition, arrived_at);

-- What is so old that its topic forgot it, and of which no row of its delivery is left.
CREATE FUNCTION {schema}.drop_results(
    p_tenant text, p_destination text, p_partition integer, p_before timestamptz, p_limit integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    oldest constant timestamptz := least(p_before, clock_timestamp() - interval '30 days');
    dropped integer;
BEGIN
    DELETE FROM {schema}.result r
    USING (
        SELECT tenant, destination, partition, record_offset FROM {schema}.result n
        WHERE tenant = p_tenant AND destination = p_destination AND partition = p_partition AND arrived_at < oldest
          AND NOT EXISTS (SELECT FROM {schema}.open_task t
              WHERE t.tenant = n.tenant AND t.destination = n.destination AND t.delivery_id = n.delivery_id)
        ORDER BY arrived_at
        LIMIT least(p_limit, 1000)
        FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE r.tenant = old.tenant AND r.destination = old.destination AND r.partition = old.partition
      AND r.record_offset = old.record_offset;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;

DO $$
BEGIN
    REVOKE ALL ON FUNCTION {schema}.drop_results(text, text, integer, timestamptz, integer) FROM PUBLIC;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'waybill_worker') THEN
        GRANT SELECT, INSERT, UPDATE ON {schema}.result TO waybill_worker;
        GRANT EXECUTE ON FUNCTION {schema}.drop_results(text, text, integer, timestamptz, integer) TO waybill_worker;
    END IF;
END;
$$;
