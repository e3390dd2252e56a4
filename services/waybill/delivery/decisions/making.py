"""Making a decision: its row and its record for the topic in one transaction of the control database.

The same decision again is the same: its identity comes from what it is about, so that a command line that is run twice
decides once. Nothing is moved here; whoever owns the partition does that, or voids the decision.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from waybill.contracts.decision import Decision
from waybill.fabric.store import announce
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["list_decisions", "make_decision", "verdicts"]

MAKE: Final = """
INSERT INTO delivery.decision (tenant, destination, decision_id, aggregate, kind, delivery_id, sequence, version, states,
    decided_by, reason, decided_at, evidence, evidence_digest)
VALUES (%(tenant)s, %(destination)s, %(decision_id)s, %(aggregate)s, %(kind)s, %(delivery_id)s, %(sequence)s, %(version)s,
    %(states)s, %(decided_by)s, %(reason)s, %(decided_at)s, %(evidence)s, %(evidence_digest)s)
ON CONFLICT (tenant, destination, decision_id) DO NOTHING
RETURNING decision_id
"""

VERDICTS: Final = """
SELECT decision_id, tenant, destination, aggregate, delivery_id, sequence, kind, version, decided_by, reason, decided_at,
    evidence, evidence_digest, verdict, detail, judged_at
FROM delivery.decision WHERE decision_id = ANY(%(ids)s)
ORDER BY decided_at, destination
"""

LIST: Final = """
SELECT decision_id, tenant, destination, aggregate, delivery_id, sequence, kind, version, decided_by, reason, decided_at,
    evidence, evidence_digest, verdict, detail, judged_at
FROM delivery.decision
WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND (%(destination)s::text IS NULL OR destination = %(destination)s)
    AND (%(verdict)s::text IS NULL OR verdict = %(verdict)s)
ORDER BY decided_at DESC
LIMIT %(limit)s
"""


def make_decision(connection: psycopg.Connection[Any], decision: Decision, record: bytes) -> bool:
    """Write a decision; return whether it is new.

    Args:
        connection: to the control database, in autocommit.
        decision: what was decided.
        record: the same for the topic, as `write_decision` makes it.

    Raises:
        ConfigError: the tenant's topic for decisions is not there yet; says what to do.
        UnavailableError: the control database is older than this version.
    """
    values = {
        "tenant": decision.tenant,
        "destination": decision.destination,
        "decision_id": decision.decision_id,
        "aggregate": decision.aggregate,
        "kind": decision.kind.value,
        "delivery_id": decision.delivery_id,
        "sequence": decision.sequence,
        "version": decision.version,
        "states": [state.value for state in decision.states],
        "decided_by": decision.decided_by,
        "reason": decision.reason,
        "decided_at": decision.decided_at,
        "evidence": decision.evidence,
        "evidence_digest": decision.evidence_digest,
    }
    try:
        with connection.transaction():
            is_new = connection.execute(MAKE, values).fetchone() is not None
            if is_new:
                announce(connection, f"{decision.tenant}.decisions", decision.aggregate, record)
    except psycopg.errors.ForeignKeyViolation as error:
        raise ConfigError(
            f"tenant {decision.tenant} has no topic for decisions: run `waybill apply` with its fabric.yaml"
        ) from error
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn, psycopg.errors.CheckViolation) as error:
        raise UnavailableError("the control database is older than this version: run `waybill migrate`") from error
    return is_new


def verdicts(connection: psycopg.Connection[Any], ids: Sequence[UUID]) -> Sequence[Mapping[str, Any]]:
    """Return decisions and what became of them."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(VERDICTS, {"ids": list(ids)}).fetchall()


def list_decisions(
    connection: psycopg.Connection[Any], tenant: str | None, destination: str | None, verdict: str | None, limit: int
) -> Sequence[Mapping[str, Any]]:
    """Return decisions, newest first."""
    wanted = {"tenant": tenant, "destination": destination, "verdict": verdict, "limit": limit}
    try:
        with connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(LIST, wanted).fetchall()
    except psycopg.errors.UndefinedTable as error:
        raise UnavailableError("the control database is older than this version: run `waybill migrate`") from error
