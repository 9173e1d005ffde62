"""Pages of the documentation are short-lined, say for whom they are, and link to what is there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "benchmarks").glob("*.md")),
    *sorted(DOCS.rglob("*.md")),
]
NAMES = [str(f.relative_to(ROOT)) for f in PAGES]
COLUMNS = 110
WORDS = 90
PACKAGES = ("autosched", "measure", "cost_model", "records", "server")

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = re.compile(
    r"`((?:autosched|measure|cost_model|records|server|tests|benchmarks|examples|docs)/[\w/.-]*)`"
)


def prose(text: str) -> str:
    """A page without its code."""
    return FENCED.sub("", text)


def paragraphs(text: str) -> list[str]:
    """Paragraphs and items of lists; headings, tables, figures and code are none."""
    found = []
    for block in re.split(r"\n\s*\n", prose(text)):
        if all(line.startswith("    ") for line in block.splitlines()):
            continue  # indented code
        starts = [m.start() for m in ITEM.finditer(block)]
        parts = [block[a:b] for a, b in zip([0, *starts], [*starts, None], strict=True)]
        found += [p.strip() for p in parts if p.strip()]
    return [p for p in found if not p.startswith(("#", "|", "![", "<"))]


def anchors(text: str) -> set[str]:
    """The fragments that a page's headings have on GitHub and in MkDocs."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", h.lower()) for h in headings)
    return {h.strip().replace(" ", "-") for h in plain}


def test_helpers_see_what_they_must() -> None:
    page = "# A b\n\nFor us.\n\n- one\n- two\n  more\n\n    code\n\n```sh\nlong\n```\n"
    assert paragraphs(page) == ["For us.", "- one", "- two\n  more"]
    assert anchors(page) == {"a-b"}


@pytest.mark.parametrize("name", NAMES)
def test_lines_and_paragraphs_are_short(name: str) -> None:
    text = (ROOT / name).read_text()
    long = [n for n, line in enumerate(text.splitlines(), 1) if len(line) > COLUMNS]
    assert not long, f"{name}: lines {long} have more than {COLUMNS} columns"
    wordy = [p[:60] for p in paragraphs(text) if len(p.split()) > WORDS]
    assert not wordy, f"{name}: split these paragraphs of more than {WORDS} words: {wordy}"


@pytest.mark.parametrize("name", [n for n in NAMES if n != "README.md"])
def test_a_page_opens_with_one_sentence_for_its_readers(name: str) -> None:
    title, opening, *_ = (ROOT / name).read_text().split("\n\n", 2)
    assert re.fullmatch("# .*", title), f"{name} begins with one heading"
    assert re.fullmatch(r"For [^!?]*[.:]\s*", opening), f"{name} says first for whom it is"
    assert ". " not in opening.replace("\n", " "), f"{name} opens with one sentence: {opening}"


@pytest.mark.parametrize("name", NAMES)
def test_links_resolve(name: str) -> None:
    """Files and headings that a page links to, and source files that it names, exist."""
    file = ROOT / name
    text = prose(file.read_text())
    wrong = []
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or (
            fragment and target.suffix == ".md" and fragment not in anchors(target.read_text())
        ):
            wrong.append(link)
    wrong += [path for path in SOURCE.findall(text) if not (ROOT / path).exists()]
    assert not wrong, f"{name} names what is not there: {', '.join(wrong)}"


def reached(start: Path, clicks: int) -> set[Path]:
    """Pages that so many links lead to at most."""
    found, edge = {start}, {start}
    for _ in range(clicks):
        edge = {
            (page.parent / path).resolve()
            for page in edge
            for path in (link.partition("#")[0] for link in LINK.findall(prose(page.read_text())))
            if path.endswith(".md") and ":" not in path
        } - found
        found |= edge
    return found


def test_ten_questions_are_answered_within_two_pages() -> None:
    page = DOCS / "questions.md"
    sections = page.read_text().split("\n## ")[1:]
    assert len(sections) == 10
    for start in (ROOT / "README.md", DOCS / "index.md"):
        near = reached(start.resolve(), 2)
        for section in sections:
            title, _, answer = section.partition("\n")
            assert title.endswith("?")
            places = {(DOCS / p.partition("#")[0]).resolve() for p in LINK.findall(answer)}
            assert places, title
            assert places <= near, f"{title} More than two links from {start.name}: {places - near}"


def test_the_figures_are_those_of_their_script() -> None:
    folder = DOCS / "figures"
    figures = runpy.run_path(str(folder / "design.py"))["FIGURES"]
    stale = [n for n, draw in figures.items() if draw() != (folder / f"{n}.svg").read_text()]
    assert not stale, (
        f"{', '.join(stale)} would be drawn otherwise: run python docs/figures/design.py"
    )
