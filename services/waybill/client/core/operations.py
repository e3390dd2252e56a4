"""The operations: each yields what to do next, is told what came of it, and returns what it found.

A driver does what is yielded and sends back what came of it with the seconds since the operation began. So the rules of
retrying are here once, for every way to do HTTP, and a test plays them against a list.
"""

import json
import zlib
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from waybill.client.core.records import (
    OPEN,
    AmbiguousError,
    Command,
    Delivery,
    Page,
    RefusalError,
    Submission,
    Waited,
    read_page,
    read_submission,
)
from waybill.kernel.errors import ConfigError, InvariantBroken, UnavailableError

__all__ = ["BATCH", "SINGLE", "Call", "Lost", "Pause", "Reply", "Told", "body_of", "find", "page", "submit", "wait"]

SINGLE: Final = "/v1/commands"
BATCH: Final = "/v1/commands:batch"
_FIRST_S: Final = 0.25
_LONGEST_S: Final = 10.0
_LOOK_FIRST_S: Final = 0.2
_LOOK_LONGEST_S: Final = 2.0
#: Somebody says that the same request may be answered otherwise later, or a proxy in between failed.
_AGAIN: Final = frozenset({429, 500, 502, 503, 504})
#: The API itself says that nothing was taken.
_NOTHING_TAKEN: Final = frozenset({"outbox_unavailable"})
#: Another body came under the key: what we sent before was not taken, or this would have been its resubmission.
_PROVES_NOTHING_TAKEN: Final = "idempotency_key_reused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Do a request."""

    method: str
    #: With its query.
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer came; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """No answer came."""

    reason: str
    #: False only where no connection was made.
    may_have_arrived: bool


class Told(NamedTuple):
    """What came of what was yielded; a pause comes to None."""

    elapsed_s: float
    came: Reply | Lost | None


def body_of(commands: Mapping[str, Any] | Sequence[Mapping[str, Any]] | bytes) -> bytes:
    """Return the bytes of a submission, made once; bytes are taken as they are.

    Raises:
        ConfigError: it has no JSON form.
    """
    if isinstance(commands, bytes):
        return commands
    document = commands if isinstance(commands, Mapping) else {"commands": list(commands)}
    try:
        return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise ConfigError("a command has no JSON form: pass JSON values, or the body as bytes") from error


def submit(path: str, body: bytes, key: str, patience_s: float) -> Generator[Call | Pause, Told, Submission]:
    """Submit until it is known what became of it.

    Raises:
        RefusalError: refused, and nothing of this body was taken.
        AmbiguousError: it may have been taken, and nobody said within `patience_s`, or only a person may say.
        UnavailableError: nobody answered within `patience_s`, and nothing was taken.
    """
    headers = {"content-type": "application/json", "idempotency-key": key}
    call, is_open, attempt = Call(method="POST", path=path, headers=headers, body=body), False, 0
    while True:
        elapsed_s, came = yield call
        if isinstance(came, Reply) and came.status in {200, 202}:
            return _taken(came, key)
        if isinstance(came, Reply) and came.status not in _AGAIN:
            raise _refused(came, key, is_open=is_open)
        is_open = is_open or _may_be_taken(came)
        pause = _pause(came, key, attempt)
        if elapsed_s + pause > patience_s:
            why = _why(came)
            if is_open:
                raise AmbiguousError(f"nobody knows whether it was taken: {why}", idempotency_key=key)
            raise UnavailableError(f"nothing was taken: {why}")
        yield Pause(pause)
        attempt += 1


def find(identity: UUID, patience_s: float) -> Generator[Call | Pause, Told, Submission | None]:
    """Return a submission by id, None where there is none of this principal."""
    reply = yield from _ask(f"/v1/submissions/{identity}", patience_s)
    return None if reply.status == 404 else read_submission(_document(reply))


def page(filters: Mapping[str, object], cursor: str | None, patience_s: float) -> Generator[Call | Pause, Told, Page]:
    """Return a page of deliveries."""
    given = {name: str(value) for name, value in filters.items() if value is not None}
    query = urlencode(given if cursor is None else {**given, "cursor": cursor})
    reply = yield from _ask(f"/v1/deliveries?{query}" if query else "/v1/deliveries", patience_s)
    return read_page(_document(reply))


def wait(
    command: Command | UUID, destinations: Collection[str] | None, timeout_s: float
) -> Generator[Call | Pause, Told, Waited]:
    """Look until every destination of a command stands where only people move it on, or the time is over.

    Args:
        command: as it was taken; of an id alone it is not known which destinations it has.
        destinations: those to wait for; None is all of the command's, of an id those the read model knows.
        timeout_s: seconds; what stood then is returned.
    """
    if destinations is None and isinstance(command, Command):
        destinations = command.deliveries
    identity = command.command_id if isinstance(command, Command) else command
    path, tag, look = f"/v1/deliveries?commandId={identity}&limit=200", "", 0
    found: dict[str, Delivery] = {}
    while True:
        elapsed_s, came = yield Call(method="GET", path=path, headers={"if-none-match": tag} if tag else {})
        if isinstance(came, Reply) and came.status == 200:
            found, tag = {each.destination: each for each in read_page(_document(came)).deliveries}, _tag(came)
        elif isinstance(came, Reply) and came.status != 304 and came.status not in _AGAIN:
            raise _refusal(came)
        wanted = found.keys() if destinations is None else set(destinations)
        is_settled = bool(wanted) and all(name in found and found[name].state not in OPEN for name in wanted)
        pause = _retry_after(came) or min(_LOOK_FIRST_S * 1.5 ** min(look, 10), _LOOK_LONGEST_S)
        if is_settled or elapsed_s >= timeout_s:
            return Waited(deliveries=found, is_settled=is_settled)
        yield Pause(min(pause, timeout_s - elapsed_s))
        look += 1


def _ask(path: str, patience_s: float) -> Generator[Call | Pause, Told, Reply]:
    attempt = 0
    while True:
        elapsed_s, came = yield Call(method="GET", path=path)
        if isinstance(came, Reply) and came.status in {200, 404}:
            return came
        if isinstance(came, Reply) and came.status not in _AGAIN:
            raise _refusal(came)
        pause = _pause(came, path, attempt)
        if elapsed_s + pause > patience_s:
            raise UnavailableError(f"the API did not say: {_why(came)}")
        yield Pause(pause)
        attempt += 1


def _document(reply: Reply) -> Mapping[str, Any]:
    try:
        found = json.loads(reply.body)
    except ValueError as error:
        raise UnavailableError(f"what answered {reply.status} is not the API: its body is no JSON") from error
    if not isinstance(found, Mapping):
        raise UnavailableError(f"what answered {reply.status} is not the API: its body is no object")
    return found


def _taken(reply: Reply, key: str) -> Submission:
    try:
        return read_submission(_document(reply))
    except (UnavailableError, KeyError, TypeError, ValueError) as error:
        raise AmbiguousError("what answered is not the API", idempotency_key=key) from error


def _problem(reply: Reply) -> Mapping[str, Any]:
    try:
        found = json.loads(reply.body)
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _refusal(reply: Reply) -> RefusalError:
    problem = _problem(reply)
    reason, named = str(problem.get("reason") or f"http_{reply.status}"), problem.get("submissionId")
    detail = str(problem.get("detail") or f"answered {reply.status}")
    identity = UUID(named) if isinstance(named, str) else None
    return RefusalError(detail, rule=reason, status=reply.status, submission_id=identity)


def _refused(reply: Reply, key: str, *, is_open: bool) -> RefusalError | AmbiguousError:
    """Return what a refusal means when an earlier attempt may have been taken."""
    refusal = _refusal(reply)
    is_for_a_person = refusal.rule == "resubmission_refused"
    if not is_for_a_person and (not is_open or refusal.rule == _PROVES_NOTHING_TAKEN):
        return refusal
    ambiguous = AmbiguousError(
        f"an earlier attempt may have been taken, and asking again was refused: {refusal.rule}",
        idempotency_key=key,
        submission_id=refusal.submission_id,
    )
    ambiguous.__cause__ = refusal
    return ambiguous


def _may_be_taken(came: Reply | Lost | None) -> bool:
    if isinstance(came, Lost):
        return came.may_have_arrived
    if came is None:
        raise InvariantBroken("a call came to nothing")
    return came.status != 429 and _problem(came).get("reason") not in _NOTHING_TAKEN


def _why(came: Reply | Lost | None) -> str:
    if isinstance(came, Reply):
        return f"answered {came.status} {_problem(came).get('reason', '')}".rstrip()
    return came.reason if came is not None else "no answer"


def _tag(reply: Reply) -> str:
    return reply.headers.get("etag", "")


def _retry_after(came: Reply | Lost | None) -> float | None:
    said = came.headers.get("retry-after", "") if isinstance(came, Reply) else ""
    return float(said) if said.isdigit() else None


def _pause(came: Reply | Lost | None, name: str, attempt: int) -> float:
    """Return how long to wait: as told, else doubling, each name at moments of its own."""
    longest = min(_FIRST_S * 2.0 ** min(attempt, 10), _LONGEST_S)
    share = zlib.crc32(f"{name}/{attempt}".encode()) / 2**32
    return max(_retry_after(came) or 0.0, longest * (0.5 + share / 2))
