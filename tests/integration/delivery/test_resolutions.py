"""A lane that goes on behind an end: the resolution on the real stack, at listeners that check sequences."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import uvicorn
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from fixtures.fix_stack import FreshDatabase
from fixtures.worker_world import WorkerWorld
from psycopg import AsyncConnection

from waybill.contracts.envelope import GapResolution
from waybill.contracts.envelope_reader import parse
from waybill.contracts.fabric import OnUnsettled, RetryPolicy
from waybill.contracts.problem import CONTENT_TYPE, Problem, render_problem
from waybill.crypto.keys import jwks_document, read_keys, signing_path
from waybill.crypto.verifying import VerificationKeys
from waybill.listener import Done, ErrorCode, Limits, Listener, PostgresStore, Received, Refuse
from waybill.testing.waiting import eventually

pytestmark = pytest.mark.stack
QUICK = RetryPolicy(base_s=0.05, cap_s=0.3, hot_attempts=1)


@contextmanager
def served(listener: Listener) -> Iterator[str]:
    """Serve a listener of the SDK in a thread; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server = uvicorn.Server(uvicorn.Config(listener, log_config=None, lifespan="on"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        eventually(lambda: server.started, 20)
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}/commands"
        finally:
            server.should_exit = True
            thread.join(20)


@pytest.mark.requirement("DC-13")
def test_a_listener_that_checks_sequences_goes_on_behind_what_it_refused(
    world: WorkerWorld, fresh_database: FreshDatabase
) -> None:
    done: list[int] = []
    keys = VerificationKeys.from_jwks(jwks_document(read_keys(signing_path(world.keys_dir, world.tenant))))
    store = PostgresStore(fresh_database.dsn())
    listener = Listener(tenant=world.tenant, destination="crm", keys=keys, store=store, limits=Limits(in_order=True))

    @listener.on("subject.erase")
    async def erase(command: Received, transaction: AsyncConnection) -> Done:
        if command.json()["name"] == "nobody":
            raise Refuse(ErrorCode.VALIDATION, "no_such_subject")
        done.append(command.envelope.sequence)
        return Done(source_version="1", evidence="urn:evidence:1", count=1)

    with served(listener) as url:
        world.add_destination(url, retry=QUICK, on_unsettled=OnUnsettled.CONTINUE)
        (refused,) = world.emit([("subject/a", 1)], data=b'{"name":"nobody"}')
        later = world.emit([("subject/a", 2), ("subject/a", 3)])
        with world.running():
            eventually(lambda: str(later[1].delivery()) in world.states(), 40)

    states = world.states()
    assert done == [2, 3]
    assert states[str(refused.delivery())]["state"] == "failed"
    (told,) = [state for state in states.values() if state["command_type"] == "waybill.gap-resolution"]
    assert (told["state"], told["sequence"], told["command_id"]) == ("acknowledged", 1, str(refused.command_id))
    assert {(row["kind"], row["state"], row["blocks"]) for row in world.rows() if row["sequence"] == 1} == {
        ("delivery", "failed", False),
        ("resolution", "acknowledged", False),
    }


@pytest.mark.requirement("DC-13")
def test_a_listener_that_forgot_is_told_again(world: WorkerWorld, destination: FakeListener) -> None:
    told: list[GapResolution] = []

    def behave(arrival: Arrival) -> Reply:
        if arrival.sequence == 0:
            found = parse(arrival.body)
            assert isinstance(found, GapResolution)
            told.append(found)
        elif arrival.sequence == 1:
            return 409, {}, b""
        elif len(told) < 2:
            gap = Problem(code=ErrorCode.SOURCE_UNAVAILABLE, reason="gap", status=425, expected_sequence=1)
            return 425, {"content-type": CONTENT_TYPE}, render_problem(gap)
        return receipt()

    destination.behave = behave
    world.add_destination(destination.url, retry=QUICK, on_unsettled=OnUnsettled.CONTINUE)
    first, second = world.emit([("subject/a", 1), ("subject/a", 2)])
    with world.running():
        eventually(lambda: world.states().get(str(second.delivery()), {}).get("state") == "acknowledged", 40)

    assert len({found.resolution_id for found in told}) == 2
    assert {entry.delivery_id for found in told for entry in found.entries} == {first.delivery()}
    headers = [json.loads(arrival.body)["id"] for arrival in destination.arrivals if arrival.sequence == 0]
    assert headers == [str(found.resolution_id) for found in told]
