"""Tapes: a computation over columns, recorded once and run again on other columns.

Replaying a trace and analysing what it gives is a few thousand lines of Python around two thousand
operations on columns. For candidates of one structure the operations are the same, so they are
recorded the first time (`record`), simplified, and from then on run alone (`Tape.run`, in
`search/vm.py`). Recorded columns are ndarrays of the subclass `Column`, whose operations note
themselves (NumPy's `__array_ufunc__`, NEP 13, and `__array_function__`, NEP 18).

Wherever the recorded code asked whether something holds for *all* candidates and took the answer
yes, the tape has a guard, and `run` tells for each row whether it keeps them. The answer no needs
no guard: the way for "not all" is right for any candidates, which is what makes batches possible.

Numbers are float64 throughout. Integers stay exact up to 2**52, and so do their quotients rounded
down: the distance of a fraction from the next integer is at least 1/divisor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.search import vm
from autosched.search.recorder import Operand, Recorder

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


class Tape:
    """A recorded computation, from input columns to result columns and rows.

    `results` is the number of result columns, `width` that of the elements of a row.
    """

    def __init__(
        self, recorder: Recorder, results: Sequence[Operand], row: Sequence[Operand]
    ) -> None:
        self.results, self.width = len(results), len(row)
        stores: dict[Operand, list[tuple[int, int]]] = {}
        for place, x in enumerate((recorder.kept(), *results)):
            stores.setdefault(x, []).append((vm.OPCODE["output"], place))
        for place, x in enumerate(row):
            stores.setdefault(x, []).append((vm.OPCODE["row"], place))
        self._assemble(recorder, stores)

    def _assemble(self, recorder: Recorder, stores: dict[Operand, list[tuple[int, int]]]) -> None:
        """Machine code: a register is free again after the last use of what it holds, and results
        are stored as soon as they are known."""
        code = recorder.code
        live, last = {x for x in stores if x >= 0}, dict[Operand, int]()
        for index in range(len(code) - 1, -1, -1):
            if index in live:
                for x in code[index][1]:
                    live.add(x)
                    last.setdefault(x, index)
        constants = sorted({x for x in (*live, *stores) if x < 0})
        register = {x: n for n, x in enumerate(constants)}
        free: list[int] = []
        count = len(constants)
        program: list[int] = []
        for x in constants:
            for kind, place in stores.get(x, ()):
                program += (kind, 0, place, register[x], 0)
        for index in sorted(x for x in live if x >= 0):
            op, operands = code[index]
            given = [register[x] for x in operands] if op != "input" else [index]
            for x in set(operands):
                if x >= 0 and last[x] == index:
                    free.append(register[x])
            if free:
                mine = free.pop()
            else:
                mine, count = count, count + 1
            register[index] = mine
            program += (vm.OPCODE[op], mine, *given, *(0,) * (3 - len(given)))
            for kind, place in stores.get(index, ()):
                program += (kind, 0, place, mine, 0)
            if index not in last:
                free.append(mine)
        self.code = np.array(program, dtype=np.int32).reshape(-1, 5)
        self._constants = np.array([recorder.constants[-1 - x] for x in constants])
        self._registers = count

    def run(self, inputs: Floats, results: Floats, rows: Rows) -> Mask:
        """Fill `results` (1 + results, N) and `rows` (N, width) from the columns (D, N), in the
        order of recording; the first result is used here. Returns which rows keep the guards; what
        the others hold is void."""
        file = _aligned(self._registers)
        file[: len(self._constants)] = self._constants[:, None]
        vm.run(self.code, file, inputs, results, rows, 0, inputs.shape[1])
        kept: Mask = results[0] == 1.0
        return kept


def _aligned(registers: int) -> Floats:
    """A register file of zeros that starts on a multiple of 64 bytes."""
    raw = np.zeros(registers * vm.ROWS + 8)
    start = (-raw.ctypes.data // 8) % 8
    found: Floats = raw[start : start + registers * vm.ROWS].reshape(registers, vm.ROWS)
    return found


def record(
    function: Callable[[Mapping[str, Any]], tuple[Sequence[Any], Sequence[Any]]],
    columns: Mapping[str, npt.NDArray[np.int64]],
    bounds: Mapping[str, tuple[float, float]],
) -> Tape:
    """The tape of `function`, which maps columns by name to (result columns, elements of a row).

    It is recorded on `columns` of shape (N,); `bounds` holds for every column that it will ever be
    run on. Raises NotRecordable, and what `function` raises.
    """
    recorder = Recorder()
    inputs = {name: recorder.column(columns[name], *bounds[name]) for name in columns}
    results, row = function(inputs)
    return Tape(recorder, list(map(recorder.operand, results)), list(map(recorder.operand, row)))
