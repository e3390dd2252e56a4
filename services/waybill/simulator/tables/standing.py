"""The read model as workers ask it: it folds what transactions commit, sometimes a moment later."""

from collections.abc import Callable, Collection
from typing import Any, Final

from waybill.contracts.states import State
from waybill.kernel.errors import TransientError
from waybill.kernel.ids import Tenant
from waybill.simulator.laws import Laws
from waybill.simulator.network import Network
from waybill.simulator.process import SimProcess

__all__ = ["SimStanding"]

#: How often it is behind when it is asked.
_BEHIND: Final = 0.2


class SimStanding:
    """A process's way to the read model."""

    def __init__(self, process: SimProcess, network: Network, laws: Laws, is_folded: Callable[[], bool]) -> None:
        """Take what it folds, and whether it does."""
        self._process, self._network, self._laws, self._is_folded = process, network, laws, is_folded

    async def acknowledged(
        self, tenant: Tenant, partition: int, end: int, delivery_ids: Collection[str]
    ) -> Collection[str] | None:
        """Return those that are acknowledged; None while it is behind.

        Raises:
            TransientError: the database is away.
        """
        network = self._network
        fails, is_behind = (
            network.chance(network.weather.database_fails),
            network.chance(_BEHIND) or not self._is_folded(),
        )

        def serve(answer: Callable[[Any], None]) -> None:
            acknowledged = {
                delivery_id
                for (_, delivery_id), state in self._laws.states.items()
                if state["state"] == State.ACKNOWLEDGED and delivery_id in delivery_ids
            }
            failure = TransientError("the control database does not answer: OperationalError")
            answer(failure if fails else (None if is_behind else acknowledged,))

        (found,) = await self._process.request(serve, network.database_s(), network.database_s())
        known: Collection[str] | None = found
        return known
