"""What makes the site of the documentation: links of copied pages, the check, the reference."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import autosched as at
import records
from autosched import graph, ir, te

ROOT = Path(__file__).parent.parent
SITE = ROOT / "docs" / "site"
BUILD = runpy.run_path(str(SITE / "build.py"), run_name="build")


@pytest.mark.parametrize(
    ("page", "before", "after"),
    [
        ("a.md", "[b](b.md#c)", "[b](b.md#c)"),
        ("a.md", "[b](../benchmarks/README.md#gpus)", "[b](benchmarks/README.md#gpus)"),
        ("lab/a.md", "[b](../../benchmarks/RESULTS.md)", "[b](../benchmarks/RESULTS.md)"),
        ("benchmarks/README.md", "[b](../docs/lab/x.md)", "[b](../lab/x.md)"),
        ("benchmarks/README.md", "[b](RESULTS.md)", "[b](RESULTS.md)"),
        ("a.md", "see [source](../pyproject.toml).", "see source."),
        ("a.md", "[gone](../nothing.py)", "[gone](../nothing.py)"),
        ("a.md", "[web](https://a.b/c)", "[web](https://a.b/c)"),
        ("a.md", "```\n[b](../pyproject.toml)\n```", "```\n[b](../pyproject.toml)\n```"),
    ],
)
def test_links_are_rewritten_for_the_site(page: str, before: str, after: str) -> None:
    assert BUILD["rewritten"](before, page) == after


def test_the_check_finds_each_kind_of_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, staged = tmp_path / "site", tmp_path / "docs"
    site.mkdir()
    staged.mkdir()
    (staged / "index.md").touch()
    (staged / "unlisted.md").touch()
    monkeypatch.setitem(BUILD["check"].__globals__, "STAGED", staged)
    (site / "index.html").write_text(
        '<p id="here"><a href="#here">a</a><a href="b.html#x">b</a><a href="https://a.b">c</a>'
        '<script src="https://cdn.example/x.js"></script><a href="#gone">d</a>'
        '<a href="none.html">e</a><a href="b.html#y">f</a><img src="none.png">'
    )
    (site / "b.html").write_text('<p id="x">')
    faults = BUILD["check"](site)
    assert [f.split()[0] for f in faults] == ["unlisted.md", *["index.html"] * 5]
    wrong = {f.split()[3].rstrip(",") for f in faults if " links to " in f}
    assert wrong == {"#gone", "none.html", "b.html#y", "none.png"}
    assert "index.html loads https://cdn.example/x.js" in faults


def test_rewrite_sections_become_code() -> None:
    pytest.importorskip("griffe")
    as_code = runpy.run_path(str(SITE / "rewrites.py"))["as_code"]
    text = "One line.\n\nrewrite:\n    for i:   ->  for j:\n        x            x\n\nAfter.\n"
    code = "for i:   ->  for j:\n    x            x"
    found = as_code(text)
    assert f"```text\n{code}\n```" in found
    assert found.startswith("One line.")
    assert found.endswith("After.\n")


def test_every_public_name_has_a_place_in_the_reference() -> None:
    pages = "\n".join(f.read_text() for f in (ROOT / "docs" / "reference").glob("*.md"))
    shown = set(re.findall(r"^::: ([\w.]+)$", pages, re.MULTILINE))
    parts = {
        "auto_scheduler",
        "graph",
        "ir",
        "ops",
        "passes",
        "te",
    }  # packages
    parts |= {"AutoschedError"}  # on the page of errors
    missing = {f"autosched.{n}" for n in set(at.__all__) - parts} - shown
    missing |= {f"autosched.te.{n}" for n in te.__all__} - shown
    missing |= {f"autosched.ir.{n}" for n in ir.__all__} - shown
    inner = {"nn", "op", "passes", "pattern"}
    missing |= {f"autosched.graph.{n}" for n in set(graph.__all__) - inner} - shown
    missing |= {f"records.{n}" for n in records.__all__ if not n.isupper()} - shown
    assert not {n for n in missing if not n.split(".")[-1].isupper()}, sorted(missing)
