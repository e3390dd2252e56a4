"""Tokens of an OpenID Connect issuer beside API keys: who comes in, as whom, and what follows a rotation."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import psycopg
import pytest
from fixtures.fix_submission import Api, erase, running
from fixtures.token_issuer import AUDIENCE, TokenIssuer, token_issuer

from waybill.testing import eventually

pytestmark = pytest.mark.postgres
NOW = int(datetime.now(UTC).timestamp())


@pytest.fixture(scope="module")
def issuer() -> Iterator[TokenIssuer]:
    with token_issuer() as found:
        found.make_key("first")
        found.make_key("with-rsa", is_rsa=True)
        yield found


@pytest.fixture(scope="module")
def guarded(api: Api, issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The API with an issuer whose `shop-backend` is `shop` of the first tenant, `other-backend` of another."""
    with closing(psycopg.connect(api.control_dsn)) as control:
        beside = control.execute("SELECT tenant FROM access.api_key WHERE key_id = %s", (api.keys["beside"][4:20],))
        tenants = (api.database.tenant, (beside.fetchone() or ("",))[0])
    entries = [
        {
            "issuer": issuer.url,
            "audience": AUDIENCE,
            "tenant": tenant,
            "principal": {"claim": "azp", "names": {client: "shop"}},
            "scopes": {"claim": "scope", "names": {"wb.submit": "commands:submit", "wb.read": "deliveries:read"}},
        }
        for tenant, client in zip(tenants, ("shop-backend", "other-backend"), strict=True)
    ]
    path: Path = tmp_path_factory.mktemp("issuers") / "issuers.yaml"
    path.write_text(json.dumps({"issuers": entries}))
    with running(api.control_dsn, api.database.dsn("postgres"), words=("--issuers", str(path))) as (at, process):
        yield replace(api, url=at["url"], metrics=at["metrics"], process=process, keys=dict(api.keys))


def with_token(api: Api, token: str) -> Api:
    return replace(api, keys={**api.keys, "token": token})


@pytest.mark.requirement("HS-1")
@pytest.mark.parametrize("key_id", ["first", "with-rsa"])
def test_a_token_lets_in_as_the_principal_that_is_named_for_it(
    guarded: Api, issuer: TokenIssuer, fresh_subject: str, key_id: str
):
    mine = with_token(guarded, issuer.sign(key_id))
    by_token = mine.post(erase(fresh_subject), fresh_subject, who="token")
    by_key = mine.post(erase(fresh_subject), fresh_subject, who="shop")

    assert (by_token.status_code, by_key.status_code) == (202, 200)
    assert by_token.json()["submissionId"] == by_key.json()["submissionId"]


def without_key(issuer: TokenIssuer) -> str:
    return jwt.encode(issuer.claims(), "", algorithm="none", headers={"kid": "first"})


def by_the_public_key(issuer: TokenIssuer) -> str:
    (public,) = [each for each in (issuer.document("/keys") or {})["keys"] if each["kid"] == "first"]
    return jwt.encode(issuer.claims(), json.dumps(public) * 4, algorithm="HS256", headers={"kid": "first"})


def by_another(_: TokenIssuer) -> str:
    other = TokenIssuer()
    other.url = _.url
    other.make_key("first")
    return other.sign("first")


def changed(issuer: TokenIssuer) -> str:
    head, _, signature = issuer.sign("first").split(".")
    _, claims, _ = issuer.sign("first", scope="openid wb.read").split(".")
    return f"{head}.{claims}.{signature}"


@pytest.mark.requirement("HS-1")
@pytest.mark.parametrize(
    "forge",
    [
        without_key,
        by_the_public_key,
        by_another,
        changed,
        lambda issuer: issuer.sign("first", aud="somebody-else"),
        lambda issuer: issuer.sign("first", exp=NOW - 60),
        lambda issuer: issuer.sign("first", exp=None),
        lambda issuer: issuer.sign("first", nbf=NOW + 3600),
        lambda issuer: issuer.sign("first", azp="unheard-of"),
        lambda issuer: issuer.sign("first", iss="https://elsewhere.example"),
        lambda _: "not.a.token",
    ],
    ids=[
        "no algorithm",
        "hmac by the public key",
        "another key of that id",
        "changed",
        "audience",
        "expired",
        "no end",
        "not yet",
        "nobody",
        "another issuer",
        "no token",
    ],
)
def test_any_other_token_lets_nobody_in(guarded: Api, issuer: TokenIssuer, forge: Callable[[TokenIssuer], str]):
    answer = with_token(guarded, forge(issuer)).get("/v1/submissions", "token")

    assert (answer.status_code, answer.json()["reason"]) == (401, "credentials_refused")


def test_a_token_may_do_what_its_scopes_are_named_for(guarded: Api, issuer: TokenIssuer):
    reader = with_token(guarded, issuer.sign("first", scope=["wb.read", "everything"]))

    assert reader.get("/v1/deliveries", "token").status_code == 200
    assert reader.get("/v1/submissions", "token").status_code == 403


@pytest.mark.requirement("HS-2")
def test_a_token_of_another_tenant_finds_nothing(guarded: Api, issuer: TokenIssuer, fresh_subject: str):
    mine = with_token(guarded, issuer.sign("first")).post(erase(fresh_subject), fresh_subject, who="token").json()

    theirs = with_token(guarded, issuer.sign("first", azp="other-backend"))

    assert theirs.get(f"/v1/submissions/{mine['submissionId']}", "token").status_code == 404


def test_a_new_key_is_followed_and_the_issuer_may_be_away(guarded: Api, issuer: TokenIssuer):
    def status(token: str) -> int:
        return with_token(guarded, token).get("/v1/submissions", "token").status_code

    assert status(issuer.sign("first")) == 200
    issuer.make_key("second")
    eventually(lambda: status(issuer.sign("second")) == 200, 30, "the new key is found")
    issuer.is_away = True
    try:
        assert status(issuer.sign("second")) == 200
        assert status(issuer.sign(issuer.make_key("third"))) == 401
    finally:
        issuer.is_away = False


def test_a_file_that_names_no_https_issuer_is_refused(api: Api, tmp_path: Path):
    from typer.testing import CliRunner

    from waybill.cli.app import root
    from waybill.kernel.errors import ConfigError

    wrong: dict[str, Any] = {
        "issuers": [
            {
                "issuer": "http://login.example",
                "audience": "a",
                "tenant": "acme",
                "principal": {"claim": "sub", "names": {"a": "b"}},
                "scopes": {"claim": "scope", "names": {"a": "commands:submit"}},
            }
        ]
    }
    (tmp_path / "issuers.yaml").write_text(json.dumps(wrong))

    done = CliRunner().invoke(
        root, ["api", "run", "--issuers", str(tmp_path / "issuers.yaml")], env={"WAYBILL_CONTROL_DSN": api.control_dsn}
    )

    assert isinstance(done.exception, ConfigError)
    assert "https" in str(done.exception)
