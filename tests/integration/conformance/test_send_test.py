"""`waybill send-test`: one signed delivery without a stack; every way it can end is told apart, no secret is shown."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from fixtures.certificates import Authority
from fixtures.fake_listener import Arrival, FakeListener, Reply, receipt
from typer.testing import CliRunner

from waybill.cli.send_test import app
from waybill.conformance.program import free_port
from waybill.contracts.envelope import Envelope
from waybill.contracts.envelope_reader import parse
from waybill.crypto.signing import parse_hmac_secrets
from waybill.crypto.verifying import Accept, SignatureHeaders, VerificationKeys, verify
from waybill.infra.clock import SystemClock
from waybill.kernel.errors import ConfigError, UnavailableError

SECRET = "whsec_" + "QUJD" * 11


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


@pytest.fixture
def listener() -> Iterator[FakeListener]:
    with FakeListener().serving() as found:
        yield found


def send(url: str, keys: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [url, "--keys-dir", str(keys), "--json", *words])


def document(ended: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def believed(arrival: Arrival, keys: VerificationKeys) -> bool:
    found = SignatureHeaders(
        webhook_id=arrival.headers["webhook-id"],
        timestamp=arrival.headers["webhook-timestamp"],
        signature=arrival.headers["webhook-signature"],
    )
    return isinstance(verify(found, arrival.body, keys, SystemClock().now()), Accept)


@pytest.mark.requirement("GW-19")
def test_what_is_sent_is_signed_and_shown_as_it_went(
    listener: FakeListener, keys: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CRM_SECRET", SECRET)
    words = ["--tenant", "acme", "--destination", "crm", "--type", "subject.erase", "--data", '{"who": "é"}']

    ended = send(
        listener.url, keys, *words, "--aggregate", "subject/7", "--sequence", "3", "--secret", "env:CRM_SECRET"
    )

    (arrival,) = listener.arrivals
    (attempt,) = document(ended)["attempts"]
    envelope = parse(arrival.body)
    assert ended.exit_code == 0
    assert isinstance(envelope, Envelope)
    assert (envelope.tenant, envelope.command_type, envelope.aggregate) == ("acme", "subject.erase", "subject/7")
    assert (envelope.sequence, json.loads(envelope.data or b"")["isTest"]) == (3, True)
    assert attempt["sent"]["body"].encode() == arrival.body
    assert {name: arrival.headers[name] for name in attempt["sent"]["headers"]} == attempt["sent"]["headers"]
    stamp = arrival.headers["webhook-timestamp"]
    assert attempt["sent"]["signature_base"] == f"{arrival.delivery_id}.{stamp}.{arrival.body.decode()}"
    jwks = json.loads((keys / "acme" / "jwks.json").read_bytes())
    assert believed(arrival, VerificationKeys.from_jwks(jwks))
    assert believed(arrival, VerificationKeys((), parse_hmac_secrets(SECRET)))


def test_no_secret_is_shown(listener: FakeListener, keys: Path, tmp_path: Path):
    (tmp_path / "secret").write_text(SECRET + "\n")

    shown = "".join(
        CliRunner().invoke(app, [listener.url, "--keys-dir", str(keys), *more, "--secret", where]).output
        for more in ([], ["--json"])
        for where in (f"file:{tmp_path}/secret", SECRET)
    )

    private = json.loads((keys / "conformance" / "signing.json").read_text())["keys"][0]["secret"]
    assert SECRET not in shown
    assert private not in shown


@pytest.mark.parametrize(
    ("answer", "level", "meaning", "code"),
    [
        (receipt(), "L1", "receipt", 0),
        ((200, {"content-type": "text/plain"}, b"ok"), "L1", "unproven", 1),
        ((200, {"content-type": "text/plain"}, b"ok"), "L0", "acknowledged", 0),
        ((302, {"location": "https://elsewhere.example/"}, b""), "L1", "redirect", 1),
        (
            (422, {"content-type": "application/problem+json"}, b'{"type":"urn:waybill:error:POLICY_BLOCK"}'),
            "L1",
            "problem",
            1,
        ),
    ],
)
def test_an_answer_is_held_to_the_declared_level(keys: Path, answer: Reply, level: str, meaning: str, code: int):
    with FakeListener(behave=lambda _: answer).serving() as listener:
        ended = send(listener.url, keys, "--level", level)

    (attempt,) = document(ended)["attempts"]
    assert (ended.exit_code, attempt["verdict"]["meaning"], attempt["answer"]["status"]) == (code, meaning, answer[0])
    assert len(listener.arrivals) == 1  # a redirect is never followed


def test_a_repeat_has_the_same_body_under_a_signature_of_its_own(listener: FakeListener, keys: Path):
    ended = send(listener.url, keys, "--times", "2")

    first, again = listener.arrivals
    assert (first.body, first.delivery_id) == (again.body, again.delivery_id)
    assert first.headers["webhook-timestamp"] < again.headers["webhook-timestamp"]
    assert [each["verdict"]["meaning"] for each in document(ended)["attempts"]] == ["receipt", "differs"]
    assert ended.exit_code == 1


@contextmanager
def tls(authority: Authority) -> Iterator[int]:
    """A TLS server that answers nothing anybody may believe."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited name
            pass

    signed = authority.sign("127.0.0.1")
    pem = Path(f"/tmp/waybill-send-test-{free_port()}.pem")
    pem.write_text(signed.pem + signed.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    pem.unlink()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_a_certificate_nobody_signed_for_is_not_believed_until_its_authority_is_named(keys: Path, tmp_path: Path):
    authority = Authority("ours")
    (tmp_path / "ca.pem").write_text(authority.pem)
    with tls(authority) as port:
        strange = send(f"https://127.0.0.1:{port}/", keys, "--level", "L0")
        known = send(f"https://127.0.0.1:{port}/", keys, "--level", "L0", "--ca", str(tmp_path / "ca.pem"))

    assert isinstance(strange.exception, UnavailableError)
    assert document(strange)["attempts"][0]["trouble"]["kind"] == "tls"
    assert "nothing was sent" in str(strange.exception)
    assert known.exit_code == 0


def test_nobody_there_is_told(keys: Path):
    ended = send(f"http://127.0.0.1:{free_port()}/", keys)

    assert isinstance(ended.exception, UnavailableError)
    assert "nobody listens" in str(ended.exception)
    assert document(ended)["attempts"][0]["trouble"] == {
        "kind": "refused", "detail": str(ended.exception).partition(";")[0], "was_sent": False,
    }  # fmt: skip


def test_silence_is_not_taken_for_a_no(keys: Path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()

        ended = send(f"http://127.0.0.1:{silent.getsockname()[1]}/", keys, "--timeout", "0.3")

    assert document(ended)["attempts"][0]["trouble"]["kind"] == "timeout"
    assert "nobody knows whether it was done" in str(ended.exception)


def test_an_exchange_that_breaks_is_told(keys: Path):
    with FakeListener(behave=lambda _: None).serving() as listener:
        ended = send(listener.url, keys)

    assert document(ended)["attempts"][0]["trouble"]["kind"] == "broken"
    assert isinstance(ended.exception, UnavailableError)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ftp://127.0.0.1/"], "expected http"),
        (["http://user:word@127.0.0.1/"], "leave the user out"),
        (["http://127.0.0.1/", "--data", "[]"], "expected a JSON object"),
        (["http://127.0.0.1/", "--data", "@nowhere.json"], "--data @nowhere.json"),
        (["http://127.0.0.1/", "--tenant", "No"], "--tenant"),
        (["http://127.0.0.1/", "--aggregate", "none"], "type/id"),
        (["http://127.0.0.1/", "--secret", SECRET], "never the secret itself"),
        (["http://127.0.0.1/", "--times", "2", "--profile", "non_idempotent"], "no repeat"),
    ],
)
def test_wrong_input_says_what_was_expected(keys: Path, words: list[str], message: str):
    ended = CliRunner().invoke(app, [*words, "--keys-dir", str(keys)])

    assert isinstance(ended.exception, ConfigError)
    assert message in str(ended.exception)
    assert "word" not in str(ended.exception)
    assert SECRET not in str(ended.exception)
