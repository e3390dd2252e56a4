"""What the client does next, played against a script: what it repeats, what it never repeats, what it does not know."""

import json
from collections.abc import Generator, Sequence
from typing import Any
from uuid import UUID

import pytest

from waybill.client.core.operations import SINGLE, Call, Lost, Pause, Reply, Told, body_of, page, submit, wait
from waybill.client.core.records import AmbiguousError, Command, RefusalError, Submission
from waybill.kernel.errors import ConfigError, UnavailableError

ID = UUID("5e0c1a52-0c7e-5d4b-9a3e-2f6d0b8c7a11")
TAKEN = {
    "submissionId": str(ID),
    "state": "accepted",
    "acceptedAt": "2026-11-30T12:00:00.000Z",
    "resubmissions": 0,
    "commands": [],
}
CUT = Lost(reason="ReadTimeout", may_have_arrived=True)
NO_CONNECTION = Lost(reason="ConnectError", may_have_arrived=False)
PATIENCE_S = 60.0


def said(status: int, document: object = None, **headers: str) -> Reply:
    return Reply(status=status, headers=headers, body=json.dumps(document or {}).encode())


def problem(status: int, reason: str, **headers: str) -> Reply:
    return said(
        status, {"reason": reason, "submissionId": str(ID)}, **{k.replace("_", "-"): v for k, v in headers.items()}
    )


def play(
    operation: Generator[Call | Pause, Told, Any], script: Sequence[Reply | Lost]
) -> tuple[list[Call], list[float], Any]:
    """Run an operation against a script whose last entry repeats; return its calls, its pauses and what it found."""
    calls: list[Call] = []
    pauses: list[float] = []
    told = None
    while True:
        try:
            wanted = operation.send(told) if told is not None else next(operation)
        except StopIteration as done:
            return calls, pauses, done.value
        except (AmbiguousError, RefusalError, UnavailableError) as error:
            return calls, pauses, error
        if isinstance(wanted, Pause):
            pauses.append(wanted.seconds)
            told = Told(sum(pauses), None)
        else:
            calls.append(wanted)
            told = Told(sum(pauses), script[min(len(calls), len(script)) - 1])


def submitted(*script: Reply | Lost) -> tuple[list[Call], list[float], Any]:
    return play(submit(SINGLE, b"{}", "order-1", PATIENCE_S), script)


@pytest.mark.requirement("GW-14")
@pytest.mark.parametrize(
    ("script", "attempts", "found"),
    [
        # taken
        ([said(202, TAKEN)], 1, Submission),
        # the answer was lost: the same bytes again are the same submission
        ([CUT, said(200, TAKEN)], 2, Submission),
        ([CUT, CUT, NO_CONNECTION, said(200, TAKEN)], 4, Submission),
        # nothing was taken, says the API; or it does not know itself; or somebody in between failed
        ([problem(503, "outbox_unavailable"), said(202, TAKEN)], 2, Submission),
        ([problem(503, "outcome_unknown"), said(200, TAKEN)], 2, Submission),
        ([said(502), said(202, TAKEN)], 2, Submission),
        ([problem(429, "slow_down"), said(202, TAKEN)], 2, Submission),
        # a refusal is never repeated
        ([problem(422, "unknown_route"), said(202, TAKEN)], 1, RefusalError),
        ([problem(401, "credentials_refused"), said(202, TAKEN)], 1, RefusalError),
        ([problem(409, "idempotency_key_reused"), said(202, TAKEN)], 1, RefusalError),
        # after an attempt that may have arrived a refusal says nothing about that one
        ([CUT, problem(401, "credentials_refused")], 2, AmbiguousError),
        ([CUT, problem(422, "unknown_route")], 2, AmbiguousError),
        # but that another body is there says that ours is not
        ([CUT, problem(409, "idempotency_key_reused")], 2, RefusalError),
        # only a person may say
        ([problem(409, "resubmission_refused")], 1, AmbiguousError),
        # it never was one of ours that answered
        ([said(202, {"ok": True})], 1, AmbiguousError),
    ],
)
def test_what_is_repeated_and_what_it_comes_to(script: list[Reply | Lost], attempts: int, found: type):
    calls, _, came = submitted(*script)

    assert len(calls) == attempts
    assert isinstance(came, found), came
    assert len({(call.body, call.path, tuple(call.headers.items())) for call in calls}) == 1


@pytest.mark.requirement("GW-14")
@pytest.mark.parametrize(
    ("always", "found"),
    [
        (CUT, AmbiguousError),
        (problem(503, "outcome_unknown"), AmbiguousError),
        (said(504), AmbiguousError),
        (NO_CONNECTION, UnavailableError),
        (problem(503, "outbox_unavailable"), UnavailableError),
    ],
)
def test_patience_ends_in_not_knowing_only_where_something_may_have_been_taken(always: Reply | Lost, found: type):
    _, pauses, came = submitted(always)

    assert type(came) is found
    assert sum(pauses) <= PATIENCE_S
    assert len(pauses) > 5


def test_not_knowing_names_the_key_to_ask_with_and_the_submission_where_it_is_known():
    _, _, lost = submitted(CUT)
    _, _, refused = submitted(problem(409, "resubmission_refused"))

    assert (lost.idempotency_key, lost.submission_id) == ("order-1", None)
    assert (refused.idempotency_key, refused.submission_id) == ("order-1", ID)


def test_retry_after_is_waited_for():
    _, pauses, _ = submitted(problem(503, "outbox_unavailable", retry_after="7"), said(202, TAKEN))

    assert pauses == [7.0]


def test_two_keys_wait_at_moments_of_their_own():
    first = play(submit(SINGLE, b"{}", "a", PATIENCE_S), [CUT])[1]
    second = play(submit(SINGLE, b"{}", "b", PATIENCE_S), [CUT])[1]

    assert first != second
    assert first == play(submit(SINGLE, b"{}", "a", PATIENCE_S), [CUT])[1]


def delivery(destination: str, state: str) -> dict[str, Any]:
    return {"deliveryId": str(ID), "commandId": str(ID), "destination": destination, "aggregate": "a/1", "state": state}


def deliveries(**states: str) -> Reply:
    return said(200, {"deliveries": [delivery(*each) for each in states.items()]}, etag='"1"')


COMMAND = Command(command_id=ID, aggregate="a/1", issued_at="", expires_at="", deliveries={"crm": ID, "erp": ID})


@pytest.mark.parametrize(
    ("script", "settled", "states"),
    [
        ([deliveries(), deliveries(crm="acknowledged", erp="failed")], True, {"crm": "acknowledged", "erp": "failed"}),
        # one is not in the read model yet
        ([deliveries(crm="acknowledged")], False, {"crm": "acknowledged"}),
        # these are moved on without people
        *(
            ([deliveries(crm="acknowledged", erp=state)], False, {"crm": "acknowledged", "erp": state})
            for state in ("queued", "retrying", "delivered", "ambiguous")
        ),
        # what cannot be read now was read before
        (
            [deliveries(crm="acknowledged", erp="queued"), said(503), CUT, said(304)],
            False,
            {"crm": "acknowledged", "erp": "queued"},
        ),
        ([said(503), deliveries(crm="dead_letter", erp="exception")], True, {"crm": "dead_letter", "erp": "exception"}),
    ],
)
def test_waiting_returns_where_every_destination_stands(
    script: list[Reply | Lost], settled: bool, states: dict[str, str]
):
    calls, pauses, waited = play(wait(COMMAND, None, 30.0), script)

    assert waited.is_settled is settled
    assert {name: each.state.value for name, each in waited.deliveries.items()} == states
    assert sum(pauses) <= 30.0
    assert settled or sum(pauses) == pytest.approx(30.0)
    assert all("if-none-match" in call.headers for call in calls[3:])


def test_of_an_id_alone_nothing_is_settled_before_something_is_known():
    _, _, nothing = play(wait(ID, None, 5.0), [deliveries()])
    _, _, named = play(wait(ID, ["crm"], 5.0), [deliveries(crm="acknowledged", erp="queued")])

    assert nothing.is_settled is False
    assert named.is_settled is True


def test_a_page_names_its_filters_and_its_place():
    calls, _, found = play(page({"destination": "crm", "state": None}, "abc", 5.0), [deliveries(crm="failed")])

    assert calls[0].path == "/v1/deliveries?destination=crm&cursor=abc"
    assert [each.state for each in found.deliveries] == ["failed"]


def test_bytes_are_submitted_as_they_are_and_what_has_no_json_form_is_refused():
    assert body_of(b'{"data":1.10}') == b'{"data":1.10}'
    assert body_of({"data": "é"}) == '{"data":"é"}'.encode()
    assert body_of([{"data": 1}]) == b'{"commands":[{"data":1}]}'
    with pytest.raises(ConfigError):
        body_of({"data": object()})
