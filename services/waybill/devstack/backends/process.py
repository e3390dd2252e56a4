"""The `process` back end: every service a plain process of this machine, started side by side.

PostgreSQL with the registry behind it, and the brokers with Connect behind them, start at the same time; each is
asked in its own protocol whether it is ready. A service that ends while it should start is reported with the last
error of its log. Nothing is undone on failure: what runs is found again by the next `up` or ended by `down`.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from waybill.devstack import artifacts, health, plan, postgres, processes
from waybill.devstack.ports import local_stack
from waybill.devstack.settings import log_file, write_settings
from waybill.devstack.stack import Stack, Wanted
from waybill.infra.addresses import environment
from waybill.kernel.errors import UnavailableError

__all__ = ["ProcessBackend"]

#: A service that is not ready by then will not be; three times what cores shared by eight others were seen to need.
READY_WITHIN_S: Final = 300.0
ERROR_WORDS: Final = ("FATAL", "ERROR", "Exception", "error")


class ProcessBackend:
    """Starts, finds and ends the processes of the stack in one folder."""

    def __init__(self, folder: Path, progress: Callable[[str], None]) -> None:
        self._folder = folder
        self._progress = progress
        self._gave_up = threading.Event()

    def running(self, stack: Stack | None) -> dict[str, psutil.Process]:
        """Return the live process of each service."""
        return processes.find(self._folder, plan.service_names(stack.brokers if stack else 3))

    def prepare(self, asked: Wanted, former: Stack | None) -> Stack:
        """Keep the former ports while they are free; a port that moved means that what still runs starts anew."""
        running = self.running(former)
        stack = local_stack(self._folder, asked, former, frozenset(running))
        if former is not None and former.ports != stack.ports:
            self._progress("a port was taken by another program: the stack moves; apply the fabric again")
            self.stop(former)
        return stack

    def forget(self) -> None:
        """Delete the database's files, which may lie outside the folder."""
        postgres.forget(self._folder)

    def start(self, stack: Stack, services: Sequence[str]) -> None:
        """Start what of `services` is not running and wait until all are ready."""
        running = self.running(stack)
        missing = [service for service in services if service not in running]
        if not missing and all(health.is_ready(stack, service) for service in services):
            if "postgres" in services:  # a launcher killed early may have left the server without them
                postgres.prepare_roles(stack)
            return
        began = time.monotonic()
        installed = None
        if any(service != "postgres" for service in services):
            installed = artifacts.install(self._folder.parent.parent / "cache", self._progress)
        roads = self._roads(stack, services, missing, installed)
        with ThreadPoolExecutor(len(roads)) as pool:
            futures = [pool.submit(road) for road in roads]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                self._gave_up.set()
                raise
        self._progress(f"ready after {time.monotonic() - began:.1f} s")

    def _roads(
        self, stack: Stack, services: Sequence[str], missing: Sequence[str], installed: plan.Installed | None
    ) -> list[Callable[[], None]]:
        """Return what can be done side by side: the database, then the registry; the brokers, then Connect."""
        roads: list[Callable[[], None]] = []
        if "postgres" in services or "registry" in services:
            roads.append(lambda: self._database_road(stack, services, missing, installed))
        if installed is not None and any(service.startswith("kafka") or service == "connect" for service in services):
            roads.append(lambda: self._kafka_road(stack, services, missing, installed))
        return roads

    def _kafka_road(
        self, stack: Stack, services: Sequence[str], missing: Sequence[str], installed: plan.Installed
    ) -> None:
        """Start all brokers at once, then Connect: started earlier it would only take their processors, and give up."""
        brokers = [service for service in services if service.startswith("kafka")]
        if brokers:
            with ThreadPoolExecutor(len(brokers)) as pool:
                road = partial(self._java_road, stack, installed)
                for future in [pool.submit(road, broker, broker in missing) for broker in brokers]:
                    future.result()
        if "connect" in services and not self._gave_up.is_set():
            self._java_road(stack, installed, "connect", "connect" in missing)

    def _database_road(
        self, stack: Stack, services: Sequence[str], missing: Sequence[str], installed: plan.Installed | None
    ) -> None:
        if "postgres" in missing:
            cluster = postgres.cluster_for(stack.folder, artifacts.postgres_binaries(), self._progress)
            postgres.start(stack, cluster, log_file(stack, "postgres"))
        self._wait(stack, "postgres")
        postgres.prepare_roles(stack)
        if installed is not None and "registry" in services and not self._gave_up.is_set():
            self._java_road(stack, installed, "registry", "registry" in missing)

    def _java_road(self, stack: Stack, installed: plan.Installed, service: str, is_missing: bool) -> None:
        if is_missing:
            write_settings(stack, installed.plugin_path, service)
            if service.startswith("kafka"):
                self._format(stack, installed, service)
            processes.spawn(
                plan.java_command(stack, installed, service),
                folder=stack.folder / service,
                log=self._output(stack, service),
                environ=_java_environment(),
            )
        self._wait(stack, service)

    def _format(self, stack: Stack, installed: plan.Installed, service: str) -> None:
        if (stack.folder / service / "data" / "meta.properties").is_file():
            return
        node = int(service.removeprefix("kafka-"))
        result = subprocess.run(
            plan.format_command(stack, installed, node),
            cwd=stack.folder / service,
            env=_java_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            last = (result.stderr.strip().splitlines() or ["no word"])[-1]
            raise UnavailableError(f"the data folder of {service} could not be formatted: {last}")

    def _wait(self, stack: Stack, service: str) -> None:
        """Ask until the service is ready, less and less often: the processors are for the services to start on."""
        began = looked = time.monotonic()
        pause_s = 0.1
        while not health.is_ready(stack, service):
            if self._gave_up.wait(pause_s):
                return
            pause_s = min(pause_s * 1.2, 0.6)
            now = time.monotonic()
            if now - looked > 2:
                looked = now
                if service not in processes.find(stack.folder, [service]):
                    raise UnavailableError(self._why_it_ended(stack, service))
            if now - began > READY_WITHIN_S:
                raise UnavailableError(
                    f"{service} is not ready after {READY_WITHIN_S:.0f} s: see {log_file(stack, service)}; "
                    "`waybill dev down` ends it, `waybill dev up` tries again"
                )
        self._progress(f"{service} is ready after {time.monotonic() - began:.1f} s")

    def _why_it_ended(self, stack: Stack, service: str) -> str:
        log = log_file(stack, service)
        lines: list[str] = []
        for path in (self._output(stack, service), log):
            if path.is_file():
                lines += path.read_text(errors="replace").splitlines()[-200:]
        telling = [line for line in lines if any(word in line for word in ERROR_WORDS)]
        last = (telling or lines or ["it left no log"])[-1].strip()
        return f"{service} stopped while it started: {last[:300]} (`waybill dev logs {service} --name {stack.name}`)"

    def status(self, stack: Stack) -> list[dict[str, object]]:
        """Return one record per service."""
        running = self.running(stack)
        rows: list[dict[str, object]] = []
        for service in plan.service_names(stack.brokers):
            process = running.get(service)
            state = "stopped"
            if process is not None:
                state = "up" if health.is_ready(stack, service) else "starting"
            rows.append(
                {
                    "service": service,
                    "state": state,
                    "pid": process.pid if process else None,
                    "address": f"{plan.HOST}:{stack.ports[service]}",
                    "log": str(log_file(stack, service)),
                }
            )
        return rows

    def stop(self, stack: Stack | None) -> list[str]:
        """End what runs, clients before servers; return what was ended."""
        ended: list[str] = []
        running = self.running(stack)
        for group in (("connect", "registry"), ("kafka-1", "kafka-2", "kafka-3", "postgres")):
            members: dict[str, psutil.Process] = {service: running[service] for service in group if service in running}
            if members:
                self._progress(f"stopping {', '.join(members)}")
                for service in processes.end(members):
                    self._progress(f"{service} had to be killed")
                ended += members
        return ended

    def _output(self, stack: Stack, service: str) -> Path:
        """Where standard output goes: the log itself for services that write no log file of their own."""
        own_log = service in ("postgres", "registry")
        return log_file(stack, service) if own_log else stack.folder / "logs" / f"{service}.out"


def _java_environment() -> dict[str, str]:
    """Pass on what a JVM may need, not what would change it (JAVA_TOOL_OPTIONS, proxies, class paths)."""
    environ = environment()
    kept = {name: environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in environ}
    return kept | {"LC_ALL": "C.UTF-8"}
