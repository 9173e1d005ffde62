"""Writes `benchmarks/RESULTS.md`, the figures of `results.json` as a page.

    python benchmarks/report.py

`run.py` does it at its end; tests/benchmarks/test_report.py holds that the page is current.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PAGE = HERE / "RESULTS.md"
COLUMNS = 100

_OPENING = """\
# Results

For those who ask how fast it is: the figures of the last benchmark runs that `results.json` holds.

This page is written by `benchmarks/report.py`. [Benchmarks](README.md) says how the figures are
taken. A ratio is the fastest engine's time over ours: above 1, ours is faster.
"""

Row = Sequence[str]


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    found = results["benchmarks"]
    parts = [_OPENING, _machine(results)]
    sections: list[tuple[str, Callable[[dict[str, Any]], Iterator[str]]]] = [
        ("Bars", _bars),
        ("Against engines", _engines),
        ("Time to build a candidate", _building),
        ("Tuning speed", _speed),
        ("What constants of timing are worth, by replay", _replay),
    ]
    for title, section in sections:
        if text := "\n".join(section(found)):
            parts.append(f"## {title}\n\n{text}\n")
    return "\n".join(parts)


def _machine(results: dict[str, Any]) -> str:
    m = results["machine"]
    limits = m["limits"]
    rows = [
        ("finished", results["finished_at"]),
        ("device", f"{m['device']}, {m['cores']} cores"),
        ("target", f"`{m['target']}`"),
        ("caches", ", ".join(m["caches"])),
        ("multiply-add peak", f"{limits['fma_peak'] / 1e9:.1f} GFLOP/s on {limits['threads']}"),
        ("copy", f"{limits['copy'] / 1e9:.1f} GB/s, streaming "
                 f"{limits['copy_streaming'] / 1e9:.1f} GB/s"),
        ("versions", ", ".join(f"{k} {v}" for k, v in m["versions"].items())),
    ]  # fmt: skip
    return "## Machine\n\n" + "\n".join(table(("what", "value"), rows)) + "\n"


def _bars(found: dict[str, Any]) -> Iterator[str]:
    rows = []
    for name, figures in found.items():
        if "failed" in figures:
            rows.append((f"`{name}`", "", f"exit status {figures['failed']}", "**failed**"))
        for bar in figures.get("bars", ()):
            met = "met" if bar["met"] else "**missed**"
            bound = bar["bar"].replace(">= ", "≥ ").replace("<= ", "≤ ").replace(" of ", " × ")
            rows.append((bar["case"], bound, bar["measured"], met))
    yield from table(("case", "expected", "measured", ""), rows)


def _engines(found: dict[str, Any]) -> Iterator[str]:
    rows = []
    for row in (r for f in found.values() for r in f.get("rows", ()) if "fastest" in r):
        times = row["python_s"]
        ours = next(iter(times))
        rows.append(
            (
                row["case"],
                str(row["threads"]),
                seconds(times[ours]),
                f"{row['fastest']} {seconds(times[row['fastest']])}" if row["fastest"] else "none",
                f"{row['ratio']:.3f}" if row["ratio"] else "",
                f"{row['ratio_native']:.3f}" if row["ratio_native"] else "",
                f"{row['gflops']:.1f}",
            )
        )
    heads = ("case", "threads", "ours", "fastest engine", "ratio", "native", "GFLOP/s")
    yield from table(heads, rows)


def _building(found: dict[str, Any]) -> Iterator[str]:
    rows = []
    for row in found.get("build_time", {}).get("rows", ()):
        phases = ", ".join(f"{k} {seconds(v)}" for k, v in row["phases_median_s"].items())
        rows.append((row["case"], seconds(row["median_s"]), seconds(row["p90_s"]), phases))
    yield from table(("case", "median", "p90", "of the median"), rows)


def _speed(found: dict[str, Any]) -> Iterator[str]:
    figures = found.get("tuning_speed", {})
    if figures:
        yield f"64 trials by commit `{figures['base']}` and by this version, in alternation."
        yield f"{figures['machine']}.\n"
    rows = []
    for row in figures.get("rows", ()):
        wall = f"{row['base_s']:.1f} s → {row['new_s']:.1f} s"
        quality = f"{row['quality']:.3f}" if row.get("quality") else ""
        rows.append((f"{row['workload']}, seed {row['seed']}", wall, f"{row['wall']:.2f}", quality))
    yield from table(("workload", "wall", "ratio", "base's best over ours"), rows)
    for text in figures.get("not_counted", ()):
        yield "\n" + fill(f"Not counted: {text}.", COLUMNS)


def _replay(found: dict[str, Any]) -> Iterator[str]:
    figures = found.get("timing_replay", {})
    if figures:
        yield f"{figures['records']} records, {figures['draws']} draws; {figures['machine']}.\n"
    rows = [
        (row["constant"], f"{row['quality']:.4f}", f"{row['wall_ms']:.1f}")
        for row in figures.get("rows", ())
    ]
    yield from table(("constant", "quality", "ms a candidate"), rows)


def table(heads: Row, rows: Iterable[Row]) -> Iterator[str]:
    """Lines of a Markdown table; none without rows."""
    found = list(rows)
    if found:
        yield f"| {' | '.join(heads)} |"
        yield "|" + "---|" * len(heads)
        for row in found:
            yield f"| {' | '.join(c.replace('|', chr(92) + '|') for c in row)} |"


def seconds(value: float) -> str:
    """`4.84 ms`: three significant digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(json.loads(RESULTS.read_text())), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
