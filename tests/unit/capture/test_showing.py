"""What of a captured delivery may be shown, and that the page is inert whatever it shows."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest

from waybill.capture.core.page import POLICY, render_page
from waybill.capture.core.records import Answered, Captured, Checked, Failed
from waybill.capture.core.showing import MASK, shown
from waybill.capture.shelf import Shelf
from waybill.contracts.command import Command, DataForm
from waybill.contracts.envelope import render
from waybill.kernel.ids import DestinationName

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GOOD = Checked(is_believed=True)
EVIL = "<script>alert('x')</script>\"><img src=//evil.example>"


class Tags(HTMLParser):
    """Collects every tag and attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs


def captured(body: bytes, *headers: tuple[str, str], ending: Answered | Failed | None = None) -> Captured:
    return Captured(number=1, received_at=NOW, headers=headers, body=body, checked=GOOD, ending=ending)


@pytest.mark.parametrize("form", [DataForm.CLEAR, DataForm.SEALED])
@pytest.mark.requirement("HS-6")
def test_data_are_shown_only_when_asked_for(make_command: Callable[..., Command], form: DataForm):
    key = "k1" if form is DataForm.SEALED else None
    command = make_command(data=b'"alice@example.org"', data_form=form, data_key_id=key)
    body = render(command, DestinationName("crm"))
    answer = Answered(status=200, headers=(), body=b"alice@example.org", took_ms=1, meaning="receipt", why="")

    hidden = json.dumps(shown(captured(body, ending=answer), with_data=False))
    open_ = shown(captured(body, ending=answer), with_data=True)

    assert "alice" not in hidden
    assert "YWxpY2" not in hidden  # nor as base64
    assert '"subject": "subject/8f14e45f"' in hidden
    assert open_["body"] == body.decode()
    assert open_["answer"]["body"] == "alice@example.org"


def test_of_a_body_that_is_no_envelope_nothing_is_shown():
    found = shown(captured(b'{"name": "alice"}'), with_data=False)

    assert found["envelope"] is None
    assert "alice" not in json.dumps(found)


@pytest.mark.parametrize(
    ("name", "hidden", "open_"),
    [
        ("Webhook-Id", "value", "value"),
        ("X-Crm-Token", MASK, "value"),
        ("Authorization", MASK, MASK),
        ("Cookie", MASK, MASK),
    ],
)
def test_a_header_that_may_carry_a_credential_is_masked(name: str, hidden: str, open_: str):
    one = captured(b"", (name, "value"))

    assert shown(one, with_data=False)["headers"] == [[name, hidden]]
    assert shown(one, with_data=True)["headers"] == [[name, open_]]


def test_nothing_that_came_in_becomes_markup():
    evil = Checked(is_believed=False, check=EVIL, code=EVIL, reason=EVIL)
    answer = Answered(status=500, headers=((EVIL, EVIL),), body=EVIL.encode(), took_ms=1, meaning=EVIL, why=EVIL)
    one = Captured(number=1, received_at=NOW, headers=((EVIL, EVIL),), body=EVIL.encode(), checked=evil, ending=answer)
    other = captured(b"", ending=Failed(detail=EVIL, was_sent=True))

    shown_ = [shown(each, with_data=True) for each in (one, other)]
    page = render_page(shown_, target=EVIL, keep=5, token=EVIL).decode()

    tags = Tags()
    tags.feed(page)
    assert set(tags.tags) <= {
        "html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "code", "a", "article", "span", "table",
        "tr", "th", "td", "details", "summary", "pre", "form", "input", "button",
    }  # fmt: skip
    assert not [name for name, _ in tags.attributes if name.startswith("on") or name in {"src", "style"}]
    assert {value for name, value in tags.attributes if name == "href"} == {"/", "/_waybill/deliveries"}
    assert "default-src 'none'" in POLICY


def test_the_oldest_makes_room():
    shelf = Shelf(2)
    for _ in range(3):
        shelf.put((), b"", GOOD, NOW, None)

    shelf.end(1, Failed(detail="late", was_sent=True))

    assert [each.number for each in shelf.newest_first()] == [3, 2]
    assert shelf.get(1) is None
