"""Many deliveries once more: decided in batches, on PostgreSQL and on the real stack."""

import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from fixtures.fix_outbox import OutboxDatabase
from fixtures.fix_stack import FreshDatabase
from fixtures.worker_world import WorkerWorld

from waybill.cli.migrate import migrate_all
from waybill.delivery.replay.carrying import Carried, Carrier, Meant, Terms, decided_before
from waybill.fabric.store import FabricStore
from waybill.infra.clock import SystemClock
from waybill.kernel.clock import format_instant
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack

#: In place of the owners of partitions: a verdict with each decision.
JUDGE = """
CREATE FUNCTION judge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN NEW.verdict := '{verdict}'; NEW.detail := {detail}; NEW.judged_at := now(); RETURN NEW; END $$;
CREATE TRIGGER judge BEFORE INSERT ON delivery.decision FOR EACH ROW EXECUTE FUNCTION judge();
"""


class Desk:
    """A control database with a tenant, and what is decided there."""

    def __init__(self, dsn: str) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True)
        FabricStore(self.connection).open_routes(["acme"])
        self.meant = [Meant("acme", "crm", f"subject/{n}", uuid.uuid4(), 3) for n in range(60)]

    def judge(self, verdict: str, detail: str = "NULL") -> None:
        self.connection.execute("DROP FUNCTION IF EXISTS judge() CASCADE")
        self.connection.execute(JUDGE.format(verdict=verdict, detail=detail).encode())

    def run(self) -> Carried:
        terms = Terms(by="ada", reason="listener mended", wait_s=0.0, stop_at=0.2)
        return Carrier(self.connection, lambda _: b"record", terms, SystemClock()).carry(self.meant, lambda *_: None)

    def decisions(self) -> int:
        row = self.connection.execute("SELECT count(*) FROM delivery.decision").fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def desk(fresh_database: FreshDatabase) -> Any:
    dsn = fresh_database.dsn()
    migrate_all(dsn)
    made = Desk(dsn)
    with closing(made.connection):
        yield made


@pytest.mark.requirement("DC-21")
def test_a_run_that_was_broken_off_goes_on_and_decides_nothing_twice(desk: Desk) -> None:
    first = desk.run()
    assert (first.decided, first.stopped, first.look.verdicts) == (10, "not_judged", {"open": 10}), "nobody owns them"
    assert decided_before(desk.connection, desk.meant) == {one.delivery_id for one in desk.meant[:10]}

    desk.connection.execute("UPDATE delivery.decision SET verdict = 'applied', judged_at = now()")
    desk.judge("applied")
    second = desk.run()
    assert (second.decided, second.stopped, second.look.verdicts) == (50, None, {"applied": 60})
    assert (desk.run().decided, desk.decisions()) == (0, 60)


def test_a_run_stops_where_too_many_decisions_are_void(desk: Desk) -> None:
    desk.judge("void", "'version_moved'")

    run = desk.run()

    assert (run.decided, run.stopped, run.look.verdicts) == (10, "too_many_setbacks", {"void:version_moved": 10})
    assert desk.decisions() == 10


@pytest.mark.requirement("DC-21")
def test_people_replay_what_failed_and_reissue_what_expired(
    world: WorkerWorld, destination: FakeListener, people: Callable[..., Any], outbox: OutboxDatabase
) -> None:
    is_mended = False

    def behave(arrival: Arrival) -> Reply:
        return receipt() if is_mended or arrival.aggregate == "subject/well" else (409, {}, b"")

    destination.behave = behave
    world.add_destination(destination.url)
    failed = world.emit([(f"subject/{n}", 1) for n in range(12)])
    (well,) = world.emit([("subject/well", 1)])
    short_over = datetime.now(UTC) + timedelta(seconds=6)
    (short,) = world.emit([("subject/short", 1)], expires_at=short_over)
    everything = {one.aggregate: str(one.delivery()) for one in (*failed, well, short)}
    replay = ("deliveries", "replay", "--tenant", world.tenant, "--why", "listener mended", "--by", "ada")

    def states() -> list[str]:
        found = world.states()
        return sorted(found[delivery]["state"] for delivery in everything.values() if delivery in found)

    with world.running():
        eventually(lambda: states() == ["acknowledged"] + ["failed"] * 13, 40)
        eventually(lambda: datetime.now(UTC) > short_over, 20)
        shown = people(*replay)
        assert (shown["count"], len(shown["sample"]), shown["run"]) == (12, 5, None), "nothing is decided unasked"
        assert {(one["rule"], one["deliveries"]) for one in shown["refused"]} == {("acknowledged", 1), ("expired", 1)}
        assert people(*replay, "--yes", "--expect", "11", code=1) is None
        narrowed = (*replay, "--state", "failed", "--code", "VERSION_CONFLICT", "--type", "subject.erase")
        assert people(*narrowed, "--aggregate", "subject/3")["count"] == 1
        assert people(*narrowed, "--from", format_instant(datetime.now(UTC) + timedelta(hours=1)))["count"] == 0
        assert people(*narrowed, str(failed[0].delivery()), str(failed[1].command_id))["count"] == 2

        is_mended = True
        run = people(*narrowed, "--destination", "crm", "--yes", "--expect", "12", "--wait", "40")["run"]
        assert (run["decided"], run["verdicts"], run["stopped"]) == (12, {"applied": 12}, None)
        eventually(lambda: states() == ["acknowledged"] * 13 + ["failed"], 40)
        again = people(*replay, "--yes")

    assert (again["count"], again["run"]) == (0, None)
    outbox.serve(world.tenant)
    reissue = ("deliveries", "reissue", "--dsn", outbox.dsn("waybill_app"), "--why", "it expired", "--by", "ada")
    issued = people(*reissue, str(short.delivery()))
    assert (issued["is_new"], issued["replaces"]) == (True, str(short.command_id))
    assert people(*reissue, str(short.command_id)) == {**issued, "is_new": False}
    (row,) = outbox.rows("SELECT replaces, payload, aggregate FROM waybill.outbox WHERE tenant = %s", world.tenant)
    assert row == (short.command_id, b'{"name":"x"}', "subject/short")
    people(*reissue, str(well.delivery()), code=2)

    for one in failed:
        bodies = [arrival.body for arrival in destination.arrivals if arrival.delivery_id == str(one.delivery())]
        assert len(bodies) == 2
        assert len(set(bodies)) == 1, "the same bytes"
