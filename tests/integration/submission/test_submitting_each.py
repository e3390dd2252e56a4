"""Many submissions in one statement: each is answered by itself, in one transaction, in the order given."""

import asyncio
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from waybill.kernel.ids import Tenant
from waybill.outbox import CommandDraft
from waybill.outbox.core.draft import encode_commands, encode_data
from waybill.submission.core.resubmission import submission_id
from waybill.submission.outboxes import prepare
from waybill.submission.store import NewSubmission, Submissions

if TYPE_CHECKING:
    from fixtures.fix_outbox import OutboxDatabase

pytestmark = pytest.mark.postgres

#: What each kind of command is answered the first time.
KINDS = {"good": "taken", "unrouted": "WB003", "large": "WB005", "text": "WB006"}


def draft(kind: str, subject: str, place: int) -> CommandDraft:
    data = {"large": b'"%s"' % (b"x" * 300_000), "text": b"no JSON"}.get(kind, str(place).encode())
    command = "nobody.routes" if kind == "unrouted" else "subject.erase"
    return CommandDraft(aggregate_type="subject", aggregate_id=subject, command_type=command, data=data)


def submit(database: "OutboxDatabase", keys: Sequence[str], drafts: Sequence[CommandDraft]) -> Sequence[str]:
    tenant, now = Tenant(database.tenant), datetime.now(UTC)
    new = [
        NewSubmission(
            submission_id=submission_id(tenant, "each", key),
            tenant=tenant,
            principal="each",
            key=key,
            digest=encode_data(one).ljust(32)[:32],
            accepted_at=now,
        )
        for key, one in zip(keys, drafts, strict=True)
    ]

    async def run() -> Sequence[str]:
        async with await psycopg.AsyncConnection.connect(database.dsn("postgres"), autocommit=True) as connection:
            commands = encode_commands(drafts, [encode_data(one) for one in drafts])
            return await Submissions("waybill").submit_each(connection, new, commands)

    return asyncio.run(run())


@pytest.fixture
def database(outbox: "OutboxDatabase") -> "OutboxDatabase":
    """An outbox with a tenant of the test's own, and what remembers submissions beside it."""
    with outbox.connect("postgres", autocommit=True) as connection:
        prepare(connection, "waybill")
    return outbox


def issued(database: "OutboxDatabase", subject: str) -> list[tuple[bytes, int]]:
    query = """
        SELECT payload, (sequences ->> 'crm')::integer FROM waybill.outbox
        WHERE tenant = %s AND aggregate = %s ORDER BY position
    """
    return [(bytes(data), number) for data, number in database.rows(query, database.tenant, f"subject/{subject}")]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=12))
def test_what_is_refused_leaves_the_others_alone_and_in_their_order(database: "OutboxDatabase", kinds: list[str]):
    subject, keys = uuid.uuid4().hex, [uuid.uuid4().hex for _ in kinds]
    drafts = [draft(kind, subject, place) for place, kind in enumerate(kinds)]

    first, second = submit(database, keys, drafts), submit(database, keys, drafts)

    good = [str(place).encode() for place, kind in enumerate(kinds) if kind == "good"]
    assert first == [KINDS[kind] for kind in kinds]
    assert second == ["repeated" if kind == "good" else KINDS[kind] for kind in kinds]
    assert issued(database, subject) == [(data, number) for number, data in enumerate(good, start=1)]


def test_another_body_under_a_known_key_is_told_and_issues_nothing(database: "OutboxDatabase"):
    subject, keys = uuid.uuid4().hex, [uuid.uuid4().hex, uuid.uuid4().hex]
    submit(database, keys[:1], [draft("good", subject, 0)])

    answers = submit(database, keys, [draft("good", subject, 1), draft("good", subject, 2)])

    assert answers == ["reused", "taken"]
    assert [data for data, _ in issued(database, subject)] == [b"0", b"2"]


def test_of_two_transactions_with_one_key_the_second_fails_whole(database: "OutboxDatabase"):
    subject, key, other = uuid.uuid4().hex, uuid.uuid4().hex, uuid.uuid4().hex
    query = "SELECT waybill_submission.submit(%s, %s, 'each', %s, %s, now(), %s::jsonb)"
    one = draft("good", subject, 0)
    with database.connect("postgres") as open_transaction:
        identity = submission_id(Tenant(database.tenant), "each", key)
        commands = encode_commands([one], [encode_data(one)])
        open_transaction.execute(query, (identity, database.tenant, key, b"0".ljust(32), commands))
        loop = asyncio.new_event_loop()
        waiting = loop.run_in_executor(None, submit, database, [other, key], [draft("good", subject + "x", 1), one])
        loop.run_until_complete(asyncio.sleep(0))
        open_transaction.commit()

        outcome = loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))[0]
        loop.close()

    # It waited and failed, or came after the commit and found it: never a second command.
    assert isinstance(outcome, psycopg.errors.UniqueViolation) or outcome == ["taken", "repeated"]
    assert [data for data, _ in issued(database, subject)] == [b"0"]
