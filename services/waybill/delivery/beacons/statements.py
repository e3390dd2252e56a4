"""How every statement of an owner begins: whether the partition is its own, in a database that was not set back.

`o` has one row while the epoch is the newest and the newest beacon this owner knows is there; whatever writes rows or
intents selects from it and leaves a fresh beacon with them, in the same statement and so in the same transaction.
"""

# ruff: noqa: S608 - put together from constants

from typing import Final

__all__ = ["KNOWS", "LEAVES", "MINE", "OWNED", "STILL", "TAKE", "sure_sql"]

_PLACE: Final = "tenant = %(tenant)s AND destination = %(destination)s AND partition = %(partition)s"
_KNOWS: Final = f"EXISTS (SELECT FROM delivery.beacon WHERE {_PLACE} AND beacon = %(beacon)s)"
#: A committed offset that names no beacon asks for none.
_NAMED: Final = f"(%(beacon)s::uuid IS NULL OR {_KNOWS})"
_NEWEST: Final = f"(SELECT max(created_at) FROM delivery.beacon WHERE {_PLACE})"

#: Leaves the common table `o` open.
MINE: Final = f"""
WITH o AS (
    SELECT 1 FROM delivery.partition_owner
    WHERE {_PLACE} AND epoch = %(epoch)s
      AND {_KNOWS}"""

#: Leaves a beacon where `o` has its row.
LEAVES: Final = """b AS (
    INSERT INTO delivery.beacon (tenant, destination, partition, beacon, committed)
    SELECT %(tenant)s, %(destination)s, %(partition)s, %(fresh)s, %(committed)s FROM o
)"""

#: How every fenced write begins; it ends inside a common table `w` that selects from `o`.
OWNED: Final = f"""{MINE}
    FOR SHARE
), {LEAVES}, w AS ("""

# Whether the database has the beacon that the committed offset names, and when it last heard of the partition.
KNOWS: Final = f"SELECT {_NAMED}, {_NEWEST}"

# A fresh epoch for a partition, where that beacon is; waits for a former owner's write under way.
TAKE: Final = f"""
WITH o AS (SELECT 1 WHERE {_NAMED}), {LEAVES}, w AS (
    INSERT INTO delivery.partition_owner AS p (tenant, destination, partition, epoch, owner, taken_at)
    SELECT %(tenant)s, %(destination)s, %(partition)s, %(epoch)s, %(owner)s, %(now)s FROM o
    ON CONFLICT (tenant, destination, partition)
    DO UPDATE SET epoch = EXCLUDED.epoch, owner = EXCLUDED.owner, taken_at = EXCLUDED.taken_at
)
SELECT (SELECT count(*) FROM o), {_NEWEST}
"""

# Which of some owners may still write. Beacons older than the one a committed offset names go: nobody looks for them.
STILL: Final = """
WITH asked AS (
    SELECT * FROM unnest(%(tenants)s::text[], %(destinations)s::text[], %(partitions)s::integer[],
        %(epochs)s::uuid[], %(beacons)s::uuid[], %(nameds)s::uuid[])
        AS a (tenant, destination, partition, epoch, beacon, named)
), o AS (
    SELECT asked.* FROM asked
    JOIN delivery.partition_owner USING (tenant, destination, partition, epoch)
    JOIN delivery.beacon USING (tenant, destination, partition, beacon)
), d AS (
    DELETE FROM delivery.beacon AS b USING o JOIN delivery.beacon AS n USING (tenant, destination, partition)
    WHERE n.beacon = o.named AND b.number < n.number
      AND b.tenant = o.tenant AND b.destination = o.destination AND b.partition = o.partition
) SELECT tenant, destination, partition, epoch FROM o
"""


def sure_sql(read: str, order: str = "2") -> str:
    """Let a read say in its first column, on one row at least, whether its database was not set back."""
    return f"""
SELECT k.known, r.* FROM (SELECT {_KNOWS} AS known) AS k LEFT JOIN ({read}
) AS r ON true ORDER BY {order}"""
