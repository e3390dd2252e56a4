"""When a signed request lets somebody in, and that no altered one does."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.access.core.keys import KeyRecord, Presented, Principal, Refusal, Scope, judge
from waybill.access.core.signed import WINDOW, Believed, judge_signature
from waybill.access.signed_requests import SignedIn, SignedRequests
from waybill.client.signing import RequestSigner
from waybill.crypto.ed25519 import SigningKey
from waybill.crypto.keys import Algorithm, new_key
from waybill.crypto.requests import Parameters, RequestHead, read_signature, sign, to_cover
from waybill.kernel.ids import Tenant
from waybill.testing.clocks import MovableClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AT = int(NOW.timestamp())
ID = "0f3a9c5d7e1b2468"
PAIR = new_key(Algorithm.ED25519, Tenant("acme"), NOW)
OTHER = new_key(Algorithm.ED25519, Tenant("acme"), NOW)
BODY = b'{"aggregate":"subject/7"}'
NONCE = "n" * 16


def record(**changes: Any) -> KeyRecord:
    values: dict[str, Any] = {
        "key_id": ID,
        "tenant": Tenant("acme"),
        "principal": "shop",
        "scopes": frozenset({Scope.COMMANDS_SUBMIT}),
        "public_key": PAIR.public_bytes(),
        "created_at": NOW - timedelta(days=1),
        "created_by": "ann",
    }
    return KeyRecord(**{**values, **changes})


def head_of(request: httpx.Request) -> RequestHead:
    fields = tuple((name.lower(), value) for name, value in request.headers.multi_items())
    target = request.url.raw_path.decode()
    return RequestHead(method=request.method, authority=request.headers["host"], target=target, fields=fields)


def request(body: bytes = BODY, target: str = "/v1/commands?a=b") -> httpx.Request:
    headers = {"content-type": "application/json", "idempotency-key": "order-1"}
    return httpx.Request("POST", f"https://waybill.example{target}", headers=headers, content=body)


def by_client(asked: httpx.Request, now: datetime = NOW) -> RequestHead:
    signer = RequestSigner(ID, PAIR.secret, MovableClock(now))
    return head_of(next(signer.auth_flow(asked)))


def by_hand(covered: tuple[str, ...] | None = None, **parameters: Any) -> RequestHead:
    asked = head_of(request(b""))
    said = {"created": AT, "key_id": ID, "nonce": NONCE, **parameters}
    made = sign(asked, covered or to_cover(asked), Parameters(**said), SigningKey(PAIR.secret.reveal()))
    return replace(asked, fields=(*asked.fields, *made.items()))


def found(head: RequestHead, known: KeyRecord | None = None, now: datetime = NOW) -> Believed | Refusal:
    signature = read_signature(head)
    return Refusal.MALFORMED if signature is None else judge_signature(signature, head, known or record(), now)


def test_what_the_client_signs_lets_its_principal_in():
    came = found(by_client(request()))

    assert isinstance(came, Believed)
    scopes = frozenset({Scope.COMMANDS_SUBMIT})
    assert came.principal == Principal(tenant=Tenant("acme"), name="shop", scopes=scopes, key_id=ID)
    assert came.until > NOW + WINDOW


@pytest.mark.parametrize(
    ("head", "known", "refusal"),
    [
        (by_hand(), record(public_key=OTHER.public_bytes()), Refusal.UNKNOWN),
        # an API key signs nothing
        (by_hand(), record(public_key=None, digest=b"\x00" * 32), Refusal.UNKNOWN),
        (by_hand(), record(revoked_at=NOW), Refusal.REVOKED),
        (by_hand(), record(expires_at=NOW), Refusal.EXPIRED),
        (by_hand(nonce=None), None, Refusal.MALFORMED),
        (by_hand(nonce="n" * 15), None, Refusal.MALFORMED),
        (by_hand(nonce="n" * 101), None, Refusal.MALFORMED),
        (by_hand(created=None), None, Refusal.MALFORMED),
        (by_hand(algorithm="hmac-sha256"), None, Refusal.MALFORMED),
        # the window is for both sides, and includes its ends
        (by_hand(created=AT - 301), None, Refusal.STALE),
        (by_hand(created=AT + 301), None, Refusal.NOT_YET),
        (by_hand(expires=AT), None, Refusal.STALE),
        # whatever is left out
        (by_hand(("@method", "@authority", "@path", "content-type", "idempotency-key")), None, Refusal.NOT_COVERED),
        (by_hand(("@method", "@authority", "@query", "content-type", "idempotency-key")), None, Refusal.NOT_COVERED),
        (by_hand(("@method", "@path", "@query", "content-type", "idempotency-key")), None, Refusal.NOT_COVERED),
        (by_hand(("@authority", "@path", "@query", "content-type", "idempotency-key")), None, Refusal.NOT_COVERED),
        (by_hand(("@method", "@authority", "@path", "@query", "content-type")), None, Refusal.NOT_COVERED),
        (by_hand(("@method", "@authority", "@path", "@query", "idempotency-key")), None, Refusal.NOT_COVERED),
    ],
)
def test_who_is_not_let_in(head: RequestHead, known: KeyRecord | None, refusal: Refusal):
    assert found(head, known) is refusal


@pytest.mark.parametrize(
    "said", [{"created": AT - 300}, {"created": AT + 300}, {"expires": AT + 1}, {"algorithm": "ed25519"}]
)
def test_who_is_let_in(said: dict[str, Any]):
    assert isinstance(found(by_hand(**said)), Believed)


def test_a_key_that_signs_is_no_api_key():
    for digest in (b"\x00" * 32, hashlib.sha256(b"").digest()):
        assert judge(Presented(key_id=ID, digest=digest), record(), NOW) is Refusal.UNKNOWN


TEXT = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='"\\?'), min_size=1, max_size=20)


def with_field(head: RequestHead, name: str, value: str | None) -> RequestHead:
    kept = tuple(each for each in head.fields if each[0] != name)
    return replace(head, fields=kept if value is None else (*kept, (name, value)))


@st.composite
def alterations(draw: st.DrawFn) -> tuple[RequestHead, RequestHead]:
    """A signed request, and the same with one covered component changed, dropped or come twice."""
    before = by_client(request())
    names = [*to_cover(before), "signature-input", "signature"]
    name = draw(st.sampled_from(names))
    value = draw(TEXT)
    path, _, query = before.target.partition("?")
    match name:
        case "@method":
            return before, replace(before, method=value)
        case "@authority":
            return before, replace(before, authority=value)
        case "@path":
            return before, replace(before, target=f"/{value}?{query}")
        case "@query":
            return before, replace(before, target=draw(st.sampled_from([path, f"{path}?{value}"])))
    if draw(st.booleans()):
        return before, replace(before, fields=(*before.fields, (name, value)))
    return before, with_field(before, name, draw(st.sampled_from([None, value])))


@pytest.mark.requirement("HS-1")
@settings(max_examples=300, deadline=None)
@given(alterations())
def test_no_altered_request_lets_anybody_in(pair: tuple[RequestHead, RequestHead]):
    before, after = pair

    came = found(after)

    if all(before.component(name) == after.component(name) for name in (*to_cover(before), *SIGNED)):
        assert isinstance(came, Believed)  # the same by another way
    else:
        assert isinstance(came, Refusal)


SIGNED = ("signature-input", "signature")


@settings(max_examples=200, deadline=None)
@given(at=st.integers(0, 10_000), bit=st.integers(0, 7), field=st.sampled_from(SIGNED))
def test_no_bit_of_a_signature_may_change(at: int, bit: int, field: str):
    before = by_client(request())
    (text,) = before.values(field)
    raw = bytearray(text.encode())
    raw[at % len(raw)] ^= 1 << bit
    if field == "signature-input" and at % len(raw) < text.index("("):
        return  # the label: both fields have to agree about it, and it means nothing

    assert isinstance(found(with_field(before, field, raw.decode("latin-1"))), Refusal)


class Memory:
    """The table of nonces."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, str]] = set()

    async def remember(self, key_id: str, nonce: str, until: datetime) -> bool:
        is_new = (key_id, nonce) not in self.seen
        self.seen.add((key_id, nonce))
        return is_new


async def find(key_id: str) -> KeyRecord | None:
    return record() if key_id == ID else None


@pytest.fixture
def at_noon() -> MovableClock:
    return MovableClock(NOW)


async def test_a_signed_request_counts_once(at_noon: MovableClock):
    memory = Memory()
    doors = [SignedRequests(find, memory.remember, at_noon) for _ in range(2)]
    came = by_client(request())

    assert isinstance(await doors[0].authenticate(came), SignedIn)
    assert [await each.authenticate(came) for each in doors] == [Refusal.COPIED] * 2
    assert isinstance(await doors[0].authenticate(by_client(request())), SignedIn)


async def test_what_is_not_believed_uses_up_no_nonce(at_noon: MovableClock):
    memory = Memory()
    door = SignedRequests(find, memory.remember, at_noon)
    forged = with_field(by_client(request()), "idempotency-key", "order-2")

    assert await door.authenticate(forged) is Refusal.UNKNOWN
    assert not memory.seen


@pytest.mark.parametrize("body", [BODY, b""], ids=["with a body", "empty"])
async def test_the_body_is_the_signed_one(at_noon: MovableClock, body: bytes):
    door = SignedRequests(find, Memory().remember, at_noon)
    same, other = [await door.authenticate(by_client(request(body))) for _ in range(2)]
    assert isinstance(same, SignedIn)
    assert isinstance(other, SignedIn)
    same.content.take(body)
    other.content.take(body + b" ")

    assert (same.content.is_same(), other.content.is_same()) == (True, False)


async def test_what_is_refused_is_logged_by_key_id(at_noon: MovableClock, capsys: pytest.CaptureFixture[str]):
    came = by_client(request(), NOW - timedelta(hours=1))

    refusal = await SignedRequests(find, Memory().remember, at_noon).authenticate(came)

    said = "".join(capsys.readouterr())
    assert refusal is Refusal.STALE
    assert ("access.refused" in said, ID in said, "stale" in said) == (True, True, True)
    assert came.values("signature")[0] not in said
