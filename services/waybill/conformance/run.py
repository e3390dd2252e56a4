"""One run as a whole: keys, program, steps, verdict; whatever was started is ended.

The keys are the run's own. A listener that the run starts is told by variables where they lie; one that runs already
must have been given them before, which is why they then lie in a folder the caller names.
"""

import secrets
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from waybill.conformance.core.commands import Cast
from waybill.conformance.core.scorecard import Scorecard, score
from waybill.conformance.keys import DATED_BACK, ensure_keys, shared_secret
from waybill.conformance.program import Program, free_port
from waybill.conformance.sender import Sender
from waybill.conformance.steps import Plan, Steps
from waybill.contracts.fabric import Level, Profile
from waybill.crypto.keys import Algorithm, Secret, jwks_path, new_key
from waybill.crypto.signing import Signer, load_signer
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.kernel.ids import NAME_PATTERN, DestinationName, Tenant

__all__ = ["Subject", "run_conformance"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The listener under test, and what it declares."""

    #: None: the run chooses a free port and tells the program.
    url: str | None = None
    #: The command that starts it; None where it runs already.
    run: str | None = None
    #: Answers `{"count": N}`; may be relative to the URL.
    effects: str | None = None
    status_url: str | None = None
    level: Level = Level.L1
    profile: Profile = Profile.DURABLE_IDEMPOTENT
    tenant: str = "conformance"
    destination: str = "listener"
    command_type: str = "conformance.check"
    #: Members of the data beside `isTest` and `subject`.
    data: Mapping[str, Any] = field(default_factory=dict)
    #: Data it refuses by policy.
    blocked: Mapping[str, Any] | None = None
    #: Where the keys are and stay; None makes ones that are forgotten afterwards.
    keys_dir: Path | None = None
    patience_s: float = 30.0


def run_conformance(subject: Subject, tell: Callable[[str], None], clock: Clock | None = None) -> Scorecard:
    """Play the fabric against a listener and judge what came back.

    Args:
        subject: the listener.
        tell: gets a line per stage.
        clock: for tests.

    Raises:
        ConfigError: the subject is described wrongly.
        UnavailableError: it does not start, does not answer, or gives no count.
    """
    clock = clock or SystemClock()
    _check(subject)
    url = subject.url or f"http://127.0.0.1:{free_port()}/"
    with ExitStack() as ending:
        scratch = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="waybill-conformance-")))
        keys_dir, tenant = subject.keys_dir or scratch, Tenant(subject.tenant)
        ensure_keys(keys_dir, tenant, clock.now())
        secret = shared_secret(keys_dir, tenant)
        tell(f"public keys: {jwks_path(keys_dir, tenant)}, shared secret beside them")
        effects = urljoin(url, subject.effects) if subject.effects is not None else None
        sender = Sender(url, effects, load_signer(keys_dir, tenant, secret), clock)
        program = None
        if subject.run is not None:
            variables = _variables(subject, url, jwks_path(keys_dir, tenant), secret)
            program = Program(subject.run, variables, scratch / "log", clock, patience_s=subject.patience_s)
            ending.callback(program.kill)
            tell(f"starting {subject.run}")
            program.start(sender.is_there)
        elif not sender.is_there():
            raise UnavailableError(f"nothing answers at {url}")
        steps = Steps(_plan(subject, url), sender, _stranger(clock), clock, program, tell)
        return score(steps.make(), subject.level, subject.profile)


def _check(subject: Subject) -> None:
    for option, name in (("--tenant", subject.tenant), ("--destination", subject.destination)):
        if not NAME_PATTERN.match(name):
            raise ConfigError(f"{option} {name!r}: lower case letters, digits and -, at most 30, a letter first")
    if subject.run is None and subject.url is None:
        raise ConfigError("name a URL, or a command with --run")
    if subject.run is None and subject.keys_dir is None:
        raise ConfigError("a listener that runs already must know the keys: --keys-dir FOLDER, made at the first run")


def _variables(subject: Subject, url: str, jwks: Path, secret: str) -> dict[str, str]:
    parts = urlsplit(url)
    return {
        "PORT": str(parts.port or (443 if parts.scheme == "https" else 80)),
        "WAYBILL_TENANT": subject.tenant,
        "WAYBILL_DESTINATION": subject.destination,
        "WAYBILL_JWKS": str(jwks.absolute()),
        "WAYBILL_SECRET": secret,
        "WAYBILL_COMMAND_TYPE": subject.command_type,
    }


def _plan(subject: Subject, url: str) -> Plan:
    cast = Cast(
        tenant=Tenant(subject.tenant),
        destination=DestinationName(subject.destination),
        command_type=subject.command_type,
        data=subject.data,
    )
    status_url = urljoin(url, subject.status_url) if subject.status_url is not None else None
    return Plan(cast=cast, level=subject.level, profile=subject.profile, blocked=subject.blocked, status_url=status_url)


def _stranger(clock: Clock) -> Signer:
    key = new_key(Algorithm.ED25519, Tenant("stranger"), clock.now() - DATED_BACK)
    return Signer([key], [Secret(secrets.token_bytes(32))])
