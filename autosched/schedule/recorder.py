"""`Recorder`: what all primitives of a schedule share: its function, its handles, its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from autosched.checks import mapping, shown
from autosched.errors import ScheduleError
from autosched.integers import as_int, plain
from autosched.schedule.across import require_still
from autosched.schedule.blockize import require_units, unit_block, units_of
from autosched.schedule.handles import (
    RV,
    BlockRV,
    Factor,
    LoopRV,
    as_data,
    is_numbers,
    mapped,
    written_slot,
)
from autosched.schedule.query import ROOT
from autosched.schedule.trace import Decision, Step, Trace
from autosched.tir.admit import admitted, derived
from autosched.tir.affine import Int
from autosched.tir.expr import Var
from autosched.tir.nodes import For, PrimFunc, site_of, sites
from autosched.tir.opaque import has_opaque

_H = TypeVar("_H", BlockRV, LoopRV)


class Recorder:
    """A function that changes step by step, and the steps.

    Handles stand for blocks and loops of the function as it is now; decisions stand for numbers.
    A primitive resolves its arguments (`_block`, `_loop`, `_int`), sets `func`, and records the
    step with the handles that it makes (`_out`, `_outs`, `_record`).
    """

    def __init__(self, func: PrimFunc, decisions: Mapping[str, Int] | None) -> None:
        self._func = admitted(func)
        expected = "a mapping from names to values"
        self.decisions: dict[str, Int] = mapping(
            "the decisions of a Schedule", decisions, expected, ScheduleError
        )
        self.has_opaque = has_opaque(self._func)
        """Whether there are blocks across which nothing moves. No primitive makes one."""
        self.has_units = bool(units_of(self._func))
        """Whether there are nests that blockize made one unit."""
        self._steps: list[Step] = []
        self._things: dict[RV, str | Var] = {}

    @property
    def func(self) -> PrimFunc:
        """The function as it is now."""
        return self._func

    @func.setter
    def func(self, new: PrimFunc) -> None:
        self._set_func(new)

    def _set_func(self, new: PrimFunc, updated: str | None = None) -> None:
        """`updated`: the opaque block that works in other buffers now."""
        if self.has_opaque:
            require_still(self._func, new, updated)
        if self.has_units:
            require_units(self._func, new)
        self._func = derived(new, self._func)

    @property
    def trace(self) -> Trace:
        """The steps so far."""
        return Trace(tuple(self._steps))

    def _is_root(self, rv: object) -> bool:
        """Whether a handle stands for the whole function; a block may bear its name."""
        name = self._things.get(rv) if isinstance(rv, BlockRV) else None
        if not isinstance(name, str) or name != ROOT:
            return False
        return all(s.block.name != ROOT for s in sites(self.func))

    def _block(self, rv: BlockRV | str) -> str:
        if self._is_root(rv):
            raise ScheduleError(
                "the root block is the whole function, which no primitive moves; expected a block "
                f"of it: {', '.join(s.block.name for s in sites(self.func))}"
            )
        unit = self._unit(rv)
        if unit is not None:
            return unit_block(unit)
        name = self._name_of(rv)
        return site_of(self.func, name).block.name if isinstance(rv, str) else name

    def _name_of(self, rv: BlockRV | str) -> str:
        name = rv if isinstance(rv, str) else None
        if isinstance(rv, BlockRV):
            name = self._things.get(rv)  # type: ignore[assignment]
        if not isinstance(name, str):
            raise ScheduleError(f"expected a block of this schedule; found {self._found(rv)}")
        return name

    def _unit(self, rv: BlockRV | str) -> For | None:
        """The outermost loop of a nest that is one unit, by handle or name."""
        if not self.has_units:
            return None
        return units_of(self.func).get(self._name_of(rv))

    def _loop(self, rv: LoopRV) -> Var:
        var = self._things.get(rv) if isinstance(rv, LoopRV) else None
        if not isinstance(var, Var):
            raise ScheduleError(f"expected a loop of this schedule; found {self._found(rv)}")
        return var

    def _written(self, rv: BlockRV | str, buffer: object, op: str) -> int:
        name = self._block(rv)
        return written_slot(site_of(self.func, name).block, buffer, f"{op}({name})")

    def _found(self, rv: object) -> str:
        """What stands where a handle of this schedule was expected, for a message."""
        found = shown(rv)
        if isinstance(rv, (BlockRV, LoopRV)):
            other = "" if rv in self._things else " of another schedule"
            found = f"{rv!r}, a {'block' if isinstance(rv, BlockRV) else 'loop'}{other}"
        return f"{found}; take handles from get_block and get_loops"

    def _place(self, rv: BlockRV | LoopRV | str) -> str | Var:
        if isinstance(rv, LoopRV):
            return self._loop(rv)
        unit = self._unit(rv)
        return self._block(rv) if unit is None else unit.var

    def _int(self, value: Factor) -> Int | None:
        if isinstance(value, Decision):
            if value.name not in self.decisions:
                have = ", ".join(self.decisions) or "none"
                raise ScheduleError(
                    f"decision {value.name!r} has no value; give it to Schedule(decisions=…) "
                    f"(has {have})"
                )
            given = self.decisions[value.name]
            found = given if isinstance(given, np.ndarray) else np.asarray(as_int(given))
            if found.ndim > 1 or found.dtype.kind not in "iu":
                raise ScheduleError(
                    f"decision {value.name!r}: expected an int or an int64 array of shape (N,), "
                    f"found {found.dtype} of shape {found.shape}"
                )
            return int(found) if found.ndim == 0 else found.astype(np.int64, copy=False)
        found_plain = plain(value)
        if isinstance(found_plain, np.ndarray) and not is_numbers(found_plain):
            raise ScheduleError(
                f"expected an int or an int64 array of shape (N,), found {found_plain.dtype} of "
                f"shape {found_plain.shape}"
            )
        kept: Int | None = found_plain
        return kept

    def _number(self, value: Factor, what: str) -> Int:
        found = self._int(value)
        if isinstance(found, bool) or not isinstance(found, (int, np.ndarray)):
            raise ScheduleError(f"{what} is an int or a Decision; found {shown(value)}")
        return found

    def _value(self, value: Any) -> Any:
        return mapped(value, self._int)

    def _out(
        self, op: str, args: Sequence[Any], names: Sequence[str], **kwargs: Any
    ) -> tuple[BlockRV, ...]:
        return self._new(op, args, names, BlockRV, kwargs)

    def _outs(
        self, op: str, args: Sequence[Any], variables: Sequence[Var], **kwargs: Any
    ) -> tuple[LoopRV, ...]:
        return self._new(op, args, variables, LoopRV, kwargs)

    def _new(
        self,
        op: str,
        args: Sequence[Any],
        things: Sequence[str | Var],
        kind: type[_H],
        kwargs: dict[str, Any],
    ) -> tuple[_H, ...]:
        first = len(self._things)
        handles = tuple(kind(first + n) for n in range(len(things)))
        for handle, thing in zip(handles, things, strict=True):
            self._things[handle] = thing
        self._record(op, args, kwargs, tuple(map(repr, handles)))
        return handles

    def _record(
        self,
        op: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        outs: tuple[str, ...] = (),
    ) -> None:
        kept = tuple((k, as_data(v)) for k, v in (kwargs or {}).items())
        self._steps.append(Step(op, tuple(as_data(a) for a in args), kept, outs))
