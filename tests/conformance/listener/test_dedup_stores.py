"""What every dedup store must do, through a listener, and what a bounded or an empty one does instead."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fixtures.fix_stores import BOUND, MAX_AGE, Open, Site

from waybill.crypto.keys import KeyRecord, jwks_document
from waybill.crypto.signing import Signer
from waybill.crypto.verifying import VerificationKeys
from waybill.kernel.errors import ConfigError
from waybill.listener import (
    Block,
    Done,
    Effect,
    Profile,
    Received,
    Rule,
    SqliteStore,
)
from waybill.listener.core.signed_receipts import Proven, verify_receipt

POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)
POSTGRES_ELSEWHERE = pytest.param("postgres, elsewhere", marks=pytest.mark.postgres)
INSIDE = [POSTGRES, "sqlite"]
ELSEWHERE = [POSTGRES_ELSEWHERE, "sqlite, elsewhere"]
DURABLE = [*INSIDE, *ELSEWHERE]
REMEMBERING = [*DURABLE, "memory"]


def serve(site: Site) -> None:
    """Register a handler that acts, and one that finds out where the effect is elsewhere."""

    async def recover(command: Received, _: Any) -> Done | None:
        site.asked.append(command.envelope.operation_id)
        done = command.envelope.operation_id in site.elsewhere
        return Done(source_version="1", evidence="found", count=1) if done else None

    is_elsewhere = site.store.memory.effect is Effect.ELSEWHERE

    @site.listener.on("subject.erase", recover=recover if is_elsewhere else None)
    async def erase(command: Received, _: Any) -> Done:
        await asyncio.sleep(0)
        return site.act(command)


@pytest.mark.requirement("DC-16", "GW-4", "GW-8")
@pytest.mark.parametrize("kind", REMEMBERING)
async def test_fifty_copies_at_once_apply_once_and_are_answered_alike(kind: str, open_site: Open) -> None:
    async with open_site(kind) as site:
        serve(site)
        command = site.command()

        answers = await asyncio.gather(*(site.send(command) for _ in range(50)))

        assert {answer.status_code for answer in answers} == {200}
        assert len({answer.content for answer in answers}) == 1
        assert [answer.headers.get("waybill-repeat") for answer in answers].count(None) == 1
        assert len(site.elsewhere) == 1


@pytest.mark.requirement("GW-5", "DC-16")
@pytest.mark.parametrize("kind", REMEMBERING)
async def test_an_identity_means_one_thing(kind: str, open_site: Open) -> None:
    async with open_site(kind) as site:
        serve(site)
        command = site.command(operation_id="op-1")
        first = await site.send(command)

        other_body = await site.send(site.command(command_id=command.command_id, data=b"{}", operation_id="op-1"))
        same_operation = await site.send(site.command(operation_id="op-1"))
        other_operation = await site.send(site.command(operation_id="op-1", data=b"{}"))

        assert first.status_code == same_operation.status_code == 200
        assert (other_body.status_code, other_body.json()["reason"]) == (409, "body_differs")
        assert (other_operation.status_code, other_operation.json()["reason"]) == (409, "operation_differs")
        assert site.elsewhere == ["op-1"]


@pytest.mark.requirement("GW-6")
@pytest.mark.parametrize("kind", INSIDE)
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_what_a_handler_wrote_goes_with_its_failure(kind: str, is_async: bool, open_site: Open) -> None:
    async with open_site(kind) as site:
        attempts = iter(range(9))

        def fail_once(command: Received) -> Done:
            if next(attempts) == 0:
                raise KeyError("a bug")
            return site.act(command)

        async def erase(command: Received, transaction: Any) -> Done:
            await transaction.execute("INSERT INTO contact_erasure (what) VALUES ('x')")
            return fail_once(command)

        def erase_in_thread(command: Received, transaction: Any) -> Done:
            transaction.execute("INSERT INTO contact_erasure (what) VALUES ('x')")
            return fail_once(command)

        async def count(_: Received, transaction: Any) -> Done:
            rows = await transaction.execute("SELECT count(*) FROM contact_erasure")
            row = rows.fetchone()
            found = (await row if asyncio.iscoroutine(row) else row)[0]
            return Done(source_version="1", evidence="e", count=found)

        site.listener.on("subject.erase")(erase if is_async else erase_in_thread)
        site.listener.on("subject.count")(count)
        command = site.command()

        first = await site.send(command)
        left = await site.send(site.command(command_type="subject.count"))
        second = await site.send(command)
        done = await site.send(site.command(command_type="subject.count"))

        assert (first.status_code, first.json()["reason"]) == (500, "handler_failed")
        assert left.json()["count"] == 0
        assert (second.status_code, "waybill-repeat" in second.headers) == (200, False)
        assert done.json()["count"] == 1


@pytest.mark.requirement("GW-6")
@pytest.mark.parametrize("kind", INSIDE)
async def test_a_handler_cannot_end_the_transaction(kind: str, open_site: Open) -> None:
    async with open_site(kind) as site:

        @site.listener.on("subject.erase")
        async def erase(command: Received, transaction: Any) -> Done:
            await transaction.execute("INSERT INTO contact_erasure (what) VALUES ('x')")
            if isinstance(site.store, SqliteStore):
                await transaction.execute("COMMIT")
            else:
                await transaction.commit()
            return site.act(command)

        assert (await site.send(site.command())).status_code == 500
        assert site.elsewhere == []


@pytest.mark.requirement("GW-6")
@pytest.mark.parametrize("kind", ELSEWHERE)
@pytest.mark.parametrize("acted", [True, False], ids=["acted", "had not acted"])
async def test_a_failure_that_may_have_acted_is_found_out_about(kind: str, acted: bool, open_site: Open) -> None:
    async with open_site(kind) as site:
        command, attempts = site.command(operation_id="op-1"), iter(range(9))

        async def recover(received: Received, _: Any) -> Done | None:
            site.asked.append(received.envelope.operation_id)
            return Done(source_version="1", evidence="found", count=1) if site.elsewhere else None

        @site.listener.on("subject.erase", recover=recover)
        async def erase(received: Received, _: Any) -> Done:
            if next(attempts) > 0:
                return site.act(received)
            if acted:
                site.act(received)
            raise ConnectionResetError

        first = await site.send(command)
        between = await site.ask(command)
        site.clock.jump(command.expires_at if acted else site.clock.now())
        second, third = await site.send(command), await site.send(command)

        assert (first.status_code, first.json()["reason"]) == (500, "handler_failed")
        assert between.json()["status"] == "in_progress"
        assert (second.status_code, second.json()["evidence"]) == (200, "found" if acted else "e")
        assert third.content == second.content
        assert (site.elsewhere, site.asked) == (["op-1"], ["op-1"])


@pytest.mark.requirement("GW-6", "DC-8")
@pytest.mark.parametrize("kind", ELSEWHERE)
async def test_what_did_not_happen_in_time_is_not_begun_anew(kind: str, open_site: Open) -> None:
    async with open_site(kind) as site:
        calls: list[str] = []

        @site.listener.on("subject.erase", recover=lambda *_: None)
        async def erase(received: Received, _: Any) -> Done:
            calls.append(received.envelope.operation_id)
            raise ConnectionResetError

        command = site.command()
        await site.send(command)
        site.clock.jump(command.expires_at)

        assert (await site.send(command)).json()["reason"] == "expired"
        assert (await site.ask(command)).json()["status"] == "not_done"
        assert len(calls) == 1


@pytest.mark.requirement("DC-12", "DC-13")
@pytest.mark.parametrize("kind", DURABLE)
async def test_each_aggregate_is_taken_in_order(kind: str, open_site: Open) -> None:
    async with open_site(kind, in_order=True) as site:
        serve(site)
        sent = [site.command(number, operation_id=str(number)) for number in (1, 2, 3)]

        early = await site.send(sent[2])
        answers = [(await site.send(command)).status_code for command in sent]
        stranger = await site.send(site.command(2))

        assert (early.status_code, early.json()["expected_sequence"]) == (425, 1)
        assert answers == [200, 200, 200]
        assert (stranger.status_code, stranger.json()["reason"]) == (409, "older_sequence")
        assert site.elsewhere == ["1", "2", "3"]
        assert site.asked == []


@pytest.mark.requirement("GW-8")
@pytest.mark.parametrize("kind", DURABLE)
async def test_a_durable_store_recognises_a_repeat_through_its_retention(kind: str, open_site: Open) -> None:
    async with open_site(kind) as site:
        serve(site)
        command = site.command()
        await site.send(command)
        site.clock.advance(timedelta(days=29).total_seconds())

        assert await site.listener.purge() == 0
        assert (await site.send(command)).headers["waybill-repeat"] == "true"
        site.clock.advance(timedelta(days=2).total_seconds())
        assert await site.listener.purge() == 1
        assert (await site.send(command)).json()["reason"] == "expired"


@pytest.mark.requirement("GW-8")
@pytest.mark.parametrize(("later", "is_known"), [(BOUND - 1, True), (BOUND, False), (BOUND + 1, False)])
async def test_a_bounded_store_remembers_as_many_as_it_says(later: int, is_known: bool, open_site: Open) -> None:
    async with open_site("memory") as site:
        serve(site)
        first = site.command(operation_id="first")
        await site.send(first)
        for number in range(later):
            await site.send(site.command(operation_id=str(number)))

        again = await site.send(first)

        assert ("waybill-repeat" in again.headers) is is_known
        assert site.elsewhere.count("first") == (1 if is_known else 2)


@pytest.mark.requirement("GW-8")
@pytest.mark.parametrize(("over_s", "is_known"), [(-1, True), (0, True), (1, False)])
async def test_a_bounded_store_remembers_as_long_as_it_says(over_s: int, is_known: bool, open_site: Open) -> None:
    async with open_site("memory") as site:
        serve(site)
        command = site.command()
        await site.send(command)
        site.clock.advance(MAX_AGE.total_seconds() + over_s)

        assert ("waybill-repeat" in (await site.send(command)).headers) is is_known


@pytest.mark.parametrize("kind", ["memory", "none"])
async def test_a_store_that_forgets_never_says_that_nothing_was_done(kind: str, open_site: Open) -> None:
    async with open_site(kind) as site:
        serve(site)

        answer = await site.ask(site.command())

        assert (answer.status_code, answer.json()["reason"]) == (422, "status_query")


async def test_without_a_store_every_copy_is_executed(open_site: Open) -> None:
    async with open_site("none") as site:
        serve(site)
        command = site.command(operation_id="op-1")

        answers = [await site.send(command) for _ in range(2)]

        assert [answer.headers.get("waybill-repeat") for answer in answers] == [None, None]
        assert site.elsewhere == ["op-1", "op-1"]


@pytest.mark.requirement("GW-7", "GW-8")
@pytest.mark.parametrize(
    ("kind", "limits", "said"),
    [
        ("sqlite", {"profile": Profile.DURABLE_IDEMPOTENT, "retry_horizon": timedelta(days=30)}, ""),
        ("sqlite", {"profile": Profile.NON_IDEMPOTENT, "retry_horizon": timedelta(days=99)}, ""),
        ("sqlite", {"retry_horizon": timedelta(days=30, seconds=1)}, "recognises a repeat for 30 days"),
        ("memory", {"profile": Profile.BOUNDED_DEDUPLICATION, "retry_horizon": MAX_AGE}, ""),
        ("memory", {"profile": Profile.DURABLE_IDEMPOTENT}, "promises more than this store keeps"),
        ("memory", {"retry_horizon": MAX_AGE + timedelta(seconds=1)}, "longest ttl"),
        ("memory", {"in_order": True}, "in_order needs a store"),
        ("none", {"profile": Profile.NON_IDEMPOTENT}, ""),
        ("none", {"profile": Profile.BOUNDED_DEDUPLICATION}, "promises more than this store keeps"),
    ],
)
async def test_a_listener_promises_no_more_than_its_store_keeps(
    kind: str, limits: dict[str, Any], said: str, open_site: Open
) -> None:
    if not said:
        async with open_site(kind, **limits):
            return
    with pytest.raises(ConfigError, match=said):
        async with open_site(kind, **limits):
            pass


@pytest.mark.parametrize("kind", ["sqlite", "sqlite, elsewhere"])
async def test_recover_is_there_where_it_is_needed_and_nowhere_else(kind: str, open_site: Open) -> None:
    async with open_site(kind) as site:
        wrong = None if site.store.memory.effect is Effect.ELSEWHERE else (lambda *_: None)

        with pytest.raises(ConfigError, match="recover"):
            site.listener.on("subject.erase", recover=wrong)


@pytest.mark.requirement("DC-14")
@pytest.mark.parametrize("kind", ["sqlite", "sqlite, elsewhere", "memory"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
async def test_a_policy_hook_is_asked_last_and_what_it_blocks_leaves_nothing(
    kind: str, is_async: bool, open_site: Open
) -> None:
    async with open_site(kind) as site:
        serve(site)
        says: list[Block | Exception | None] = [Block(rule=Rule.LEGAL_HOLD), OSError("away"), None]

        def ask(_: Received) -> Block | None:
            found = says.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        async def ask_later(command: Received) -> Block | None:
            return ask(command)

        if site.store.memory.effect is Effect.ELSEWHERE:
            says[2:] = [None, None]  # asked before the record is pending, and again before it acts
        site.listener.policy(ask_later if is_async else ask)
        command = site.command(operation_id="op-1")

        answers = [await site.send(command) for _ in range(4)]

        assert [answer.status_code for answer in answers] == [422, 503, 200, 200]
        assert [answer.json().get("reason") for answer in answers[:2]] == ["legal_hold", "policy_unavailable"]
        assert answers[0].json()["type"] == "urn:waybill:error:POLICY_BLOCK"
        assert "waybill-repeat" in answers[3].headers
        assert (says, site.elsewhere, site.asked) == ([], ["op-1"], [])


@pytest.mark.requirement("DC-17")
@pytest.mark.parametrize("kind", REMEMBERING)
async def test_signed_receipts_are_proven_also_for_repeats(
    kind: str, open_site: Open, make_receipt_key: Callable[[str], KeyRecord]
) -> None:
    async with open_site(kind) as site:
        serve(site)
        own = make_receipt_key("crm-1")
        site.listener.sign_receipts(Signer([own]))
        keys = VerificationKeys.from_jwks(jwks_document([own]))
        command = site.command(operation_id="op-1")

        first, again = await site.send(command), await site.send(command)
        same_operation = await site.send(site.command(operation_id="op-1"))

        assert again.content == first.content
        assert same_operation.json()["delivery_id"] != first.json()["delivery_id"]
        for answer in (first, same_operation):
            found = verify_receipt(answer.content, keys)
            assert isinstance(found, Proven), found
            assert found.key_id == "crm-1"


async def test_a_receipt_that_cannot_be_signed_is_not_given_and_nothing_is_done(
    open_site: Open, make_receipt_key: Callable[[str], KeyRecord]
) -> None:
    async with open_site("sqlite") as site:
        serve(site)
        site.listener.sign_receipts(Signer([make_receipt_key("crm-1")]))
        site.clock.advance(timedelta(days=2).total_seconds())

        answer = await site.send(site.command())

        assert (answer.status_code, answer.json()["reason"]) == (503, "handler_unavailable")
        assert (await site.ask(site.command())).json()["status"] == "not_done"


async def test_a_listener_takes_no_more_than_its_bound_and_forgets_nothing_of_it(open_site: Open) -> None:
    async with open_site("memory", max_in_flight=2) as site:
        go_on, begun = asyncio.Event(), asyncio.Semaphore(0)

        @site.listener.on("subject.erase")
        async def erase(command: Received, _: Any) -> Done:
            begun.release()
            await go_on.wait()
            return site.act(command)

        commands = [site.command() for _ in range(3)]
        taken = [asyncio.create_task(site.send(command)) for command in commands[:2]]
        for _ in taken:
            await begun.acquire()
        refused = await asyncio.wait_for(site.send(commands[2]), 5)
        health = await site.client.get("/healthz")
        go_on.set()

        assert (refused.status_code, refused.json()["reason"]) == (429, "too_many")
        assert refused.headers["retry-after"] == "1"
        assert health.status_code == 200
        assert [(await answer).status_code for answer in taken] == [200, 200]
        assert (await site.send(commands[2])).status_code == 200
        assert len(site.elsewhere) == 3
