"""Connectors: slot before the first row, configuration put, task proven to run.

`ensure_slot` belongs before anything can be inserted: a slot made later does not see earlier rows. Where that order
was not kept, `ensure_connector` closes the hole by `recover` when it knows the brokers, and refuses when it does not.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psycopg

from waybill.infra.connect_api import ConnectApi, ConnectorStatus
from waybill.infra.postgres import connect
from waybill.infra.resources import resource_dir
from waybill.kernel.errors import ConfigError, RefusedError, UnavailableError
from waybill.relay.core.connection import OutboxConnection, variables
from waybill.relay.core.facts import SlotFacts
from waybill.relay.core.lint import LintFault, lint_connector, lint_text, lint_together
from waybill.relay.core.template import ConnectorFile, parse_connector, render
from waybill.relay.database import create_slot, drop_slot, has_rows, preflight, slot_facts

__all__ = ["EnsureResult", "ensure_connector", "ensure_slot", "lint_files", "render_connector"]

_RUNNING_WITHIN_S: Final = 60.0
_RESTARTED_WITHIN_S: Final = 5.0
#: A task that fails once may have met an old fault; one that fails again meets it now.
_TRIES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureResult:
    """What was done for one connector; both false when everything was in step."""

    connector: str
    slot_created: bool
    config_changed: bool
    state: str


def render_connector(outbox: OutboxConnection) -> dict[str, str]:
    """Return the configuration of an outbox's connector, linted.

    Raises:
        ConfigError: the file or a value in it is wrong; every fault on a line.
    """
    path = resource_dir("connect") / f"{outbox.kind.value}.json"
    file = parse_connector(path.read_text(encoding="utf-8"), f"connect/{path.name}")
    settings = render(file, variables(outbox))
    faults = lint_connector(ConnectorFile(file=file.file, settings=settings, lines=file.lines))
    if faults:
        raise ConfigError("\n".join(str(fault) for fault in faults))
    return settings


def lint_files(paths: Sequence[Path]) -> list[LintFault]:
    """Lint connector files, each alone and all together.

    Raises:
        ConfigError: a file cannot be opened.
    """
    faults: list[LintFault] = []
    parsed: list[ConnectorFile] = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from error
        found = lint_text(text, str(path))
        faults.extend(found)
        if not any(fault.rule == "readable" for fault in found):
            parsed.append(parse_connector(text, str(path)))
    return faults + lint_together(parsed)


def ensure_slot(admin_dsn: str, outbox: OutboxConnection) -> bool:
    """Check the database and make the outbox's slot; return whether it was made now. Idempotent.

    Call it before anything can be inserted into the outbox.

    Args:
        admin_dsn: of the outbox's database, with a role that may make slots.
        outbox: whose slot.

    Raises:
        ConfigError: the database is not as the relay needs it; every fault on a line.
        RefusedError: the slot is lost (`slot_lost`), of another database, or younger than rows
            (`slot_younger_than_rows`: one made now would not see them).
    """
    with closing(connect(admin_dsn, application_name="waybill-relay", autocommit=True)) as connection:
        preflight(connection, outbox)
        return _ensure_slot(connection, outbox)


def _ensure_slot(connection: psycopg.Connection, outbox: OutboxConnection) -> bool:
    found = slot_facts(connection, outbox.slot)
    if found is not None:
        _usable(found, outbox)
        return False
    create_slot(connection, outbox.slot)
    # After the slot: a row committed before it is a hole, one committed later is not. Rows in between are streamed
    # and look like a hole; recovery then finds nothing missing.
    if has_rows(connection, outbox):
        drop_slot(connection, outbox.slot)
        raise RefusedError(
            f"outbox {outbox.name} has rows older than any slot: a slot made now would not see them. "
            f"Run `waybill connect apply --name {outbox.name} --dsn …`, which compares them with the topics first, or "
            f"`waybill relay recover --connector {outbox.connector}` where the connector exists",
            rule="slot_younger_than_rows",
        )
    return True


def _usable(slot: SlotFacts, outbox: OutboxConnection) -> None:
    if slot.database != outbox.database:
        raise RefusedError(
            f"slot {slot.name} belongs to database {slot.database}: two outboxes would share it",
            rule="slot_of_another_database",
        )
    if slot.is_lost:
        raise RefusedError(_hole(outbox, f"slot {slot.name} is lost"), rule="slot_lost")


def _hole(outbox: OutboxConnection, what: str) -> str:
    return (
        f"outbox {outbox.name}: {what}; rows may be missing from the topic. "
        f"Run `waybill relay recover --connector {outbox.connector}`"
    )


def ensure_connector(
    api: ConnectApi,
    admin_dsn: str,
    outbox: OutboxConnection,
    *,
    close_hole: Callable[[OutboxConnection], None] | None = None,
) -> EnsureResult:
    """Make an outbox's connector run as its file says, and prove it. Idempotent.

    Args:
        api: the Connect cluster.
        admin_dsn: of the outbox's database, with a role that may make slots.
        outbox: whose connector.
        close_hole: called, once the connector exists and is stopped, when rows are older than any slot; it must end
            with slot and connector in order (`recover`). Without it such an outbox is refused.

    Raises:
        ConfigError: file, value or database are wrong, or Connect refuses the configuration.
        RefusedError: slot or stored offset do not fit (`slot_lost`, `slot_younger_than_rows`,
            `offset_behind_slot`), or somebody stopped the connector (`connector_stopped`).
        UnavailableError: its task does not run within a minute; says what Connect reports.
    """
    wanted = render_connector(outbox)
    with closing(connect(admin_dsn, application_name="waybill-relay", autocommit=True)) as connection:
        preflight(connection, outbox)
        present = api.config(outbox.connector)
        stored = _stored_lsn(api, outbox) if present is not None else None
        if stored is not None:
            _offset_fits(connection, outbox, stored)
        try:
            slot_created = _ensure_slot(connection, outbox)
        except RefusedError as refused:
            if refused.rule != "slot_younger_than_rows" or close_hole is None or stored is not None:
                raise
            slot_created = True
            if present is None:
                api.create_stopped(outbox.connector, wanted)
            close_hole(outbox)
            present = api.config(outbox.connector)
        changed = present is None or _differs(present, wanted, outbox.connector)
        if changed:
            api.put(outbox.connector, wanted)
        status = _prove(api, connection, outbox)
    return EnsureResult(
        connector=outbox.connector, slot_created=slot_created, config_changed=changed, state=status.state
    )


def _differs(present: dict[str, str], wanted: dict[str, str], name: str) -> bool:
    return {key: value for key, value in present.items() if key != "name" or value != name} != wanted


def _stored_lsn(api: ConnectApi, outbox: OutboxConnection) -> int | None:
    """Return the newest log position Connect has stored for the connector; None when it has stored none."""
    found = [entry["offset"] for entry in api.offsets(outbox.connector) if entry.get("offset")]
    fields = ("lsn", "lsn_proc", "lsn_commit")
    positions = [int(offset[field]) for offset in found for field in fields if offset.get(field) is not None]
    return max(positions, default=None)


def _offset_fits(connection: psycopg.Connection, outbox: OutboxConnection, stored: int) -> None:
    """Refuse a stored offset without its slot, or one that lies before what the slot will send.

    The slot is read after the offset, and only ever follows it; so a slot ahead by more than the offset moved in
    between can only be another slot than the offset was stored with.
    """
    slot = slot_facts(connection, outbox.slot)
    if slot is None:
        raise RefusedError(_hole(outbox, f"slot {outbox.slot} is gone"), rule="slot_lost")
    _usable(slot, outbox)
    if slot.confirmed_lsn is not None and slot.confirmed_lsn > stored and not slot.is_active:
        raise RefusedError(
            _hole(outbox, f"slot {outbox.slot} starts behind the stored offset"), rule="offset_behind_slot"
        )


def _prove(api: ConnectApi, connection: psycopg.Connection, outbox: OutboxConnection) -> ConnectorStatus:
    """Wait until every task runs and the slot has a reader: RUNNING alone proves nothing. A failed task is restarted."""
    name = outbox.connector

    def is_decided(seen: ConnectorStatus | None) -> bool:
        if _runs(seen):
            slot = slot_facts(connection, outbox.slot)
            return slot is not None and slot.is_active
        return _has_failed(seen) or bool(seen and seen.state in {"STOPPED", "PAUSED"})

    status: ConnectorStatus | None = None
    for _ in range(_TRIES):
        status = api.wait_status(name, is_decided, _RUNNING_WITHIN_S)
        if status is not None and status.state in {"STOPPED", "PAUSED"}:
            raise RefusedError(
                f"connector {name} is {status.state}: somebody stopped it, or a recovery was interrupted. "
                f"Run `waybill relay recover --connector {name}`, or resume it",
                rule="connector_stopped",
            )
        if not _has_failed(status):
            break
        api.restart(name)
        api.wait_status(name, lambda seen: not _has_failed(seen), _RESTARTED_WITHIN_S)
    if status is None or not is_decided(status) or not _runs(status):
        said = "nothing" if status is None else f"{status.state}, tasks {[task.state for task in status.tasks]}"
        trace = next((task.trace for task in status.tasks if task.trace), status.trace) if status else None
        raise UnavailableError(
            f"connector {name} does not run: Connect says {said}; {trace or f'nobody reads slot {outbox.slot}'}; "
            "see `waybill connect status` and the worker's log"
        )
    return status


def _runs(status: ConnectorStatus | None) -> bool:
    return bool(
        status and status.state == "RUNNING" and status.tasks and all(t.state == "RUNNING" for t in status.tasks)
    )


def _has_failed(status: ConnectorStatus | None) -> bool:
    return bool(status and (status.state == "FAILED" or any(task.state == "FAILED" for task in status.tasks)))
