"""The command line explains itself, and every command a page shows exists with the options it uses."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from fixtures.fix_house import SourceFile
from typer.core import TyperGroup
from typer.testing import CliRunner

from waybill.cli.app import COMMANDS, root

SHELL_BLOCK = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
TREE: Any = typer.main.get_command(root)


def leaves(node: Any, words: tuple[str, ...] = ("waybill",)) -> Iterator[tuple[str, Any]]:
    if isinstance(node, TyperGroup):
        for name in node.list_commands(None):
            yield from leaves(node.get_command(None, name), (*words, name))
    else:
        yield " ".join(words), node


def test_every_noun_and_command_says_what_it_does():
    silent = [noun for noun, (_, line) in COMMANDS.items() if not line.strip()]
    silent += [name for name, command in leaves(TREE) if not (command.help or "").strip()]

    assert silent == []


def test_every_option_says_what_it_does():
    silent = [
        f"{name} {parameter.opts[0]}"
        for name, command in leaves(TREE)
        for parameter in command.params
        if parameter.param_type_name == "option" and not (parameter.help or "").strip()
    ]

    assert silent == []


def test_every_command_prints_its_help():
    runner = CliRunner()
    failed = [name for name, _ in leaves(TREE) if runner.invoke(root, [*name.split()[1:], "--help"]).exit_code != 0]

    assert failed == []


def test_every_command_that_prints_a_table_can_print_json():
    without = [
        name
        for name, command in leaves(TREE)
        if name.split()[-1] in {"list", "show", "status", "check", "plan", "diff"}
        and not any("--json" in parameter.opts for parameter in command.params)
    ]

    assert without == []


def shown_commands(text: str) -> Iterator[str]:
    """Yield the `waybill …` and `make …` lines of a page's shell blocks, continuation lines joined."""
    for block in SHELL_BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\||;|(?<!\|)\|(?!\|)", line):
                words = part.strip().removeprefix("$ ").strip()
                if re.match(r"(\.venv/bin/)?waybill\b|make\b", words):
                    yield words


def unknown(shown: str, targets: set[str]) -> str | None:
    """Return what is wrong with a shown command, or None."""
    words = [
        word
        for word in shlex.split(shown.split(" >", maxsplit=1)[0].split(" &", maxsplit=1)[0], comments=True)
        if not word.startswith("<")
    ]
    if words[0] == "make":
        missing = [word for word in words[1:] if "=" not in word and word not in targets]
        return f"no target {missing[0]}" if missing else None
    node, words = TREE, words[1:]
    while isinstance(node, TyperGroup):
        if not words or words[0].startswith("-"):
            return None
        found = node.get_command(None, words.pop(0))
        if found is None:
            return "no such command"
        node = found
    options = {name for parameter in node.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    missing = [word.split("=")[0] for word in words if word.startswith("--") and word.split("=")[0] not in options]
    return f"no option {missing[0]}" if missing else None


def test_every_command_a_page_shows_exists(pages: list[SourceFile], checkout: Path):
    targets = set(re.findall(r"^([a-z]+):", (checkout / "Makefile").read_text(), re.MULTILINE))

    wrong = [
        f"{page.name}: {shown}: {problem}"
        for page in pages
        for shown in shown_commands(page.text)
        if (problem := unknown(shown, targets))
    ]

    assert wrong == []


def test_a_command_that_does_not_exist_is_found():
    page = "```bash\nmake fly\nwaybill levitate now | cat\n```\n"

    assert [unknown(shown, {"test"}) for shown in shown_commands(page)] == ["no target fly", "no such command"]


def test_make_help_lists_every_target(checkout: Path):
    text = (checkout / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", text, re.MULTILINE))

    assert set(re.findall(r"^([a-z]+):.*## .+$", text, re.MULTILINE)) == targets
