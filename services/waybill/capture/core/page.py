"""The capture page: plain HTML, no script, nothing from elsewhere, every value escaped.

`POLICY` lets a browser load nothing and send forms to this server only, so that a value that escaped the escaping would
still do nothing.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any, Final

__all__ = ["POLICY", "render_page"]

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
article { border: 1px solid #ccc; border-radius: 6px; padding: .5rem 1rem; margin: 1rem 0; }
h2 { font-size: 1rem; margin: .3rem 0; } pre { background: #f5f5f5; padding: .6rem; overflow: auto; }
th { text-align: left; font-weight: normal; color: #555; padding-right: 1rem; vertical-align: top; }
td { font-family: ui-monospace, monospace; word-break: break-all; } .good { color: #14662b; } .bad { color: #a11414; }
"""
_STYLE_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


def render_page(deliveries: Sequence[Mapping[str, Any]], *, target: str, keep: int, token: str) -> bytes:
    """Return the page.

    Args:
        deliveries: as `shown` returns them, newest first.
        target: where they go on to.
        keep: how many are kept.
        token: what a replay must name.
    """
    listed = "".join(_delivery(each, token) for each in deliveries)
    empty = "" if listed else "<p>Nothing came yet. <code>waybill send-test</code> sends a sample here.</p>"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Waybill: captured deliveries</title>'
        f"<style>{_STYLE}</style></head><body><h1>Captured deliveries</h1>"
        f"<p>The last {keep}, newest first; each goes on to <code>{escape(target)}</code>. "
        '<a href="/">Look again</a> · <a href="/_waybill/deliveries">JSON</a></p>'
        f"{listed}{empty}</body></html>"
    ).encode()


def _delivery(each: Mapping[str, Any], token: str) -> str:
    number, signature = int(each["number"]), each["signature"]
    again = f" (again, of {int(each['replay_of'])})" if each["replay_of"] is not None else ""
    verdict = (
        '<span class="good">signature and binding are good</span>'
        if signature["believed"]
        else f'<span class="bad">{_text(signature["check"])}: {_text(signature["code"])} '
        f"{_text(signature['reason'])}</span>"
    )
    return (
        f'<article id="delivery-{number}"><h2>{number}{again} · {_text(each["received_at"])} · {verdict} · '
        f"{_ending(each)}</h2>"
        f"{_envelope(each)}"
        f"<details><summary>Headers</summary>{_table(each['headers'])}</details>"
        f"<details><summary>Body, {int(each['bytes'])} bytes</summary><p>SHA-256 {_text(each['body_sha256'])}</p>"
        f"<pre>{_text(each['body'])}</pre></details>{_answer(each['answer'])}"
        f'<form method="post" action="/_waybill/deliveries/{number}/replay">'
        f'<input type="hidden" name="token" value="{_text(token)}"><button>Send again</button></form></article>'
    )


def _ending(each: Mapping[str, Any]) -> str:
    if each["failure"] is not None:
        return f'<span class="bad">no answer: {_text(each["failure"]["detail"])}</span>'
    if each["answer"] is None:
        return "under way"
    answer = each["answer"]
    return f"answered {int(answer['status'])} after {int(answer['took_ms'])} ms: {_text(answer['meaning'])}"


def _envelope(each: Mapping[str, Any]) -> str:
    if each["envelope"] is None:
        return "<p>The body is no envelope.</p>"
    return _table(
        [name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)]
        for name, value in each["envelope"].items()
    )


def _answer(answer: Mapping[str, Any] | None) -> str:
    if answer is None:
        return ""
    return (
        f"<details><summary>Answer: {_text(answer['why'])}</summary>{_table(answer['headers'])}"
        f"<pre>{_text(answer['body'])}</pre></details>"
    )


def _table(rows: Iterable[Sequence[str]]) -> str:
    return "<table>" + "".join(f"<tr><th>{_text(n)}</th><td>{_text(v)}</td></tr>" for n, v in rows) + "</table>"


def _text(value: object) -> str:
    return escape("" if value is None else str(value), quote=True)
