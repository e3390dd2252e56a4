"""Listener and proxy as a worker meets them: what the ledger says was done is what was done, however it was answered."""

import asyncio
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from waybill.chaos.books import lines, read_ledger
from waybill.chaos.core.mischief import TRIES, Mischief
from waybill.chaos.core.verdict import Arrival
from waybill.chaos.programs import WitnessProgram
from waybill.infra.http_client import HttpClient, HttpLimits, PostError
from waybill.kernel.errors import UnavailableError
from waybill.testing import eventually

DELIVERIES = 20
#: Longer than any machine takes over an answer that comes at once; what lasts is given up sooner.
PATIENT_S, IMPATIENT_S = 20.0, 0.4


@contextmanager
def witnesses(
    folder: Path, mischiefs: Sequence[Mischief] = (), profiles: Sequence[str] = ("durable_idempotent",)
) -> Iterator[Mapping[str, str]]:
    """Run both with a destination per mischief that meets every request, or one that meets none, and per profile.

    Yields by destination where to send; a destination is called by its mischief and profile.
    """
    wanted = {f"{one}/{profile}": (one, profile) for one in mischiefs or ("none",) for profile in profiles}
    listener = {
        "seed": 1,
        "ledger": str(folder / "ledger.jsonl"),
        "memory": str(folder / "memory.sqlite"),
        "destinations": {
            name: {"profile": profile, "shares": {one: 1.0} if one.startswith("listener") else {}}
            for name, (one, profile) in wanted.items()
        },
    }
    with WitnessProgram("listener", listener, folder) as behind:
        ports = behind.listening()
        proxy = {
            "seed": 1,
            "exchanges": str(folder / "exchanges.jsonl"),
            "destinations": {
                name: {"port": ports[name], "shares": {one: 1.0} if one.startswith("proxy") else {}}
                for name, (one, _) in wanted.items()
            },
        }
        with WitnessProgram("proxy", proxy, folder) as before:
            yield {name: f"http://127.0.0.1:{port}/" for name, port in before.listening().items()}


def event(number: int, **more: object) -> bytes:
    return json.dumps(
        {"id": str(uuid.UUID(int=number)), "subject": "thing/1", "aggregatesequence": number + 1, **more}
    ).encode()


async def offer(url: str, *, tries: int = 1, wait_s: float = PATIENT_S, bodies: Sequence[bytes] = ()) -> "Counter[str]":
    """Offer each delivery until it is answered well, at most so often, side by side; return what came of the tries."""
    client = HttpClient(HttpLimits(connect_s=PATIENT_S, read_s=wait_s, total_s=wait_s, connections=64))
    found: Counter[str] = Counter()

    async def one(body: bytes) -> None:
        for _ in range(tries):
            try:
                answer = await client.post(url, [("webhook-timestamp", str(int(time.time())))], body)
                found[str(answer.status)] += 1
                if answer.status == 200:
                    return
            except PostError as error:
                found[error.failure.value] += 1

    try:
        await asyncio.gather(*map(one, bodies or map(event, range(DELIVERIES))))
    finally:
        await client.close()
    return found


def done(arrivals: Sequence[Arrival], destination: str) -> "Counter[str]":
    return Counter(e.delivery_id for e in arrivals if e.done_place is not None and e.destination == destination)


#: mischief → what the sender sees at the first try, and whether the listener has acted by then or soon
SEEN: dict[Mischief, tuple[str, bool]] = {
    Mischief.LISTENER_UNAVAILABLE: ("503", False),
    Mischief.LISTENER_LIMITED: ("429", False),
    Mischief.LISTENER_HALF: ("read", True),
    Mischief.LISTENER_LATE: ("timeout", True),
    Mischief.LISTENER_SLOW: ("200", True),
    Mischief.PROXY_DELAY: ("200", True),
    Mischief.PROXY_DRIP: ("200", True),
    Mischief.PROXY_RESET_BEFORE: ("read", False),
    Mischief.PROXY_RESET_AFTER: ("read", True),
    Mischief.PROXY_HALF: ("read", True),
    Mischief.PROXY_LATE_ORIGINAL: ("read", True),
}


def test_each_mischief_looks_to_the_sender_as_it_should_and_the_ledger_knows_better(tmp_path: Path):
    async def all_at_once(urls: Mapping[str, str]) -> "dict[Mischief, Counter[str]]":
        waits = {one: IMPATIENT_S if answer == "timeout" else PATIENT_S for one, (answer, _) in SEEN.items()}
        results = await asyncio.gather(*(offer(urls[f"{one}/durable_idempotent"], wait_s=waits[one]) for one in SEEN))
        return dict(zip(SEEN, results, strict=True))

    assert set(SEEN) == set(Mischief)
    with witnesses(tmp_path, list(SEEN)) as urls:
        found = asyncio.run(all_at_once(urls))
        acted = {one: DELIVERIES if acts else 0 for one, (_, acts) in SEEN.items()}
        eventually(lambda: _acted(tmp_path) == acted, within_s=30)

    assert found == {one: {answer: DELIVERIES} for one, (answer, _) in SEEN.items()}
    exchanges = list(lines(tmp_path / "exchanges.jsonl"))
    assert len(exchanges) == len(SEEN) * DELIVERIES
    noted = [each["mischief"] for each in exchanges] + [
        each.mischief for each in read_ledger(tmp_path / "ledger.jsonl")
    ]
    assert {one: noted.count(one) for one in SEEN} == dict.fromkeys(SEEN, DELIVERIES)


def test_an_exchange_still_under_way_at_the_end_is_noted_without_an_end(tmp_path: Path):
    with witnesses(tmp_path, [Mischief.LISTENER_LATE]) as urls:
        for url in urls.values():
            asyncio.run(offer(url, wait_s=IMPATIENT_S))

            assert asked(url), "who sends is known while it lasts"

    ends = [each["until"] for each in lines(tmp_path / "exchanges.jsonl")]
    assert len(ends) == DELIVERIES
    assert None in ends


def asked(url: str) -> list[int]:
    with urlopen(url, timeout=20) as answer:
        found: list[int] = json.load(answer)
    return found


def _acted(folder: Path) -> dict[Mischief, int]:
    arrivals = read_ledger(folder / "ledger.jsonl")
    return {one: done(arrivals, f"{one}/durable_idempotent").total() for one in SEEN}


def test_a_repeat_acts_again_only_where_nothing_is_remembered(tmp_path: Path):
    profiles = ("durable_idempotent", "bounded_deduplication", "non_idempotent")

    with witnesses(tmp_path, [Mischief.PROXY_RESET_AFTER], profiles) as urls:
        found = [asyncio.run(offer(url, tries=TRIES + 1)) for url in urls.values()]

    arrivals = read_ledger(tmp_path / "ledger.jsonl")
    assert found == [{"read": TRIES * DELIVERIES, "200": DELIVERIES}] * 3, "the fourth try is served"
    effects = [set(done(arrivals, f"{Mischief.PROXY_RESET_AFTER}/{profile}").values()) for profile in profiles]
    assert effects == [{1}, {1}, {TRIES + 1}]


def test_other_bytes_under_a_known_id_are_refused_and_do_nothing(tmp_path: Path):
    with witnesses(tmp_path) as urls:
        ((name, url),) = urls.items()
        asyncio.run(offer(url))
        found = asyncio.run(offer(url, bodies=[event(0, other=True)]))

    assert found == {"409": 1}
    assert set(done(read_ledger(tmp_path / "ledger.jsonl"), name).values()) == {1}


@pytest.mark.parametrize("module", ["listener", "proxy"])
def test_a_witness_that_cannot_start_says_where_to_look(tmp_path: Path, module: str):
    with WitnessProgram(module, {"seed": 1}, tmp_path) as program, pytest.raises(UnavailableError, match=module):
        program.listening()
