"""Values that hardly any argument of the public functions may have."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import autosched as at
from autosched import te


class Text(str):
    """A text that is not plainly one."""

    __slots__ = ()


def foreign_func() -> at.IRModule:
    """A program that none of the calls is about."""
    P = te.placeholder((3,), name="P")
    return at.IRModule.of(te.create_prim_func([P, te.compute((3,), lambda z: P[z] + 1, name="Q")]))


def foreign_loop() -> Any:
    sch = at.Schedule(foreign_func())
    return sch.get_loops(sch.get_block("Q"))[0]


def circle() -> list[Any]:
    """A list that holds itself."""
    out: list[Any] = []
    out.append(out)
    return out


class Unequal:
    """Not even a comparison of it is a bool."""

    def __eq__(self, other: object) -> Any:
        return np.zeros(2)

    __hash__ = None  # type: ignore[assignment]


WRONG: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "-1": lambda: -1,
    "0": lambda: 0,
    "2**70": lambda: 2**70,
    "1.5": lambda: 1.5,
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "True": lambda: True,
    "1j": lambda: 1j,
    "''": lambda: "",
    "'x'": lambda: "x",
    "'é\\0'": lambda: "é\0",
    "a lone surrogate": lambda: "\udc80",
    "b'x'": lambda: b"x",
    "str subclass": lambda: Text("x"),
    "Path": lambda: Path("x"),
    "[]": list,
    "[None]": lambda: [None],
    "()": tuple,
    "range": lambda: tuple(range(3000)),
    "a list that holds itself": circle,
    "{}": dict,
    "{1: None}": lambda: {1: None},
    "set()": set,
    "generator": lambda: (x for x in "ab"),
    "object()": object,
    "Unequal()": Unequal,
    "lambda": lambda: lambda: None,
    "int": lambda: int,
    "module": lambda: types,
    "...": lambda: ...,
    "slice": lambda: slice(0, 1),
    "np.int64": lambda: np.int64(-7),
    "np.float32": lambda: np.float32(2.5),
    "np.str_": lambda: np.str_("x"),
    "array of no element": lambda: np.zeros(0),
    "array (2, 3)": lambda: np.zeros((2, 3)),
    "array of objects": lambda: np.array([None, "x"], dtype=object),
    "te.var": lambda: te.var("foreign"),
    "axis": lambda: te.reduce_axis((0, 3), "foreign"),
    "tensor": lambda: te.placeholder((3,), name="foreign"),
    "expression": lambda: te.placeholder((3,), name="foreign")[0] + 1.0,
    "loop": foreign_loop,
    "block": lambda: at.Schedule(foreign_func()).get_block("Q"),
    "module of programs": foreign_func,
    "Schedule": lambda: at.Schedule(foreign_func()),
}
"""By name, how to make them: some can be used once only."""
