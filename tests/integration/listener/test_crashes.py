"""A process killed between delivery record and business change, in both designs: a retry ends it, applied once."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fixtures.listen_process import Sender, listening

from waybill.contracts.command import Command
from waybill.crypto.keys import KeyRecord, jwks_document

#: Acts in another system, a file, and dies once, before or after that.
ELSEWHERE = """
import os, signal
from pathlib import Path
from waybill.listener import Done, Effect, Listener, PostgresStore, SqliteStore

system, died = Path("system"), Path("died")
listener = Listener(tenant="acme", destination="crm", keys="jwks.json", store={store})

def die():
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)

async def recover(command, transaction):
    if system.exists() and command.envelope.operation_id in system.read_text():
        return Done(source_version="1", evidence="found", count=1)

@listener.on("subject.erase", recover=recover)
async def erase(command, transaction):
    if {before}:
        die()
    with system.open("a") as file:
        file.write(command.envelope.operation_id + "\\n")
    die()
    return Done(source_version="1", evidence="made", count=1)
"""

#: Writes into the store's own file and dies once, before the commit.
INSIDE = """
import os, signal
from pathlib import Path
from waybill.listener import Done, Listener, SqliteStore

died = Path("died")
listener = Listener(tenant="acme", destination="crm", keys="jwks.json", store=SqliteStore("crm.db"))

@listener.on("subject.erase")
async def erase(command, transaction):
    await transaction.execute("CREATE TABLE IF NOT EXISTS effect (what TEXT)")
    await transaction.execute("INSERT INTO effect VALUES ('x')")
    if not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    rows = await transaction.execute("SELECT count(*) FROM effect")
    return Done(source_version="1", evidence="made", count=rows.fetchone()[0])
"""


@pytest.fixture
def sender(signing_key: KeyRecord, make_command: Callable[..., Command], tmp_path: Path) -> Sender:
    """Whoever sends; the listener's keys lie beside it."""
    (tmp_path / "jwks.json").write_text(json.dumps(jwks_document([signing_key])))
    return Sender(signing_key, make_command)


def killed_then_retried(folder: Path, source: str, sender: Sender, command: Command) -> list[httpx.Response]:
    """Send until the process dies, then twice to the next one."""
    (folder / "crm_app.py").write_text(source)
    with listening(folder, "crm_app:listener") as (process, url):
        with pytest.raises(httpx.TransportError):
            sender.post(url, command)
        assert process.wait(10) == -signal.SIGKILL
    with listening(folder, "crm_app:listener") as (_, url):
        return [sender.post(url, command) for _ in range(2)]


@pytest.mark.requirement("GW-6")
@pytest.mark.parametrize("before", [True, False], ids=["before the effect", "after the effect"])
@pytest.mark.parametrize("store", [pytest.param("postgres", marks=pytest.mark.postgres), "sqlite"])
def test_a_process_killed_around_an_effect_elsewhere_is_found_out_about(
    store: str, before: bool, request: pytest.FixtureRequest, tmp_path: Path, sender: Sender
) -> None:
    made = 'SqliteStore("crm.db", effect=Effect.ELSEWHERE)'
    if store == "postgres":
        schema, dsn = request.getfixturevalue("site_schema")
        made = f"PostgresStore({dsn!r}, schema={schema!r}, effect=Effect.ELSEWHERE)"
    command = sender.command(operation_id="op-1")

    answers = killed_then_retried(tmp_path, ELSEWHERE.format(store=made, before=before), sender, command)

    assert [answer.headers.get("waybill-repeat") for answer in answers] == [None, "true"]
    assert answers[0].content == answers[1].content
    assert answers[0].json()["evidence"] == ("made" if before else "found")
    assert (tmp_path / "system").read_text() == "op-1\n"


@pytest.mark.requirement("GW-6")
def test_a_process_killed_before_the_commit_of_a_file_leaves_nothing(tmp_path: Path, sender: Sender) -> None:
    answers = killed_then_retried(tmp_path, INSIDE, sender, sender.command())

    assert [answer.headers.get("waybill-repeat") for answer in answers] == [None, "true"]
    assert answers[0].content == answers[1].content
    assert answers[0].json()["count"] == 1
