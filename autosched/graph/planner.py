"""From a body of kernel calls to what the executor does: slots, the memory plan, steps."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from autosched.codegen.artifact import Param
from autosched.errors import BuildError
from autosched.graph.errors import Unsupported
from autosched.graph.ir import (
    Array,
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    If,
    Var,
    reads,
)
from autosched.graph.kernels import Kernel
from autosched.graph.plan import Life, Plan, place
from autosched.graph.scopes import free_variables
from autosched.graph.spec import (
    CallStep,
    ClosureStep,
    ExternalStep,
    Fresh,
    HostStep,
    IfStep,
    KernelCall,
    Place,
    RunStep,
    Spec,
    Step,
)
from autosched.graph.types import TensorType
from autosched.runtime.arrays import empty
from autosched.runtime.function import Function as Linked
from autosched.tir.dtypes import array_dtype


@dataclass(frozen=True)
class Shared:
    """The arrays of all builds of a model: one that is there is not made again, and those with
    equal contents are in memory once."""

    made: WeakKeyDictionary[Const, WeakValueDictionary[object, Array]] = field(
        default_factory=WeakKeyDictionary
    )
    contents: WeakValueDictionary[bytes, Array] = field(default_factory=WeakValueDictionary)

    def array(self, key: object, const: Const, make: Callable[[], Array]) -> Array:
        """What `make` makes of a constant; `key` tells the ways of doing so apart."""
        known = self.made.setdefault(const, WeakValueDictionary())
        array = known.get(key)
        if array is None:
            array = make()
            digest = hashlib.blake2b(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
            array = self.contents.setdefault(digest.digest(), array)
            known[key] = array
        return array


@dataclass
class Constants:
    """Constants as they are taken, each made once: laid out as the kernel's parameter says, and
    packed by the code that the kernel's schedule has for it."""

    arrays: list[Array] = field(default_factory=list)
    numbers: dict[object, int] = field(default_factory=dict)
    keep: list[Const] = field(default_factory=list)
    uses: Counter[int] = field(default_factory=Counter)
    """How often constants that may be stripped are still read, by id; see `consume`."""
    shared: Shared | None = None

    def consume(self, body: Body) -> None:
        """Strip each constant once kernels have all that is read of it, so that packed weights do
        not take as much memory again as the others."""
        for b in body.bindings:
            self.uses.update(id(a) for a in reads(b.value) if isinstance(a, Const))
        self.uses.update(id(a) for a in body.results if isinstance(a, Const))

    def plain(self, const: Const) -> int:
        """A constant as it is."""
        return self._number(("plain",), const, lambda: const.value)

    def weight(self, kernel: Kernel, n: int, const: Const) -> int:
        """Argument n of a kernel."""
        assert kernel.function is not None
        t = kernel.function.params[n].type
        assert isinstance(t, TensorType)
        prepare = dict(kernel.artifact.prepare).get(n)
        transform = kernel.transforms.get(n)
        # Builds that share arrays may have packed the weights of one workload by other schedules.
        key = (t.layout, prepare, (kernel.workload_key, n) if transform else None)

        def make() -> Array:
            value = const.value
            if transform is None:
                moved, dtype = value.transpose(t.layout) if t.layout else value, t.dtype
            else:
                moved = np.asarray(transform(value))
                dtype = moved.dtype.name
                own = kernel.artifact.info.params[n]
                _check_moved(kernel, own if prepare is None else prepare.info.params[0], moved)
            array = empty(moved.shape, dtype)
            array[...] = moved
            if prepare is None:
                return array
            packed = prepare.info.params[1]
            out = empty(packed.shape, packed.dtype)
            out[...] = 0  # padding too
            Linked(prepare)(array, out)
            return out

        number = self._number(key, const, make)
        self.uses[id(const)] -= 1
        if self.uses[id(const)] == 0:
            const.strip()
        return number

    def _number(self, key: tuple[object, ...], const: Const, make: Callable[[], Array]) -> int:
        own = id(const), *key
        if own not in self.numbers:
            self.numbers[own] = len(self.arrays)
            array = make() if self.shared is None else self.shared.array(key, const, make)
            self.arrays.append(array)
            self.keep.append(const)  # its id is in use
        return self.numbers[own]


def _check_moved(kernel: Kernel, wanted: Param, moved: Array) -> None:
    """Raises BuildError for a weight that is not as the kernel was made to take it."""
    if moved.shape != wanted.shape or moved.dtype != array_dtype(wanted.dtype):
        raise BuildError(
            f"kernel {kernel.name} by {kernel.implementation}: its prepare function gave "
            f"{moved.dtype.name} of the shape {moved.shape} where it gave "
            f"{array_dtype(wanted.dtype).name} of the "
            f"shape {wanted.shape} for zeros; make both depend on nothing but the weight's shape "
            "and dtype"
        )


def plan_function(
    function: Function,
    kernels: Mapping[str, Kernel],
    constants: Constants,
    external: Collection[str] = (),
    functions: Collection[str] = (),
) -> Spec:
    """What a function of calls of kernels, of the functions `external` in Python, and of other
    `functions` of the module does. Raises Unsupported for what is not compiled."""
    made = _Planner(function.params, function.body, kernels, constants, external, functions)
    return made.spec(function.body)


class _Planner:
    def __init__(
        self,
        params: Sequence[Var],
        body: Body,
        kernels: Mapping[str, Kernel],
        constants: Constants,
        external: Collection[str] = (),
        functions: Collection[str] = (),
    ) -> None:
        self.kernels, self.constants = kernels, constants
        self.external, self.functions = external, functions
        self.slot = {id(p): n for n, p in enumerate(params)}
        self.slots = len(params)
        self.fixed: list[tuple[int, int]] = []
        self.places: list[Place] = []
        self.fresh: list[Fresh] = []
        self.plan = self._plan(body)

    def spec(self, body: Body) -> Spec:
        """The steps of the body."""
        steps = self._steps(body)
        results = tuple(self._read(a) for a in body.results)
        return Spec(
            self.slots,
            tuple(self.places),
            tuple(self.fresh),
            tuple(self.fixed),
            steps,
            results,
            self._copied(body, results),
            self.plan,
        )

    def _new(self) -> int:
        self.slots += 1
        return self.slots - 1

    def _kernel(self, b: Binding) -> Kernel | None:
        if isinstance(b.value, Call) and isinstance(b.value.callee, Global):
            return self.kernels.get(b.value.callee.name)
        return None

    def _plan(self, body: Body) -> Plan:
        last: dict[int, int] = {}
        for n, b in enumerate(body.bindings):
            # What a closure captures lives as long as the closure may be called: to the end.
            until = len(body.bindings) if isinstance(b.value, Function) else n
            last.update({id(a): max(until, last.get(id(a), 0)) for a in reads(b.value)})
        results = {id(a) for a in body.results}
        lives: list[tuple[Var, TensorType, Life]] = []
        for n, b in enumerate(body.bindings):
            for v in b.vars:
                self.slot[id(v)] = self._new()
                t = v.type
                if self._kernel(b) is None:
                    continue
                assert isinstance(t, TensorType)
                if id(v) in results:
                    self.fresh.append(Fresh(self.slot[id(v)], _ints(t), t.dtype))
                else:
                    lives.append((v, t, Life(v.name, t.bytes, n, last.get(id(v), n))))
        plan = place([life for _, _, life in lives])
        for (v, t, _), at in zip(lives, plan.offsets, strict=True):
            self.places.append(Place(self.slot[id(v)], at, _ints(t), t.dtype))
        return plan

    def _read(self, a: Atom) -> int:
        """The slot of an atom; a constant gets one."""
        if id(a) not in self.slot:
            if not isinstance(a, Const):
                raise Unsupported(f"{a.name} is no value of this body")
            self.slot[id(a)] = self._new()
            self.fixed.append((self.slot[id(a)], self.constants.plain(a)))
        return self.slot[id(a)]

    def _copied(self, body: Body, results: Sequence[int]) -> tuple[int, ...]:
        """Results that are no fresh arrays: parameters, constants, and those given twice."""
        fresh = {f.slot for f in self.fresh}
        fresh |= {self.slot[id(v)] for b in body.bindings if not self._kernel(b) for v in b.vars}
        return tuple(n for n, s in enumerate(results) if s not in fresh or s in tuple(results)[:n])

    def _steps(self, body: Body) -> tuple[Step, ...]:
        out: list[Step] = []
        run: list[KernelCall] = []
        for b in body.bindings:
            kernel = self._kernel(b)
            if kernel is not None:
                run.append(self._call(kernel, b))
                continue
            if run:
                out.append(RunStep(tuple(run)))
                run = []
            out.append(self._step(b))
        return tuple([*out, RunStep(tuple(run))] if run else out)

    def _call(self, kernel: Kernel, b: Binding) -> KernelCall:
        assert isinstance(b.value, Call)
        args = []
        for n, a in enumerate((*b.value.args, *b.vars)):
            assert a is not None
            if isinstance(a, Const):
                args.append(-1 - self.constants.weight(kernel, n, a))
            else:
                args.append(self._read(a))
        return KernelCall(kernel.name, tuple(args), b.vars[0].name)

    def _step(self, b: Binding) -> Step:
        value = b.value
        results = tuple(self.slot[id(v)] for v in b.vars)
        if isinstance(value, If):
            then, then_args = self._nested(value.then, ())
            other, other_args = self._nested(value.other, ())
            condition = self._read(value.condition)
            return IfStep(condition, then, then_args, other, other_args, results)
        if isinstance(value, Function):
            body, captured = self._nested(value.body, value.params)
            return ClosureStep(body, captured, results[0])
        if isinstance(value, Call) and isinstance(value.callee, str):
            args = tuple(None if a is None else self._read(a) for a in value.args)
            return HostStep(value.callee, dict(value.attrs), args, results)
        callee = value.callee if isinstance(value, Call) else None
        if isinstance(value, Call) and isinstance(callee, Global):
            given = tuple(self._read(a) for a in value.args if a is not None)
            if callee.name in self.external:
                return ExternalStep(callee.name, given, results)
            if callee.name in self.functions:
                return CallStep(callee.name, given, results)
        raise Unsupported(
            f"{b.vars[0].name} is made by {type(value).__name__}, which is not compiled yet; "
            "graph.evaluate runs it"
        )

    def _nested(self, body: Body, params: Sequence[Var]) -> tuple[Spec, tuple[int, ...]]:
        """A body inside this one, and the slots here that are its first parameters."""
        free = free_variables(body, params)
        known = self.kernels, self.constants, self.external, self.functions
        inner = _Planner([*free, *params], body, *known)
        return inner.spec(body), tuple(self._read(v) for v in free)


def _ints(t: TensorType) -> tuple[int, ...]:
    return tuple(int(n) for n in t.stored)
