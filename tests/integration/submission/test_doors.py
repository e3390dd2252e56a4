"""Who is let in, what another tenant sees, what a person has to decide, and whether the description is true."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from fixtures.fix_submission import Api, erase
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from typer.testing import CliRunner

from waybill.cli.app import root
from waybill.client import RequestSigner
from waybill.crypto.keys import Secret

pytestmark = pytest.mark.postgres
NOBODYS = "0199f3c0-0000-7000-8000-000000000000"


def operations(api: Api) -> Iterator[tuple[str, str]]:
    for path, methods in httpx.get(f"{api.url}/openapi.json", timeout=60).json()["paths"].items():
        for method in methods:
            yield method.upper(), path.replace("{submissionId}", NOBODYS).replace("{deliveryId}", NOBODYS)


NO_KEY = f"Bearer wbk_{'0123456789abcdef'}_{'a' * 43}"
SIGNED_BY_NOBODY = RequestSigner("0123456789abcdef", Secret(b"\x01" * 32))


@pytest.mark.requirement("HS-1")
@pytest.mark.parametrize(
    "shown",
    [
        {},
        {"headers": {"authorization": ""}},
        {"headers": {"authorization": NO_KEY}},
        {"headers": {"authorization": "Basic c2hvcDpzaG9w"}},
        {"headers": {"signature": "sig1=:AAAA:"}},
        {"headers": {"signature-input": 'sig1=("@method");keyid="k"', "signature": "sig1=:AAAA:"}},
        {"auth": SIGNED_BY_NOBODY},
    ],
    ids=["nothing", "empty", "no key", "Basic", "half a signature", "a poor signature", "signed by nobody"],
)
def test_nobody_comes_in_without_credentials(api: Api, shown: dict[str, Any]):
    answers = [httpx.request(*each, **shown, timeout=60) for each in absolute(api)]

    assert len(answers) >= 6
    assert {each.status_code for each in answers} == {401}
    assert {each.headers["www-authenticate"] for each in answers} == {"Bearer"}
    assert {each.headers["content-type"] for each in answers} == {"application/problem+json"}
    assert len({each.text for each in answers}) == 1


def absolute(api: Api) -> list[tuple[str, str]]:
    return [(method, api.url + path) for method, path in operations(api)]


def test_two_credentials_are_none(api: Api):
    twice = [("authorization", f"Bearer {api.keys['shop']}")] * 2

    assert httpx.get(f"{api.url}/v1/submissions", headers=twice, timeout=60).status_code == 401


def test_a_key_opens_what_its_scope_names(api: Api, fresh_subject: str):
    refused = api.post(erase(fresh_subject), fresh_subject, who="reader")

    assert (refused.status_code, refused.json()["reason"]) == (403, "missing_scope")


@pytest.mark.requirement("HS-2")
@pytest.mark.parametrize("who", ["till", "beside"], ids=["of another principal", "of another tenant"])
def test_what_belongs_to_others_is_not_there(api: Api, fresh_subject: str, who: str):
    mine = api.post(erase(fresh_subject), fresh_subject).json()["submissionId"]

    theirs = api.get(f"/v1/submissions/{mine}", who)
    nobodys = api.get(f"/v1/submissions/{NOBODYS}", who)

    assert (theirs.status_code, theirs.content) == (nobodys.status_code, nobodys.content)
    assert theirs.status_code == 404


def run(api: Api, *words: str) -> Any:
    environ = {"WAYBILL_CONTROL_DSN": api.control_dsn, "WAYBILL_TEST_OUTBOX": api.database.dsn("postgres")}
    done = CliRunner().invoke(root, ["submissions", *words, "--json"], env=environ, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.mark.requirement("GW-16")
def test_what_a_resubmission_may_do_is_the_rule_of_its_principal(api: Api, fresh_subject: str):
    tenant = api.database.tenant
    first = api.post(erase(fresh_subject), fresh_subject, who="till").json()["submissionId"]
    answers = {}
    for rule in ("never", "within 1ms", "within 1h", "always"):
        run(api, "rule", tenant, "till", rule, "--why", "test", "--by", "ann")
        answers[rule] = api.post(erase(fresh_subject), fresh_subject, who="till")

    assert [each.status_code for each in answers.values()] == [409, 409, 200, 200]
    assert answers["never"].json()["reason"] == "resubmission_refused"
    assert {each.json()["submissionId"] for each in answers.values()} == {first}
    newest = [row["rule"] for row in run(api, "rules", tenant)["rules"]][:4]  # other tests made rules before
    assert newest == ["always", "within 1h", "within 1ms", "never"]
    assert len(api.issued(f"subject/{fresh_subject}")) == 1


@pytest.mark.requirement("GW-16")
def test_an_ambiguous_submission_waits_until_a_person_settles_it(api: Api, fresh_subject: str):
    tenant = api.database.tenant
    run(api, "rule", tenant, "till", "never", "--why", "test")
    first = api.post(erase(fresh_subject), fresh_subject, who="till").json()["submissionId"]
    api.post(erase(fresh_subject), fresh_subject, who="till")

    waits = [each["submissionId"] for each in api.get("/v1/submissions", "till").json()["submissions"]]
    listed = [each["submission"] for each in run(api, "list", tenant)["submissions"]]
    run(api, "settle", tenant, first, "--why", "seen at the destination", "--by", "bob")
    api.post(erase(fresh_subject), fresh_subject, who="till")

    assert first in waits
    assert first in listed
    assert first not in [each["submission"] for each in run(api, "list", tenant)["submissions"]]
    assert api.get(f"/v1/submissions/{first}", "till").json()["state"] == "settled"
    assert first not in [each["submissionId"] for each in api.get("/v1/submissions").json()["submissions"]]


def test_reading_needs_a_scope_of_its_own(api: Api):
    assert [api.get("/v1/deliveries", who).status_code for who in ("shop", "reader")] == [403, 200]


def test_what_is_not_there_is_a_problem_too(api: Api):
    answers = [api.get("/v1/nothing"), httpx.delete(f"{api.url}/v1/commands", timeout=60)]

    assert [each.status_code for each in answers] == [404, 405]
    assert {each.headers["content-type"] for each in answers} == {"application/problem+json"}
    assert answers[1].headers["allow"] == "POST"


def test_health_needs_no_key_and_tells_nothing(api: Api):
    assert httpx.get(f"{api.url}/healthz", timeout=60).json() == {"status": "ok"}


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_the_description_is_true_whatever_is_sent(api: Api, mode: GenerationMode):
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    seen: set[int] = set()

    for found in schemathesis.openapi.from_url(f"{api.url}/openapi.json").get_all_operations():
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not operation.body:
            continue

        @settings(
            max_examples=10,
            deadline=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def play(case: Any) -> None:
            answer = case.call(headers=api.headers("both"), timeout=60)
            seen.add(answer.status_code)
            case.validate_response(answer, checks=checks)

        play()

    # what is generated to be wrong may leave the credentials out, too
    assert (400 in seen) if mode is GenerationMode.NEGATIVE else (401 not in seen)
