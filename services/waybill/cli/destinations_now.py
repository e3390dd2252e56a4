"""What `waybill destinations show` tells of running workers: how each destination stands in them, and what waits."""

from collections.abc import Mapping, Sequence
from typing import Any

from waybill.delivery.controls.report_statements import ReportLog, Said
from waybill.delivery.core.controls.circuit import CircuitState
from waybill.delivery.core.controls.reports import is_silent, plain_document

__all__ = ["WORKER_COLUMNS", "Now", "worker_lines"]

WORKER_COLUMNS = (
    "tenant", "destination", "worker", "said", "partitions", "stands", "since", "until",
)  # fmt: skip

Place = tuple[str, str]


class Now:
    """What workers said last and what waits, read once."""

    def __init__(self, log: ReportLog) -> None:
        self._said, self._partitions, self._rows = log.said(), log.partitions(), log.rows()

    def of(self, place: Place) -> dict[str, Any]:
        """Return what is added to the row of a destination."""
        rows = self._rows.get(place)
        return {
            "waiting": rows.waiting if rows else 0,
            "oldest_due": rows.oldest_due if rows else None,
            "awaited": rows.awaited if rows else 0,
            "unread": rows.unread if rows else 0,
            "workers": workers_of(place, self._said, self._partitions.get(place, {})),
        }


def workers_of(place: Place, said: Sequence[Said], partitions: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return how a destination stands in each worker that has partitions of it or said something about it.

    Args:
        place: tenant and destination.
        said: what every worker said last.
        partitions: partitions of the destination by the worker that took them last.

    Returns:
        A document for each such worker. One that said nothing for long, or never, is `silent`: what it knew is null,
        and its partitions are those nobody else has taken since.
    """
    known = {each.worker: each for each in said}
    named = {each.worker for each in said if place in each.documents and not is_silent(each.age)}
    return [_worker(place, name, known.get(name), partitions.get(name, 0)) for name in sorted(named | set(partitions))]


def _worker(place: Place, name: str, said: Said | None, partitions: int) -> dict[str, Any]:
    silent = said is None or is_silent(said.age)
    document = said.documents.get(place, plain_document(*place)) if said is not None and not silent else {}
    return {
        "worker": name,
        "said_s_ago": None if said is None else round(said.age.total_seconds(), 1),
        "silent": silent,
        "partitions": partitions,
        **{fact: document.get(fact) for fact in ("held_back", "circuit", "throttled", "ramp")},
    }


def worker_lines(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a line of the table for everything that holds in a worker, and one for a worker where nothing does."""
    return [
        {
            "tenant": row["tenant"],
            "destination": row["destination"],
            "worker": worker["worker"],
            "said": "never" if worker["said_s_ago"] is None else f"{worker['said_s_ago']:g} s ago",
            "partitions": worker["partitions"],
            **dict(zip(("stands", "since", "until"), holds, strict=True)),
        }
        for row in rows
        for worker in row["workers"]
        for holds in _holding(worker)
    ]


def _holding(worker: Mapping[str, Any]) -> list[tuple[str, str | None, str | None]]:
    """Return what holds in a worker, each as what, since when and until when."""
    if worker["silent"]:
        return [("gone" if worker["said_s_ago"] is None else "silent: nobody knows", None, None)]
    found: list[tuple[str, str | None, str | None]] = []
    held, circuit, throttled, ramp = (worker[fact] for fact in ("held_back", "circuit", "throttled", "ramp"))
    if held is not None and held["why"] not in {"throttled", "dead"}:
        found.append((held["why"], held["since"], None))
    if throttled is not None:
        found.append(("throttled", throttled["since"], throttled["until"]))
    if circuit["state"] != CircuitState.CLOSED:
        is_open = circuit["state"] == CircuitState.OPEN
        found.append(
            (
                "circuit open" if is_open else "circuit probing",
                circuit["since"],
                circuit["next_probe"] if is_open else None,
            )
        )
    if ramp is not None:
        found.append((f"begins again: {ramp['in_flight']} of {ramp['of']}", ramp["since"], None))
    return found or [("plain", None, None)]
