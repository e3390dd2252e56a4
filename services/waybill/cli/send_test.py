"""`waybill send-test`: one signed sample delivery to a listener, without Kafka, and what its answer means."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.cli.output import JsonFlag, console, print_json
from waybill.cli.references import read_reference
from waybill.conformance.keys import ensure_keys, read_shared_secret
from waybill.conformance.posting import NotPosted, Posted
from waybill.conformance.sample import Exchange, Sample, send_sample
from waybill.contracts.fabric import Level, Profile
from waybill.crypto.keys import jwks_path
from waybill.crypto.signing import Signer, load_signer
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError, UnavailableError
from waybill.kernel.ids import NAME_PATTERN, Tenant

__all__ = ["app"]

app = typer.Typer(add_completion=False, help="Send one signed sample to a listener and say what its answer means.")

UrlArgument = Annotated[str, typer.Argument(help="Where deliveries go.")]
TenantOption = Annotated[str, typer.Option("--tenant", help="Whose command it is.")]
DestinationOption = Annotated[str, typer.Option("--destination", help="The name it is delivered to under.")]
TypeOption = Annotated[str, typer.Option("--type", help="The command type.")]
DataOption = Annotated[
    str, typer.Option("--data", help="JSON object: members of the data beside isTest and subject; @FILE reads a file.")
]
AggregateOption = Annotated[str | None, typer.Option("--aggregate", help="type/id; one that nobody names without it.")]
SequenceOption = Annotated[
    int, typer.Option("--sequence", min=1, max=2**31 - 1, help="The number within the aggregate.")
]
LevelOption = Annotated[Level, typer.Option("--level", help="What the listener declares; the answer is held to it.")]
ProfileOption = Annotated[Profile, typer.Option("--profile", help="What the destination declares it can bear.")]
TimesOption = Annotated[int, typer.Option("--times", min=1, max=20, help="Send the one delivery so often.")]
KeysOption = Annotated[
    Path | None,
    typer.Option("--keys-dir", help="Folder of keys, made if absent; else WAYBILL_KEYS_DIR, else the local stack's."),
]
SecretOption = Annotated[
    str | None,
    typer.Option("--secret", help="Where the shared secret is: env:NAME or file:PATH; signs v1 beside v1a."),
]
TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, max=300, help="Seconds to connect and to answer.")]
AuthoritiesOption = Annotated[
    Path | None, typer.Option("--ca", help="PEM certificates of authorities trusted beside the machine's.")
]


@app.command()
def send_test(  # noqa: PLR0913, PLR0917 - one parameter per option
    url: UrlArgument,
    tenant: TenantOption = "conformance",
    destination: DestinationOption = "listener",
    command_type: TypeOption = "conformance.check",
    data: DataOption = "{}",
    aggregate: AggregateOption = None,
    sequence: SequenceOption = 1,
    level: LevelOption = Level.L1,
    profile: ProfileOption = Profile.DURABLE_IDEMPOTENT,
    times: TimesOption = 1,
    keys_dir: KeysOption = None,
    secret: SecretOption = None,
    timeout: TimeoutOption = 20.0,
    authorities: AuthoritiesOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Send one delivery as the fabric would, and show what was sent, what was answered and what that means.

    Its data are marked isTest; no Kafka and no database is needed. Exit 0: done, with what the level asks for; 1: it
    was refused, or the answer keeps less than the level; 3: no whole answer came, and why.
    """
    sample = Sample(
        url=url,
        tenant=tenant,
        destination=destination,
        command_type=command_type,
        data=_data(data),
        aggregate=aggregate,
        sequence=sequence,
        level=level,
        profile=profile,
        times=times,
        timeout_s=timeout,
        authorities=authorities,
    )
    exchanges = send_sample(sample, _signer(tenant, keys_dir, secret), SystemClock())
    ok = all(each.verdict is not None and each.verdict.is_valid and each.verdict.is_done for each in exchanges)
    if as_json:
        print_json({"ok": ok, "url": url, "level": level.value, "attempts": [_told(each) for each in exchanges]})
    else:
        for each in exchanges:
            _show(url, each)
    last = exchanges[-1].ending
    if isinstance(last, NotPosted):
        may = "; it may have arrived, nobody knows whether it was done" if last.was_sent else "; nothing was sent"
        raise UnavailableError(f"{last.detail}{may}")
    if not ok:
        raise typer.Exit(1)


def _data(text: str) -> dict[str, Any]:
    try:
        found = json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except OSError as error:
        raise ConfigError(f"--data {text}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError("--data: not JSON") from error
    if not isinstance(found, dict):
        raise ConfigError("--data: expected a JSON object")
    return found


def _signer(tenant: str, keys_dir: Path | None, secret: str | None) -> Signer:
    if not NAME_PATTERN.match(tenant):
        raise ConfigError(f"--tenant {tenant!r}: lower case letters, digits and -, at most 30, a letter first")
    folder, name = keys_dir or Path(Addresses.load().need("keys_dir")), Tenant(tenant)
    if keys_dir is not None and ensure_keys(keys_dir, name, SystemClock().now()):
        console.print(f"made a key; give {jwks_path(keys_dir, name)} to the listener", markup=False, soft_wrap=True)
    shared = read_reference(secret, "--secret") if secret is not None else read_shared_secret(folder, name)
    return load_signer(folder, name, shared)


def _told(each: Exchange) -> dict[str, Any]:
    ending, verdict = each.ending, each.verdict
    answer = trouble = None
    if isinstance(ending, Posted):
        answer = {
            "status": ending.status,
            "headers": [list(pair) for pair in ending.headers],
            "body": ending.body.decode(errors="replace"),
            "took_ms": ending.took_ms,
        }
    else:
        trouble = {"kind": ending.trouble.value, "detail": ending.detail, "was_sent": ending.was_sent}
    return {
        "sent": {
            "headers": dict(each.headers),
            "body": each.body.decode(),
            "signature_base": each.signature_base.decode(),
        },
        "answer": answer,
        "trouble": trouble,
        "verdict": None
        if verdict is None
        else {
            "meaning": verdict.meaning.value,
            "valid": verdict.is_valid,
            "done": verdict.is_done,
            "why": verdict.why,
        },
    }


def _show(url: str, each: Exchange) -> None:
    typer.echo(f"POST {url}")
    for name, value in each.headers.items():
        typer.echo(f"  {name}: {value}")
    typer.echo(f"\n{each.body.decode()}\n")
    typer.echo("signed: webhook-id, webhook-timestamp and the body, with dots between:")
    typer.echo(f"  {each.signature_base.decode()}\n")
    if isinstance(each.ending, Posted):
        typer.echo(f"answered {each.ending.status} after {each.ending.took_ms} ms")
        for name, value in each.ending.headers:
            typer.echo(f"  {name}: {_plain(value)}")
        typer.echo(f"\n{_plain(each.ending.body.decode(errors='replace'))}\n")
    if each.verdict is not None:
        told = "keeps the wire" if each.verdict.is_valid else "does not keep the wire"
        typer.echo(f"{each.verdict.meaning.value}: {each.verdict.why} ({told})")


def _plain(text: str) -> str:
    """What a listener says cannot steer the terminal it is shown in."""
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)
