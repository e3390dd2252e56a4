"""Taking a submission: its commands and its record in one statement of the outbox's database, or nothing.

Two requests with one key at once both find nothing and both try: the second waits at the record of the first, writes
nothing, and is then answered as the resubmission it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg_pool import PoolTimeout

from waybill.access import Principal
from waybill.contracts.fabric import FabricConfig, OutboxConfig, TenantConfig
from waybill.contracts.problem import Problem
from waybill.infra.log import get_logger
from waybill.kernel.clock import Clock
from waybill.kernel.errors import ConfigError, RefusedError, TransientError, UnavailableError
from waybill.outbox import CommandDraft, is_retryable
from waybill.outbox import Rule as OutboxRule
from waybill.outbox.core.draft import encode_commands, encode_data
from waybill.outbox.core.types import applied_types, with_versions
from waybill.submission.core.reading import Form, read_commands
from waybill.submission.core.refusals import (
    KEY_REUSED,
    OUTCOME_UNKNOWN,
    RESUBMISSION_REFUSED,
    UNAVAILABLE,
    UNREADABLE,
    Refused,
    by_outbox,
)
from waybill.submission.core.resubmission import body_digest, submission_id
from waybill.submission.outboxes import Outboxes, numbered_by
from waybill.submission.rules import FindRule
from waybill.submission.store import NewSubmission, Submission, Submissions

__all__ = ["Submitter", "Taken"]

#: Times a transaction is run that the database wants run again.
_TRIES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What is committed, now or before."""

    submission: Submission
    is_resubmission: bool


class Submitter:
    """Takes submissions and tells what became of them, for one event loop."""

    def __init__(
        self, outboxes: Outboxes, config: Callable[[], FabricConfig], find_rule: FindRule, clock: Clock
    ) -> None:
        self._outboxes, self._config, self._find_rule, self._clock = outboxes, config, find_rule, clock
        self._log = get_logger("submission")

    async def submit(self, principal: Principal, key: str, form: Form, body: bytes) -> Taken | Refused:
        """Take what a principal submits under a key, or say why not.

        A refusal other than `outcome_unknown` means that nothing was taken.
        """
        drafts = read_commands(form, body)
        if isinstance(drafts, Problem):
            return Refused(problem=drafts)
        new = NewSubmission(
            submission_id=submission_id(principal.tenant, principal.name, key),
            tenant=principal.tenant,
            principal=principal.name,
            key=key,
            digest=body_digest(form, body),
            accepted_at=self._clock.now(),
        )
        try:
            tenant = self._config().tenant(principal.tenant)
            if tenant is None:
                raise RefusedError("this tenant has no outbox", rule=OutboxRule.UNKNOWN_TENANT)
            outbox = numbered_by(tenant, drafts)
            others = [each for each in tenant.outboxes if each.name != outbox.name]
            if any([await self._in(each, principal, new.submission_id) is not None for each in others]):
                return Refused(problem=KEY_REUSED)  # its commands were numbered there: it is another body
            return await self._check_and_take(tenant, outbox, new, drafts)
        except RefusedError as error:
            return by_outbox(error)
        except psycopg.DataError:
            return Refused(problem=UNREADABLE)
        except (psycopg.Error, ConfigError, TransientError, UnavailableError) as error:
            return self._away(error)

    async def find(self, principal: Principal, identity: UUID) -> Submission | Refused | None:
        """Return a submission of this principal by id, whichever of the tenant's outboxes it went to."""
        tenant = self._config().tenant(principal.tenant)
        try:
            for outbox in tenant.outboxes if tenant is not None else ():
                found = await self._in(outbox, principal, identity)
                if found is not None:
                    return found
        except (psycopg.Error, ConfigError, UnavailableError) as error:
            return self._away(error)
        return None

    async def ambiguous(self, principal: Principal, limit: int) -> Sequence[Submission] | Refused:
        """Return this principal's submissions that wait for a person, longest first."""
        tenant = self._config().tenant(principal.tenant)
        waiting: list[Submission] = []
        try:
            for outbox in tenant.outboxes if tenant is not None else ():
                async with self._outboxes.connection(outbox) as (connection, submissions):
                    waiting += await submissions.ambiguous(connection, principal.tenant, principal.name, limit)
        except (psycopg.Error, ConfigError, UnavailableError) as error:
            return self._away(error)
        return sorted(waiting, key=lambda each: (each.ambiguous_at or each.accepted_at, each.submission_id))[:limit]

    async def forget(self) -> None:
        """Drop submissions that are older than they are remembered, from the outboxes in use."""
        await self._outboxes.forget(self._clock.now())

    async def _in(self, outbox: OutboxConfig, principal: Principal, identity: UUID) -> Submission | None:
        async with self._outboxes.connection(outbox) as (connection, submissions):
            found = await submissions.find(connection, principal.tenant, identity)
        return found if found is not None and found.principal == principal.name else None

    async def _take(self, outbox: OutboxConfig, new: NewSubmission, commands: str) -> Taken | Refused:
        async with self._outboxes.connection(outbox) as (connection, submissions):
            for _ in range(_TRIES):
                try:
                    taken = await submissions.submit(connection, new, commands)
                except psycopg.errors.UniqueViolation:
                    continue  # another transaction took the same key between its look and its row
                except psycopg.OperationalError as error:
                    if is_retryable(error):
                        continue
                    if not connection.closed:  # it said itself that nothing was taken
                        raise
                    self._log.warning(
                        "submission.outcome_unknown", submission_id=str(new.submission_id), outbox=outbox.name
                    )
                    return Refused(problem=OUTCOME_UNKNOWN, submission_id=new.submission_id)
                if taken is not None:
                    return Taken(submission=taken, is_resubmission=False)
                known = await submissions.find(connection, new.tenant, new.submission_id)
                if known is not None:
                    return await self._again(connection, submissions, known, new.digest)
        raise TransientError(f"submission {new.submission_id} met another transaction each time")

    async def _check_and_take(
        self, tenant: TenantConfig, outbox: OutboxConfig, new: NewSubmission, drafts: Sequence[CommandDraft]
    ) -> Taken | Refused:
        try:
            checked = with_versions(tenant.name, drafts, applied_types(tenant, drafts))
        except RefusedError as error:  # what was taken stays taken, whatever the catalogue says now
            return await self._taken_before(outbox, new) or by_outbox(error)
        return await self._take(outbox, new, encode_commands(checked, [encode_data(each) for each in checked]))

    async def _taken_before(self, outbox: OutboxConfig, new: NewSubmission) -> Taken | Refused | None:
        async with self._outboxes.connection(outbox) as (connection, submissions):
            known = await submissions.find(connection, new.tenant, new.submission_id)
            return None if known is None else await self._again(connection, submissions, known, new.digest)

    async def _again(
        self, connection: psycopg.AsyncConnection[Any], submissions: Submissions, known: Submission, digest: bytes
    ) -> Taken | Refused:
        if known.digest != digest:
            return Refused(problem=KEY_REUSED)
        identity = known.submission_id
        rule, now = await self._find_rule(known.tenant, known.principal), self._clock.now()
        is_allowed = rule.allows(known.accepted_at, now)
        noted = await submissions.resubmitted(connection, identity, now, is_allowed=is_allowed)
        if is_allowed:
            return Taken(submission=noted or known, is_resubmission=True)
        self._log.warning("submission.ambiguous", submission_id=str(identity), rule=str(rule))
        return Refused(problem=RESUBMISSION_REFUSED, submission_id=identity)

    def _away(self, error: Exception) -> Refused:
        reason = "no free connection" if isinstance(error, PoolTimeout) else type(error).__name__
        state = getattr(error, "sqlstate", None)
        self._log.warning("submission.outbox_unavailable", reason=reason, sqlstate=state)
        return Refused(problem=UNAVAILABLE)
