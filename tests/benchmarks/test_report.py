"""`benchmarks/RESULTS.md` is what `results.json` holds."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
REPORT = runpy.run_path(str(BENCHMARKS / "report.py"))


def results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((BENCHMARKS / "results.json").read_text())
    return found


def test_the_page_is_current() -> None:
    assert REPORT["page"](results()) == (BENCHMARKS / "RESULTS.md").read_text(encoding="utf-8"), (
        "run python benchmarks/report.py"
    )


def test_every_bar_is_on_the_page() -> None:
    found = results()
    text = REPORT["page"](found)
    bars = [bar for figures in found["benchmarks"].values() for bar in figures.get("bars", ())]
    assert len(bars) >= 20
    for bar in bars:
        (line,) = [
            x for x in text.splitlines() if bar["case"] in x and f"| {bar['measured']} |" in x
        ]
        assert line.endswith("met |" if bar["met"] else "**missed** |")


def test_a_bar_that_is_missed_and_a_failure_are_seen() -> None:
    found = results()
    missed = {"case": "a|b", "bar": ">= 1", "measured": "0.9", "met": False}
    found["benchmarks"] = {"slow": {"bars": [missed]}, "broken": {"failed": 3, "last_line": ""}}
    text = REPORT["page"](found)
    assert "| a\\|b | ≥ 1 | 0.9 | **missed** |" in text
    assert "| `broken` |  | exit status 3 | **failed** |" in text
    assert "Tuning speed" not in text
