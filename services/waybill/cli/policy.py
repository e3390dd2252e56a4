"""`waybill policy`: a listener's policy file, looked over before it is in force."""

from pathlib import Path
from typing import Annotated

import typer

from waybill.cli.output import JsonFlag, console, print_json, print_table
from waybill.kernel.errors import ConfigError
from waybill.listener.core.policy import Rules
from waybill.listener.policy_file import read_policy

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A listener's policy file.")

FileArgument = Annotated[Path, typer.Argument(help="The policy file.")]


@app.callback()
def _group() -> None:
    """A listener's policy file."""


@app.command()
def check(file: FileArgument, as_json: JsonFlag = False) -> None:
    """Look a policy file over; nothing is put in force. Exit 2 when it is wrong, each problem with line and field."""
    try:
        found = read_policy(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    if isinstance(found, Rules):
        counts = {
            "legal_holds": len(found.legal_holds),
            "purposes": len(found.purposes),
            "regions": len(found.regions),
            "pii_budgets": len(found.budgets),
        }
        if as_json:
            print_json({"file": str(file), "ok": True, "rules": counts, "problems": []})
        else:
            said = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items())
            console.print(f"{file}: {said}", markup=False, highlight=False)
        return
    rows = [{"line": one.line, "field": one.field, "message": one.message} for one in found]
    if as_json:
        print_json({"file": str(file), "ok": False, "problems": rows})
    else:
        print_table(f"{file} is no policy", ["line", "field", "message"], rows)
    raise typer.Exit(2)
