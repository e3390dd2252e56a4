"""One sample delivery to one URL, once or several times: what was sent, what came back, what that means.

It is the fabric's own attempt without the fabric: the same body, headers and signatures, of a command nobody committed,
with data marked `isTest`. A repeat has the same id and body under a timestamp of its own, as the next attempt would.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from waybill.conformance.core.answering import Verdict, judge_answer, judge_repeat
from waybill.conformance.core.commands import Cast, make_command
from waybill.conformance.core.evidence import Reply
from waybill.conformance.posting import Ending, NotPosted, Poster, listener_url
from waybill.conformance.sender import Letter, reply_of, signed_headers
from waybill.contracts.envelope import delivery_id_text, render
from waybill.contracts.fabric import Level, Profile
from waybill.crypto.signing import TIMESTAMP_HEADER, Signer, signed_content
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import MAX_AGGREGATE_LENGTH, NAME_PATTERN, DestinationName, Tenant

__all__ = ["Exchange", "Sample", "send_sample"]

_SOURCE: Final = "urn:waybill:send-test"
#: More copies of one delivery than any policy of attempts makes in a row.
_MAX_TIMES: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What is sent, and to whom."""

    url: str
    tenant: str
    destination: str
    command_type: str
    #: Members of the data beside `isTest` and `subject`.
    data: Mapping[str, Any] = field(default_factory=dict)
    #: `type/id`; None makes one that nobody else names.
    aggregate: str | None = None
    sequence: int = 1
    level: Level = Level.L1
    profile: Profile = Profile.DURABLE_IDEMPOTENT
    #: How often the one delivery is sent.
    times: int = 1
    timeout_s: float = 20.0
    #: Certificates that are trusted beside the machine's.
    authorities: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One attempt and its end."""

    headers: Mapping[str, str]
    body: bytes
    #: What the signatures are over.
    signature_base: bytes
    ending: Ending
    #: None when no whole answer came.
    verdict: Verdict | None


def send_sample(sample: Sample, signer: Signer, clock: Clock) -> tuple[Exchange, ...]:
    """Send a sample and say what came of it; ends with the first attempt that gets no whole answer.

    Raises:
        ConfigError: the sample is described wrongly, or no key of the signer is valid now.
    """
    letter, poster = _letter(sample, clock), _poster(sample, clock)
    exchanges: list[Exchange] = []
    stamp, first = 0, None
    for _ in range(sample.times):
        stamp = max(stamp + 1, int(clock.now().timestamp()))  # each attempt signs in a second of its own
        headers = signed_headers(letter, signer, stamp)
        ending = poster.post(tuple(headers.items()), letter.body)
        reply = reply_of(ending, letter.webhook_id)
        exchanges.append(
            Exchange(
                headers=headers,
                body=letter.body,
                signature_base=signed_content(letter.webhook_id, headers[TIMESTAMP_HEADER], letter.body),
                ending=ending,
                verdict=_verdict(ending, reply, first, sample.level),
            )
        )
        if isinstance(ending, NotPosted):
            break
        first = first or reply
    return tuple(exchanges)


def _verdict(ending: Ending, reply: Reply, first: Reply | None, level: Level) -> Verdict | None:
    if isinstance(ending, NotPosted):
        return None
    return judge_answer(reply, level) if first is None else judge_repeat(first, reply, level)


def _poster(sample: Sample, clock: Clock) -> Poster:
    url = listener_url(sample.url)
    return Poster(url, clock, timeout_s=sample.timeout_s, authorities=sample.authorities)


def _letter(sample: Sample, clock: Clock) -> Letter:
    _check(sample)
    destination = DestinationName(sample.destination)
    cast = Cast(
        tenant=Tenant(sample.tenant), destination=destination, command_type=sample.command_type, data=sample.data
    )
    named = sample.aggregate or f"sample/{uuid.uuid4()}"
    made = make_command(cast, uuid.uuid4(), named, clock.now(), sequence=sample.sequence)
    command = replace(made, source=_SOURCE)
    return Letter(webhook_id=delivery_id_text(command.command_id, destination), body=render(command, destination))


def _check(sample: Sample) -> None:
    for option, name in (("--tenant", sample.tenant), ("--destination", sample.destination)):
        if not NAME_PATTERN.match(name):
            raise ConfigError(f"{option} {name!r}: lower case letters, digits and -, at most 30, a letter first")
    if sample.aggregate is not None:
        kind, slash, name = sample.aggregate.partition("/")
        if not (kind and slash and name) or len(sample.aggregate) > MAX_AGGREGATE_LENGTH:
            raise ConfigError(f"--aggregate: expected type/id, at most {MAX_AGGREGATE_LENGTH} characters")
    if not 1 <= sample.times <= _MAX_TIMES:
        raise ConfigError(f"--times {sample.times}: from 1 to {_MAX_TIMES}")
    if sample.times > 1 and sample.profile is Profile.NON_IDEMPOTENT:
        raise ConfigError("--times: a non_idempotent destination is sent no repeat")
