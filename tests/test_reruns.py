"""Which tests may run once more, and what is left of their first failure; which cases are long."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# The first attempt breaks what the tests of its module share.
BREAKS = """
from pathlib import Path
import pytest

@pytest.fixture(scope="module")
def shared():
    return []

@pytest.mark.parametrize("name", {names})
def test_breaks(shared, name):
    assert shared == []
    shared.append(name)
    done = Path({folder!r}, name)
    if name == "always" or not done.exists():
        done.touch()
        raise ValueError("what failed first")
    shared.clear()
"""


SAMPLED = """
import pytest

@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", [*range(4), pytest.param(4, marks=pytest.mark.long), 5, 6, 7])
def test_one_of_three(n):
    assert n in (0, 3, 7)
"""


def run(root: Path, folder: str, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest in a checkout of one file of tests."""
    place = root / "tests" / folder
    place.mkdir(parents=True)
    for name in ("conftest.py", "bounded.py"):
        shutil.copy(HERE / name, root / "tests")
    shutil.copy(HERE.parent / "pyproject.toml", root)
    (place / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=250)


def test_some_of_many_cases_are_not_long(tmp_path: Path) -> None:
    done = run(tmp_path, "tir", SAMPLED, "-m", "not long")
    assert "= 3 passed, 5 deselected in " in done.stdout, done.stdout


@pytest.mark.parametrize(
    ("folder", "names", "closing"),
    [
        ("measure", ["a", "b", "c"], "3 passed, 3 rerun"),
        ("measure", ["a", "b", "c", "d"], "1 failed, 3 passed, 3 rerun"),
        ("measure", ["always", "a"], "1 failed, 1 passed, 2 rerun"),
        ("tir", ["a"], "1 failed"),
    ],
    ids=["three", "four", "twice", "elsewhere"],
)
def test_who_may_run_again(tmp_path: Path, folder: str, names: list[str], closing: str) -> None:
    done = run(tmp_path, folder, BREAKS.format(names=names, folder=str(tmp_path)))
    last = done.stdout.splitlines()[-1]
    assert f"= {closing} in " in last, done.stdout
    assert done.returncode == ("failed" in closing)
    if folder == "measure":
        told = done.stdout.partition("rerun test summary info")[2]
        assert f"RERUN tests/measure/test_it.py::test_breaks[{names[0]}]" in told
        assert "ValueError: what failed first" in told
