"""Draws the figures of docs/design/overview.md: pipeline.svg, candidate.svg and batch.svg.

    python docs/figures/design.py [--output FOLDER]

The numbers of batch.svg are computed: a trace with two free decisions is replayed once, with an
array of four values for each.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

import numpy as np

import autosched as at
from autosched import te
from autosched.schedule import Decision
from autosched.search.analysis import analyse
from autosched.tir.nodes import sites

STYLE = """text{font:13px sans-serif;fill:#222}.mid{text-anchor:middle}.small{font-size:11px}
.code{font:12px monospace;white-space:pre}.title{font-weight:bold}
rect{stroke:#555;fill:#e8eef7}.data{fill:#fff}.measured{fill:#d5ead6}.choice{fill:#f7efdc}
path{fill:none;stroke:#555;stroke-width:1.3}#head path{fill:#555}"""
HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z"/></marker>'
)


@dataclass(frozen=True)
class Box:
    """A rectangle with a name and a line below it."""

    x: int
    y: int
    name: str
    note: str = ""
    kind: str = ""
    width: int = 150
    height: int = 46

    @property
    def middle(self) -> tuple[float, float]:
        """The centre of the box."""
        return self.x + self.width / 2, self.y + self.height / 2

    def draw(self) -> list[str]:
        """The elements of the box."""
        x, y = self.middle
        at_name = y + 4 if not self.note else y - 3
        out = [
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6"'
            + (f' class="{self.kind}"/>' if self.kind else "/>"),
            f'<text x="{x:g}" y="{at_name:g}" class="mid title">{escape(self.name)}</text>',
        ]
        if self.note:
            out.append(
                f'<text x="{x:g}" y="{y + 14:g}" class="mid small">{escape(self.note)}</text>'
            )
        return out


def arrow(a: Box, b: Box, label: str = "") -> list[str]:
    """A straight arrow from the border of one box to that of another, with a label beside it."""
    (ax, ay), (bx, by) = a.middle, b.middle
    if abs(ax - bx) > abs(ay - by) or a.y == b.y:
        begin = (a.x + a.width if bx > ax else a.x, ay)
        end = (b.x - 4 if bx > ax else b.x + b.width + 4, by)
    else:
        begin = (ax, a.y + a.height if by > ay else a.y)
        end = (bx, b.y - 4 if by > ay else b.y + b.height + 4)
    out = [f'<path d="M{begin[0]:g} {begin[1]:g}L{end[0]:g} {end[1]:g}" marker-end="url(#head)"/>']
    if label:
        x, y = (begin[0] + end[0]) / 2, (begin[1] + end[1]) / 2
        beside = begin[0] == end[0]
        out.append(
            f'<text x="{x + 6 if beside else x:g}" y="{y + 4 if beside else y - 6:g}" '
            f'class="{"small" if beside else "mid small"}">{escape(label)}</text>'
        )
    return out


def svg(width: int, height: int, parts: list[str]) -> str:
    """The text of a file."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}">',
        f"<style>{STYLE}</style><defs>{HEAD}</defs>",
        f'<rect width="{width}" height="{height}" style="fill:#fff;stroke:none"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def pipeline() -> str:
    """From a computation to the fastest program found for it."""
    model = Box(20, 20, "ONNX model", "autosched/graph", "data")
    te_ = Box(20, 100, "tensor expression", "autosched/te", "data")
    script = Box(20, 180, "script text", "autosched/script", "data")
    func = Box(230, 100, "loop IR", "PrimFunc, autosched/tir")
    sketch = Box(440, 100, "space", "autosched/sketch", "choice")
    search = Box(650, 100, "search", "autosched/search", "choice")
    score = Box(650, 20, "cost model", "cost_model", "choice")
    replay = Box(650, 200, "schedule + trace", "autosched/schedule")
    code = Box(440, 200, "machine code", "autosched/codegen")
    timed = Box(440, 290, "build, verify, time", "measure", "measured")
    store = Box(650, 290, "records", "records", "measured")
    best = Box(230, 290, "the best program", "callable, text, .o", "data")
    boxes = [model, te_, script, func, sketch, search, score, replay, code, timed, store, best]
    parts = [e for b in boxes for e in b.draw()]
    lines: list[tuple[Box, Box, str]] = [
        (model, te_, ""), (te_, func, ""), (script, func, ""), (func, sketch, "rules"),
        (sketch, search, ""), (score, search, "scores"), (search, replay, "a few rows"),
        (replay, code, "lower"), (code, timed, ""), (timed, store, ""), (timed, best, ""),
    ]  # fmt: skip
    for a, b, label in lines:
        parts += arrow(a, b, label)
    parts += [
        '<path d="M800 313C850 300 850 140 804 126" marker-end="url(#head)"/>',
        '<text x="806" y="190" class="small">tell</text>',
    ]
    return svg(860, 356, parts)


def candidate() -> str:
    """What becomes of one candidate, and where it can leave."""
    names = [
        ("proposed", "a row of integers", "choice"),
        ("scored", "one tape a variant", "choice"),
        ("replayed", "trace with numbers", ""),
        ("built", "a builder process", ""),
        ("verified", "poisoned outputs", "measured"),
        ("timed", "a block of samples", "measured"),
        ("recorded", "one row, status ok", "measured"),
    ]
    boxes = [
        Box(20 + 135 * n, 30, name, note, kind, width=115)
        for n, (name, note, kind) in enumerate(names)
    ]
    parts = [e for b in boxes for e in b.draw()]
    for a, b in pairwise(boxes):
        parts += arrow(a, b)
    leaves = {
        1: ["low score:", "not measured"],
        2: ["instantiation_error"],
        3: ["build_error", "build_timeout"],
        4: ["wrong_result", "out_of_bounds", "runtime_error", "run_timeout", "out_of_memory"],
        5: ["device_lost", "(after two retries)", "cancelled"],
    }
    for n, lines in leaves.items():
        x, _ = boxes[n].middle
        parts.append(f'<path d="M{x:g} 76V104" marker-end="url(#head)"/>')
        parts += [
            f'<text x="{x:g}" y="{122 + 15 * k}" class="mid small">{escape(line)}</text>'
            for k, line in enumerate(lines)
        ]
    parts.append(
        '<text x="20" y="18" class="small">A failure is a record too, with its status:</text>'
    )
    return svg(970, 200, parts)


def replayed() -> tuple[str, dict[str, list[int]], dict[str, list[float]]]:
    """(trace as text, decisions, what the analysis computes of them) of four candidates."""
    a, b = (te.placeholder((64, 64), name=n) for n in "AB")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    sch = at.Schedule(te.create_prim_func([a, b, c]))
    block = sch.get_block("C")
    i, j, r = sch.get_loops(block)
    sch.split(i, factors=[None, 4])
    sch.split(j, factors=[None, 16])
    rows, columns = sch.get_loops(block)[1], sch.get_loops(block)[3]
    outer = [sch.get_loops(block)[n] for n in (0, 2)]
    sch.reorder(*outer, r, rows, columns)
    sch.unroll(rows)
    sch.vectorize(columns)
    free = {4: Decision("rows"), 16: Decision("cols")}
    trace = type(sch.trace)(
        tuple(
            s.map(lambda v: free.get(v, v) if isinstance(v, int) else v) if s.op == "split" else s
            for s in sch.trace.steps
        )
    )
    decisions = {"rows": [1, 2, 4, 8], "cols": [8, 16, 16, 32]}
    columns_of = {name: np.array(values) for name, values in decisions.items()}
    func = trace.apply(te.create_prim_func([a, b, c]), columns_of).func
    found = analyse(func, at.Target("llvm -mcpu=znver3 -num-cores=2"))
    extents = {v.name: e for v, e in next(iter(sites(func))).extents().items()}
    stats = found.blocks["C"]
    lines = [line.strip() for line in trace.as_python().splitlines() if ".split(" in line]
    outer_extents = [e for e in extents.values() if isinstance(e, np.ndarray)]
    return (
        "\n".join(lines),
        decisions,
        {
            "outer i": outer_extents[0].tolist(),
            "accumulators": stats.accumulators.tolist(),
            "registers": stats.live.tolist(),
        },
    )


def batch() -> str:
    """A population: one trace, a column of integers for each decision, columns computed of them."""
    text, decisions, computed = replayed()
    parts = ['<text x="20" y="24" class="title">one trace</text>']
    parts += [
        f'<text x="20" y="{50 + 20 * n}" class="code">{escape(line)}</text>'
        for n, line in enumerate(text.splitlines())
    ]
    parts.append('<text x="20" y="124" class="title">four candidates: arrays of shape (4,)</text>')
    y, left = 140, 20
    for title, columns, kind in (("decisions", decisions, "choice"), ("computed", computed, "")):
        for name, values in columns.items():
            parts += Box(left, y, name, title, kind, width=104, height=40).draw()
            for n, value in enumerate(values):
                parts += Box(left, y + 40 + 26 * n, f"{value:g}", "", "data", 104, 26).draw()
            left += 104
        left += 40
    parts.append(f'<path d="M230 {y + 92}H264" marker-end="url(#head)"/>')
    return svg(left, y + 160, parts)


FIGURES = {"pipeline": pipeline, "candidate": candidate, "batch": batch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().output
    for name, draw in FIGURES.items():
        (folder / f"{name}.svg").write_text(draw())
        print(f"wrote {folder / name}.svg")


if __name__ == "__main__":
    main()
