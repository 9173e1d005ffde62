"""Draws docs/figures/fusion.svg: a block of a residual network before and after fusion.

    python docs/figures/fusion.py [--output FILE]

Boxes are bindings of the module's function main as the passes leave it, arrows what they read;
nothing is drawn that is not in the module.
"""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path

import numpy as np

from autosched import graph
from autosched.graph import nn, op, passes
from autosched.graph.ir import Binding, Call, Function, Global, Var
from autosched.tir.module import IRModule

WIDTH, HEIGHT, STEP, COLUMN, TOP = 190, 30, 48, 330, 64


def block() -> IRModule:
    """Two convolutions with batch normalisation and a residual connection, then a mean."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> object:
        return graph.const(rng.standard_normal(shape).astype("float32"))

    def layer(x: object) -> object:
        parts = [weights(8) for _ in range(3)]
        variance = graph.const(np.ones(8, np.float32))
        return nn.batch_norm(nn.conv2d(x, weights(8, 8, 3, 3), padding=1), *parts, variance)

    x = graph.var("x", (1, 8, 16, 16), "float32")
    y = op.relu(op.add(layer(op.relu(layer(x))), x))
    return graph.module(main=graph.function([x], nn.global_avg_pool2d(y)))


def rows(module: IRModule) -> list[tuple[str, str, list[str]]]:
    """(name, label, names of what is read) of the parameters and bindings of main."""
    main = module["main"]
    assert isinstance(main, Function)
    names: dict[int, str] = {}
    out = []
    for p in main.params:
        names[id(p)] = f"v{len(names)}"
        out.append((names[id(p)], p.name, []))
    for b in main.body.bindings:
        assert isinstance(b.value, Call)
        reads = [names[id(a)] for a in b.value.args if isinstance(a, Var)]
        names[id(b.vars[0])] = f"v{len(names)}"
        out.append((names[id(b.vars[0])], _label(b), list(dict.fromkeys(reads))))
    return out


def _label(b: Binding) -> str:
    assert isinstance(b.value, Call)
    callee = b.value.callee
    return callee.name if isinstance(callee, Global) else str(callee)


def column(found: list[tuple[str, str, list[str]]], left: int, title: str) -> list[str]:
    """One graph, top to bottom; an arrow over several rows goes around them."""
    at = {name: n for n, (name, _, _) in enumerate(found)}
    out = [f'<text x="{left + WIDTH / 2}" y="{TOP - 24}" class="title">{escape(title)}</text>']
    for n, (_, label, reads) in enumerate(found):
        y = TOP + n * STEP
        kind = "input" if not reads else "group" if label.startswith("fused_") else "operator"
        out.append(
            f'<rect x="{left}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" class="{kind}"/>'
        )
        out.append(f'<text x="{left + WIDTH / 2}" y="{y + HEIGHT / 2 + 4}">{escape(label)}</text>')
        for read in reads:
            begin = TOP + at[read] * STEP + HEIGHT
            if at[read] == n - 1:
                path = f"M{left + WIDTH / 2} {begin}V{y - 4}"
            else:
                side = left + WIDTH
                path = (
                    f"M{side} {begin - HEIGHT / 2}"
                    f"C{side + 46} {begin} {side + 46} {y} {side + 4} {y + HEIGHT / 2}"
                )
            out.append(f'<path d="{path}" marker-end="url(#head)"/>')
    return out


STYLE = """text{font:13px sans-serif;text-anchor:middle;fill:#222}
.title{font-weight:bold}
rect{stroke:#555}.input{fill:#fff}.operator{fill:#e8eef7}.group{fill:#d5ead6}
path{fill:none;stroke:#555;stroke-width:1.3}#head path{fill:#555}"""
HEAD = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z"/></marker>'
)


def picture() -> str:
    """The text of the SVG file."""
    before = block()
    after = passes.fuse(passes.simplify(before))
    sides = [rows(before), rows(passes.dead_code(after))]
    height = TOP + max(map(len, sides)) * STEP
    width = 2 * COLUMN
    operators, groups = (sum(bool(reads) for _, _, reads in side) for side in sides)
    drawn = [
        *column(sides[0], 40, f"{operators} operators"),
        *column(sides[1], 40 + COLUMN, f"{groups} groups, a kernel each"),
    ]
    return (
        "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}">',
                f"<style>{STYLE}</style><defs>{HEAD}</defs>",
                f'<rect width="{width}" height="{height}" fill="#fff" stroke="none"/>',
                *drawn,
                "</svg>",
            ]
        )
        + "\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).with_suffix(".svg"))
    options = parser.parse_args()
    options.output.write_text(picture())
    print(f"wrote {options.output}")


if __name__ == "__main__":
    main()
