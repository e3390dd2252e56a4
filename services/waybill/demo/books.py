"""Collecting the books of one run: the listeners' ledgers, the producers' notes, the read model.

Everything is cut to this run: earlier runs on the same stack left rows in all of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from uuid import UUID

from waybill.contracts.states import State
from waybill.demo.core.verdict import Books, Effect, Known, Request
from waybill.demo.producers import Producers
from waybill.demo.site import Site
from waybill.demo.town import TENANTS
from waybill.infra.postgres import connect
from waybill.readmodel import DeliveryFilter, ReadModel
from waybill.testing.ledger_listener import arrivals, effects

__all__ = ["collect", "known_of", "read_model", "requests_by_delivery"]


@contextmanager
def read_model(site: Site) -> Iterator[ReadModel]:
    """Open the stack's read model."""
    dsn = site.stack.dsn("waybill")
    with closing(connect(dsn, application_name="waybill-demo", autocommit=True)) as connection:
        yield ReadModel(connection)


def known_of(model: ReadModel, ids: Sequence[UUID]) -> dict[UUID, Known]:
    """Return what the read model says of those of the deliveries it knows."""
    return {
        row["delivery_id"]: Known(
            state=State(row["state"]), attempts=row["attempts"], unsent_repeats=row["unsent_repeats"]
        )
        for row in model.standing(ids)
    }


def requests_by_delivery(site: Site) -> Counter[UUID | None]:
    """Count the requests the listeners received; those without a readable delivery id are under None."""
    return Counter(_uuid(each.webhook_id) for each in arrivals(site.listeners_dsn))


def collect(site: Site, producers: Producers) -> Books:
    """Take the books of this run."""
    issued = producers.issued()
    mine = {each.delivery_id for each in issued}
    aggregates = {each.aggregate for each in issued}
    with read_model(site) as model:
        known = known_of(model, list(mine))
        letters = model.dead_letter_count(list(mine))
        anomalies = sum(
            row["aggregate"] in aggregates
            for tenant in TENANTS
            for row in model.anomalies(DeliveryFilter(tenant=tenant, limit=10_000))
        )
    return Books(
        commands=producers.commands,
        business_rows=producers.business_rows(),
        issued=issued,
        effects=[
            Effect(
                destination=each.destination,
                delivery_id=each.delivery_id,
                aggregate=each.aggregate,
                sequence=each.sequence,
                position=each.position,
                executed_at=each.executed_at,
            )
            for each in effects(site.listeners_dsn)
            if each.aggregate in aggregates
        ],
        requests=_requests(site, mine),
        known=known,
        dead_letters=letters,
        anomalies=anomalies,
    )


def _requests(site: Site, mine: set[UUID]) -> list[Request]:
    return [
        Request(
            delivery_id=UUID(each.webhook_id),
            body_sha256=each.body_sha256,
            signature=each.signature,
            signed_at=datetime.fromtimestamp(int(each.webhook_timestamp), UTC),
            arrived_at=each.arrived_at,
        )
        for each in arrivals(site.listeners_dsn)
        if _uuid(each.webhook_id) in mine
    ]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
