"""`waybill listen`: run a listener alone, or stand before one under development and show what comes in."""

import importlib
import json
import sys
from contextlib import closing, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from waybill.capture import Capture, CaptureSettings, Checker
from waybill.capture.forwarding import Forwarder
from waybill.cli.output import JsonFlag, console
from waybill.cli.references import read_reference
from waybill.conformance.keys import read_shared_secret
from waybill.conformance.posting import Poster, listener_url
from waybill.contracts.fabric import Level
from waybill.crypto.keys import jwks_path
from waybill.crypto.signing import load_signer, parse_hmac_secrets
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.metrics import MetricsServer
from waybill.infra.public_keys import PublicKeys
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import NAME_PATTERN, DestinationName, Tenant
from waybill.kernel.units import format_duration, parse_duration
from waybill.listener import Listener
from waybill.listener.core.holding import Bounds
from waybill.listener.core.verification import Binding
from waybill.listener.key_source import JwksFile, JwksUrl
from waybill.listener.server import serve

if TYPE_CHECKING:
    from waybill.listener.stream import Stream

__all__ = ["app", "load_target"]

app = typer.Typer(add_completion=False, help="Run a listener alone, or capture what comes in for one.")

_MAX_ANSWER: Final = 1_048_576

TargetArgument = Annotated[
    str | None, typer.Argument(help="module:attribute of a Listener, or of an ASGI application; or --forward-to.")
]
ForwardOption = Annotated[
    str | None, typer.Option("--forward-to", help="Check, keep and show deliveries, and pass them on to this URL.")
]
TenantOption = Annotated[str, typer.Option("--tenant", help="With --forward-to: whose deliveries are believed.")]
DestinationOption = Annotated[str, typer.Option("--destination", help="With --forward-to: the name they are for.")]
LevelOption = Annotated[Level, typer.Option("--level", help="With --forward-to: what answers are held to.")]
KeysDirOption = Annotated[
    Path | None,
    typer.Option("--keys-dir", help="Folder of keys; else WAYBILL_KEYS_DIR, else the local stack's. Signs replays."),
]
KeysOption = Annotated[
    str | None, typer.Option("--keys", help="In place of the folder: the tenant's public keys, a JWKS file or URL.")
]
SecretOption = Annotated[
    str | None, typer.Option("--secret", help="Where the shared secret is: env:NAME or file:PATH.")
]
KeepOption = Annotated[int, typer.Option("--keep", min=1, max=500, help="How many deliveries are kept, in memory.")]
ShowFlag = Annotated[bool, typer.Option("--show-data", help="Show data, answers and all headers, not only identities.")]
HostOption = Annotated[str, typer.Option("--host", help="Address to bind.")]
PortOption = Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port; 0 takes a free one.")]
MetricsPortOption = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65_535, help="Serve /metrics of a Listener on this port of 127.0.0.1."),
]
KafkaOption = Annotated[
    str | None,
    typer.Option("--kafka", help="Take deliveries from Kafka at these brokers (host:port,…) in place of HTTP."),
]
ResultsKeyOption = Annotated[
    Path | None,
    typer.Option("--results-key", help="With --kafka: the destination's own signing.json, which signs results."),
]
GroupOption = Annotated[
    str, typer.Option("--group", help="With --kafka: the consumer group; waybill.<tenant>.listener.<destination>.")
]

HoldCountOption = Annotated[
    int | None,
    typer.Option("--hold-count", min=1, help="With --kafka: deliveries of one aggregate held for an earlier one; 100."),
]
HoldAgeOption = Annotated[
    str | None,
    typer.Option("--hold-age", help="With --kafka: how long one is held, such as 5m, then told as a gap; 5m."),
]


@app.command()
def listen(  # noqa: PLR0913, PLR0917 - one parameter per option
    target: TargetArgument = None,
    forward_to: ForwardOption = None,
    tenant: TenantOption = "conformance",
    destination: DestinationOption = "listener",
    level: LevelOption = Level.L1,
    keys_dir: KeysDirOption = None,
    keys: KeysOption = None,
    secret: SecretOption = None,
    keep: KeepOption = 50,
    show_data: ShowFlag = False,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8000,
    metrics_port: MetricsPortOption = None,
    kafka: KafkaOption = None,
    results_key: ResultsKeyOption = None,
    group: GroupOption = "",
    hold_count: HoldCountOption = None,
    hold_age: HoldAgeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Serve a listener until SIGTERM or Ctrl-C; what is under way is finished first.

    With --forward-to it serves none of its own: each delivery is checked with the tenant's keys, kept, passed on byte
    for byte, and shown on the page at /. With --json the address is one JSON line on stdout, printed when requests are
    taken.
    """
    if kafka is not None:
        if forward_to is not None:
            raise ConfigError("--forward-to stands before a listener that is reached over HTTP: leave out --kafka")
        bounds = _bounds(hold_count, hold_age)
        _run_stream(_stream(target, kafka, results_key, group, bounds), target, metrics_port, as_json=as_json)
        return
    if hold_count is not None or hold_age is not None:
        raise ConfigError("--hold-count and --hold-age bound what a topic's listener holds: they need --kafka")
    if (target is None) == (forward_to is None):
        raise ConfigError("name a listener as module:attribute, or where deliveries go on to with --forward-to")
    if target is not None:
        found, what = load_target(target), f"{target} listens"
    else:
        place = (host, port, str(forward_to))
        checker = _checker((tenant, destination), keys_dir, keys, secret)
        public = PublicKeys(keys_dir or _stack_keys(), SystemClock(), tenant) if keys is None else None
        settings = CaptureSettings(target=str(forward_to), keep=keep, with_data=show_data, host=host)
        found, what = _capture(place, settings, checker, level, public), f"capturing for {forward_to}"

    metrics = _metrics(found, metrics_port)

    def told(url: str) -> None:
        if as_json:
            words = {"url": url, "target": target or forward_to}
            if metrics is not None:
                words["metrics"] = f"http://127.0.0.1:{metrics.port}/metrics"
            sys.stdout.write(json.dumps(words) + "\n")
            sys.stdout.flush()
        else:
            console.print(f"{what} on {url} (health: {url}/healthz)", markup=False, highlight=False, soft_wrap=True)

    with closing(metrics) if metrics is not None else nullcontext():
        serve(found, host=host, port=port, on_start=told)


def _bounds(count: int | None, age: str | None) -> Bounds:
    """Read how much a listener on a topic holds; what is not said is as the SDK has it."""
    said = Bounds()
    if count is not None:
        said = replace(said, max_count=count)
    if age is not None:
        try:
            said = replace(said, max_age=timedelta(seconds=parse_duration(age)))
        except ValueError as error:
            raise ConfigError(f"--hold-age {age}: expected a whole number with ms, s, m, h or d, like 5m") from error
    return said


def _stream(target: str | None, brokers: str, results_key: Path | None, group: str, bounds: Bounds) -> "Stream":
    """Put a listener before its topic."""
    if target is None or results_key is None:
        raise ConfigError("--kafka needs a listener as module:attribute, and --results-key: results are signed")
    try:
        from waybill.listener.stream import Stream, StreamSettings
    except ModuleNotFoundError as error:
        raise ConfigError(f"--kafka needs {error.name}: pip install 'waybill[listener-kafka,cli]'") from error
    found = load_target(target)
    if not isinstance(found, Listener):
        raise ConfigError(f"--kafka runs a Listener: {target} is none")
    return Stream(found, StreamSettings(bootstrap=brokers, results_key=results_key, group=group, hold=bounds))


def _run_stream(stream: "Stream", target: str | None, metrics_port: int | None, *, as_json: bool) -> None:
    """Run a listener on its topic until a signal ends it."""
    from waybill.infra.runner import run_until_stopped

    metrics = None
    if metrics_port is not None:
        metrics = MetricsServer(stream.registry, alive=stream.is_alive, ready=stream.is_ready, port=metrics_port)
    words: dict[str, Any] = {"topic": stream.topic, "group": stream.group, "target": target}
    words["hold"] = {"count": stream.bounds.max_count, "age": format_duration(stream.bounds.max_age.total_seconds())}
    if metrics is not None:
        words["metrics"] = f"http://127.0.0.1:{metrics.port}/metrics"
    if as_json:
        sys.stdout.write(json.dumps(words) + "\n")
        sys.stdout.flush()
    else:
        console.print(f"{target} takes {stream.topic} as {stream.group}", markup=False, highlight=False, soft_wrap=True)
    with closing(metrics) if metrics is not None else nullcontext():
        run_until_stopped(stream.run)


def _metrics(found: Any, port: int | None) -> MetricsServer | None:
    if port is None:
        return None
    if not isinstance(found, Listener):
        raise ConfigError("--metrics-port serves a Listener's metrics: what is run here is none")
    return MetricsServer(found.registry, alive=lambda: {"process": True}, ready=lambda: {"process": True}, port=port)


def _capture(
    place: tuple[str, int, str],
    settings: CaptureSettings,
    checker: Checker,
    level: Level,
    public: PublicKeys | None,
) -> Capture:
    host, port, forward_to = place
    url = listener_url(forward_to)
    if port and url.port == port and url.hostname in {host, "127.0.0.1", "localhost", "::1"}:
        raise ConfigError(f"--forward-to {forward_to} is this server itself: give one of them another port")
    forwarder = Forwarder(Poster(url, SystemClock(), max_bytes=_MAX_ANSWER), level)
    return Capture(settings, checker, forwarder, SystemClock(), public)


def _stack_keys() -> Path:
    return Path(Addresses.load().need("keys_dir"))


def _checker(names: tuple[str, str], keys_dir: Path | None, keys: str | None, secret: str | None) -> Checker:
    for name in names:
        if not NAME_PATTERN.match(name):
            raise ConfigError(f"{name!r}: lower case letters, digits and -, at most 30, a letter first")
    tenant, clock = Tenant(names[0]), SystemClock()
    shared = read_reference(secret, "--secret") if secret is not None else None
    signer = None
    if keys is None:
        folder = keys_dir or _stack_keys()
        shared = shared if shared is not None else read_shared_secret(folder, tenant)
        signer = load_signer(folder, tenant, shared)
        keys = str(jwks_path(folder, tenant))
    secrets = parse_hmac_secrets(shared)
    source = JwksUrl(keys, clock, secrets) if keys.startswith(("http://", "https://")) else JwksFile(keys, secrets)
    binding = Binding(tenant=tenant, destination=DestinationName(names[1]))
    return Checker(binding=binding, keys=source, signer=signer, clock=clock)


def load_target(target: str) -> Any:
    """Import the application; the current folder is looked in first, as for a script."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise ConfigError(f"{target!r}: expected module:attribute, for example app:listener")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    found: Any
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise ConfigError(f"{module_name} needs a module that is not here: {error.name}") from error
        raise ConfigError(f"no module {module_name!r} here or in the environment") from error
    for name in attribute.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise ConfigError(f"module {module_name!r} has no {attribute!r}")
    if not callable(found):
        raise ConfigError(f"{target!r} is not an ASGI application")
    return found
