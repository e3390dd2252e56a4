"""What claims come to, and how an issuer's keys are followed."""

from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from fixtures.token_issuer import TokenIssuer

from waybill.access.core.keys import Principal, Refusal, Scope
from waybill.access.core.tokens import Issuer, judge_claims
from waybill.access.issuer_keys import COOLDOWN_S, KEPT_S, MAX_AGE_S, IssuerKeys
from waybill.kernel.errors import UnavailableError
from waybill.kernel.ids import Tenant
from waybill.testing import MovableClock

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
AT = int(NOW.timestamp())
URL = "https://login.example"


def entry(tenant: str, client: str) -> Issuer:
    return Issuer(
        issuer=URL,
        audience="waybill",
        tenant=Tenant(tenant),
        principal_claim="azp",
        principals={client: "shop"},
        scope_claim="scope",
        scopes={"wb.submit": Scope.COMMANDS_SUBMIT},
    )


ENTRIES = (entry("acme", "one"), entry("globex", "two"))
GOOD: dict[str, Any] = {"iss": URL, "aud": "waybill", "azp": "one", "scope": "openid wb.submit", "exp": AT + 60}


@pytest.mark.parametrize(
    ("changes", "came"),
    [
        ({}, ("acme", {Scope.COMMANDS_SUBMIT})),
        ({"azp": "two"}, ("globex", {Scope.COMMANDS_SUBMIT})),
        ({"aud": ["x", "waybill"]}, ("acme", {Scope.COMMANDS_SUBMIT})),
        ({"scope": ["wb.submit"]}, ("acme", {Scope.COMMANDS_SUBMIT})),
        # a scope that is not named is none, also when it sounds like one of ours
        ({"scope": "commands:submit"}, ("acme", set())),
        ({"scope": None}, ("acme", set())),
        # the leeway is for both sides, and has an end
        ({"exp": AT - 29}, ("acme", {Scope.COMMANDS_SUBMIT})),
        ({"exp": AT - 30}, Refusal.EXPIRED),
        ({"nbf": AT + 30, "iat": AT + 30}, ("acme", {Scope.COMMANDS_SUBMIT})),
        ({"nbf": AT + 31}, Refusal.NOT_YET),
        ({"iat": AT + 31}, Refusal.NOT_YET),
        # a time is a number
        ({"exp": None}, Refusal.MALFORMED),
        ({"exp": str(AT + 60)}, Refusal.MALFORMED),
        ({"exp": True}, Refusal.MALFORMED),
        ({"nbf": "soon"}, Refusal.MALFORMED),
        ({"aud": "waybill-too"}, Refusal.AUDIENCE),
        ({"aud": "x waybill"}, Refusal.AUDIENCE),
        ({"aud": None}, Refusal.AUDIENCE),
        ({"iss": URL + "/"}, Refusal.AUDIENCE),
        ({"azp": "three"}, Refusal.NOBODY),
        ({"azp": ["one"]}, Refusal.NOBODY),
        ({"azp": None}, Refusal.NOBODY),
    ],
)
def test_claims_come_to_whom_the_configuration_names(changes: dict[str, Any], came: Any) -> None:
    found = judge_claims(GOOD | changes, ENTRIES, NOW, "k")

    if isinstance(came, Refusal):
        assert found is came
    else:
        tenant, scopes = came
        assert found == Principal(tenant=Tenant(tenant), name="shop", scopes=frozenset(scopes), key_id="k")


class Published:
    """What an issuer publishes, without HTTP."""

    def __init__(self) -> None:
        self.issuer = TokenIssuer()
        self.asked, self.is_away = 0, False

    def __call__(self, _: str) -> dict[str, jwt.PyJWK]:
        self.asked += 1
        if self.is_away:
            raise UnavailableError("away")
        document = self.issuer.document("/keys") or {}
        return {each["kid"]: jwt.PyJWK(each) for each in document["keys"]}


async def test_a_rotation_is_followed_and_forged_ids_cause_no_flood() -> None:
    published, clock = Published(), MovableClock()
    published.issuer.make_key("first")
    keys = IssuerKeys(URL, clock, published)
    assert await keys.key("first") is not None

    for _ in range(50):
        assert await keys.key("forged") is None
    assert published.asked == 1

    published.issuer.make_key("second")
    clock.advance(timedelta(seconds=COOLDOWN_S))
    assert await keys.key("second") is not None
    assert published.asked == 2


async def test_a_key_that_was_taken_back_ends() -> None:
    published, clock = Published(), MovableClock()
    published.issuer.make_key("first")
    published.issuer.make_key("second")
    keys = IssuerKeys(URL, clock, published)
    assert await keys.key("first") is not None

    published.issuer.published.remove("first")
    clock.advance(timedelta(seconds=MAX_AGE_S + 1))

    assert await keys.key("first") is None


async def test_the_last_keys_count_for_a_while_when_the_issuer_is_away() -> None:
    published, clock = Published(), MovableClock()
    published.issuer.make_key("first")
    keys = IssuerKeys(URL, clock, published)
    assert await keys.key("first") is not None
    published.is_away = True

    clock.advance(timedelta(seconds=KEPT_S - 1))
    assert await keys.key("first") is not None
    clock.advance(timedelta(seconds=2))
    with pytest.raises(UnavailableError):
        await keys.key("first")


async def test_an_issuer_that_never_answered_is_unavailable_and_not_a_refusal() -> None:
    published = Published()
    published.is_away = True

    with pytest.raises(UnavailableError):
        await IssuerKeys(URL, MovableClock(), published).key("first")
