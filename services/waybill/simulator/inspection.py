"""A look into running workers and at what is left: the laws about memory, and whether everything came to rest.

- I4 when nothing goes wrong any more everything is settled, halted or behind what is halted, in bounded time;
- I5 an owner counts what it holds, and holds no more than its bound, a batch and what lanes load;
- I10 a lane that works from memory has no blocking row.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from waybill.contracts.fabric import OnUnsettled, Profile, Transport
from waybill.contracts.names import delivery_group, intake_group
from waybill.contracts.states import State
from waybill.delivery.actor import PartitionActor
from waybill.delivery.core.gaps import CANCELLED, SUPERSEDED
from waybill.delivery.core.lanes import HALTING, Held
from waybill.delivery.core.position import Position
from waybill.delivery.core.retry import EXPIRED
from waybill.kernel.ids import DestinationName
from waybill.simulator.orders import TENANT
from waybill.simulator.tables.rows import Row
from waybill.simulator.workers import Setup
from waybill.simulator.world import World

__all__ = ["inspect", "is_at_rest", "what_is_left"]

#: Rows a lane loads at a time.
_FEED: Final = 16


def inspect(world: World) -> None:
    """Look at every owner there is."""
    for name, actor in _owners(world):
        lanes = actor.lanes
        bound = world.setup.max_records + world.setup.most + _FEED * len(lanes.lanes)
        if not 0 <= lanes.memory.records <= bound:
            world.laws.broken(
                "I5", f"{name} holds {lanes.memory.records} records of [{actor.partition}], bound {bound}"
            )
        for lane in lanes.lanes.values():
            if lane.head is None or lane.head.held is not Held.MEMORY:
                continue
            rows = world.database.rows_of(actor.owned.destination)
            if any(row["blocks"] and row["aggregate"] == lane.aggregate for row in rows):
                world.laws.broken("I10", f"{name} works on {lane.aggregate} from memory although rows block it")


def _owners(world: World) -> Iterator[tuple[str, PartitionActor]]:
    for name, process in world.processes.items():
        if not process.is_running or process.worker is None:
            continue
        for group in process.worker.groups.values():
            for actor in group.actors.values():
                key = (TENANT, actor.owned.destination, actor.partition)
                newest = actor.owned.beacons.newest
                if actor.is_taken and not actor.gone and world.database.is_newest(key, actor.owned.epoch, newest):
                    yield name, actor


def is_at_rest(world: World) -> bool:
    """Whether nothing is left to do that is not waiting for people."""
    return next(_left(world), None) is None


def what_is_left(world: World) -> list[str]:
    """Return what is left to do, for people."""
    return list(_left(world))


def _left(world: World) -> Iterator[str]:
    yield from _behind(world)
    yield from _standing(world)
    for destination in world.destinations:
        yield from _open(destination, world.database.rows_of(destination), world.setup)
        if world.setup.settle_after_s is not None:
            yield from _in_doubt(world, destination)


def _standing(world: World) -> Iterator[str]:
    """Yield the partitions whose database was set back and is not rebuilt, noticed or not."""
    for name in world.destinations:
        for partition in range(world.setup.partitions):
            note = Position.decode(world.broker.offsets[delivery_group(TENANT, DestinationName(name)), partition][1])
            if note.beacon is not None and note.beacon not in world.database.beacons.get((TENANT, name, partition), {}):
                yield f"{name}[{partition}] lacks what its committed offset names"


def _behind(world: World) -> Iterator[str]:
    groups = [delivery_group(TENANT, DestinationName(name)) for name in world.destinations]
    if world.setup.with_intake:
        groups.append(intake_group(TENANT))
    for group in groups:
        for partition in range(world.setup.partitions):
            offset, end = world.broker.offsets[group, partition][0], world.orders.end(partition)
            if offset < end:
                yield f"{group}[{partition}] stands at {offset} of {end}"


def _halts(row: Row, setup: Setup) -> bool:
    """Whether a row waits for people, or for a result nobody says, and its lane with it."""
    if setup.transport is Transport.KAFKA and row["state"] in {State.DELIVERED, State.RETRYING}:
        return row["state"] == State.DELIVERED or setup.is_reading  # who reads is handed it again and again
    if row["state"] not in HALTING or not row["blocks"]:
        return False
    goes_on = row["detail"] in {EXPIRED, CANCELLED, SUPERSEDED} or setup.on_unsettled is OnUnsettled.CONTINUE
    is_asked = setup.settle_after_s is not None and row["state"] == State.AMBIGUOUS
    return row["kind"] == "resolution" or is_asked or not goes_on


def _open(destination: str, rows: Sequence[Row], setup: Setup) -> Iterator[str]:
    halted: dict[str, int] = {}
    for row in rows:
        if _halts(row, setup):
            halted[row["aggregate"]] = min(halted.get(row["aggregate"], row["sequence"]), row["sequence"])
    for row in rows:
        told = f"{destination} {row['aggregate']}#{row['sequence']}"
        if row["pending_outcome"] is not None:
            yield f"{told} was moved to {row['state']} and Kafka does not know"
        elif row["blocks"] and row["sequence"] < halted.get(row["aggregate"], 1 << 31):
            yield f"{told} is {row['state']} and nobody works on it"


def _in_doubt(world: World, destination: str) -> Iterator[str]:
    """Yield what a status query settles and nobody asked about."""
    heads: dict[str, Row] = {}
    for row in sorted(world.database.rows_of(destination), key=lambda row: (row["sequence"], row["record_offset"])):
        if row["blocks"]:
            heads.setdefault(row["aggregate"], row)
    for row in heads.values():
        told = f"{destination} {row['aggregate']}#{row['sequence']} is ambiguous"
        if row["state"] != State.AMBIGUOUS:
            continue
        if (destination, row["delivery_id"]) in world.laws.effects:
            yield f"{told} although it was done"
        elif world.setup.profile is Profile.NON_IDEMPOTENT and row["expires_at"] > world.wall_clock():
            yield f"{told} although it was not done"
