"""Signed requests against the running API: who comes in, once, and with nothing changed on the way."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from fixtures.fix_submission import Api, erase, running
from typer.testing import CliRunner

from waybill.cli.app import root
from waybill.client import AsyncClient, Client, RefusalError, RequestSigner
from waybill.testing import eventually

pytestmark = pytest.mark.postgres


def run(api: Api, *words: str, fails: bool = False) -> Any:
    done = CliRunner().invoke(root, ["access", *words, "--json"], env={"WAYBILL_CONTROL_DSN": api.control_dsn})
    if fails:
        return done.exception
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def pair(folder: Path, name: str, kind: type[Ed25519PrivateKey] | None = Ed25519PrivateKey) -> tuple[Path, Path]:
    """Make a key pair as `openssl genpkey` and `openssl pkey -pubout` write it; None makes one of RSA."""
    key = kind.generate() if kind is not None else generate_private_key(65_537, 2048)
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return private, public


def register(api: Api, who: str, public: Path, scope: str = "commands:submit") -> str:
    tenant = api.database.tenant
    made = run(api, "keys", "create", tenant, who, "--scope", scope, "--public-key", str(public))
    assert "key" not in made
    return str(made["key_id"])


@pytest.fixture(scope="module")
def signer(api: Api, tmp_path_factory: pytest.TempPathFactory) -> RequestSigner:
    """Of the principal `signing`."""
    private, public = pair(tmp_path_factory.mktemp("pair"), "first")
    return RequestSigner(register(api, "signing", public), private)


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=60) as client:
        yield client


def prepared(http: httpx.Client, api: Api, signer: RequestSigner, subject: str) -> httpx.Request:
    """A signed request to submit a command, not sent yet."""
    asked = http.build_request(
        "POST", f"{api.url}/v1/commands", json=erase(subject), headers={"idempotency-key": subject}
    )
    return next(signer.auth_flow(asked))


def refused(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json()["reason"]) == (401, "credentials_refused")


@pytest.mark.requirement("HS-1")
async def test_both_clients_submit_by_signature(api: Api, signer: RequestSigner, fresh_subject: str):
    with Client(api.url, signer) as client:
        first = client.submit(erase(fresh_subject), fresh_subject)
        found = client.submission(first.submission_id)
    async with AsyncClient(api.url, signer) as client:
        again = await client.submit(erase(fresh_subject), fresh_subject)

    assert first.submission_id == again.submission_id
    assert found is not None
    assert len(api.issued(f"subject/{fresh_subject}")) == 1


def test_a_query_is_signed_too(api: Api, tmp_path: Path):
    private, public = pair(tmp_path, "looking")
    reading = RequestSigner(register(api, "looking", public, "deliveries:read"), private)
    with Client(api.url, reading) as client:
        assert list(client.deliveries(aggregate="subject/ä b", limit=5)) == []
        with pytest.raises(RefusalError, match="scope"):
            client.submit(erase("7"), "a-key")


@pytest.mark.requirement("HS-1")
def test_a_signed_request_counts_once_at_every_process(
    api: Api, signer: RequestSigner, http: httpx.Client, fresh_subject: str
):
    request = prepared(http, api, signer, fresh_subject)
    first, again = http.send(request), http.send(request)
    with running(api.control_dsn, api.database.dsn("postgres")) as (at, _):
        request.url = httpx.URL(at["url"] + "/v1/commands")  # the other process, asked by the first one's name
        elsewhere = http.send(request)

    assert first.status_code == 202
    assert refused(again)
    assert refused(elsewhere)
    assert "nonce" not in again.text


@pytest.mark.requirement("HS-1")
@pytest.mark.parametrize("change", ["body", "digest", "idempotency-key", "path", "both credentials"])
def test_nothing_of_a_signed_request_may_change(
    api: Api, signer: RequestSigner, http: httpx.Client, fresh_subject: str, change: str
):
    request = prepared(http, api, signer, fresh_subject)
    body = request.content
    match change:
        case "body":
            body = body.replace(b"erase", b"seize")
        case "digest":
            other = http.build_request("POST", api.url, content=b"{}")
            request.headers["content-digest"] = next(signer.auth_flow(other)).headers["content-digest"]
        case "idempotency-key":
            request.headers["idempotency-key"] += "-2"
        case "path":
            request.url = httpx.URL(f"{api.url}/v1/commands:batch")
        case "both credentials":
            request.headers["authorization"] = f"Bearer {api.keys['shop']}"

    answer = http.request(request.method, request.url, headers=request.headers, content=body)

    assert refused(answer)
    assert api.issued(f"subject/{fresh_subject}") == []


def test_keys_are_rotated_with_overlap_and_revoked(api: Api, fresh_subject: str, tmp_path: Path):
    tenant, pairs = api.database.tenant, [pair(tmp_path, name) for name in ("old", "new")]
    old = RequestSigner(register(api, "rotating", pairs[0][1]), pairs[0][0])
    rotate = ("keys", "rotate", tenant, "rotating", "--overlap", "1h")
    without = run(api, *rotate, fails=True)
    new = RequestSigner(run(api, *rotate, "--public-key", str(pairs[1][1]))["key_id"], pairs[1][0])

    def status(who: RequestSigner) -> int:
        return httpx.get(f"{api.url}/v1/submissions", auth=who, timeout=60).status_code

    assert "--public-key" in str(without)
    assert (status(old), status(new)) == (200, 200)
    run(api, "keys", "revoke", tenant, "rotating", "--key", old._key_id)
    eventually(lambda: status(old) == 401, 30, "the old key is forgotten")
    assert status(new) == 200
    kinds = {each["kind"] for each in run(api, "keys", "list", tenant)["keys"] if each["principal"] == "rotating"}
    assert kinds == {"public key"}


def test_a_principal_goes_over_from_a_key_to_signatures(api: Api, tmp_path: Path):
    tenant, (private, public) = api.database.tenant, pair(tmp_path, "next")
    shown = run(api, "keys", "create", tenant, "going-over", "--scope", "commands:submit")["key"]
    made = run(api, "keys", "rotate", tenant, "going-over", "--public-key", str(public))

    by_key = httpx.get(f"{api.url}/v1/submissions", headers={"authorization": f"Bearer {shown}"}, timeout=60)
    by_signature = httpx.get(f"{api.url}/v1/submissions", auth=RequestSigner(made["key_id"], private), timeout=60)

    assert (by_key.status_code, by_signature.status_code) == (200, 200)


@pytest.mark.parametrize("which", ["private", "rsa", "nothing", "short"])
def test_what_is_no_public_key_is_refused_with_what_to_do(api: Api, tmp_path: Path, which: str):
    private, _ = pair(tmp_path, "mine")
    _, rsa = pair(tmp_path, "rsa", None)
    given = {"private": str(private), "rsa": str(rsa), "nothing": str(tmp_path / "gone"), "short": "whpk_AAAA"}[which]

    error = run(api, "keys", "create", api.database.tenant, "nobody", "--scope", "commands:submit",
                "--public-key", given, fails=True)  # fmt: skip

    expected = {"private": "stays with its holder", "rsa": "ed25519", "nothing": "cannot be read", "short": "32 bytes"}
    assert expected[which] in str(error)
