"""The facts about requests, as the tables hold them: what is weighed, and what is told."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import psycopg

from waybill.contracts.states import State
from waybill.requests import statements
from waybill.requests.core.completion import Chapter, Turn
from waybill.requests.core.standing import ApprovedException, Delivery, Outcome, Standing

__all__ = ["Case", "Key", "Told", "load_cases"]

#: Tenant and request id.
Key = tuple[str, str]


@dataclass(slots=True, kw_only=True)
class Case:
    """Everything that is known about one request; its row is locked."""

    key: Key
    chapter: Chapter
    deliveries: list[Delivery] = field(default_factory=list)
    outcomes: dict[UUID, Outcome] = field(default_factory=dict)
    exceptions: list[ApprovedException] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What is told about a request: a record of the topic of requests."""

    tenant: str
    request_id: str
    turn: Turn
    #: Of the completion that this is, or takes back.
    number: int
    standing: Standing
    #: The fold's clock.
    at: datetime


def load_cases(connection: psycopg.Connection, tenants: Sequence[str], requests: Sequence[str]) -> list[Case]:
    """Lock requests in one order, and return what is known about each."""
    names = tenants, requests
    cases = {
        (tenant, request): Case(
            key=(tenant, request), chapter=Chapter(completions=completions, is_complete=is_complete)
        )
        for tenant, request, completions, is_complete in connection.execute(statements.LOCK_REQUESTS, names)
    }
    for tenant, request, *values, version, state, at in connection.execute(statements.DELIVERIES, names):
        case = cases[tenant, request]
        delivery_id, command_id, destination, required, replaces, request_size = values
        case.deliveries.append(
            Delivery(
                delivery_id=delivery_id,
                command_id=command_id,
                destination=destination,
                required=required,
                replaces=replaces,
                request_size=request_size,
            )
        )
        if version is not None:
            case.outcomes[delivery_id] = Outcome(delivery_id=delivery_id, version=version, state=State(state), at=at)
    for tenant, request, delivery_id, expires_at in connection.execute(statements.EXCUSES, names):
        cases[tenant, request].exceptions.append(
            ApprovedException(delivery_id=delivery_id, permits_closure=True, expires_at=expires_at)
        )
    return list(cases.values())
