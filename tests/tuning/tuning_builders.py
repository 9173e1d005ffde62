"""Builders of a user's own, named "tuning_builders:function" in tests; they run in children."""

from __future__ import annotations

import os
import zlib
from itertools import count
from pathlib import Path
from typing import Any

from autosched.codegen.llvm.assemble import compile_ir
from autosched.schedule import Trace
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from measure.local.build import build


def broken(func: PrimFunc, trace: Trace, target: Target) -> Any:
    raise RuntimeError("this builder builds nothing")


def exits(func: PrimFunc, trace: Trace, target: Target) -> Any:
    os._exit(3)


def untransformed(func: PrimFunc, trace: Trace, target: Target) -> Any:
    """Right, however slow: every candidate is the program as written."""
    return build(func, None, target)


def often_broken(func: PrimFunc, trace: Trace, target: Target) -> Any:
    """Fails on half of the candidates."""
    if zlib.crc32(trace.to_json().encode()) % 2:
        raise RuntimeError("not this one")
    return build(func, trace, target)


_BODIES = {
    "crashes": "store volatile i32 1, ptr inttoptr (i64 16 to ptr)",
    "never ends": "br label %spin\nspin:\n  br label %spin\nother:",
    "ends the process": "call void @_exit(i32 0)",
    "writes nothing": "",
    "writes past its arrays": """%c = load ptr, ptr %args
  %far = getelementptr i8, ptr %c, i64 -8
  store i64 1, ptr %far""",
}


def _turn(folder: Path, trace: Trace) -> int:
    """Which candidate this is in the order of the first builds, the same when it is built again.

    A file for each candidate and one for each turn, since builds are in several processes.
    """
    seen = folder / f"candidate-{zlib.crc32(trace.to_json().encode())}"
    if seen.exists():
        return int(seen.read_text())
    for turn in count():
        try:
            (folder / f"turn-{turn}").touch(exist_ok=False)
        except FileExistsError:
            continue
        seen.write_text(str(turn))
        return turn
    raise AssertionError("count() does not end")


def saboteur(func: PrimFunc, trace: Trace, target: Target) -> Any:
    """Builds code that does what it must not, each kind in its turn; a third is right."""
    kinds = [*_BODIES, "does not build", "ends the builder", "right", "right", "right"]
    kind = kinds[_turn(Path(os.environ["SABOTEUR_TURNS"]), trace) % len(kinds)]
    if kind == "does not build":
        raise RuntimeError("this one does not build")
    if kind == "ends the builder":
        os._exit(0)
    if kind == "right":
        return build(func, trace, target)
    ir = f"""
declare void @_exit(i32)
define void @kernel(ptr %args, ptr %workspace, i32 %threads) {{
  {_BODIES[kind]}
  ret void
}}
"""
    return compile_ir(ir, target), "kernel"
