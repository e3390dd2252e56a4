"""How long messages travel and what becomes of them, drawn from the run's dice; calm when the run settles."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from waybill.simulator.process import SimProcess

__all__ = ["CALM", "Network", "Weather"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weather:
    """Chances between 0 and 1, per message or step."""

    #: A message to brokers or database takes up to `slow_s` instead of milliseconds.
    slow: float = 0.0
    slow_s: float = 0.0
    #: A step of a transaction fails: it is aborted and may be tried again.
    transaction_fails: float = 0.0
    #: The producer does not learn what became of its request.
    transaction_lost: float = 0.0
    #: The database does not answer; nothing happened.
    database_fails: float = 0.0
    #: The database did it and the answer is lost.
    answer_lost: float = 0.0
    #: A request of a listener's is refused, breaks or takes long, one way or the other.
    listener_fails: float = 0.0
    #: A listener refuses for good.
    listener_refuses: float = 0.0

    def with_database_away(self) -> "Weather":
        """Return the same, while the database answers nobody."""
        return replace(self, database_fails=1.0)


CALM = Weather()


class Network:
    """The wires between processes and servers."""

    def __init__(self, rng: Random, weather: Weather) -> None:
        self.rng, self.weather = rng, weather

    def broker_s(self) -> float:
        """Return how long a message to or from a broker travels."""
        return self._travel_s(0.004)

    def database_s(self) -> float:
        """Return how long a message to or from the database travels."""
        return self._travel_s(0.002)

    def chance(self, likelihood: float) -> bool:
        """Throw the dice."""
        return likelihood > 0.0 and self.rng.random() < likelihood

    async def brokers(self, process: SimProcess, serve: Callable[[Callable[[Any], None]], None]) -> Any:
        """Ask a broker."""
        return await process.request(serve, self.broker_s(), self.broker_s())

    def fails_transaction(self) -> bool:
        """Whether a step fails so that the transaction must be aborted."""
        return self.chance(self.weather.transaction_fails)

    def fate_of_transaction(self) -> str:
        """Return what becomes of a request: nothing bad, `request_lost` or `answer_lost`."""
        if not self.chance(self.weather.transaction_lost):
            return ""
        return self.rng.choice(("request_lost", "answer_lost"))

    def _travel_s(self, usual_s: float) -> float:
        if self.chance(self.weather.slow):
            return self.rng.random() * self.weather.slow_s
        return self.rng.random() * usual_s
