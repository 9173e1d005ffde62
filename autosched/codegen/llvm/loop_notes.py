"""What LLVM is told of single loops: its vectorisers are off elsewhere (`assemble.py`)."""

from __future__ import annotations

VECTORS = "llvm.loop.vectorize.enable"
"""Where a module says this of a loop, LLVM makes it one of vectors, if its iterations may be."""


def vectors(declarations: dict[str, str]) -> str:
    """What ends the last branch of such a loop; adds what it names to the module."""
    declarations[VECTORS] = f'!0 = !{{!"{VECTORS}", i1 true}}'
    n = 1 + sum(key.startswith("loop ") for key in declarations)
    declarations[f"loop {n}"] = f"!{n} = distinct !{{!{n}, !0}}"
    return f", !llvm.loop !{n}"
