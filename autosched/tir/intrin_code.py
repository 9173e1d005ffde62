"""The implementation of a tensor intrinsic that is LLVM IR: its form, read from text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from autosched.errors import ScheduleError
from autosched.tir.affine import Affine
from autosched.tir.dtypes import itemsize
from autosched.tir.nodes import Block, Buffer

TILE = "x86_amx"
"""LLVM's type of a tile register."""
_DEFINE = re.compile(r"define\s+(?P<type><[^>]+>|\w+)\s+@[\w.]+\((?P<params>[^)]*)\)\s*\{")
_DECLARE = re.compile(r"declare\s.*@(?P<name>[\w.]+)\(.*\)$")
_ASSIGN = re.compile(r"(?P<name>%[\w.]+)\s*=\s*(?P<value>.+)$")


@dataclass(frozen=True)
class WarpCode:
    """An instruction of PTX that the 32 threads of each of `warps` warps run together; a product
    has `terms`. See `codegen/warp_intrinsics.py`."""

    instruction: str
    terms: int
    warps: int = 1


@dataclass(frozen=True, eq=False)
class Implementation:
    """Straight-line LLVM IR. `params` are names such as `%A`; `lines` are (name, right-hand side),
    `result` is the name or constant returned."""

    params: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]
    result: str
    declarations: Mapping[str, str]
    tiles: bool = False
    """Operands and result are of type x86_amx: rows that lie at any distance from one another."""


def parse(text: str, what: str) -> Implementation:
    """The implementation's parts. Raises ScheduleError for what is not straight-line."""
    params: tuple[str, ...] | None = None
    lines: list[tuple[str, str]] = []
    result = ""
    declarations: dict[str, str] = {}
    tiles = 0
    text = re.sub(r";.*", "", text)
    whole = re.sub(r"\(\s+|,\s+|\s+\)", lambda m: m.group().replace("\n", " "), text)
    for line in filter(None, map(str.strip, whole.splitlines())):
        declare, define, assign = _DECLARE.match(line), _DEFINE.match(line), _ASSIGN.match(line)
        if declare is not None and params is None:
            declarations[declare["name"]] = line
        elif define is not None and params is None:
            given = [p.split() for p in define["params"].split(",") if p.strip()]
            params = tuple(p[-1] for p in given)
            tiles = [define["type"], *(p[0] for p in given)].count(TILE)
        elif assign is not None and params is not None and not result:
            lines.append((assign["name"], assign["value"]))
        elif line.startswith("ret ") and params is not None and not result:
            result = line.split()[-1]
        elif line != "}":
            raise ScheduleError(f"{what}: the implementation is no straight-line function: {line}")
    if params is None or not result:
        raise ScheduleError(f"{what}: the implementation is one function that returns a value")
    if tiles not in (0, 1 + len(params)):
        raise ScheduleError(f"{what}: either all operands and the result are {TILE}, or none is")
    return Implementation(params, tuple(lines), result, declarations, tiles > 0)


def tile_shape(buffer: Buffer) -> tuple[int, int]:
    """Rows, and bytes of a row, of a tile that is a buffer of a meaning."""
    rows, *rest = (int(n) for n in buffer.shape)
    return rows, prod(rest) * itemsize(buffer.dtype)


def check_tiles(block: Block, what: str) -> None:
    """Raise ScheduleError unless each buffer is what a tile register holds."""
    for a in (*block.reads, *block.writes):
        rows, width = tile_shape(a.buffer)
        row = a.indices[0]
        one = isinstance(row, Affine) and row.single_var() is not None
        if not (1 <= rows <= 16 and 4 <= width <= 64 and width % 4 == 0 and one):
            raise ScheduleError(
                f"{what}: {a.buffer.name} is no tile: expected 1 to 16 rows of 4 to 64 bytes, in "
                f"fours, and one axis for the rows; found {rows} of {width}"
            )
