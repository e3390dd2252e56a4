"""From a request body to drafts of commands; what is wrong with it is a value.

A message names the place and the member and never a value: values can be personal data.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from waybill.contracts.codes import ErrorCode
from waybill.contracts.problem import Problem
from waybill.outbox import CommandDraft
from waybill.submission.core.members import DATA, MEMBERS
from waybill.submission.core.verbatim import Slice, read_object, read_objects

__all__ = ["COMMANDS", "MAX_COMMANDS", "Form", "read_commands", "read_draft"]

#: Of one batch: it is one transaction, which holds the lock of every aggregate in it.
MAX_COMMANDS: Final = 1_000
COMMANDS: Final = "commands"


class Form(StrEnum):
    """How many commands a body holds."""

    #: One.
    SINGLE = "single"
    #: A list of them, all or none.
    BATCH = "batch"


def read_commands(form: Form, body: bytes) -> tuple[CommandDraft, ...] | Problem:
    """Read the commands of a submission, in their order."""
    try:
        text = body.decode()
        found = [read_object(text, DATA)] if form is Form.SINGLE else read_objects(text, COMMANDS, DATA)
    except (ValueError, RecursionError) as error:
        said = "nested too deep" if isinstance(error, RecursionError) else _what(error)
        return _problem("malformed_body", f"the body cannot be read: {said}")
    if not 1 <= len(found) <= MAX_COMMANDS:
        return _problem("malformed_body", f"a batch has 1 to {MAX_COMMANDS} commands")
    drafts: list[CommandDraft] = []
    for place, members in enumerate(found):
        draft = read_draft(members, "" if form is Form.SINGLE else f"{COMMANDS}[{place}]: ")
        if isinstance(draft, Problem):
            return draft
        drafts.append(draft)
    return tuple(drafts)


def _what(error: ValueError) -> str:
    # decoders quote what they could not read; ours do not
    return str(error) if type(error) is ValueError and len(error.args) == 1 else "it is not JSON in UTF-8"


def _problem(reason: str, detail: str) -> Problem:
    return Problem(code=ErrorCode.VALIDATION, reason=reason, detail=detail)


def read_draft(
    members: Mapping[str, object], where: str = "", *, called: Mapping[str, str] | None = None
) -> CommandDraft | Problem:
    """Make a command of its members.

    Args:
        members: by name; `data` is a `Slice` of JSON text, or bytes.
        where: what messages say before the member.
        called: what messages call members that came under another name.
    """
    values: dict[str, Any] = {}
    names = called or {}
    for name, value in members.items():
        if name == DATA:
            values[DATA] = value.text.encode() if isinstance(value, Slice) else value
            continue
        member = MEMBERS.get(name)
        if member is None:
            return _problem("unknown_member", f"{where}a command has no member of that name")
        if (wrong := member.problem(value)) is not None:
            return _problem("malformed_member", f"{where}{names.get(name, name)}: {wrong}")
        values[member.field] = member.converted(value)
    if missing := [each.name for each in MEMBERS.values() if each.is_required and each.field not in values]:
        return _problem("missing_member", f"{where}{names.get(missing[0], missing[0])} is missing")
    if sum(name in members for name in (DATA, "dataBase64", "dataRef")) != 1:
        return _problem("missing_member", f"{where}a command has one of data, dataBase64 and dataRef")
    kind, _, name = values.pop("aggregate").partition("/")
    return CommandDraft(aggregate_type=kind, aggregate_id=name, **values)
