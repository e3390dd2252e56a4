"""Closing the books: how every promised delivery stands, read from what the fabric published and stored.

States come from the `state` topic, and for deliveries it does not know, from the rows of the control database; both
are written down as plain words by delivery id. What a group has not read is counted by destination.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from waybill.chaos.producers import read_promises
from waybill.chaos.site import Site
from waybill.chaos.town import PARTITIONS, TENANT, TOWN
from waybill.contracts.codec import TASK_STATE, AvroReader
from waybill.contracts.names import commands_topic, delivery_group, state_topic
from waybill.infra.clock import SystemClock
from waybill.infra.group_offsets import GroupOffsets
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.postgres import connect
from waybill.infra.registry import Registry
from waybill.infra.topic_log import scan
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import DestinationName, Tenant

__all__ = ["Standing", "close_books", "stand", "unfinished"]

_TENANT: Final = Tenant(TENANT)
#: States from which only people move a delivery on, and the one nobody does.
ACKNOWLEDGED: Final = "acknowledged"
ENDED: Final = frozenset({ACKNOWLEDGED, "ambiguous", "failed", "exception", "dead_letter"})
#: Fewer offsets than that are looked at one by one.
LOOKED_AT: Final = 2_000
ROWS: Final = "SELECT delivery_id::text, state FROM delivery.open_task WHERE tenant = %s AND aggregate LIKE %s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Ends of the topics at the begin of a campaign."""

    state: Sequence[int]


def stand(bootstrap: str) -> Standing:
    """Return where the topics end now."""
    return Standing(state=KafkaAdmin(bootstrap, SystemClock()).end_offsets(state_topic(_TENANT), PARTITIONS))


def close_books(site: Site, begins: Standing) -> int:
    """Write promises, states and unread records down as they are now; return how many promises are still to end.

    May be repeated: the last one counts. While something cannot be reached, nothing has ended.
    """
    promises = read_promises(site.producer_dsn, site.run)
    try:
        states = {**_rows(site), **_states(site, begins)}
        unread = _unread(site)
    except UnavailableError:
        return len(promises)
    (site.folder / "promised.jsonl").write_text("".join(json.dumps(each) + "\n" for each in promises))
    (site.folder / "states.json").write_text(json.dumps(states))
    (site.folder / "unread.json").write_text(json.dumps(unread))
    return unfinished(promises, states)


def unfinished(promises: Sequence[Mapping[str, Any]], states: Mapping[str, str]) -> int:
    """Count promises that have not ended and are not behind one that waits for people, where the lane halts."""
    halting = {place.name for place in TOWN if place.on_unsettled == "halt"}
    stuck: set[tuple[str, str]] = set()
    left = 0
    for each in sorted(promises, key=lambda one: int(one["sequence"])):
        lane, state = (each["destination"], each["aggregate"]), states.get(each["delivery_id"])
        if state in ENDED:
            if state != ACKNOWLEDGED and each["destination"] in halting:
                stuck.add(lane)
        elif lane not in stuck:
            left += 1
    return left


def _states(site: Site, begins: Standing) -> Mapping[str, str]:
    """Return the newest state of each delivery that moved since the campaign began."""
    clock, stack = SystemClock(), site.stack
    topic = state_topic(_TENANT)
    reader = AvroReader(TASK_STATE, Registry(stack.registry_url).schema)
    newest: dict[str, tuple[int, str]] = {}
    ends = KafkaAdmin(stack.kafka, clock).end_offsets(topic, PARTITIONS)
    for record in scan(stack.kafka, topic, starts=begins.state, ends=ends, clock=clock):
        if record.value is not None:
            state = reader.decode(record.value)
            entry = (state["version"], state["state"])
            newest[state["delivery_id"]] = max(newest.get(state["delivery_id"], entry), entry)
    return {delivery: state for delivery, (_, state) in newest.items()}


def _rows(site: Site) -> Mapping[str, str]:
    with closing(connect(site.stack.dsn("waybill"), application_name="waybill-chaos")) as connection:
        return dict(connection.execute(ROWS, (TENANT, f"%/{site.run}-%")).fetchall())


def _unread(site: Site) -> Mapping[str, int]:
    """Return by destination how many records its group has not passed; marks of transactions are no records."""
    clock, bootstrap, topic = SystemClock(), site.stack.kafka, commands_topic(_TENANT)
    groups = GroupOffsets(bootstrap)
    ends = KafkaAdmin(bootstrap, clock).end_offsets(topic, PARTITIONS)
    found = {}
    for place in TOWN:
        committed = groups.committed(delivery_group(_TENANT, DestinationName(place.name)))
        starts = [min(committed.get((topic, number), 0), end) for number, end in enumerate(ends)]
        behind = sum(ends) - sum(starts)
        if behind <= LOOKED_AT:
            behind = sum(1 for _ in scan(bootstrap, topic, starts=starts, ends=ends, clock=clock))
        found[place.name] = behind
    return found
