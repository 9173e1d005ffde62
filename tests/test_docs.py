"""The code blocks of the documentation run, in order, in one namespace.

A `text` block is output that the page's code prints. A line of it that ends in a backslash goes on
in the next one, since printed lines may be longer than a page is wide.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = sorted(str(f.relative_to(DOCS)) for f in DOCS.rglob("*.md"))
SLOW = ("models.md", "tutorial.md", "tutorial_scan.md")
"""Pages that tune or compile models, 8 to 27 s of processor time each."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONTINUED = re.compile(r" \\\n *")


def blocks(file: Path, language: str) -> list[tuple[int, str]]:
    """(line, text) of each block in a language."""
    text = file.read_text()
    return [
        (text.count("\n", 0, m.start()) + 1, m[2]) for m in BLOCK.finditer(text) if m[1] == language
    ]


def run(file: Path) -> str:
    """Execute all Python blocks; a failure names the block's line."""
    names: dict[str, object] = {"__name__": "tutorial"}
    for line, text in blocks(file, "python"):
        padded = "\n" * line + text  # so that tracebacks show the lines of the document
        exec(compile(padded, str(file), "exec"), names)
    return file.name


@pytest.mark.parametrize(
    "name", [pytest.param(p, marks=pytest.mark.long) if p in SLOW else p for p in PAGES]
)
def test_code_of_a_document_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    run(DOCS / name)
    out, _ = capsys.readouterr()
    for line, text in blocks(DOCS / name, "text"):
        whole = CONTINUED.sub(" ", text)
        assert whole in out, f"{name}, line {line}: this is not what the code prints"


def test_the_use_in_the_readme_runs_as_it_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On smaller matrices and fewer trials."""
    readme = DOCS.parent / "README.md"
    (_, text), *_ = blocks(readme, "python")
    small = text.replace("1024", "24").replace("num_measure_trials=64", "num_measure_trials=8")
    assert small.count("24") > 4
    assert "num_measure_trials=8" in small
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "readme"}
    exec(compile(small, str(readme), "exec"), names)
    np.testing.assert_allclose(np.asarray(names["out"]), np.full((24, 24), 25.0))
    assert "def apply(sch):" in capsys.readouterr().out
    assert len(text.splitlines()) <= 40


def test_the_tutorial_has_code() -> None:
    assert len(blocks(DOCS / "tutorial.md", "python")) >= 6
