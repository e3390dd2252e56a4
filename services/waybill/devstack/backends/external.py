"""The `external` back end: services somebody else runs, by addresses; nothing is started, changed or ended.

`up` checks that each answers in its own protocol and writes the state file, `down` leaves them alone, `reset`
forgets them. Roles and databases must exist; what is missing is named. Passwords come from a properties file with
a line per role (`postgres`, `waybill_app`, `waybill_relay`, `waybill_worker`), never from the command line.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import psycopg

from waybill.devstack import health
from waybill.devstack.stack import Stack, Wanted
from waybill.kernel.errors import ConfigError, UnavailableError

__all__ = ["ROLES", "ExternalBackend", "parse_passwords"]

ROLES = ("postgres", "waybill_app", "waybill_relay", "waybill_worker")
NEEDED = ("kafka", "connect_url", "registry_url", "postgres", "secrets")
SERVICES = ("postgres", "kafka", "connect", "registry")


def parse_passwords(text: str) -> dict[str, str]:
    """Read `role=password` lines; blank lines and those that begin with # are skipped.

    Raises:
        ConfigError: a line has another form or a role has no password.
    """
    passwords = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.startswith("#"):
            role, found, password = line.partition("=")
            if not found:
                raise ConfigError(f"passwords line {number}: expected ROLE=PASSWORD")
            passwords[role.strip()] = password.strip()
    if missing := [role for role in ROLES if not passwords.get(role)]:
        raise ConfigError(f"no password for {', '.join(missing)}: one line ROLE=PASSWORD each")
    return passwords


class ExternalBackend:
    """Checks services by address and remembers them."""

    def __init__(self, folder: Path, progress: Callable[[str], None]) -> None:
        self._folder = folder
        self._progress = progress

    def prepare(self, asked: Wanted, former: Stack | None) -> Stack:
        """Take the given addresses; what is not given is kept from the last time.

        Raises:
            ConfigError: an address is missing or malformed.
        """
        given = _known(former) | {name: value for name, value in asked.addresses.items() if value}
        missing = [name for name in NEEDED if name not in given and not (name == "secrets" and former)]
        if missing:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
            raise ConfigError(f"an external stack needs {options}")
        host, _, port = given["postgres"].rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"--postgres {given['postgres']}: expected HOST:PORT")
        if "secrets" in given:
            try:
                passwords: Mapping[str, str] = parse_passwords(Path(given["secrets"]).read_text())
            except OSError as error:
                raise ConfigError(f"--secrets {given['secrets']} cannot be read: {error.strerror}") from error
        else:
            passwords = former.passwords if former else {}
        return Stack(
            name=self._folder.name,
            backend="external",
            folder=self._folder,
            brokers=max(1, len(given["kafka"].split(","))),
            kafka=given["kafka"],
            connect_url=given["connect_url"].rstrip("/"),
            registry_url=given["registry_url"].rstrip("/"),
            postgres_host=host,
            postgres_port=int(port),
            ports={},
            cluster_id="",
            passwords=passwords,
        )

    def start(self, stack: Stack, services: Sequence[str]) -> None:
        """Check every service, or only PostgreSQL when nothing else is asked for.

        Raises:
            UnavailableError: one does not answer, or a database or role is missing; names all of them.
        """
        kinds = {service.partition("-")[0] for service in services}
        troubles = [trouble for service in SERVICES if service in kinds and (trouble := _trouble(stack, service))]
        if troubles:
            raise UnavailableError("the external stack is not usable: " + "; ".join(troubles))
        self._progress("every service answers")

    def status(self, stack: Stack) -> list[dict[str, object]]:
        """Return one record per service; whose process it is, is not known."""
        addresses = (f"{stack.postgres_host}:{stack.postgres_port}", stack.kafka, stack.connect_url, stack.registry_url)
        return [
            {
                "service": service,
                "state": "stopped" if _trouble(stack, service) else "up",
                "pid": None,
                "address": address,
                "log": None,
            }
            for service, address in zip(SERVICES, addresses, strict=True)
        ]

    def stop(self, stack: Stack | None) -> list[str]:
        """Leave everything running: it is somebody else's."""
        return []

    def forget(self) -> None:
        """Nothing is kept outside the folder."""


def _known(former: Stack | None) -> dict[str, str]:
    if former is None:
        return {}
    return {
        "kafka": former.kafka,
        "connect_url": former.connect_url,
        "registry_url": former.registry_url,
        "postgres": f"{former.postgres_host}:{former.postgres_port}",
    }


def _trouble(stack: Stack, service: str) -> str | None:
    if service == "kafka":
        return None if health.live_brokers(stack.kafka) else f"Kafka does not answer at {stack.kafka}"
    if service == "connect":
        url = f"{stack.connect_url}/connectors"
        return None if health.answers_http(url) else f"Connect does not answer at {url}"
    if service == "registry":
        url = f"{stack.registry_url}/subjects"
        return None if health.answers_http(url) else f"the registry does not answer at {url}"
    for database, role in (("waybill", "postgres"), *(("app", role) for role in ROLES)):
        try:
            with closing(psycopg.connect(stack.dsn(database, role), connect_timeout=3)):
                continue
        except psycopg.OperationalError as error:
            reason = str(error).strip().splitlines()[-1]
            return f"PostgreSQL refuses {role} on database {database}: {reason}"
    return None
