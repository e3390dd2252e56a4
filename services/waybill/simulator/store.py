"""The worker's own store on the simulated database: its statements and its checks are the real ones.

Controls of destinations lie beside it, in one table that nobody locks: what people decide, and what workers add.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from waybill.contracts.fabric import FlowLimits
from waybill.delivery.core.controls.standing import Control, Decider, Standing, changed
from waybill.delivery.store import TaskStore
from waybill.kernel.errors import TransientError
from waybill.simulator.database import Database
from waybill.simulator.network import Network
from waybill.simulator.process import SimProcess

__all__ = ["SimControls", "SimStore"]

#: A statement's own time, and that of one that is slow.
_LASTS_S: Final = 0.004
_SLOW_S: Final = 1.0


class SimStore(TaskStore):
    """A process's connections."""

    def __init__(self, process: SimProcess, database: Database, network: Network) -> None:
        self._process, self._database, self._network = process, database, network

    async def open(self) -> None:
        """Connect."""

    async def close(self) -> None:
        """Disconnect."""

    async def _run(self, query: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        network, weather = self._network, self._network.weather
        fails, loses = network.chance(weather.database_fails), network.chance(weather.answer_lost)
        is_slow = network.chance(weather.slow)
        lasts_s = network.rng.random() * (_SLOW_S if is_slow else _LASTS_S)

        def serve(answer: Callable[[Any], None]) -> None:
            failure = TransientError("the control database does not answer: OperationalError")
            if fails:
                answer(failure)
            elif loses:
                self._database.execute(query, values, lasts_s, lambda _: answer(failure))
            else:
                self._database.execute(query, values, lasts_s, answer)

        found: list[tuple[Any, ...]] = await self._process.request(serve, network.database_s(), network.database_s())
        return found


class SimControls:
    """The one table of controls of a world."""

    def __init__(self) -> None:
        self.history: list[Control] = []
        #: Nobody answers.
        self.is_away = False

    async def load(self) -> Sequence[Control]:
        """Return the newest control of each destination."""
        self._answer()
        return tuple({(control.tenant, control.destination): control for control in self.history}.values())

    async def add(self, control: Control) -> None:
        """Add a control."""
        self._answer()
        self.history.append(control)

    def newest(self, tenant: str, destination: str) -> Control | None:
        """Return what is in force."""
        found = [each for each in self.history if (each.tenant, each.destination) == (tenant, destination)]
        return found[-1] if found else None

    def _answer(self) -> None:
        if self.is_away:
            raise TransientError("the control database does not answer: OperationalError")

    def decide(
        self,
        tenant: str,
        destination: str,
        at: datetime,
        *,
        standing: Standing | None = None,
        limits: FlowLimits | None = None,
    ) -> None:
        """Let people decide."""
        who = Decider(at=at, by="people", reason="simulated")
        before = self.newest(tenant, destination)
        control = changed(before, (tenant, destination), who, standing=standing, limits=limits)
        if control is not None:
            self.history.append(control)
