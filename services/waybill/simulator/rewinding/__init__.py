"""A control database that is set back, and the rebuild that ships, on the simulated topics and tables.

The rebuild's own reads and writes take no virtual time here: what matters is what owners do before, between and after
its two steps, shutting them out and writing again.
"""

from waybill.contracts.fabric import DestinationConfig
from waybill.delivery.beacons.rebuild import QUIET_S, Found, Rebuild, RebuildParts
from waybill.delivery.core.records import Recorder
from waybill.simulator.database import Copy
from waybill.simulator.orders import START
from waybill.simulator.process import SimClock
from waybill.simulator.rewinding.ends import SimTables, SimTopics
from waybill.simulator.workers import SCHEMA_IDS
from waybill.simulator.world import World

__all__ = ["rebuild", "rebuild_soon", "set_back"]


def set_back(world: World, copy: Copy) -> None:
    """Put an earlier copy of the database in its place."""
    world.database.set_back(copy)
    world.laws.was_set_back = True


def rebuild(world: World, *, quiet_s: float = QUIET_S) -> list[Found]:
    """Run a rebuild of everything, with time passing where it waits."""
    found = _begin(world)
    world.timeline.run_for(quiet_s)
    return _end(world, found)


def rebuild_soon(world: World, quiet_s: float = QUIET_S) -> None:
    """Run a rebuild of everything from within the timeline."""
    world.timeline.after(quiet_s, _end, world, _begin(world))


def _begin(world: World) -> list[tuple[Rebuild, Found]]:
    found = []
    for config in world.config.tenants[0].destinations:
        one = _rebuild_of(world, config)
        for partition in range(world.setup.partitions):
            what = one.look(partition)
            if what.was_rewound:
                one.shut_out(partition)
                found.append((one, what))
    return found


def _end(world: World, found: list[tuple[Rebuild, Found]]) -> list[Found]:
    for one, what in found:
        one.repair(what)
    return [what for _, what in found]


def _rebuild_of(world: World, config: DestinationConfig) -> Rebuild:
    parts = RebuildParts(
        topics=SimTopics(world, config),
        tables=SimTables(world, config),
        recorder=Recorder(config, world.config.version, "rebuild", SCHEMA_IDS),
        clock=SimClock(world.timeline, START),
        say=lambda what: world.trace("rebuild", what),
    )
    return Rebuild(parts)
