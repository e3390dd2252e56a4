"""The order of things: each step of a run, what it sends, and by how much the count rose meanwhile.

Steps only make things happen and note what they saw; nothing is judged here. One step after the other, so that the
count belongs to the step.
"""

import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any, Final

from waybill.conformance.core.checks import BURST
from waybill.conformance.core.commands import Cast, gap_resolution, make_command, status_query, tricky_data
from waybill.conformance.core.evidence import Evidence, Reply, Seen, Step
from waybill.conformance.program import Program
from waybill.conformance.sender import Letter, Sender, flawed, forged_signature
from waybill.contracts.command import Command
from waybill.contracts.envelope import GapEntry, Resolution, delivery_id_text, render, render_gap_resolution
from waybill.contracts.fabric import Level, Profile
from waybill.contracts.status_query import render_status_query
from waybill.crypto.signing import ID_HEADER, SIGNATURE_HEADER, Signer
from waybill.kernel.clock import Clock
from waybill.kernel.ids import DestinationName, Tenant, delivery_id

__all__ = ["Plan", "Steps"]

_WRONG_BY_S: Final = 600
_AWAITED_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run sends, and how far it goes."""

    cast: Cast
    level: Level
    profile: Profile
    #: Data the listener refuses by policy; None where it named none.
    blocked: Mapping[str, Any] | None
    #: Where status queries go; None is where deliveries go.
    status_url: str | None


@dataclass(slots=True)
class Steps:
    """One run's steps. `program` is None where the listener was not started by the run."""

    plan: Plan
    sender: Sender
    stranger: Signer
    clock: Clock
    program: Program | None
    tell: Callable[[str], None]
    evidence: dict[Step, Seen] = field(default_factory=dict)

    def make(self) -> Evidence:
        """Make every step that this plan asks for, and return what was seen."""
        self.tell("deliveries and forgeries")
        first = self._letter(about := self._command())
        self._note(Step.FIRST, lambda: [self.sender.send(first)])
        if not self.evidence[Step.FIRST].reply.accepted:
            return self.evidence
        self._forgeries(first)
        self._note(Step.KEY_LIST, lambda: [self._listed(self._letter(self._command()))])
        self._note(Step.RAW_BYTES, lambda: [self.sender.send(self._tricky())])
        if self.plan.profile is not Profile.NON_IDEMPOTENT:
            self._repeats(first)
        if self.plan.level >= Level.L1:
            self._bindings()
        if self.plan.level >= Level.L2 and self.plan.profile is not Profile.NON_IDEMPOTENT:
            self.tell("sequences, gaps, policy")
            self._sequences()
            self._policy()
        if self.plan.level >= Level.L3 and self.plan.profile is not Profile.NON_IDEMPOTENT:
            self.tell("status queries")
            self._queries(about, first)
        if self.program is not None and self.plan.profile is Profile.DURABLE_IDEMPOTENT:
            self.tell("kills")
            self._kill_after(self.program)
            self._kill_amid(self.program)
        return self.evidence

    def _note(self, step: Step, act: Callable[[], Sequence[Reply]]) -> None:
        before = self.sender.effects()
        replies = tuple(act())
        self._see(step, replies, before)

    def _see(self, step: Step, replies: tuple[Reply, ...], before: int | None) -> None:
        after = self.sender.effects()
        rose = None if before is None or after is None else after - before
        self.evidence[step] = Seen(replies=replies, effects=rose)

    def _command(self, aggregate: str | None = None, *, sequence: int = 1, **changes: Any) -> Command:
        named = aggregate or f"conformance/{uuid.uuid4()}"
        made = make_command(self.plan.cast, uuid.uuid4(), named, self.clock.now(), sequence=sequence)
        return replace(made, **changes)

    def _letter(self, command: Command, destination: DestinationName | None = None) -> Letter:
        whom = destination or self.plan.cast.destination
        return Letter(webhook_id=delivery_id_text(command.command_id, whom), body=render(command, whom))

    def _tricky(self) -> Letter:
        command = self._command()
        return self._letter(replace(command, data=tricky_data(self.plan.cast, command.aggregate)))

    def _forgeries(self, first: Letter) -> None:
        def fresh() -> Letter:
            return self._letter(self._command())

        def forged(letter: Letter, **headers: str) -> list[Reply]:
            signed = self.sender.headers(letter)
            return [self.sender.send(letter, {**signed, **headers})]

        false = forged_signature(self.sender.headers(first))
        self._note(Step.FORGED_REPEAT, lambda: forged(first, **{SIGNATURE_HEADER: false}))
        self._note(Step.FORGED_BODY, lambda: self._swapped(fresh(), flawed))
        self._note(Step.FORGED_GARBAGE, lambda: self._swapped(fresh(), lambda _: b'{"no": json'))
        self._note(Step.MOVED_ID, lambda: forged(fresh(), **{ID_HEADER: str(uuid.uuid4())}))
        for step, shift in ((Step.LATE_CLOCK, -_WRONG_BY_S), (Step.EARLY_CLOCK, _WRONG_BY_S)):
            self._note(step, partial(self._shifted, fresh(), shift))
        letter = fresh()
        unsigned = {name: value for name, value in self.sender.headers(letter).items() if name != SIGNATURE_HEADER}
        self._note(Step.UNSIGNED, lambda: [self.sender.send(letter, unsigned)])
        self._note(Step.FOREIGN_KEY, lambda: forged(other := fresh(), **{SIGNATURE_HEADER: self._foreign(other)}))

    def _swapped(self, letter: Letter, change: Callable[[bytes], bytes]) -> list[Reply]:
        """Send another body under the signature of this one."""
        other = replace(letter, body=change(letter.body))
        return [self.sender.send(other, self.sender.headers(letter))]

    def _shifted(self, letter: Letter, shift_s: int) -> list[Reply]:
        return [self.sender.send(letter, self.sender.headers(letter, shift_s=shift_s))]

    def _foreign(self, letter: Letter) -> str:
        return self.stranger.sign(letter.webhook_id, int(self.clock.now().timestamp()), letter.body)

    def _listed(self, letter: Letter) -> Reply:
        headers = self.sender.headers(letter)
        listed = f"{self._foreign(letter)} v9,bm90aGluZw== {headers[SIGNATURE_HEADER]}"
        return self.sender.send(letter, {**headers, SIGNATURE_HEADER: listed})

    def _repeats(self, first: Letter) -> None:
        self._note(Step.REPEAT, lambda: [self.sender.send(first)])
        self._note(Step.OTHER_BODY, lambda: [self.sender.send(replace(first, body=flawed(first.body)))])
        again = self._letter(self._command())
        self.tell(f"{BURST} duplicates at one moment")
        self._note(Step.CONCURRENT, lambda: self.sender.send_all([again] * BURST))
        if self.plan.level >= Level.L1:
            operation = f"conformance-{uuid.uuid4()}"
            one = self._command(operation_id=operation)
            two = self._command(one.aggregate, sequence=2, operation_id=operation)
            self._note(Step.OPERATION, lambda: [self.sender.send(self._letter(one))])
            self._note(Step.OPERATION_AGAIN, lambda: [self.sender.send(self._letter(two))])

    def _bindings(self) -> None:
        cast = self.plan.cast
        tenant = self._command(tenant=Tenant(f"{cast.tenant[:24]}-else"))
        other = DestinationName(f"{cast.destination[:24]}-else")
        elsewhere = self._command(sequences={other: 1})
        past = self._command(
            issued_at=self.clock.now() - timedelta(hours=2), expires_at=self.clock.now() - timedelta(minutes=1)
        )
        self._note(Step.OTHER_TENANT, lambda: [self.sender.send(self._letter(tenant))])
        self._note(Step.OTHER_DESTINATION, lambda: [self.sender.send(self._letter(elsewhere, other))])
        self._note(Step.EXPIRED, lambda: [self.sender.send(self._letter(past))])

    def _sequences(self) -> None:
        lane = f"conformance/{uuid.uuid4()}"
        one, two, three = (self._letter(self._command(lane, sequence=number)) for number in (1, 2, 3))
        self.sender.send(one)
        self._note(Step.GAP, lambda: [self.sender.send(three)])
        self._note(Step.GAP_FILLED, lambda: [self.sender.send(two), self.sender.send(three)])
        self._note(Step.OLDER, lambda: [self.sender.send(self._letter(self._command(lane, sequence=2)))])
        lane = f"conformance/{uuid.uuid4()}"
        first, gone, third, late, fifth = (self._command(lane, sequence=number) for number in range(1, 6))

        def passed_over(step: Step, passed: Command, how: Resolution, before: list[Command], after: Command) -> None:
            sent = [self._letter(command) for command in before]
            letters = [*sent, self._resolution(lane, passed, how), self._letter(after)]
            self._note(step, lambda: [self.sender.send(letter) for letter in letters])

        passed_over(Step.FINAL, gone, Resolution.FINAL, [first], third)
        passed_over(Step.DEFERRED, late, Resolution.DEFERRED, [], fifth)
        self._note(Step.DEFERRED_CAME, lambda: [self.sender.send(self._letter(late))])

    def _resolution(self, lane: str, passed: Command, how: Resolution) -> Letter:
        cast = self.plan.cast
        sequence = passed.sequences[cast.destination]
        entry = GapEntry(
            sequence=sequence, delivery_id=delivery_id(passed.command_id, cast.destination), resolution=how
        )
        gap = gap_resolution(cast, uuid.uuid4(), lane, self.clock.now(), (entry,))
        return Letter(webhook_id=str(gap.resolution_id), body=render_gap_resolution(gap))

    def _policy(self) -> None:
        unknown = self._command(command_type=f"{self.plan.cast.command_type}.nobody-serves-this")
        self._note(Step.UNSUPPORTED, lambda: [self.sender.send(self._letter(unknown))])
        if self.plan.blocked is not None:
            data = json.dumps({"isTest": True, **self.plan.blocked}).encode()
            blocked = self._command(data=data)
            self._note(Step.BLOCKED, lambda: [self.sender.send(self._letter(blocked))])

    def _queries(self, about: Command, first: Letter) -> None:
        unknown = self._command()
        for step, command, body in (
            (Step.ASKED_DONE, about, first.body),
            (Step.ASKED_UNKNOWN, unknown, self._letter(unknown).body),
        ):
            query = status_query(self.plan.cast, command, sha256(body).hexdigest(), self.clock.now())
            letter = Letter(webhook_id=str(query.query_id), body=render_status_query(query))
            self._note(step, partial(self._ask, letter))

    def _ask(self, letter: Letter) -> list[Reply]:
        return [self.sender.send(letter, at=self.plan.status_url)]

    def _kill_after(self, program: Program) -> None:
        letter = self._letter(self._command())
        before = self.sender.effects()
        reply = self.sender.send(letter)
        program.kill()
        program.start(self.sender.is_there)
        self._see(Step.KILLED_AFTER, (reply,), before)
        self._note(Step.REPEAT_AFTER_KILL, lambda: [self.sender.send(letter)])

    def _kill_amid(self, program: Program) -> None:
        letters = [self._letter(self._command()) for _ in range(BURST)]
        before = self.sender.effects()
        replies = self._interrupted(letters, program)
        program.start(self.sender.is_there)
        self._see(Step.KILLED_AMID, replies, before)
        self._see(Step.REPEATS_AMID, self.sender.send_all(letters), before)

    def _interrupted(self, letters: Sequence[Letter], program: Program) -> tuple[Reply, ...]:
        """Send all at one moment and kill the listener with the first answer."""
        answered = threading.Event()

        def send(letter: Letter) -> Reply:
            reply = self.sender.send(letter)
            answered.set()
            return reply

        with ThreadPoolExecutor(BURST) as threads:
            sent = [threads.submit(send, letter) for letter in letters]
            answered.wait(_AWAITED_S)
            program.kill()
            return tuple(done.result() for done in as_completed(sent))
