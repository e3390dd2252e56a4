"""A baseline at a listener over each store that keeps lanes: new, restored, forged, replayed, cut short, killed between."""

import asyncio
import json
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fixtures import baseline_process
from fixtures.fix_stores import CRM, Open, Site

from waybill.contracts.baseline import LaneStart, render_lanes, statement_digest
from waybill.contracts.command import Command
from waybill.contracts.envelope import GapEntry, Resolution, delivery_id_text
from waybill.crypto.keys import Algorithm, KeyRecord, Secret, jwks_document
from waybill.crypto.signing import Signer
from waybill.delivery.baseline.sending import Letter, letters
from waybill.kernel.errors import ConfigError
from waybill.kernel.ids import Aggregate, DeliveryId
from waybill.listener import Done, Received

pytestmark = pytest.mark.postgres
PROCESS = Path(baseline_process.__file__)
SUBJECT = Aggregate("subject/1")


def handled(command: Received, _transaction: object) -> Any:
    """Do nothing but say so."""
    return Done(source_version="1", evidence="e", count=command.envelope.sequence)


@dataclass
class Ordered:
    """A site that takes each aggregate in order, and statements for it."""

    site: Site

    def command(self, number: int, aggregate: Aggregate = SUBJECT) -> Command:
        return self.site.make_command(aggregate=aggregate, sequences={CRM: number}, data=b'{"subject":"1"}')

    async def status(self, command: Command) -> tuple[int, int | None]:
        answer = await self.site.send(command)
        return answer.status_code, answer.json().get("expected_sequence")

    async def ask(self) -> str:
        return await self.site.listener.ask_baseline()

    def statement(self, nonce: str, *parts: Sequence[LaneStart], **changes: Any) -> tuple[Letter, ...]:
        data = [render_lanes(part) for part in parts]
        now = self.site.clock.now()
        proposal = {
            "baseline_id": uuid.uuid4(),
            "tenant": "acme",
            "destination": "crm",
            "nonce": nonce,
            "digest": statement_digest([sha256(each).hexdigest() for each in data]),
            "parts": len(data),
            "config_version": 1,
            "proposed_at": now,
            "expires_at": now + timedelta(hours=4),
            **changes,
        }
        return letters(proposal, enumerate(data, 1))

    async def tell(self, letter: Letter) -> httpx.Response:
        return await self.site.post(letter.body, letter.part_id)

    async def told(self, *sent: Letter) -> list[tuple[int, str]]:
        """Send parts; return status, and what the receipt or the refusal says."""
        answers = [await self.tell(letter) for letter in sent]
        said = [(answer.status_code, answer.json()) for answer in answers]
        return [(status, body.get("reason") or body["source_version"]) for status, body in said]


@pytest.fixture(params=["postgres", "sqlite"])
async def ordered(request: pytest.FixtureRequest, open_site: Open) -> AsyncIterator[Ordered]:
    async with open_site(request.param, in_order=True) as site:
        site.listener.on("subject.erase")(handled)
        yield Ordered(site)


def lane(following: int, *told: tuple[Command, Resolution], aggregate: Aggregate = SUBJECT) -> LaneStart:
    entries = tuple(
        GapEntry(
            sequence=of.sequences[CRM],
            delivery_id=DeliveryId(uuid.UUID(delivery_id_text(of.command_id, CRM))),
            resolution=resolution,
        )
        for of, resolution in told
    )
    return LaneStart(aggregate=aggregate, next=following, told=entries)


@pytest.mark.requirement("DC-13")
async def test_a_new_listener_goes_on_where_it_is_told(ordered: Ordered) -> None:
    assert await ordered.status(ordered.command(8)) == (425, 1)

    assert await ordered.told(*ordered.statement(await ordered.ask(), [lane(8)])) == [(200, "applied")]

    assert await ordered.status(ordered.command(9)) == (425, 8)
    assert [await ordered.status(ordered.command(number)) for number in (8, 9)] == [(200, None), (200, None)]
    assert await ordered.status(ordered.command(1, Aggregate("subject/new"))) == (200, None)


@pytest.mark.requirement("DC-13")
async def test_a_restored_listener_goes_on_and_never_back(ordered: Ordered) -> None:
    done, ahead = ordered.command(1), Aggregate("subject/ahead")
    await ordered.status(done)
    for number in (1, 2, 3):
        await ordered.status(ordered.command(number, ahead))

    sent = ordered.statement(await ordered.ask(), [lane(6), lane(2, aggregate=ahead)])
    assert await ordered.told(*sent) == [(200, "applied")]

    assert await ordered.status(ordered.command(7)) == (425, 6)
    assert await ordered.status(ordered.command(6)) == (200, None)
    assert await ordered.status(ordered.command(5, ahead)) == (425, 4), "what it did is not unlearnt"
    assert (await ordered.site.send(done)).headers["waybill-repeat"] == "true"


@pytest.mark.requirement("DC-12", "DC-13")
async def test_what_was_passed_over_may_still_come_and_nothing_else(ordered: Ordered) -> None:
    parked, gone, ahead = ordered.command(3), ordered.command(4), ordered.command(9)
    entries = ((parked, Resolution.DEFERRED), (ahead, Resolution.FINAL))
    await ordered.told(*ordered.statement(await ordered.ask(), [lane(8, *entries)]))

    assert await ordered.status(parked) == (200, None)
    assert (await ordered.site.send(gone)).json()["reason"] == "older_sequence"
    assert (await ordered.site.send(ordered.command(3))).json()["reason"] == "older_sequence"
    assert await ordered.status(ordered.command(8)) == (200, None)
    assert await ordered.status(ordered.command(10)) == (200, None), "9 never comes"


@pytest.mark.requirement("DC-13")
async def test_nothing_counts_before_the_last_part_whatever_the_order(ordered: Ordered) -> None:
    other = Aggregate("subject/2")
    first, second, third = ordered.statement(
        await ordered.ask(), [lane(8)], [lane(5, aggregate=other)], [lane(3, aggregate=Aggregate("subject/3"))]
    )

    assert await ordered.told(third, first, first) == [(200, "staged")] * 3
    assert await ordered.status(ordered.command(8)) == (425, 1)
    assert await ordered.told(second, second, third) == [(200, "applied")] * 3

    assert await ordered.status(ordered.command(8)) == (200, None)
    assert await ordered.status(ordered.command(5, other)) == (200, None)


@pytest.mark.requirement("DC-9", "DC-10", "DC-13")
@pytest.mark.parametrize(
    ("how", "answer"),
    [
        ("never asked", (409, "baseline_not_asked")),
        ("another nonce", (409, "baseline_nonce")),
        ("an old nonce", (409, "baseline_nonce")),
        ("another tenant", (403, "tenant")),
        ("another destination", (403, "destination")),
        ("another digest", (409, "baseline_digest")),
        ("too late", (422, "expired")),
        ("a stranger's key", (401, "signature_mismatch")),
        ("another id", (400, "id_mismatch")),
        ("other data", (401, "signature_mismatch")),
    ],
)
async def test_a_statement_that_is_not_ours_moves_nothing(ordered: Ordered, how: str, answer: tuple[int, str]) -> None:
    nonce = "made-up" if how == "never asked" else await ordered.ask()
    if how == "another nonce":
        nonce = "made-up"
    changes: dict[str, dict[str, Any]] = {
        "another tenant": {"tenant": "globex"},
        "another destination": {"destination": "erp"},
        "another digest": {"digest": "0" * 64},
        "too late": {"expires_at": ordered.site.clock.now()},
    }
    (sent,) = ordered.statement(nonce, [lane(8)], **changes.get(how, {}))
    if how == "an old nonce":
        await ordered.ask()
    if how == "another id":
        sent = replace(sent, part_id=str(uuid.uuid4()))
    if how == "a stranger's key":
        stranger = KeyRecord(
            key_id="acme-20260101-00000009",
            algorithm=Algorithm.ED25519,
            secret=Secret(bytes(range(2, 34))),
            not_before=ordered.site.clock.now(),
            not_after=None,
        )
        ordered.site.signer, ours = Signer([stranger]), ordered.site.signer
        found = await ordered.told(sent)
        ordered.site.signer = ours
    elif how == "other data":
        headers = dict(sent.headers(ordered.site.signer, ordered.site.clock))
        changed = sent.body.replace(b'"next":8', b'"next":9')
        reply = await ordered.site.client.post("/", content=changed, headers=headers)
        found = [(reply.status_code, reply.json()["reason"])]
    else:
        found = await ordered.told(sent)

    assert found == [answer]
    assert await ordered.status(ordered.command(8)) == (425, 1)
    assert await ordered.status(ordered.command(1)) == (200, None)


@pytest.mark.requirement("DC-13")
async def test_an_old_statement_is_refused_once_a_new_one_is_asked_for(ordered: Ordered) -> None:
    old = ordered.statement(await ordered.ask(), [lane(5)])
    assert await ordered.told(*old, *old) == [(200, "applied")] * 2

    nonce = await ordered.ask()

    assert await ordered.told(*old) == [(409, "baseline_nonce")]
    assert await ordered.told(*ordered.statement(nonce, [lane(9)])) == [(200, "applied")]
    assert await ordered.told(*old) == [(409, "baseline_nonce")]
    assert await ordered.status(ordered.command(9)) == (200, None)


@pytest.mark.requirement("DC-13")
async def test_parts_of_two_statements_are_not_mixed(ordered: Ordered) -> None:
    nonce = await ordered.ask()
    other = Aggregate("subject/2")
    ours = ordered.statement(nonce, [lane(8)], [lane(5, aggregate=other)])
    theirs = ordered.statement(nonce, [lane(8)], [lane(6, aggregate=other)])

    assert await ordered.told(ours[0], theirs[1]) == [(200, "staged"), (409, "baseline_differs")]
    assert await ordered.status(ordered.command(8)) == (425, 1)
    assert await ordered.told(ours[1]) == [(200, "applied")]


@pytest.mark.requirement("DC-13")
async def test_parts_that_come_at_once_count_once(ordered: Ordered) -> None:
    names = [Aggregate(f"subject/{number}") for number in range(6)]
    sent = ordered.statement(await ordered.ask(), *([lane(8, aggregate=name)] for name in names))

    answers = await asyncio.gather(*(ordered.tell(letter) for letter in [*sent, *sent]))

    assert {answer.status_code for answer in answers} == {200}
    assert (await ordered.tell(sent[0])).json()["source_version"] == "applied"
    assert [await ordered.status(ordered.command(8, name)) for name in names] == [(200, None)] * len(names)


@pytest.mark.parametrize(("kind", "limits"), [("memory", {}), ("none", {}), ("postgres", {}), ("sqlite", {})])
async def test_a_listener_without_lanes_needs_none_and_says_so(
    kind: str, limits: dict[str, Any], open_site: Open
) -> None:
    async with open_site(kind, **limits) as site:
        (sent,) = Ordered(site).statement("n", [lane(8)])
        answer = await site.post(sent.body, sent.part_id)

        with pytest.raises(ConfigError, match="any order"):
            await site.listener.ask_baseline()

    assert (answer.status_code, answer.json()["reason"]) == (422, "baseline")


async def test_what_was_stated_and_what_it_moved_is_kept(open_site: Open, site_schema: tuple[str, str]) -> None:
    async with open_site("postgres", in_order=True) as site:
        ordered = Ordered(site)
        parts = ([lane(8)], [lane(5, aggregate=Aggregate("subject/2"))])
        await ordered.told(*ordered.statement(await ordered.ask(), *parts))
        with closing(psycopg.connect(site_schema[1])) as connection:
            kept = connection.execute("SELECT parts, moved, applied_at IS NOT NULL FROM baseline").fetchall()
            lanes = connection.execute("SELECT lanes FROM baseline_part ORDER BY part").fetchall()

    assert kept == [(2, 2, True)]
    assert [json.loads(render_lanes(part))["lanes"] for part in parts] == [row[0] for row in lanes]


@pytest.mark.requirement("DC-13")
@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_a_kill_between_parts_leaves_nothing_half_applied(
    kind: str, request: pytest.FixtureRequest, open_site: Open, signing_key: KeyRecord, tmp_path: Path
) -> None:
    async with open_site(kind, in_order=True) as site:
        site.listener.on("subject.erase")(handled)
        ordered, other = Ordered(site), Aggregate("subject/2")
        late = {"expires_at": site.clock.now() + timedelta(days=36_500)}
        first, second = ordered.statement(await ordered.ask(), [lane(8)], [lane(5, aggregate=other)], **late)
        schema, dsn = request.getfixturevalue("site_schema") if kind == "postgres" else ("", str(tmp_path / "crm.db"))
        (tmp_path / "jwks.json").write_text(json.dumps(jwks_document([signing_key])))
        part = {"headers": dict(first.headers(site.signer, site.clock)), "body": first.body.decode()}
        command = [sys.executable, str(PROCESS), dsn, schema, str(tmp_path / "jwks.json")]
        killed = await asyncio.to_thread(subprocess.run, command, input=json.dumps(part), text=True, check=False)

        assert killed.returncode == -signal.SIGKILL
        assert await ordered.status(ordered.command(8)) == (425, 1)
        assert await ordered.status(ordered.command(5, other)) == (425, 1)
        assert await ordered.told(second) == [(200, "applied")]
        assert await ordered.status(ordered.command(8)) == (200, None)
        assert await ordered.status(ordered.command(5, other)) == (200, None)


async def test_a_failure_while_it_is_applied_leaves_everything_as_it_was(
    open_site: Open, site_schema: tuple[str, str]
) -> None:
    """The last of the statements fails: the lanes it moved before are not moved, and the part is not kept."""
    async with open_site("postgres", in_order=True) as site:
        site.listener.on("subject.erase")(handled)
        ordered = Ordered(site)
        first, second = ordered.statement(await ordered.ask(), [lane(8)], [lane(5, aggregate=Aggregate("subject/2"))])
        await ordered.told(first)
        with closing(psycopg.connect(site_schema[1], autocommit=True)) as connection:
            connection.execute(
                "CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql AS"
                " $$BEGIN RAISE EXCEPTION 'gone' USING ERRCODE = '57P01'; END$$"
            )
            connection.execute(
                "CREATE TRIGGER gone BEFORE UPDATE OF applied_at ON baseline FOR EACH ROW EXECUTE FUNCTION gone()"
            )
            assert (await ordered.told(second)) == [(503, "store_unavailable")]
            assert connection.execute("SELECT count(*) FROM lane WHERE last_sequence > 0").fetchone() == (0,)
            assert connection.execute("SELECT part FROM baseline_part").fetchall() == [(1,)]
            connection.execute("DROP TRIGGER gone ON baseline")

        assert await ordered.told(second) == [(200, "applied")]
