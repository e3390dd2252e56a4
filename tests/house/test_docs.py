"""Pages keep their promises: links resolve, decisions are numbered and enforced, one word per concept."""

import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest
from fixtures.fix_house import SourceFile

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
ADR_SECTIONS = ("Status", "Context", "Decision", "Rejected", "Consequences", "Enforced by")


def prose(text: str) -> str:
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, spelt as the usual renderers do."""
    headings = re.findall(r"^#+ +(.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def broken_links(pages: list[SourceFile], root: Path) -> list[str]:
    by_name = {page.name: page for page in pages}
    broken = []
    for page in pages:
        for pair in LINK.findall(prose(page.text)):
            target = pair[0] or pair[1]
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            file = (root / PurePosixPath(page.name).parent / path).resolve() if path else root / page.name
            name = str(file.relative_to(root)) if file.is_relative_to(root) else ""
            if (
                not name
                or not file.exists()
                or (anchor and name in by_name and anchor not in anchors(by_name[name].text))
            ):
                broken.append(f"{page.name}: {target}")
    return broken


def test_every_link_resolves(pages: list[SourceFile], checkout: Path):
    assert broken_links(pages, checkout) == []


def test_a_broken_link_is_found(make_source: Callable[..., SourceFile], checkout: Path):
    page = make_source("[a](gone.md) [b](#nowhere) [c](README.md)", name="README.md")

    assert broken_links([page], checkout) == ["README.md: gone.md", "README.md: #nowhere"]


def test_every_page_the_source_names_exists(modules: list[SourceFile], checkout: Path):
    named = {(file.name, page) for file in modules for page in re.findall(r"docs/[\w./-]+\.md", file.text)}

    assert sorted(f"{file}: {page}" for file, page in named if not (checkout / page).is_file()) == []


def records(pages: list[SourceFile]):
    return [page for page in pages if re.fullmatch(r"docs/adr/\d{4}-.+\.md", page.name)]


def test_decision_number_title_and_index_agree(pages: list[SourceFile]):
    index = next(page.text for page in pages if page.name == "docs/adr/README.md")
    listed = dict(re.findall(r"\[(\d{4})\]\(([^)]+)\)", index))
    wrong = []
    for page in records(pages):
        file = PurePosixPath(page.name).name
        number = file[:4]
        if not page.text.startswith(f"# {number} ") or listed.get(number) != file:
            wrong.append(page.name)

    assert wrong == []
    assert len(listed) == len(records(pages))


def test_decision_has_every_section(pages: list[SourceFile]):
    missing = [
        f"{page.name}: {section}"
        for page in records(pages)
        for section in ADR_SECTIONS
        if not re.search(rf"^## {section}$", page.text, re.MULTILINE)
    ]

    assert missing == []


def test_decision_is_enforced_by_something_that_exists(pages: list[SourceFile], checkout: Path):
    wrong = []
    for page in records(pages):
        enforced = page.text.split("## Enforced by", 1)[-1].split("\n## ")[0]
        paths = re.findall(r"`((?:tests|services|tools|\.ci|pyproject)[^`\s]*)`", enforced)
        if not paths:
            wrong.append(f"{page.name}: names nothing")
        for path in paths:
            file, _, test = path.partition("::")
            if not (checkout / file).exists() or (test and f"def {test}(" not in (checkout / file).read_text()):
                wrong.append(f"{page.name}: {path}")

    assert wrong == []


def synonyms(glossary: str) -> dict[str, str]:
    """Return banned word → the word to use, from the glossary's table."""
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|.*\| (.*?) \|$", glossary, re.MULTILINE)
    return {word.strip().lower(): term for term, banned in rows for word in banned.split(",") if word.strip()}


def test_one_word_per_concept(pages: list[SourceFile], modules: list[SourceFile]):
    glossary = next(page.text for page in pages if page.name == "docs/glossary.md")
    banned = synonyms(glossary)
    assert banned, "the glossary bans nothing"
    pattern = re.compile(
        rf"\b({'|'.join(re.escape(word) for word in sorted(banned, key=len, reverse=True))})s?\b", re.IGNORECASE
    )
    places = [
        f"{file.name}:{file.text.count(chr(10), 0, found.start()) + 1}: {found[0]}: say {banned[found[1].lower()]!r}"
        for file in [*pages, *modules]
        if file.name != "docs/glossary.md"
        for found in pattern.finditer(file.text)
    ]

    assert places == []


def test_the_glossary_is_in_order_and_says_everything_once(pages: list[SourceFile]):
    glossary = next(page.text for page in pages if page.name == "docs/glossary.md")
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", glossary, re.MULTILINE)

    assert terms == sorted(set(terms), key=str.lower)


def test_every_package_is_on_the_map(pages: list[SourceFile], checkout: Path):
    text = next(page.text for page in pages if page.name == "docs/architecture.md")
    packages = {
        str(each.parent.relative_to(checkout)) for each in (checkout / "services/waybill").glob("*/__init__.py")
    }

    assert packages == set(re.findall(r"^\| `(services/waybill/\w+)` \|", text, re.MULTILINE))


@pytest.mark.parametrize("page", ["docs/README.md", "README.md", "docs/architecture.md"])
def test_maps_name_only_folders_that_exist(pages: list[SourceFile], checkout: Path, page: str):
    text = next(each.text for each in pages if each.name == page)
    tree = re.findall(r"^\| `([\w./-]+)` \|", text, re.MULTILINE)

    assert tree
    assert [name for name in tree if not (checkout / name).exists()] == []
