"""`waybill baseline ask` and `take`: the listener's side, run where its store is."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from waybill.cli.listen import load_target
from waybill.cli.output import JsonFlag, console, print_json
from waybill.contracts.receipt import parse_receipt
from waybill.kernel.errors import ConfigError
from waybill.listener import Listener
from waybill.listener.asgi import Headers
from waybill.listener.core.verification import Door
from waybill.listener.executor import Executed, Refused

__all__ = ["ask_command", "take_command"]

TargetArgument = Annotated[str, typer.Argument(help="module:attribute of the Listener.")]


def ask_command(target: TargetArgument, as_json: JsonFlag = False) -> None:
    """Ask for a baseline: print the nonce it has to carry. What was made for an earlier one is refused from now on."""
    listener = _listener(target)

    async def ask() -> str:
        try:
            return await listener.ask_baseline()
        finally:
            await listener.close()

    nonce, binding = asyncio.run(ask()), listener.binding
    if as_json:
        print_json({"tenant": binding.tenant, "destination": binding.destination, "nonce": nonce})
    else:
        typer.echo(nonce)
        place = f"{binding.tenant} {binding.destination}"
        console.print(f"give it to `waybill baseline propose {place} --nonce …`", markup=False, soft_wrap=True)


def take_command(
    target: TargetArgument,
    file: Annotated[Path, typer.Argument(help="What `waybill baseline send --to` wrote.")],
    as_json: JsonFlag = False,
) -> None:
    """Take a baseline from a file, for a listener that no request reaches. Exit 1 when a part is refused."""
    listener = _listener(target)

    async def take() -> list[dict[str, Any]]:
        said = []
        try:
            for headers, body in _letters(file):
                heard = await listener.hear(Door.AGENT, headers, body)
                said.append(_word(heard.outcome))
                if "refused" in said[-1]:
                    break
        finally:
            await listener.close()
        return said

    said = asyncio.run(take())
    last = said[-1]
    if as_json:
        print_json({"applied": last.get("outcome") == "applied", "parts": said})
    else:
        words = last.get("outcome") or f"refused: {last['refused']}"
        console.print(f"part {len(said)}: {words}", markup=False, soft_wrap=True)
    if "refused" in last:
        raise typer.Exit(1)


def _listener(target: str) -> Listener:
    found = load_target(target)
    if not isinstance(found, Listener):
        raise ConfigError(f"{target} is no Listener: a baseline is for one")
    return found


def _letters(file: Path) -> Iterator[tuple[Headers, bytes]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
        for line in lines:
            document = json.loads(line)
            raw = [(name.encode(), value.encode()) for name, value in document["headers"].items()]
            yield Headers(raw), document["body"].encode()
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file}: not what `waybill baseline send --to` writes") from error
    if not lines:
        raise ConfigError(f"{file}: empty")


def _word(outcome: object) -> dict[str, Any]:
    match outcome:
        case Executed(receipt=receipt):
            return {"outcome": parse_receipt(receipt).source_version}
        case Refused(problem=problem):
            return {"refused": f"{problem.code.value} {problem.reason}", "detail": problem.detail}
        case _:
            return {"refused": "this is no part of a baseline"}
