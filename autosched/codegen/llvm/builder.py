"""Textual LLVM IR, one instruction at a time, with values placed and shared as they are made.

Code is a tree of `Region`s: straight-line text with nested loops and branches inside. A pure
instruction is emitted in the outermost region in which all its operands are known, which hoists
invariant address arithmetic out of loops, and an identical one emitted before is reused there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Union

_NAME = re.compile(r"%[\w.]+")


class Region:
    """Code that is dominated by everything emitted before it in its parents."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.lines: list[Union[str, Region]] = []
        self.inner_open = False

    def append(self, line: str) -> None:
        """Add a line: at the end, or before the region that is open inside this one."""
        if self.inner_open:
            self.lines.insert(len(self.lines) - 1, line)
        else:
            self.lines.append(line)

    def text(self, out: list[str]) -> None:
        """Append the lines, nested regions in place."""
        for line in self.lines:
            if isinstance(line, Region):
                line.text(out)
            else:
                out.append(line)


class Builder:
    """Writes one LLVM function."""

    def __init__(self, declarations: dict[str, str]) -> None:
        self.declarations = declarations
        self.stack = [Region(0)]
        self.depth_of: dict[str, int] = {}
        self.known: dict[str, str] = {}
        """Names of pure instructions. A name's depth never changes and operands decide the region,
        so that one stands in one region only, and where its operands are known its value is."""
        self.made_by: dict[str, str] = {}
        """The pure instruction of a name."""
        self.count = 0
        self.mark = ""
        """What ends each instruction: where it comes from, if that is asked for."""

    @property
    def here(self) -> Region:
        """The innermost open region."""
        return self.stack[-1]

    def fresh(self, hint: str = "") -> str:
        """A new SSA name."""
        self.count += 1
        return f"%{hint}{self.count}" if hint else f"%v{self.count}"

    def declare(self, name: str, signature: str) -> None:
        """Declare an external function once: `declare("llvm.exp.f32", "float
        @llvm.exp.f32(float)")`."""
        self.declarations[name] = f"declare {signature}"

    def op(self, text: str) -> str:
        """A pure instruction's right-hand side; returns the SSA name of its value.

        Emitted in the outermost region in which its operands are known; shared if seen there.
        """
        found = self.known.get(text)
        if found is None:
            depth = max(map(self.depth_of.__getitem__, _NAME.findall(text)), default=0)
            found = self.known[text] = self.fresh()
            self.depth_of[found], self.made_by[found] = depth, text
            self.stack[depth].append(f"  {found} = {text}{self.mark}")
        assert self.depth_of[found] < len(self.stack)  # `before` goes back in front of regions
        return found

    def smaller(self, a: int | str, b: int | str) -> str:
        """The smaller of two i64 values."""
        self.declarations["llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        return self.op(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")

    def larger(self, a: int | str, b: int | str) -> str:
        """The larger of two i64 values."""
        self.declarations["llvm.smax.i64"] = "declare i64 @llvm.smax.i64(i64, i64)"
        return self.op(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def inst(self, text: str) -> str:
        """An instruction that stays where it is and is never shared (a load, a call with
        effects)."""
        name = self.fresh()
        self.depth_of[name] = self.here.depth
        self.here.append(f"  {name} = {text}{self.mark}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result (a store, a branch)."""
        self.here.append(f"  {text}{self.mark}")

    def label(self, name: str) -> None:
        """Start a basic block."""
        self.here.lines.append(f"{name}:")

    def name(self, name: str, depth: int | None = None) -> str:
        """Register a name made elsewhere (an argument, a phi) as known at `depth` (default:
        here)."""
        self.depth_of[name] = self.here.depth if depth is None else depth
        return name

    def open(self) -> Region:
        """Open a region inside the current one, at the current place.

        Its first line must be the branch that leaves the current basic block: hoisted instructions
        are put before it.
        """
        region = Region(len(self.stack))
        self.here.lines.append(region)
        self.here.inner_open = True
        self.stack.append(region)
        return region

    def close(self) -> None:
        """Close the innermost region; its values are not known outside."""
        self.stack.pop()
        self.here.inner_open = False

    @contextmanager
    def at(self, line: int | None) -> Iterator[None]:
        """Within it, instructions come from that line of the program; None: from where they did."""
        before = self.mark
        if line is not None:
            self.mark = f", !dbg !L{line}"
        yield
        self.mark = before

    @contextmanager
    def before(self, depth: int) -> Iterator[None]:
        """Within it, instructions go before the region that was opened at `depth`."""
        inner = self.stack[depth:]
        del self.stack[depth:]
        yield
        self.stack += inner

    def text(self) -> str:
        """The function's body."""
        out: list[str] = []
        self.stack[0].text(out)
        return "\n".join(out)
