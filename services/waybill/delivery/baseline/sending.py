"""Sending the parts of an approved baseline to the listener, and reading what it says.

Straight to the destination's url and not through its worker: the destination is paused, so the worker sends nothing, and
what its lanes wait for is what the statement is about. The client is the worker's: it goes where Waybill may go, and
nowhere else.
"""

import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from waybill.contracts.baseline import APPLIED, STAGED, BaselinePart, evidence_of, part_id, render_baseline_part
from waybill.contracts.envelope import CONTENT_TYPE
from waybill.contracts.problem import parse_problem
from waybill.contracts.receipt import parse_receipt
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, Signer
from waybill.egress.client import GuardedClient
from waybill.infra.http_client import Answer, PostError
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ContractError
from waybill.kernel.ids import DestinationName, Tenant

__all__ = ["Letter", "Said", "judge_answer", "letters", "send"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One part as it is sent."""

    part: int
    part_id: str
    #: As the receipt of it must name it.
    digest: str
    evidence: str
    body: bytes

    def headers(self, signer: Signer, clock: Clock) -> tuple[tuple[str, str], ...]:
        """Return what is sent beside the body, signed now."""
        stamp = int(clock.now().timestamp())
        return (
            ("content-type", CONTENT_TYPE),
            (ID_HEADER, self.part_id),
            (TIMESTAMP_HEADER, str(stamp)),
            (SIGNATURE_HEADER, signer.sign(self.part_id, stamp, self.body)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What the listener said of a part."""

    part: int
    #: As `delivery.baseline_sending` names it.
    outcome: str
    detail: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether the listener has it."""
        return self.outcome in {STAGED, APPLIED}


def letters(proposal: Mapping[str, Any], parts: Iterable[tuple[int, bytes]]) -> tuple[Letter, ...]:
    """Return the parts of a proposal as they are sent, the same bodies each time."""
    baseline: uuid.UUID = proposal["baseline_id"]
    tenant, destination = Tenant(proposal["tenant"]), DestinationName(proposal["destination"])
    found = []
    for number, data in parts:
        digest = sha256(data).hexdigest()
        part = BaselinePart(
            part_id=part_id(baseline, number),
            baseline_id=baseline,
            tenant=tenant,
            destination=destination,
            source=f"urn:waybill:control:{tenant}:{destination}",
            issued_at=proposal["proposed_at"],
            expires_at=proposal["expires_at"],
            config_version=proposal["config_version"],
            nonce=proposal["nonce"],
            part=number,
            parts=proposal["parts"],
            digest=proposal["digest"],
            lanes=(),
            data_sha256=digest,
        )
        found.append(
            Letter(
                part=number,
                part_id=str(part.part_id),
                digest=f"sha256:{digest}",
                evidence=evidence_of(baseline),
                body=render_baseline_part(part, data),
            )
        )
    return tuple(found)


async def send(
    client: GuardedClient, url: str, sent: Iterable[Letter], signer: Signer, clock: Clock
) -> AsyncIterator[Said]:
    """Send parts one after the other, and yield what is said of each; ends with the first that is not taken."""
    for letter in sent:
        try:
            answer = await client.post(url, letter.headers(signer, clock), letter.body)
        except PostError as error:
            yield Said(part=letter.part, outcome="unanswered", detail=f"{error.failure.value} {error.detail}".strip())
            return
        said = judge_answer(letter, answer)
        yield said
        if not said.is_taken:
            return


def judge_answer(letter: Letter, answer: Answer) -> Said:
    """Return what an answer says of a part: only a receipt that names the part and its statement is one."""
    if answer.status != 200:
        problem = parse_problem(answer.body, answer.status)
        detail = f"{problem.code.value} {problem.reason}" if problem is not None else ""
        return Said(part=letter.part, outcome="refused", detail=f"{answer.status} {detail}".strip())
    try:
        receipt = parse_receipt(answer.body)
    except ContractError as error:
        return Said(part=letter.part, outcome="refused", detail=str(error))
    named = (receipt.delivery_id, receipt.digest, receipt.evidence)
    if named != (letter.part_id, letter.digest, letter.evidence) or receipt.source_version not in {STAGED, APPLIED}:
        return Said(part=letter.part, outcome="refused", detail="the answer is no receipt of this part")
    return Said(part=letter.part, outcome=receipt.source_version)
