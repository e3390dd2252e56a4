"""Taking commands: in their order into the outbox that numbers each, one transaction for many.

What is refused, known or new is answered for each. What the database could not answer is raised, and the whole is
asked again: what was taken meanwhile is then known.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import psycopg

from waybill.contracts.fabric import OutboxConfig, TenantConfig
from waybill.ingress.core.judging import PRINCIPAL, Wanted
from waybill.kernel.errors import TransientError
from waybill.kernel.ids import Tenant
from waybill.outbox import is_retryable
from waybill.outbox.core.draft import encode_commands, encode_data
from waybill.submission.outboxes import Outboxes
from waybill.submission.store import NewSubmission

__all__ = ["Taking"]

#: Times a statement is run that the database wants run again.
_TRIES: Final = 5


class Taking:
    """Asks the outboxes, for one event loop."""

    def __init__(self, outboxes: Outboxes) -> None:
        self._outboxes = outboxes

    async def take(self, tenant: TenantConfig, wanted: Sequence[Wanted], now: datetime) -> list[str]:
        """Take commands, no two of one key, and answer for each as `Submissions.submit_each` does.

        Also answers `objected`, where its objection stands, and `unreadable`: it holds what PostgreSQL cannot.

        Raises:
            psycopg.Error, ConfigError, TransientError, UnavailableError: not now; some may have been taken.
        """
        answers: dict[str, str] = {}
        for outbox in {each.outbox.name: each.outbox for each in wanted}.values():
            there = [each for each in wanted if each.outbox.name == outbox.name]
            elsewhere = await self._known_elsewhere(tenant, outbox, there)
            # Known there, it was numbered there: it ordered something about another aggregate.
            answers.update(dict.fromkeys(elsewhere, "reused"))
            here = [each for each in there if each.key not in elsewhere]
            answers.update(await self._objected(outbox, [each for each in here if each.objection is not None]))
            fresh = [each for each in here if each.objection is None]
            if fresh:
                answers.update(await self._take(tenant.name, outbox, fresh, now))
        return [answers[each.key] for each in wanted]

    async def _objected(self, outbox: OutboxConfig, wanted: Sequence[Wanted]) -> dict[str, str]:
        """Answer for what is refused by now, and may have been taken before."""
        if not wanted:
            return {}
        async with self._outboxes.connection(outbox) as (connection, submissions):
            known = await submissions.known(connection, [each.submission_id for each in wanted])
        answers = {True: "repeated", False: "reused"}
        return {
            each.key: answers[known[each.submission_id] == each.digest] if each.submission_id in known else "objected"
            for each in wanted
        }

    async def _known_elsewhere(self, tenant: TenantConfig, outbox: OutboxConfig, wanted: Sequence[Wanted]) -> set[str]:
        keys: dict[UUID, str] = {each.submission_id: each.key for each in wanted}
        found: set[str] = set()
        for other in tenant.outboxes:
            if other.name != outbox.name:
                async with self._outboxes.connection(other) as (connection, submissions):
                    found |= {keys[each] for each in await submissions.known(connection, list(keys))}
        return found

    async def _take(
        self, tenant: Tenant, outbox: OutboxConfig, wanted: Sequence[Wanted], now: datetime
    ) -> dict[str, str]:
        drafts = [each.draft for each in wanted]
        commands = encode_commands(drafts, [encode_data(each) for each in drafts])
        new = [_new(tenant, each, now) for each in wanted]
        async with self._outboxes.connection(outbox) as (connection, submissions):
            for _ in range(_TRIES):
                try:
                    answers = await submissions.submit_each(connection, new, commands)
                except psycopg.errors.UniqueViolation:
                    continue  # another partition, or a former owner, took one of them just now
                except psycopg.DataError:
                    break
                except psycopg.OperationalError as error:
                    if not is_retryable(error):
                        raise
                else:
                    return {each.key: answer for each, answer in zip(wanted, answers, strict=True)}
            else:
                raise TransientError("a batch of events met another transaction each time")
        if len(wanted) == 1:
            return {wanted[0].key: "unreadable"}
        found: dict[str, str] = {}
        for half in _halves(wanted):
            found.update(await self._take(tenant, outbox, half, now))
        return found


def _halves(wanted: Sequence[Wanted]) -> Iterator[Sequence[Wanted]]:
    yield wanted[: len(wanted) // 2]
    yield wanted[len(wanted) // 2 :]


def _new(tenant: Tenant, wanted: Wanted, now: datetime) -> NewSubmission:
    return NewSubmission(
        submission_id=wanted.submission_id,
        tenant=tenant,
        principal=PRINCIPAL,
        key=wanted.key,
        digest=wanted.digest,
        accepted_at=now,
    )
