-- Rows are not all that only tells a repeat from a first attempt: so do intents that were answered, and decisions that
-- the worker made about what a later command replaces. They are dropped as closed rows are, unless a row of their
-- delivery is left. What people decided stays: somebody may have to prove it.
CREATE INDEX decision_superseding ON {schema}.decision (tenant, destination, partition, judged_at)
    WHERE kind = 'supersede' AND verdict <> 'open';

CREATE OR REPLACE FUNCTION {schema}.drop_closed(
    p_tenant text, p_destination text, p_partition integer, p_before timestamptz, p_limit integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    oldest constant timestamptz := least(p_before, clock_timestamp() - interval '30 days');
    most constant integer := least(p_limit, 1000);
    closed integer;
    intents integer;
    decisions integer;
BEGIN
    DELETE FROM {schema}.open_task t
    USING (
        SELECT tenant, destination, delivery_id FROM {schema}.open_task
        WHERE tenant = p_tenant AND destination = p_destination AND partition = p_partition
          AND state = 'acknowledged' AND NOT blocks AND pending_outcome IS NULL
          AND updated_at < oldest AND expires_at < clock_timestamp()
        ORDER BY updated_at
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE t.tenant = old.tenant AND t.destination = old.destination AND t.delivery_id = old.delivery_id;
    GET DIAGNOSTICS closed = ROW_COUNT;

    DELETE FROM {schema}.intent i
    USING (
        SELECT tenant, destination, delivery_id FROM {schema}.intent n
        WHERE tenant = p_tenant AND destination = p_destination AND partition = p_partition
          AND answer IS NOT NULL AND last_sent_at < oldest
          AND NOT EXISTS (SELECT FROM {schema}.open_task t
              WHERE t.tenant = n.tenant AND t.destination = n.destination AND t.delivery_id = n.delivery_id)
        ORDER BY last_sent_at
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE i.tenant = old.tenant AND i.destination = old.destination AND i.delivery_id = old.delivery_id;
    GET DIAGNOSTICS intents = ROW_COUNT;

    DELETE FROM {schema}.decision d
    USING (
        SELECT tenant, destination, decision_id FROM {schema}.decision n
        WHERE tenant = p_tenant AND destination = p_destination AND partition = p_partition
          AND kind = 'supersede' AND verdict <> 'open' AND judged_at < oldest
          AND NOT EXISTS (SELECT FROM {schema}.open_task t
              WHERE t.tenant = n.tenant AND t.destination = n.destination AND t.delivery_id = n.delivery_id)
        ORDER BY judged_at
        LIMIT most
        FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE d.tenant = old.tenant AND d.destination = old.destination AND d.decision_id = old.decision_id;
    GET DIAGNOSTICS decisions = ROW_COUNT;

    RETURN greatest(closed, intents, decisions);
END $$;
