"""What the tests of the command line share: a way to call it, one tuned workload, and spaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runner import Cli, Tuned
from spaces import one_space_a_workload as one_space_a_workload


@pytest.fixture
def cli(capfd: pytest.CaptureFixture[str]) -> Cli:
    """Calls the command line in this process."""
    return Cli(capfd)


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """`matmul_add 12 10 14` after 8 trials, in a store."""
    return Tuned.make(tmp_path_factory.mktemp("cli") / "tuned.db")


@pytest.fixture
def my_ops(tmp_path: Path) -> Path:
    """A file of a user's own functions."""
    file = tmp_path / "my_ops.py"
    file.write_text(
        "from autosched import te\n"
        "def rows(n, m):\n"
        "    a = te.placeholder((n, m), name='a')\n"
        "    return [a, te.compute((n, m), lambda i, j: a[i, j] * 2.0, name='c')]\n"
        "def fails(n):\n"
        "    return 1 / n\n"
        "def gives_a_number(n):\n"
        "    return n\n"
        "def leaves(n):\n"
        "    raise SystemExit(n)\n"
        "number = 3\n"
    )
    return file
