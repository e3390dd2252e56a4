"""Words that must not be there, and words that must."""

import ast
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable

import pytest
from fixtures.fix_house import SourceFile

import waybill

UNFINISHED = re.compile(r"\b(TODO|FIXME|NotImplementedError)\b")
#: A machine's own folders: nothing of the project lies at a fixed place.
MACHINE_PATH = re.compile(r"(?<![\w.~$}/*-])/(?:work|root|home/\w+)/")
#: Package registries are reached through their clients; their hosts are the lock file's business.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("maven", "org"),
        ("maven", "apache", "org"),
        ("npmjs", "org"),
        ("crates", "io"),
        ("debian", "org"),
        ("golang", "org"),
    )
)
OUTSIDE_THE_CHECKOUT = re.compile(r"\.\./+shared\b")
#: Delivery is at least once with effect once (DC-1). Config keys of Connect (`exactly.once.…`) do not match.
OVERCLAIM = re.compile(r"\bexactly[\s_-]+once\b", re.IGNORECASE)
#: file → why the words stand there although nothing is claimed for delivery.
MAY_NAME_IT: dict[str, str] = {
    "docs/adr/0011-at-least-once-effect-once.md": "says why it is not claimed",
    "docs/glossary.md": "says why it is not claimed",
    "tests/vendor/asyncapi/3.0.0.json": "AsyncAPI's own file; it names what MQTT calls a quality of service",
    "services/waybill/devstack/plan.py": "names the feature of Connect it switches on",
}
COMPONENTS = (
    "access",
    "catalog",
    "commandtypes",
    "conformance",
    "delivery",
    "devstack",
    "fabric",
    "listener",
    "outbox",
    "readmodel",
    "relay",
    "simulator",
    "submission",
)
ESSAY_CHARACTERS = 300


def hits(files: Iterable[SourceFile], pattern: re.Pattern[str]) -> list[str]:
    """Return `file:line: text` of every match."""
    return [
        f"{file.name}:{file.text.count(chr(10), 0, found.start()) + 1}: {found[0]}"
        for file in files
        for found in pattern.finditer(file.text)
    ]


def test_nothing_that_ships_is_unfinished(modules: list[SourceFile]):
    assert hits(modules, UNFINISHED) == []


def test_no_path_of_a_machine_is_named(everything: list[SourceFile]):
    assert hits(everything, MACHINE_PATH) == []


def test_no_host_of_a_package_registry_is_named(everything: list[SourceFile]):
    assert hits(everything, re.compile("|".join(re.escape(host) for host in REGISTRY_HOSTS))) == []


def test_nothing_outside_the_checkout_is_named(everything: list[SourceFile]):
    assert hits(everything, OUTSIDE_THE_CHECKOUT) == []


@pytest.mark.requirement("DC-1")
def test_nowhere_is_more_claimed_than_at_least_once(everything: list[SourceFile]):
    claims = hits([file for file in everything if file.name not in MAY_NAME_IT], OVERCLAIM)

    assert claims == []


def test_every_allowance_to_name_it_is_still_used(everything: list[SourceFile]):
    using = {file.name for file in everything if OVERCLAIM.search(file.text)}

    assert [name for name in MAY_NAME_IT if name not in using] == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (UNFINISHED, "raise NotImplementedError"),
        (MACHINE_PATH, 'open("/' + 'root/x")'),
        (OUTSIDE_THE_CHECKOUT, "see .." + "/shared/design"),
        (OVERCLAIM, "delivered exactly" + "\n once"),
        (OVERCLAIM, "EXACTLY" + "_ONCE"),
    ],
)
def test_a_forbidden_word_is_found(make_source: Callable[..., SourceFile], pattern: re.Pattern[str], text: str):
    assert len(hits([make_source(text)], pattern)) == 1


def test_connect_settings_are_no_claim(make_source: Callable[..., SourceFile]):
    assert hits([make_source("exactly.once.source.support=enabled")], OVERCLAIM) == []


def test_every_module_opens_with_what_it_is_for(modules: list[SourceFile]):
    silent = [
        file.name
        for file in modules
        if not (ast.get_docstring(file.tree) or "").strip().endswith((".", "```", "|", ")", ":"))
    ]

    assert silent == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_opens_with_an_essay_and_its_public_names(component: str):
    package = importlib.import_module(f"waybill.{component}")

    assert len(package.__doc__ or "") >= ESSAY_CHARACTERS
    assert getattr(package, "__all__", None)


def test_every_exported_name_resolves():
    broken = []
    for found in pkgutil.walk_packages(waybill.__path__, "waybill."):
        module = importlib.import_module(found.name)
        names = list(getattr(module, "__all__", ()))
        broken += [f"{found.name}.{name}" for name in names if not hasattr(module, name)]
        broken += [f"{found.name}.{name} twice" for name in set(names) if names.count(name) > 1]

    assert broken == []


def test_every_skip_names_the_command_that_would_enable_the_test(test_files: list[SourceFile]):
    assert mute_skips(test_files) == []


def mute_skips(files: Iterable[SourceFile]) -> list[str]:
    """Return skips whose reason has no command in it: one in backticks, or the one that installs a package."""
    found = []
    for file in files:
        for node in ast.walk(file.tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in {"skip", "skipif"}
            ):
                reason = [*node.args[:1], *(k.value for k in node.keywords if k.arg in {"reason", "msg"})]
                text = " ".join(ast.unparse(part) for part in reason)
                if "`" not in text and "apt-get install " not in text:
                    found.append(f"{file.name}:{node.lineno}: {text}")
    return found


def test_a_skip_without_advice_is_found(make_source: Callable[..., SourceFile]):
    assert mute_skips([make_source('pytest.skip("no database here")')]) != []


def test_requirement_marks_name_requirements(test_files: list[SourceFile]):
    odd = [
        f"{file.name}: {name}"
        for file in test_files
        for arguments in re.findall(r"mark\.requirement\(([^)]*)\)", file.text)
        for name in re.findall(r"[^\s,]+", arguments)
        if not re.fullmatch(r'"[A-Z]{2}-\d+"', name)
    ]

    assert odd == []
