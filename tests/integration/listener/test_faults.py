"""What dies between the handler and the answer: a retry finds nothing or everything, and applies once."""

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg
import pytest
from fixtures.fix_listener import CRM, Site, erase
from fixtures.listen_process import Sender, listening
from psycopg import AsyncConnection

from waybill.contracts.command import Command
from waybill.contracts.envelope import delivery_id_text
from waybill.crypto.keys import KeyRecord, jwks_document
from waybill.devstack import Stack
from waybill.listener import Done, Received
from waybill.testing.ledger_listener import Behaviour, Ledger, LedgerProcess, arrivals, effects
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.postgres


@pytest.mark.requirement("GW-6")
async def test_a_connection_lost_after_the_handler_leaves_nothing_and_a_retry_applies_once(bare_site: Site) -> None:
    site, attempts = bare_site, 0

    @site.listener.on("subject.erase")
    async def loses_its_connection(command: Received, transaction: AsyncConnection) -> Done:
        nonlocal attempts
        attempts += 1
        done = await erase(command, transaction)
        if attempts == 1:
            await site.rows(f"SELECT pg_terminate_backend({transaction.info.backend_pid}, 5000)")
        return done

    command = site.make_command()
    first = await site.send(command)
    left = await site.effects(), await site.records()
    second = await site.send(command)

    assert (first.status_code, first.json()["type"]) == (503, "urn:waybill:error:SOURCE_UNAVAILABLE")
    assert left == ([], [])
    assert (second.status_code, "waybill-repeat" in second.headers) == (200, False)
    assert await site.effects() == ["8f14e45f"]


KILLED = """
import os, signal
from datetime import timedelta
from waybill.listener import Done, Listener, PostgresStore

listener = Listener(tenant="acme", destination="crm", keys={jwks!r}, store=PostgresStore({dsn!r}, schema={schema!r}))

@listener.on("subject.erase")
async def erase(command, transaction):
    await transaction.execute("INSERT INTO contact_erasure (what) VALUES (%s)", (command.json()["subject"],))
    if not os.path.exists({once!r}):
        open({once!r}, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return Done(source_version="1", evidence="e", count=1)
"""


@pytest.fixture
def sender(signing_key: KeyRecord, make_command: Callable[..., Command]) -> Sender:
    """Whoever sends."""
    return Sender(signing_key, make_command)


@pytest.fixture
def jwks(tmp_path: Path, signing_key: KeyRecord) -> Path:
    """The public keys as a file."""
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(jwks_document([signing_key])))
    return path


@pytest.mark.requirement("GW-6")
def test_a_process_killed_between_handler_and_commit_leaves_nothing(
    site_schema: tuple[str, str], tmp_path: Path, jwks: Path, sender: Sender
) -> None:
    schema, dsn = site_schema
    source = KILLED.format(jwks=str(jwks), dsn=dsn, schema=schema, once=str(tmp_path / "once"))
    (tmp_path / "crm_app.py").write_text(source)
    command = sender.command()

    with listening(tmp_path, "crm_app:listener") as (process, url):
        with pytest.raises(httpx.TransportError):
            sender.post(url, command)
        assert process.wait(10) == -signal.SIGKILL
    with psycopg.connect(dsn) as connection:
        left = connection.execute(
            "SELECT (SELECT count(*) FROM contact_erasure), (SELECT count(*) FROM delivery)"
        ).fetchone()
    with listening(tmp_path, "crm_app:listener") as (process, url):
        answers = [sender.post(url, command) for _ in range(2)]
    with psycopg.connect(dsn) as connection:
        done = connection.execute("SELECT count(*) FROM contact_erasure").fetchone()

    assert left == (0, 0)
    assert [answer.headers.get("waybill-repeat") for answer in answers] == [None, "true"]
    assert answers[0].content == answers[1].content
    assert done == (1,)


@pytest.fixture
def ledger(postgres: Stack, listener_database: str, fresh_tenant: str, jwks: Path) -> Ledger:
    """A ledger of a tenant of its own."""
    return Ledger(dsn=postgres.dsn(listener_database), tenant=fresh_tenant, destination="crm", jwks=jwks)


@pytest.mark.requirement("GW-2")
@pytest.mark.requirement("GW-3")
@pytest.mark.requirement("GW-4")
def test_an_answer_lost_after_the_commit_is_given_to_the_retry(ledger: Ledger, sender: Sender) -> None:
    command = sender.command(tenant=ledger.tenant)
    with LedgerProcess(replace(ledger, behaviour=Behaviour(fail_first=1, drop_first=1))) as listener:
        failed = sender.post(listener.url, command)
        with pytest.raises(httpx.RemoteProtocolError):
            sender.post(listener.url, command)
        repeated = sender.post(listener.url, command)

    assert failed.status_code == 503
    assert (repeated.status_code, repeated.headers["waybill-repeat"]) == (200, "true")
    (effect,) = effects(ledger.dsn, tenant=ledger.tenant)
    assert str(effect.delivery_id) == delivery_id_text(command.command_id, CRM)
    came = arrivals(ledger.dsn, tenant=ledger.tenant)
    assert len(came) == 3
    assert len({(arrival.webhook_id, arrival.body_sha256) for arrival in came}) == 1


def test_a_crash_after_the_commit_is_healed_by_the_next_process(ledger: Ledger, sender: Sender) -> None:
    command = sender.command(tenant=ledger.tenant)
    with LedgerProcess(ledger) as first:
        executed = sender.post(first.url, command)
        port = first.port
        first.kill()
    with LedgerProcess(replace(ledger, port=port)) as second:
        repeated = sender.post(second.url, command)

    assert repeated.headers["waybill-repeat"] == "true"
    assert repeated.content == executed.content
    assert len(effects(ledger.dsn, tenant=ledger.tenant)) == 1


def test_a_listener_told_to_stop_finishes_what_it_began(ledger: Ledger, sender: Sender) -> None:
    from concurrent.futures import ThreadPoolExecutor

    command = sender.command(tenant=ledger.tenant)
    with LedgerProcess(replace(ledger, behaviour=Behaviour(slow_ms=1000))) as listener, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(sender.post, listener.url, command)
        eventually(lambda: arrivals(ledger.dsn, tenant=ledger.tenant), within_s=10)
        listener.stop()

        assert answer.result(20).status_code == 200
    assert len(effects(ledger.dsn, tenant=ledger.tenant)) == 1
