"""Random TVMScript, held to its execution: what `migrate` accepts computes the same, bit by bit.

Programs are of integers, over loops with starts, steps and ends that depend on other loops, stores
with and without blocks, blocks in blocks, conditions on loops and on data, names for values, and
intermediates that live for an iteration. Most depend on the order in which loops run in ways that
the loop IR does not have, and become routines; none may be computed wrongly.

By hand:  python tests/script/tvmscript_fuzz.py --programs 10000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent)]

import numpy as np
from tvmscript_oracle import execute

import autosched as at
from autosched.errors import AutoschedError
from autosched.script import parse
from autosched.script.migrate import migrate
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc
from autosched.tir.routine import Routine
from autosched.tir.run_routine import run_routine

SIZE = 6
"""Extent of every dimension."""


class Maker:
    """Writes one program."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.loops: list[tuple[str, int, int]] = []
        """(name, least value, largest value) of what stands for an integer here."""
        self.count = 0
        self.local: list[str] = []
        self.names: list[str] = []

    def text(self) -> str:
        kind = f"T.Buffer(({SIZE}, {SIZE}), 'int32')"
        self.lines = [
            "@T.prim_func",
            f"def main(A: {kind}, X: T.Buffer(({SIZE},), 'int32'), B: {kind}, "
            f"C: T.Buffer(({SIZE},), 'int32')):",
        ]
        if self.rng.random() < 0.3:
            self.lines.append(f"    M = T.alloc_buffer(({SIZE}, {SIZE}), 'int32')")
            self.local.append("M")
        for buffer, rank in (("B", 2), ("C", 1), *((x, 2) for x in self.local)):
            if self.rng.random() < 0.8:
                self.fill(buffer, rank)
        for _ in range(self.rng.randint(1, 2)):
            self.statement(1, 3)
        return "\n".join(self.lines) + "\n"

    def fill(self, buffer: str, rank: int) -> None:
        at = "p, q" if rank == 2 else "p"
        extents = ", ".join([str(SIZE)] * rank)
        self.lines += [
            f"    for {at} in T.grid({extents}):",
            f"        {buffer}[{at}] = {self.rng.choice(['0', '1', 'p'])}",
        ]

    def emit(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # -- statements

    def statement(self, depth: int, loops: int) -> None:
        rng = self.rng
        kind = rng.random() if depth < 7 else 1.0
        if loops and (kind < 0.55 or len(self.loops) == 0):
            self.loop(depth, loops)
        elif kind < 0.65 and self.loops:
            self.branch(depth, loops)
        elif kind < 0.85 and self.loops:
            self.block(depth, loops)
        elif kind < 0.9 and self.loops:
            name = self.fresh("x")
            self.emit(depth, f"{name} = {self.value(1)}")
            self.names.append(name)
            self.store(depth)
            self.names.pop()
        else:
            self.store(depth)

    def body(self, depth: int, loops: int) -> None:
        names, local = len(self.names), len(self.local)
        for _ in range(self.rng.choice([1, 1, 1, 2])):
            self.statement(depth, loops)
        del self.names[names:], self.local[local:]

    def loop(self, depth: int, loops: int) -> None:
        rng, name = self.rng, self.fresh("i")
        low, high, head = 0, SIZE - 1, f"T.serial({SIZE})"
        kind = rng.random()
        if kind < 0.2:
            low, end = rng.randint(0, 2), rng.randint(4, SIZE)
            high, head = end - 1, f"T.serial({low}, {end})"
        elif kind < 0.3:
            low = rng.randint(0, 1)
            high, head = SIZE - 1, f"T.serial({low}, {SIZE}, step=2)"
        elif kind < 0.5 and self.loops:
            other, a, b = rng.choice(self.loops)
            if b < SIZE:
                if rng.random() < 0.5:
                    low, high, head = a, SIZE - 1, f"T.serial({other}, {SIZE})"
                else:
                    high, head = max(b, 0), f"T.serial({other} + 1)"
        elif kind < 0.6:
            head = f"T.grid({SIZE})"
        self.emit(depth, f"for {name} in {head}:")
        self.loops.append((name, low, high))
        self.body(depth + 1, loops - 1)
        self.loops.pop()

    def branch(self, depth: int, loops: int) -> None:
        self.emit(depth, f"if {self.condition()}:")
        self.body(depth + 1, loops and loops - 1)
        if self.rng.random() < 0.5:
            self.emit(depth, "else:")
            self.body(depth + 1, loops and loops - 1)

    def block(self, depth: int, loops: int) -> None:
        rng = self.rng
        self.emit(depth, f"with T.block({repr(self.fresh('b')) if rng.random() < 0.8 else ''}):")
        mark, before = len(self.loops), list(self.loops)
        picked = rng.sample(before, rng.randint(0, min(len(before), 3)))
        for loop, low, high in picked:
            name = self.fresh("v")
            kind = rng.choice(["S", "S", "S", "R"])
            extent = f"({low}, {high + 1})" if low or rng.random() < 0.3 else f"{high + 1}"
            self.emit(depth + 1, f"{name} = T.axis.{kind}({extent}, {loop})")
            self.loops.append((name, low, high))
        if rng.random() < 0.2:
            self.emit(depth + 1, f"T.where({self.condition()})")
        if loops and rng.random() < 0.4:
            if rng.random() < 0.4:
                name = self.fresh("t")
                self.emit(depth + 1, f"{name} = T.alloc_buffer(({SIZE},), 'int32')")
                self.emit(depth + 1, f"for p in range({SIZE}):")
                self.emit(depth + 2, f"{name}[p] = {self.value(1)}")
                self.local.append(name)
            self.body(depth + 1, loops - 1)
        else:
            if rng.random() < 0.3:
                name = self.fresh("y")
                self.emit(depth + 1, f"{name} = {self.value(1)}")
                self.names.append(name)
            if rng.random() < 0.3:
                target = self.element("BC")
                self.emit(depth + 1, "with T.init():")
                self.emit(depth + 2, f"{target} = 0")
                self.emit(depth + 1, f"{target} = {target} + {self.value(1)}")
            else:
                for _ in range(rng.choice([1, 1, 2])):
                    self.store(depth + 1)
        del self.loops[mark:]
        self.names = [n for n in self.names if not n.startswith("y")]
        self.local = [n for n in self.local if not n.startswith("t")]

    def store(self, depth: int) -> None:
        target = self.element("BC")
        kind = self.rng.random()
        if kind < 0.3:
            self.emit(depth, f"{target} += {self.value(1)}")
        elif kind < 0.4:
            self.emit(depth, f"{target} = T.max({target}, {self.value(1)})")
        else:
            self.emit(depth, f"{target} = {self.value(2)}")

    # -- values

    def index(self) -> str:
        rng = self.rng
        if not self.loops or rng.random() < 0.1:
            return str(rng.randint(0, SIZE - 1))
        name, low, high = rng.choice(self.loops)
        kind = rng.random()
        if kind < 0.15 and high + 1 < SIZE:
            return f"{name} + 1"
        if kind < 0.3 and low > 0:
            return f"{name} - 1"
        if kind < 0.4:
            return f"{SIZE - 1} - {name}"
        if kind < 0.45 and len(self.loops) > 1:
            other = rng.choice(self.loops)[0]
            return f"({name} + {other}) % {SIZE}"
        return name

    def element(self, stored: str = "") -> str:
        options = [x for x in ("B", "C", *self.local) if not stored or x in "BC" or x[0] in "tM"]
        if not stored:
            options += ["A", "X", "A"]
        buffer = self.rng.choice(options)
        rank = 1 if buffer[0] in "CXt" else 2
        return f"{buffer}[{', '.join(self.index() for _ in range(rank))}]"

    def value(self, depth: int) -> str:
        rng = self.rng
        kind = rng.random()
        if depth and kind < 0.4:
            return f"{self.value(depth - 1)} {rng.choice('+-*')} {self.value(depth - 1)}"
        if depth and kind < 0.5:
            return f"T.max({self.value(depth - 1)}, {self.value(0)})"
        if depth and kind < 0.6:
            return f"T.Select({self.condition()}, {self.value(0)}, {self.value(0)})"
        if kind < 0.7 and self.names:
            return rng.choice(self.names)
        if kind < 0.75:
            return f"T.int32({rng.randint(0, 5)})"
        if kind < 0.8 and self.loops:
            return rng.choice(self.loops)[0]
        return self.element()

    def condition(self) -> str:
        rng = self.rng
        op = rng.choice(["<", "<=", ">", "==", "!="])
        if rng.random() < 0.3:
            return f"A[{self.index()}, {self.index()}] {op} {rng.randint(0, 6)}"
        left = rng.choice(self.loops)[0] if self.loops else "0"
        one = f"{left} {op} {rng.choice([str(rng.randint(0, 5)), self.index()])}"
        if rng.random() < 0.2:
            return f"{one} {rng.choice(['and', 'or'])} {self.condition()}"
        return one


def arrays(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = (SIZE, SIZE), (SIZE,), (SIZE, SIZE), (SIZE,)
    return [rng.integers(0, 7, s).astype(np.int32) for s in shapes]


def judge(text: str, seed: int) -> str:
    """What becomes of a program: refused, or the same; raises AssertionError if it is another."""
    given = arrays(seed)
    expected, found = ([a.copy() for a in given] for _ in range(2))
    try:
        execute(text, expected)
    except (AssertionError, OverflowError):
        return "invalid"
    (function,) = migrate(text).functions
    if function.error is not None:
        return f"refused by {type(function.error).__name__}"
    if function.is_routine:
        judge_direct(text, function.text, seed)
        return "the same as a routine"
    if "T.opaque" in function.text:
        judge_direct(text, function.text, seed)
        return "the same with opaque blocks"
    try:
        interp.run(migrate(text).program(), found)
    except AutoschedError as e:
        raise AssertionError(f"{e}\n{text}\n{function.text}") from e
    for a, b in zip(found, expected, strict=True):
        assert np.array_equal(a, b), f"{text}\n->\n{function.text}\n{a}\n{b}"
    return "the same"


def judge_direct(text: str, new: str, seed: int) -> None:
    """Raise AssertionError if `new`, of which all or some runs as it is written, interpreted or
    compiled, differs from `text`."""
    expected, ours, built = (arrays(seed) for _ in range(3))
    execute(text, expected, zeros=True)
    func = parse(new)
    assert isinstance(func, (PrimFunc, Routine))
    assert parse(func.script()).same(func), new
    try:
        run_routine(func, ours) if isinstance(func, Routine) else interp.run(func, ours)
        at.build(func, target="llvm", level="search")(*built)
    except AutoschedError as e:
        raise AssertionError(f"{e}\n{text}\n{new}") from e
    for a, b, c in zip(expected, ours, built, strict=True):
        assert np.array_equal(a, b), f"{text}\n->\n{new}\n{a}\n{b}"
        assert np.array_equal(b, c), f"compiled:\n{new}\n{b}\n{c}"


def survey(programs: int, seed: int) -> Counter[str]:
    """How many of random programs are refused, and how many are the same."""
    counts: Counter[str] = Counter()
    for n in range(programs):
        text = Maker(random.Random(seed * 1_000_003 + n)).text()
        counts[judge(text, n)] += 1
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(dict(survey(given.programs, given.seed)))
