"""The recurrences of a function: whose stages a computation is, and where states are kept.

A state has one buffer, that of the scan's result: the init writes its first steps, the update the
others, and every read of the state, of the update or of the result is one of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autosched.errors import TensorExprError
from autosched.te.tensor import ComputeOp, Extent, Operation, ScanOp, Tensor
from autosched.tir.expr import Var


@dataclass(frozen=True, eq=False)
class Step:
    """The time loop that the stages of one scan share."""

    scan: ScanOp
    loop: Var

    @property
    def first(self) -> int:
        """The first step that is computed; those before it are given."""
        return self.scan.scan_axis.begin

    @property
    def extent(self) -> Extent:
        """How many steps are computed."""
        return self.scan.scan_axis.extent

    def is_stage(self, t: Tensor) -> bool:
        """Whether `t` lives within one step only: a stage that is no update."""
        return any(t.op is op for op in self.scan.stages) and all(
            t is not u for u in self.scan.update
        )


class Scans:
    """The scans among `ops`, the operations of a function with parameters `params`.

    Raises TensorExprError if a state or a stage is used outside its scan, or by two.
    """

    def __init__(self, params: Sequence[Tensor], ops: Sequence[Operation]) -> None:
        self.params, self.ops = params, ops
        self.steps: dict[int, Step] = {}
        """Scan (by id) -> its time loop."""
        self.stages: dict[int, Step] = {}
        """Stage (by id) -> the time loop that it stands in."""
        self.states: dict[int, ScanOp] = {}
        """Operation of a state's placeholder (by id) -> its scan."""
        for op in ops:
            if isinstance(op, ScanOp):
                self._add(op)
        if self.steps:
            self._check()

    def _add(self, scan: ScanOp) -> None:
        step = self.steps[id(scan)] = Step(scan, Var(scan.scan_axis.name))
        for stage in scan.stages:
            if id(stage) in self.stages:
                other = self.stages[id(stage)].scan
                raise TensorExprError(
                    f"{stage.name} is a stage of scan {other.name} and of scan {scan.name}; "
                    "write it once for each"
                )
            self.stages[id(stage)] = step
        for state in scan.state:
            if id(state.op) in self.states:
                other = self.states[id(state.op)]
                raise TensorExprError(
                    f"{state.name} is a state of scan {other.name} and of scan {scan.name}; "
                    "make a placeholder for each"
                )
            self.states[id(state.op)] = scan

    def _check(self) -> None:
        for t in self.params:
            if id(t.op) in self.states:
                raise TensorExprError(
                    f"{t.name} stands for the result of scan {self.states[id(t.op)].name}; "
                    "list that result instead"
                )
            self._check_user(t, "the list of parameters", None)
        for op in self.ops:
            if isinstance(op, ScanOp):
                for t in op.init:
                    self._check_user(t, f"scan {op.name}", None)
                continue
            mine = self.stages.get(id(op))
            for t in op.input_tensors:
                self._check_user(t, op.name, mine)

    def _check_user(self, t: Tensor, user: str, mine: Step | None) -> None:
        scan = self.states.get(id(t.op))
        step = self.stages.get(id(t.op))
        if scan is None and step is not None:
            scan = step.scan
        if scan is not None and (mine is None or mine.scan is not scan):
            raise TensorExprError(
                f"{user} uses {t.name}, which lives inside scan {scan.name}; use the scan's "
                "result, or make it a state"
            )

    def users(self, t: Tensor) -> int:
        """How many parameters, computations and inits are `t`, or read it."""
        count = sum(p is t for p in self.params)
        for op in self.ops:
            if isinstance(op, ScanOp):
                count += sum(i is t for i in op.init)
            else:
                count += any(i is t for i in op.input_tensors)
        return count

    def writes_state(self, init: Tensor) -> bool:
        """Whether an init may be computed where the state is kept: nothing else uses it."""
        return isinstance(init.op, ComputeOp) and self.users(init) == 1
