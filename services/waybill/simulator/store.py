"""The worker's own store on the simulated database: its statements and its checks are the real ones."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from waybill.delivery.store import TaskStore
from waybill.kernel.errors import TransientError
from waybill.simulator.database import Database
from waybill.simulator.network import Network
from waybill.simulator.process import SimProcess

__all__ = ["SimStore"]

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
