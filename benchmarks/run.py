"""Run every benchmark, collect the JSON line that each ends with, print the table of bars.

    python benchmarks/run.py [NAME ...]

Writes `benchmarks/results.json`: the machine, when and what with, and each benchmark's figures; and
`benchmarks/RESULTS.md`, the same as a page. A benchmark that fails leaves its exit status and last
words there; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from peer_client import ROOT
from report import PAGE, page

from autosched.cli.doctor import as_json, as_text, examine
from autosched.target import Target

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
BENCHMARKS = (
    "import_time",
    "call_overhead",
    "codegen",
    "rowwise",
    "scan",
    "build_time",
    "store",
    "service",
    "pages",
    "storage_align",
    "tensorize",
    "parse",
    "search",
    "search_quality",
    "tuning_memory",
    "timing",
    "tune_matmul",
    "suite",
)


def run(name: str) -> dict[str, Any]:
    """Run one benchmark, showing its output, and return the object that it ends with."""
    start = time.perf_counter()
    last = ""
    with subprocess.Popen(
        [sys.executable, str(HERE / f"{name}.py")], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    figures: dict[str, Any]
    if process.returncode != 0:
        figures = {"benchmark": name, "failed": process.returncode, "last_line": last}
    else:
        figures = json.loads(last)
    return {**figures, "took_s": round(time.perf_counter() - start, 1)}


def table(results: dict[str, Any]) -> str:
    """One row a bar: what was asked, what was measured, whether it is met."""
    rows = [("benchmark", "case", "bar", "measured", "")]
    for name, figures in results["benchmarks"].items():
        if "failed" in figures:
            rows.append((name, "", "", f"exit status {figures['failed']}", "FAILED"))
        for row in figures.get("bars", []):
            met = "met" if row["met"] else "NOT met"
            rows.append((name, row["case"], row["bar"], row["measured"], met))
    widths = [max(len(row[n]) for row in rows) for n in range(5)]
    lines = ["  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    """Run what is named (default: all), keep earlier results of the rest on the same machine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    names = parser.parse_args().names or list(BENCHMARKS)
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        parser.error(
            f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}"
        )
    machine = examine(Target("llvm"))
    print(as_text(machine))
    found = {}
    for name in names:
        print(f"\n== {name} ==", flush=True)
        found[name] = run(name)
    results = {
        "machine": as_json(machine),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "benchmarks": {**_kept(machine.fingerprint), **found},
    }
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results), encoding="utf-8")
    print(f"\n{table(results)}\n\nfigures in {RESULTS.relative_to(ROOT)}")
    return 1 if any("failed" in figures for figures in found.values()) else 0


def _kept(fingerprint: str) -> dict[str, Any]:
    """Figures of an earlier run, if it was on this machine."""
    if not RESULTS.exists():
        return {}
    earlier = json.loads(RESULTS.read_text())
    same = earlier["machine"]["fingerprint"] == fingerprint
    return dict(earlier["benchmarks"]) if same else {}


if __name__ == "__main__":
    sys.exit(main())
