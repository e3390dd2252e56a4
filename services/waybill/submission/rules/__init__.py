"""Whose resubmissions the fabric answers, and whose a person: rows of history in the control database.

Nobody needs a row: where there is none, `always` is in force. The newest row of a principal counts.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from waybill.kernel.clock import Clock
from waybill.kernel.ids import Tenant
from waybill.submission.core.resubmission import ALWAYS, Rule, read_rule

__all__ = ["FindRule", "find_rule", "list_rules", "set_rule"]

_FIND: Final = """
SELECT rule FROM submission.resubmission_rule WHERE tenant = %s AND principal = %s ORDER BY position DESC LIMIT 1
"""
_ADD: Final = """
INSERT INTO submission.resubmission_rule (tenant, principal, rule, set_at, set_by, why) VALUES (%s, %s, %s, %s, %s, %s)
"""
_LIST: Final = """
SELECT tenant, principal, rule, set_at, set_by, why FROM submission.resubmission_rule
WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s ORDER BY tenant, principal, position DESC
"""

FindRule = Callable[[Tenant, str], Awaitable[Rule]]


def find_rule(pool: AsyncConnectionPool[Any]) -> FindRule:
    """Return a look at the rule of a principal."""

    async def find(tenant: Tenant, principal: str) -> Rule:
        async with pool.connection() as connection:
            row = await (await connection.execute(_FIND, (tenant, principal))).fetchone()
        return read_rule(row[0]) if row is not None else ALWAYS

    return find


def set_rule(
    connection: psycopg.Connection[Any], clock: Clock, place: tuple[Tenant, str], rule: Rule, decided: tuple[str, str]
) -> None:
    """Put a rule in force for (tenant, principal), as decided by (who, why); what was before stays as history."""
    connection.execute(_ADD, (*place, str(rule), clock.now(), *decided))


def list_rules(connection: psycopg.Connection[Any], tenant: str | None = None) -> Sequence[Mapping[str, Any]]:
    """Return rules, the one in force first within a principal."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(_LIST.encode(), {"tenant": tenant}).fetchall()
