"""Running the command line in tests."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from autosched.cli.main import main

WORKLOAD = ("matmul_add", "12", "10", "14")
COMMAND = (sys.executable, "-m", "autosched.cli")


def own(err: str) -> str:
    """What a command said of itself: another test may have this machine's processor for long, and
    whoever waits for it says so."""
    return re.sub(r"^still waiting for .*\n", "", err, flags=re.MULTILINE)


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str


class Cli:
    """`cli("best", ...)`: calls main() and captures what it prints."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd

    def __call__(self, *arguments: object) -> Done:
        self.capfd.readouterr()
        try:
            status = main([str(a) for a in arguments])
        except SystemExit as e:  # argparse
            status = e.code if isinstance(e.code, int) else 1
        out, err = self.capfd.readouterr()
        return Done(status, out, own(err))


@dataclass(frozen=True)
class Tuned:
    """A store with one job of WORKLOAD, and what the command printed."""

    db: Path
    out: str
    err: str

    @staticmethod
    def make(db: Path) -> Tuned:
        command = [*COMMAND, "tune", *WORKLOAD, "--trials", "8", "--db", str(db), "--no-limits"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=250, check=True)
        return Tuned(db, done.stdout, done.stderr)
