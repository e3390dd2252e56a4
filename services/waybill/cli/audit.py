"""`waybill audit`: the chain of who did what to the fabric.

`verify` looks at the control database, with the anchors of its table and of the topic; with `--file` at an export,
with nothing but the tenant's public keys.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import psycopg
import typer

from waybill.audit import Anchor, AuditStore, Entry, Fault, Finding, Report, public_keys, sign_anchor, signed_by, verify
from waybill.audit.core.lines import read_anchor, read_line, write_line
from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.contracts.names import audit_topic
from waybill.crypto.keys import jwks_path
from waybill.infra.addresses import Addresses
from waybill.infra.clock import SystemClock
from waybill.infra.kafka_admin import KafkaAdmin
from waybill.infra.postgres import connect
from waybill.infra.topic_log import scan
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import NAME_PATTERN, Tenant

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Who did what to the fabric: list, anchor, export, verify.")

TenantArgument = Annotated[str, typer.Argument(help="The tenant.")]
KeysOption = Annotated[
    Path | None,
    typer.Option("--keys", help="The tenant's public keys, a jwks.json. Default: the one of WAYBILL_KEYS_DIR."),
]

COLUMNS: Final = ("at", "by", "act", "partition", "number", "role")
#: One table row per chain: how far it goes and how far anchors vouch for it.
HEAD_COLUMNS: Final = ("partition", "entries", "anchored")

_MEANING: Final = {
    Fault.CHANGED: "was changed, or does not follow the one before it",
    Fault.OUT_OF_ORDER: "does not follow in number: something is missing, doubled or moved before it",
    Fault.CUT_OFF: "is named by an anchor and not there: the end was cut off",
    Fault.REWRITTEN: "has another hash than an anchor says: the chain was written anew",
    Fault.UNSIGNED: "has an anchor that no key of the tenant signed",
    Fault.UNREADABLE: "is a line that no export has",
}


@app.command("list")
def list_command(
    tenant: TenantArgument,
    act: Annotated[str | None, typer.Option("--act", help="Only acts that begin so, such as access.event.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    as_json: JsonFlag = False,
) -> None:
    """List what was done to a tenant's part of the fabric, newest first."""
    with _store(tenant) as store:
        rows = [_row(entry) for entry in store.newest(limit, act)]
    if as_json:
        print_json({"tenant": tenant, "entries": rows})
    else:
        print_table("acts, newest first", COLUMNS, rows)


@app.command("anchor")
def anchor_command(tenant: TenantArgument, as_json: JsonFlag = False) -> None:
    """Sign how far each chain of a tenant has come, and send that to the topic; again it does nothing new.

    Run it on a schedule: what came after the newest anchor can be cut off unseen.
    """
    keys_dir, now = Path(Addresses.load().need("keys_dir")), SystemClock().now()
    with _store(tenant) as store:
        done = {(anchor.partition, anchor.number) for anchor in store.anchors()}
        made = [sign_anchor(keys_dir, head, now) for head in store.heads() if (head.partition, head.number) not in done]
        for anchor in made:
            store.add_anchor(anchor)
    if as_json:
        print_json({"tenant": tenant, "anchors": [asdict(anchor) for anchor in made]})
    else:
        print_table("anchored now", ("partition", "number", "hash", "key"), [asdict(anchor) for anchor in made])


@app.command("export")
def export_command(
    tenant: TenantArgument,
    to: Annotated[Path | None, typer.Option("--to", help="The file to write. Default: standard output.")] = None,
) -> None:
    """Write all entries, then all anchors, of a tenant as lines of JSON: `verify --file` needs nothing else."""
    with _store(tenant) as store:
        lines = (write_line(item) + "\n" for item in _all(store, _topic_anchors(tenant)[0]))
        if to is None:
            sys.stdout.writelines(lines)
            return
        with to.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)


@app.command("verify")
def verify_command(
    tenant: Annotated[str | None, typer.Argument(help="The tenant; not with --file.")] = None,
    file: Annotated[Path | None, typer.Option("--file", help="Look at this export; nothing is connected to.")] = None,
    anchors: Annotated[
        Path | None, typer.Option("--anchors", help="More anchors, lines that were kept elsewhere.")
    ] = None,
    keys: KeysOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Find every change of a tenant's chains. Exit 1 when there is one, 0 when there is none up to the last anchor."""
    if (tenant is None) == (file is None):
        raise ConfigError("say what to verify: a tenant, or --file with an export")
    kept, broken = _read(anchors, anchors_only=True) if anchors is not None else ([], [])
    if file is not None:
        if keys is None:
            raise ConfigError("an export is verified with the tenant's public keys: --keys jwks.json")
        items, unread = _read(file)
        entries: Iterable[Entry] = [item for item in items if isinstance(item, Entry)]
        found = [item for item in [*items, *kept] if isinstance(item, Anchor)]
        _tell(verify(entries, found, signed_by(public_keys(keys))), [*broken, *unread], as_json=as_json)
        return
    assert tenant is not None
    held = keys or jwks_path(Path(Addresses.load().need("keys_dir")), Tenant(tenant))
    published, unread = _topic_anchors(tenant)
    with _store(tenant) as store:
        found = [*store.anchors(), *published, *(item for item in kept if isinstance(item, Anchor))]
        report = verify(store.entries(), dict.fromkeys(found), signed_by(public_keys(held)))
    _tell(report, [*broken, *unread], as_json=as_json)


def _tell(report: Report, unread: Sequence[Finding], *, as_json: bool) -> None:
    findings = [*unread, *report.findings]
    heads = [
        {"tenant": tenant, "partition": partition, "entries": head.number, "anchored": head.anchored}
        for (tenant, partition), head in sorted(report.heads.items())
    ]
    if as_json:
        print_json({"intact": not findings, "chains": heads, "findings": [asdict(each) for each in findings]})
    else:
        print_table("chains", ("tenant", *HEAD_COLUMNS), heads)
        for each in findings:
            where = f"{each.tenant or 'line'} {each.partition}/{each.number}" if each.tenant else f"line {each.number}"
            console.print(f"{where} {_MEANING[each.fault]}", markup=False, highlight=False)
        console.print("changed" if findings else "intact up to the last anchor", markup=False, highlight=False)
    if findings:
        raise typer.Exit(1)


def _all(store: AuditStore, published: Sequence[Anchor]) -> Iterator[Entry | Anchor]:
    yield from store.entries()
    yield from dict.fromkeys([*store.anchors(), *published])


def _row(entry: Entry) -> dict[str, Any]:
    body = json.loads(entry.body)
    return {**body, "partition": entry.partition, "number": entry.number, "hash": entry.hash}


def _read(path: Path, *, anchors_only: bool = False) -> tuple[list[Entry | Anchor], list[Finding]]:
    try:
        text = path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    lines = text.split("\n")
    items: list[Entry | Anchor] = []
    findings = [] if lines.pop() == "" else [_unreadable(len(lines) + 1)]
    for number, line in enumerate(lines, start=1):
        item = read_anchor(line) if anchors_only else read_line(line)
        if item is None:
            findings.append(_unreadable(number))
        else:
            items.append(item)
    return items, findings


def _unreadable(number: int) -> Finding:
    return Finding(fault=Fault.UNREADABLE, tenant="", partition=-1, number=number)


def _topic_anchors(tenant: str) -> tuple[list[Anchor], list[Finding]]:
    """Read what was published: a change in the database does not reach it."""
    kafka, clock, topic = Addresses.load().need("kafka"), SystemClock(), audit_topic(Tenant(tenant))
    admin = KafkaAdmin(kafka, clock)
    facts = admin.topics([topic]).get(topic)
    if facts is None:
        raise ConfigError(f"tenant {tenant} has no topic for anchors: run `waybill apply` with its fabric.yaml")
    starts = admin.earliest_offsets(topic, facts.partitions)
    ends = admin.end_offsets(topic, facts.partitions)
    anchors, findings = [], []
    for record in scan(kafka, topic, starts=starts, ends=ends, clock=clock):
        anchor = read_anchor((record.value or b"").decode("utf-8", "replace"))
        if anchor is None or anchor.tenant != tenant:
            findings.append(_unreadable(record.offset or 0))
        else:
            anchors.append(anchor)
    return anchors, findings


@contextmanager
def _store(tenant: str) -> Iterator[AuditStore]:
    if not NAME_PATTERN.match(tenant):
        raise ConfigError(f"{tenant!r} is no tenant: lower case letters, digits and -, at most 30, a letter first")
    dsn = Addresses.load().need("control_dsn")
    with closing(connect(dsn, application_name="waybill-cli", autocommit=True)) as connection:
        try:
            yield AuditStore(connection, tenant)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName) as error:
            raise ConfigError("the control database is older than this waybill: run `waybill migrate`") from error
