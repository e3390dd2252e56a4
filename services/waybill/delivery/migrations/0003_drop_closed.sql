-- Closed rows stay until no repeat of their command can come any more, then they are dropped, a few at a time. The
-- worker's role may not delete: it asks this function, which drops nothing younger than what a topic keeps.
CREATE INDEX open_task_closed ON {schema}.open_task (tenant, destination, partition, updated_at)
    WHERE state = 'acknowledged';

CREATE FUNCTION {schema}.drop_closed(
    p_tenant text, p_destination text, p_partition integer, p_before timestamptz, p_limit integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    dropped integer;
BEGIN
    DELETE FROM {schema}.open_task t
    USING (
        SELECT tenant, destination, delivery_id FROM {schema}.open_task
        WHERE tenant = p_tenant AND destination = p_destination AND partition = p_partition
          AND state = 'acknowledged' AND NOT blocks AND pending_outcome IS NULL
          AND updated_at < least(p_before, clock_timestamp() - interval '30 days') AND expires_at < clock_timestamp()
        ORDER BY updated_at
        LIMIT least(p_limit, 1000)
        FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE t.tenant = old.tenant AND t.destination = old.destination AND t.delivery_id = old.delivery_id;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;
REVOKE ALL ON FUNCTION {schema}.drop_closed(text, text, integer, timestamptz, integer) FROM PUBLIC;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'waybill_worker') THEN
        GRANT EXECUTE ON FUNCTION {schema}.drop_closed(text, text, integer, timestamptz, integer) TO waybill_worker;
    END IF;
END;
$$;
