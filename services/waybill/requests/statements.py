"""The SQL of the fold: whole batches, one statement each."""

from typing import Final

#: Tenants whose topic of requests is there, and that no other process folds.
CLAIM: Final = """
SELECT t FROM unnest(%s::text[]) AS t
WHERE EXISTS (SELECT FROM fabric.control_route WHERE route = t || '.requests')
  AND pg_try_advisory_lock(hashtextextended('waybill.requests.' || t, 0))
"""
OPEN_POSITION: Final = """
INSERT INTO requests.position (topic, partition, next)
SELECT * FROM unnest(%s::text[], %s::integer[], %s::bigint[]) ON CONFLICT DO NOTHING
"""
POSITIONS: Final = "SELECT topic, partition, next FROM requests.position"
SET_POSITION: Final = "UPDATE requests.position SET next = %s WHERE topic = %s AND partition = %s"
MOVE_POSITIONS: Final = """
UPDATE requests.position p SET next = m.after
FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::bigint[]) AS m (topic, partition, before, after)
WHERE (p.topic, p.partition, p.next) = (m.topic, m.partition, m.before)
"""
ADD_DELIVERIES: Final = """
INSERT INTO requests.delivery
    (tenant, delivery_id, request_id, command_id, destination, required, replaces, request_size)
SELECT * FROM unnest(%s::text[], %s::uuid[], %s::text[], %s::uuid[], %s::text[], %s::boolean[], %s::uuid[], %s::integer[])
ON CONFLICT DO NOTHING
"""
RAISE_OUTCOMES: Final = """
INSERT INTO requests.outcome AS o (tenant, delivery_id, version, state, error_code, detail, at)
SELECT * FROM unnest(%s::text[], %s::uuid[], %s::integer[], %s::text[], %s::text[], %s::text[], %s::timestamptz[])
ON CONFLICT (tenant, delivery_id) DO UPDATE SET (version, state, error_code, detail, at) =
    (excluded.version, excluded.state, excluded.error_code, excluded.detail, excluded.at)
WHERE o.version < excluded.version
"""
REQUESTS_OF: Final = """
SELECT DISTINCT tenant, request_id FROM requests.delivery
JOIN unnest(%s::text[], %s::uuid[]) AS a (tenant, delivery_id) USING (tenant, delivery_id)
"""
#: Brings the exceptions that count up to date, and returns the deliveries for which that changed something.
SYNC_EXCUSES: Final = """
WITH counting AS (
    SELECT tenant, delivery_id, exception_id, expires_at FROM exceptions.exception
    WHERE state = 'approved' AND permits_closure AND expires_at > %(now)s AND tenant = ANY(%(tenants)s)
), gone AS (
    DELETE FROM requests.excuse WHERE tenant = ANY(%(tenants)s) AND exception_id NOT IN (SELECT exception_id FROM counting)
    RETURNING tenant, delivery_id
), come AS (
    INSERT INTO requests.excuse (tenant, delivery_id, exception_id, expires_at) SELECT * FROM counting
    ON CONFLICT DO NOTHING RETURNING tenant, delivery_id
)
SELECT * FROM gone UNION SELECT * FROM come
"""
OPEN_REQUESTS: Final = """
INSERT INTO requests.request (tenant, request_id, changed_at)
SELECT t, r, %s FROM unnest(%s::text[], %s::text[]) AS a (t, r) ORDER BY t, r ON CONFLICT DO NOTHING
"""
LOCK_REQUESTS: Final = """
SELECT tenant, request_id, completions, is_complete FROM requests.request
JOIN unnest(%s::text[], %s::text[]) AS a (tenant, request_id) USING (tenant, request_id)
ORDER BY tenant, request_id FOR UPDATE OF request
"""
DELIVERIES: Final = """
SELECT tenant, request_id, delivery_id, command_id, destination, required, replaces, request_size, version, state, at
FROM requests.delivery JOIN unnest(%s::text[], %s::text[]) AS a (tenant, request_id) USING (tenant, request_id)
LEFT JOIN requests.outcome USING (tenant, delivery_id)
"""
EXCUSES: Final = """
SELECT tenant, request_id, delivery_id, expires_at
FROM requests.excuse JOIN requests.delivery USING (tenant, delivery_id)
JOIN unnest(%s::text[], %s::text[]) AS a (tenant, request_id) USING (tenant, request_id)
"""
WRITE_REQUEST: Final = """
UPDATE requests.request SET
    (commands, size, done, excused, open, is_complete, completions, leans_until, settled_at, changed_at) = (
    %(commands)s, %(size)s, %(done)s, %(excused)s, %(open)s, %(is_complete)s, %(completions)s, %(leans_until)s,
    %(settled_at)s, %(now)s)
WHERE (tenant, request_id) = (%(tenant)s, %(request_id)s)
  AND (commands, size, done, excused, open, is_complete, completions, leans_until, settled_at) IS DISTINCT FROM (
    %(commands)s, %(size)s::integer, %(done)s, %(excused)s, %(open)s, %(is_complete)s, %(completions)s,
    %(leans_until)s::timestamptz, %(settled_at)s::timestamptz)
"""
ADD_TURN: Final = "INSERT INTO requests.turn (tenant, request_id, number, turn, at) VALUES (%s, %s, %s, %s, %s)"
