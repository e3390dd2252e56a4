"""`waybill receipt`: what a receipt proves, without asking anybody."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json
from waybill.crypto.verifying import VerificationKeys
from waybill.kernel.clock import format_instant
from waybill.kernel.errors import ConfigError, ContractError
from waybill.listener.core.signed_receipts import NotProven, Proven, verify_receipt

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="What a receipt proves.")

FileArgument = Annotated[Path, typer.Argument(help="The receipt as it was answered; - reads standard input.")]
KeysOption = Annotated[
    list[str], typer.Option("--keys", help="The listener's public keys: a JWKS file, or a key as `whpk_…`. Repeatable.")
]


@app.callback()
def _group() -> None:
    """What a receipt proves."""


@app.command()
def verify(file: FileArgument, keys: KeysOption, as_json: JsonFlag = False) -> None:
    """Verify a signed receipt, offline. Exit 0: proven; 1: it proves nothing, and why; 2: no receipt, or no keys."""
    try:
        body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    try:
        found = _verify(body, keys)
    except ContractError as error:
        raise ConfigError(f"{file}: {error}") from error
    _show(found, as_json=as_json)
    if isinstance(found, NotProven):
        raise typer.Exit(1)


def _verify(body: bytes, keys: list[str]) -> Proven | NotProven:
    """Try the keys one source after the other; the first that proves it, else what the last one said."""
    found = None
    for source in keys:
        found = verify_receipt(body, _keys(source))
        if isinstance(found, Proven):
            return found
    assert found is not None
    return found


def _keys(source: str) -> VerificationKeys:
    if source.startswith("whpk_"):
        return VerificationKeys.from_text(source)
    try:
        return VerificationKeys.from_jwks(json.loads(Path(source).read_bytes()))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{source} is not a readable JSON Web Key Set") from error


def _show(found: Proven | NotProven, *, as_json: bool) -> None:
    receipt = found.receipt
    facts = {
        "delivery_id": receipt.delivery_id,
        "operation_id": receipt.operation_id,
        "status": receipt.status.value if receipt.status is not None else None,
        "source_version": receipt.source_version,
        "count": receipt.count,
        "digest": receipt.digest,
        "evidence": receipt.evidence,
        "executed_at": format_instant(receipt.executed_at) if receipt.executed_at is not None else None,
    }
    proven = isinstance(found, Proven)
    reason = found.reason if isinstance(found, NotProven) else None
    missing = list(found.missing) if isinstance(found, NotProven) else []
    key_id = found.key_id if isinstance(found, Proven) else None
    if as_json:
        print_json({"proven": proven, "reason": reason, "missing": missing, "key_id": key_id, "receipt": facts})
        return
    said = f"proven, signed by {key_id}" if proven else f"not proven: {reason} {', '.join(missing)}".rstrip()
    console.print(said, markup=False, highlight=False)
    for name, value in facts.items():
        if value is not None:
            console.print(f"  {name}: {value}", markup=False, highlight=False)
