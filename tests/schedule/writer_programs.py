"""Random scripts in which several blocks write one buffer, parts of it, or with gaps, in nests of
their own or in one nest, with readers after them or between."""

from __future__ import annotations

import random
from collections.abc import Iterator

N = 8
"""Elements along each dimension."""


def random_script(rng: random.Random) -> str:
    """A program in which an intermediate or output T is written by one to three blocks."""
    rank = rng.choice([1, 1, 2])
    shape = ", ".join(["8"] * rank) + ("," if rank == 1 else "")
    last = rng.choice(["D", "D", "D", "T"])
    outs = "T" if last == "T" else "D"
    lines = [
        "@T.prim_func",
        f'def main(A: T.Buffer(({shape}), "int64"), B: T.Buffer(({shape}), "int64"), '
        + ", ".join(f'{b}: T.Buffer(({shape}), "int64")' for b in dict.fromkeys([outs, "D"]))
        + "):",
    ]
    if outs == "D":
        lines.append(f'    T_ = T.alloc_buffer(({shape}), "int64")'.replace("T_", "T"))
    lines = [x.replace("T: T.Buffer", "T_: T.Buffer").replace("    T =", "    T_ =") for x in lines]
    blocks = list(_writers(rng, rank))
    names = iter("abcdefgh")
    one_nest = rng.random() < 0.4
    if rng.random() < 0.3:
        at = rng.randrange(1, len(blocks) + 1)
        blocks.insert(at, ("E", rank, 8, "E"))
    if any(b[0] == "E" for b in blocks):
        lines.append(f'    E_ = T.alloc_buffer(({shape}), "int64")')
    if one_nest:
        extent = min(b[2] for b in blocks)
        blocks = [b for b in blocks if b[2] == extent]
        lines += _nest(rng, blocks, rank, extent, names)
    else:
        for b in blocks:
            lines += _nest(rng, [b], rank, b[2], names)
    reader = ("D", rank, 8, "R")
    lines += _nest(rng, [reader], rank, 8, names, any("E_ =" in x for x in lines))
    return "\n".join(lines) + "\n"


Writer = tuple[str, int, int, str]
"""What stands for the first index, rank, extent of the first axis, kind."""


def _writers(rng: random.Random, rank: int) -> Iterator[Writer]:
    kind = rng.randrange(7)
    if kind == 0:
        yield "{v}", rank, 8, "W"
    elif kind == 1:
        yield "{v}", rank, 4, "W"
        yield "{v} + 4", rank, 4, "W"
    elif kind == 2:
        yield "{v} * 2", rank, 4, "W"
        yield "{v} * 2 + 1", rank, 4, "W"
    elif kind == 3:
        yield "7 - {v}", rank, 8, "W"
    elif kind == 4:
        yield "{v}", rank, 8, "W"
        yield "7 - {v}", rank, rng.choice([4, 8]), rng.choice("WU")
    elif kind == 5:
        yield "{v}", rank, 8, "W"
        yield "{v} * 2", rank, 4, "U"
        yield "{v}", rank, 4, rng.choice("WU")
    else:
        yield "{v}", rank, 8, "S"
        yield rng.choice(["{v}", "{k}", "({v} + {k}) % 8", "{v} // 2 + {k} // 4"]), rank, 8, "U"


def _nest(
    rng: random.Random,
    blocks: list[Writer],
    rank: int,
    extent: int,
    names: Iterator[str],
    has_e: bool = False,
) -> list[str]:
    """One nest of loops with all the blocks."""
    reduces = any(b[3] in "SU" for b in blocks)
    loops: list[tuple[str, str]] = []
    binds: dict[str, str] = {}
    style = rng.randrange(4)
    if style == 0 and extent % 2 == 0:
        loops += [("i0", str(extent // 2)), ("i1", "2")]
        binds["v"] = rng.choice(["i0 * 2 + i1", f"i1 * {extent // 2} + i0"])
    else:
        loops.append(("i", str(extent)))
        binds["v"] = "i"
    if rank == 2:
        loops.append(("j", "8"))
        binds["w"] = "j"
    if reduces:
        loops.append(("k", "4"))
        binds["k"] = "k"
    if rng.random() < 0.4:
        rng.shuffle(loops)
    out = []
    indent = "    "
    for name, n in loops:
        out.append(f"{indent}for {name} in T.serial({n}):")
        indent += "    "
    for b in blocks:
        out += [indent + x for x in _block(rng, b, rank, extent, binds, next(names), has_e)]
    return out


def _block(
    rng: random.Random,
    b: Writer,
    rank: int,
    extent: int,
    binds: dict[str, str],
    name: str,
    has_e: bool,
) -> list[str]:
    index, _, _, kind = b
    v, w, k = f"v{name}", f"w{name}", f"k{name}"
    spatial = "spatial"
    if kind == "U" and "{k}" in index and rng.random() < 0.6:
        spatial = "reduce"
    lines = [f'with T.block("{name}"):', f"    {v} = T.axis.{spatial}({extent}, {binds['v']})"]
    if rank == 2:
        lines.append(f"    {w} = T.axis.spatial(8, j)")
    if kind in "SU":
        lines.append(f"    {k} = T.axis.reduce(4, k)")
    tail = f", {w}" if rank == 2 else ""
    source = rng.choice(["A", "B"])
    own = index.format(v=v, k=k)
    if kind == "W":
        swap = rank == 2 and extent == 8 and rng.random() < 0.3
        target = f"T_[{w}, {own}]" if swap else f"T_[{own}{tail}]"
        lines.append(f"    {target} = {source}[{v}{tail}] + {rng.randrange(9)}")
    elif kind == "S":
        target = f"T_[{own}{tail}]"
        lines += ["    with T.init():", f"        {target} = T.int64(0)"]
        lines.append(f"    {target} = {target} + {source}[({v} + {k}) % 8{tail}]")
    elif kind == "U":
        target = f"T_[{own}{tail}]"
        lines.append(f"    {target} = {target} + {source}[({v} + {k}) % 8{tail}]")
    else:
        read = rng.choice(["{v}", "7 - {v}", "({v} + 1) % 8", "{v} // 2 * 2"]).format(v=v)
        value = f"T_[{read}{tail}]"
        if index == "D" and has_e:
            value += f" + E_[{v}{tail}]"
        lines.append(f"    {index}_[{v}{tail}] = {value} * 2".replace("D_", "D"))
    return lines
