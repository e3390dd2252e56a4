"""Kafka Connect's REST interface, as far as connectors are declared, watched and recovered.

While the workers rebalance, Connect answers 409 or 500 to nearly everything: those calls are repeated until the
deadline, because every one of them is idempotent. A connector that says RUNNING may be stalled and its task list
may be empty; what that means is judged in `waybill.relay`, not here.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from waybill.infra.json_http import JsonHttp, Reply
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["ConnectApi", "ConnectorStatus", "TaskStatus"]

#: How long a worker that does not answer at all may take to come back.
_SILENCE_S: Final = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task as Connect reports it; `trace` is the first line of its error."""

    id: int
    state: str
    worker: str
    trace: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStatus:
    """One connector as Connect reports it. States: RUNNING, PAUSED, STOPPED, FAILED, UNASSIGNED, RESTARTING."""

    name: str
    state: str
    trace: str | None
    tasks: tuple[TaskStatus, ...]


class ConnectApi:
    """One Connect cluster.

    Args:
        url: any worker's REST root.
        clock: measures the patience.
        patience_s: how long a call is repeated while the workers rebalance or restart.
    """

    def __init__(self, url: str, clock: Clock, patience_s: float = 60.0) -> None:
        self._http = JsonHttp(url, "Kafka Connect (WAYBILL_CONNECT_URL)")
        self._clock, self._patience_s = clock, patience_s
        self._pause = threading.Event()

    def connectors(self) -> list[str]:
        """Return the names of all connectors, sorted."""
        return sorted(self._call("GET", "/connectors").document)

    def config(self, name: str) -> dict[str, str] | None:
        """Return a connector's configuration with its placeholders unresolved, or None when there is none."""
        reply = self._call("GET", f"{_path(name)}/config", absent=True)
        return None if reply.status == 404 else dict(reply.document)

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Create or replace a connector's configuration.

        Raises:
            ConfigError: Connect refuses it; the message is Connect's own.
        """
        reply = self._call("PUT", f"{_path(name)}/config", dict(config), refusal=True)
        if reply.status >= 400:
            raise ConfigError(f"connector {name}: Connect refuses the configuration: {reply.reason}")

    def create_stopped(self, name: str, config: Mapping[str, str]) -> None:
        """Create a connector that does not run yet.

        Raises:
            ConfigError: Connect refuses the configuration, or has a connector of that name.
        """
        body = {"name": name, "config": dict(config), "initial_state": "STOPPED"}
        reply = self._call("POST", "/connectors", body, refusal=True)
        if reply.status >= 400:
            raise ConfigError(f"connector {name}: Connect refuses the configuration: {reply.reason}")

    def status(self, name: str) -> ConnectorStatus | None:
        """Return what Connect says about a connector, or None when there is none (or none yet)."""
        reply = self._call("GET", f"{_path(name)}/status", absent=True)
        if reply.status == 404:
            return None
        document = reply.document
        return ConnectorStatus(
            name=name,
            state=document["connector"]["state"],
            trace=_first_line(document["connector"]),
            tasks=tuple(
                TaskStatus(id=task["id"], state=task["state"], worker=task["worker_id"], trace=_first_line(task))
                for task in document["tasks"]
            ),
        )

    def stop(self, name: str) -> None:
        """Stop a connector: its tasks end, its configuration and offsets stay."""
        self._call("PUT", f"{_path(name)}/stop")

    def resume(self, name: str) -> None:
        """Let a stopped or paused connector run."""
        self._call("PUT", f"{_path(name)}/resume")

    def restart(self, name: str) -> None:
        """Restart a connector and those of its tasks that failed."""
        self._call("POST", f"{_path(name)}/restart?includeTasks=true&onlyFailed=true")

    def delete(self, name: str) -> None:
        """Delete a connector; absent is fine. Its slot and its offsets stay."""
        self._call("DELETE", _path(name), absent=True)

    def offsets(self, name: str) -> list[dict[str, Any]]:
        """Return the stored source offsets of a connector: a list of `partition` and `offset`."""
        return list(self._call("GET", f"{_path(name)}/offsets").document["offsets"])

    def delete_offsets(self, name: str) -> None:
        """Forget the stored offsets of a stopped connector."""
        self._call("DELETE", f"{_path(name)}/offsets")

    def wait_status(
        self, name: str, is_reached: Callable[[ConnectorStatus | None], bool], within_s: float
    ) -> ConnectorStatus | None:
        """Poll until a status is reached or time is up; return the last one seen."""
        deadline = self._clock.monotonic() + within_s
        while True:
            status = self.status(name)
            if is_reached(status) or self._clock.monotonic() > deadline:
                return status
            self._pause.wait(0.2)

    def _call(
        self, method: str, path: str, body: object = None, *, absent: bool = False, refusal: bool = False
    ) -> Reply:
        started = self._clock.monotonic()
        deadline = started + self._patience_s
        while True:
            try:
                reply = self._http.call(method, path, body)
            except UnavailableError:
                if self._clock.monotonic() > min(deadline, started + _SILENCE_S):
                    raise
            else:
                if reply.status < 300 or (absent and reply.status == 404) or (refusal and reply.status == 400):
                    return reply
                if reply.status not in {404, 409, 500, 503} or self._clock.monotonic() > deadline:
                    raise UnavailableError(f"Connect at {self._http.shown} answered {reply.status}: {reply.reason}")
                if reply.status == 404:
                    raise ConfigError(f"Connect at {self._http.shown} has no such connector: {path}")
            self._pause.wait(0.3)


def _path(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def _first_line(part: Mapping[str, Any]) -> str | None:
    """Return an error's first line; the root cause is worth more than the wrapper when the trace names one."""
    trace = part.get("trace")
    if not trace:
        return None
    lines = [line.strip() for line in str(trace).splitlines()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return (causes[-1] if causes else lines[0])[:500]
