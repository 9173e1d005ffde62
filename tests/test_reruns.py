"""Which tests may run once more, and what is left of their first failure."""

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
    place = tmp_path / "tests" / folder
    place.mkdir(parents=True)
    for name in ("conftest.py", "bounded.py"):
        shutil.copy(HERE / name, tmp_path / "tests")
    shutil.copy(HERE.parent / "pyproject.toml", tmp_path)
    (place / "test_it.py").write_text(BREAKS.format(names=names, folder=str(tmp_path)))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    last = done.stdout.splitlines()[-1]
    assert f"= {closing} in " in last, done.stdout
    assert done.returncode == ("failed" in closing)
    if folder == "measure":
        told = done.stdout.partition("rerun test summary info")[2]
        assert f"RERUN tests/measure/test_it.py::test_breaks[{names[0]}]" in told
        assert "ValueError: what failed first" in told
