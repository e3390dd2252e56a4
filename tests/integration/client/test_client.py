"""Both clients against the real API, also through somebody in between who hands requests on and loses the answers."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from fixtures.fix_submission import Api, erase

from waybill.client import AmbiguousError, AsyncClient, Client, RefusalError
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import UnavailableError
from waybill.submission.core.resubmission import read_rule
from waybill.submission.rules import set_rule

pytestmark = pytest.mark.postgres

Speak = Callable[..., Any]


def by_threads(url: str, key: str, name: str, *words: Any, **settings: float) -> Any:
    with Client(url, key, **settings) as client:
        found = getattr(client, name)(*words)
        return list(found) if name == "deliveries" else found


def by_loop(url: str, key: str, name: str, *words: Any, **settings: float) -> Any:
    async def speak() -> Any:
        async with AsyncClient(url, key, **settings) as client:
            if name == "deliveries":
                return [each async for each in client.deliveries(*words)]
            return await getattr(client, name)(*words)

    return asyncio.run(speak())


@pytest.fixture(params=[by_threads, by_loop], ids=["Client", "AsyncClient"])
def speak(request: pytest.FixtureRequest) -> Speak:
    found: Speak = request.param
    return found


@contextmanager
def losing_answers(url: str, times: int) -> Iterator[str]:
    """Hand requests on and cut the connection when the answer comes, so many times."""
    host, port = url.removeprefix("http://").split(":")
    left = [times]

    def hand_on(client: socket.socket, api: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65_536):
                api.sendall(data)
            api.shutdown(socket.SHUT_WR)

    def serve(client: socket.socket) -> None:
        with closing(client), closing(socket.create_connection((host, int(port)), 60)) as api, suppress(OSError):
            threading.Thread(target=hand_on, args=(client, api), daemon=True).start()
            while answer := api.recv(65_536):
                if left[0] > 0:  # what was asked is done, and nobody hears of it
                    left[0] -= 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)

    with closing(socket.create_server(("127.0.0.1", 0))) as listening:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def test_what_is_submitted_is_taken_and_found_again(api: Api, fresh_subject: str, speak: Speak):
    one = speak(api.url, api.keys["shop"], "submit", erase(fresh_subject), fresh_subject)
    many = speak(api.url, api.keys["shop"], "submit_batch", [erase(fresh_subject)] * 3, f"{fresh_subject}-2")

    assert sorted(one.commands[0].deliveries) == ["crm", "erp"]
    assert len(many.commands) == 3
    assert speak(api.url, api.keys["shop"], "submission", one.submission_id) == one
    assert speak(api.url, api.keys["till"], "submission", one.submission_id) is None
    assert len(api.issued(f"subject/{fresh_subject}")) == 4


@pytest.mark.requirement("GW-14", "GW-15")
@pytest.mark.parametrize("times", [1, 3])
def test_an_answer_that_is_lost_is_asked_for_again_and_the_command_is_issued_once(
    api: Api, fresh_subject: str, speak: Speak, times: int
):
    with losing_answers(api.url, times) as url:
        taken = speak(url, api.keys["shop"], "submit", erase(fresh_subject), fresh_subject)

    assert taken.resubmissions == times
    assert len(api.issued(f"subject/{fresh_subject}")) == 1


@pytest.mark.requirement("GW-14")
def test_what_stays_unknown_is_told_with_the_key_to_ask_with(api: Api, fresh_subject: str, speak: Speak):
    with (
        losing_answers(api.url, 1_000) as url,
        pytest.raises(AmbiguousError) as unknown,
    ):
        speak(url, api.keys["shop"], "submit", erase(fresh_subject), fresh_subject, patience_s=1.0)

    asked = speak(api.url, api.keys["shop"], "submit", erase(fresh_subject), unknown.value.idempotency_key)

    assert asked.resubmissions >= 1
    assert len(api.issued(f"subject/{fresh_subject}")) == 1


@pytest.mark.requirement("GW-16")
def test_where_a_person_decides_nothing_is_concluded(api: Api, fresh_subject: str, speak: Speak):
    place, clock = (api.database.tenant, "till"), SystemClock()
    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as control:
        set_rule(control, clock, place, read_rule("never"), ("test", "test"))  # type: ignore[arg-type] # a tenant's name
        try:
            with losing_answers(api.url, 1) as url, pytest.raises(AmbiguousError) as unknown:
                speak(url, api.keys["till"], "submit", erase(fresh_subject), fresh_subject)
        finally:
            set_rule(control, clock, place, read_rule("always"), ("test", "test"))  # type: ignore[arg-type] # the same

    assert isinstance(unknown.value.submission_id, UUID)
    assert len(api.issued(f"subject/{fresh_subject}")) == 1


def test_refusals_and_absence_are_told_apart(api: Api, fresh_subject: str, speak: Speak):
    with pytest.raises(RefusalError) as refused:
        speak(api.url, api.keys["shop"], "submit", erase(fresh_subject, commandType="x.y"), fresh_subject)
    with pytest.raises(UnavailableError):
        speak("http://127.0.0.1:1", api.keys["shop"], "submit", erase(fresh_subject), fresh_subject, patience_s=0.5)

    assert (refused.value.rule, refused.value.status) == ("unknown_route", 422)
    assert api.issued(f"subject/{fresh_subject}") == []


def test_deliveries_are_read_to_the_last_page_and_waited_for(api: Api, fresh_subject: str, speak: Speak):
    command = uuid4()
    add = (
        "INSERT INTO read.delivery (tenant, delivery_id, command_id, destination, aggregate, sequence, state)"
        " SELECT %s, gen_random_uuid(), %s, 'd' || n, %s, n, 'acknowledged' FROM generate_series(1, 120) AS n"
    )
    with closing(psycopg.connect(api.control_dsn, autocommit=True)) as control:
        control.execute(add.encode(), (api.database.tenant, command, f"subject/{fresh_subject}"))
        listed = [each for each in speak(api.url, api.keys["reader"], "deliveries") if each.command_id == command]
        waited = speak(api.url, api.keys["reader"], "wait", command, 30.0)
        short = speak(api.url, api.keys["reader"], "wait", command, 0.3, ["d1", "nobody"])
        control.execute("DELETE FROM read.delivery WHERE command_id = %s", (command,))

    assert {each.destination for each in listed} == {f"d{n}" for n in range(1, 121)}
    assert waited.is_settled is True
    assert len(waited.deliveries) == 120
    assert short.is_settled is False
