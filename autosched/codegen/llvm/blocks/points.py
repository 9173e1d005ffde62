"""One point of a block: its axes, loads and predicates in the current environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from autosched.codegen.llvm.blocks.constant import Constants
from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.index import Indexer, Linear, flat_form
from autosched.codegen.llvm.memory import Guard, Memory
from autosched.codegen.llvm.scalar import Scalars
from autosched.codegen.llvm.types import Value, suffix
from autosched.target import Target
from autosched.tir.affine import Affine, Int, always, is_zero, same_int
from autosched.tir.expr import Call, Const, Expr, Slot, Var, walk
from autosched.tir.nodes import CONSTANT_AXES, Access, Block, Iter, Predicate, Reducer
from autosched.tir.scatter import axes_of
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar

if TYPE_CHECKING:
    from autosched.codegen.llvm.blocks.carry import Carry


class Points:
    """Evaluates the parts of one block. `extents` are those of all loops around it.

    With `clamp`, predicates are not branched on: an access that may overhang reads a clamped
    address (or masked lanes) instead, so that its value is garbage but the read is legal.
    """

    def __init__(
        self,
        block: Block,
        extents: dict[Var, Int],
        b: Builder,
        index: Indexer,
        memory: Memory,
        target: Target,
    ) -> None:
        self.block = block
        self.extents = extents
        self.b, self.index, self.memory = b, index, memory
        self.scalars = Scalars(b, index, target, self)
        self.values = block.values()
        self.operands: dict[Var, Value] = {}
        self.clamp: tuple[Predicate, ...] = ()
        self._known: tuple[Predicate, ...] = ()
        self.carried: Carry | None = None
        """What a sequential loop has in registers."""
        self.decisive: dict[int, set[Var]] = {}
        """Axes, by the id of a read, on which the conditions around it depend, through memory too;
        they may be folded away."""
        for e in block.body:
            for access, axes in _conditional(e, block):
                self.decisive.setdefault(id(access), set()).update(axes)
        self.constants = Constants(self._number)
        self.factors = _factors(block)
        self._terms: dict[Var, tuple[int, tuple[tuple[Var, int], ...]] | None] = {}
        self._forms: dict[tuple[int, frozenset[Var]], Access] = {}
        self._flat: dict[tuple[int, frozenset[Var]], Affine | None] = {}
        self._moving: dict[int, frozenset[Var]] = {}
        self._ends: dict[int, tuple[Iter, Affine, bool] | None] = {}
        self._safe: dict[int, bool] = {}

    def know(self, known: Iterable[Predicate]) -> None:
        """From here on `known` holds at every point that is written; what was found safe or not
        before was so without."""
        self._known = tuple(known)
        self._safe.clear()

    # What expressions of the block mean: `scalar.Context` ---------------------------------

    def slot(self, n: int, guard: Guard) -> Value:
        """The value of a read."""
        return self.load(self.block.reads[n], guard)

    def slot_is_guarded(self, n: int) -> bool:
        """Whether a read gives zero where its guard does not hold."""
        access = self.block.reads[n]
        if self.carried is not None and self.carried.holds(self, access):
            return False
        return not self.is_safe(access)

    def form(self, var: Var) -> Affine | None:
        """An axis or a loop around, over loops."""
        return self.values.get(var, Affine.of(var) if var in self.index.env else None)

    def constant(self, e: Expr) -> Const | None:
        """The value of what unrolled loops decide."""
        return self.constants.value(e)

    def variable(self, var: Var) -> Value:
        """The value of an axis, or of an operand of the reducer."""
        found = self.operands.get(var)
        if found is not None:
            return found
        if isinstance(var, SizeVar):
            return Value(self.index.sizes[var], var.dtype)
        linear = self.index.linear(self.values.get(var, Affine.of(var)))
        if linear.varies:
            assert self.index.lanes is not None
            return Value(self.index.vector(linear), var.dtype, self.index.lanes.width)
        return Value(self.index.scalar(linear), var.dtype)

    def _number(self, var: Var) -> int | None:
        """The number at which an axis stands, if unrolled loops decide it."""
        if var not in self._terms:
            self._terms[var] = _plain_terms(self.values.get(var))
        found = self._terms[var]
        if found is None:
            return None
        total, parts = found
        env, lanes = self.index.env, self.index.lanes
        for v, c in parts:
            value = env.get(v)
            if not isinstance(value, int) or (lanes is not None and v is lanes.var):
                return None
            total += c * value
        return total

    def vanishes(self) -> bool:
        """Whether this term of the sum has a constant factor 0; see `nodes.CONSTANT_AXES`."""
        known = (self.constants.value(e) for e in self.factors)
        return any(c is not None and c.value == 0 for c in known)

    def over_loops(self, access: Access, but: frozenset[Var] = frozenset()) -> Access:
        """The access in terms of loop variables, and of the axes `but`."""
        found = self._forms.get((id(access), but))
        if found is None:
            values = {v: f for v, f in self.values.items() if v not in but}
            found = self._forms[id(access), but] = Access(
                access.buffer,
                tuple(
                    i.substitute(values, self.extents) if isinstance(i, Affine) else i
                    for i in access.indices
                ),
            )
        return found

    def is_safe(self, access: Access) -> bool:
        """Whether the access is in bounds at every point of the loop nest at which what is known
        (`know`) holds, the block's own predicates apart."""
        found = self._safe.get(id(access))
        if found is None:
            form = self.over_loops(access)
            found = all(self.is_inside(form, n) for n in range(len(form.indices)))
            self._safe[id(access)] = found
        return found

    def is_inside(self, form: Access, n: int) -> bool:
        """Whether index n of an access over loops is in bounds at all these points."""
        index = form.indices[n]
        if not isinstance(index, Affine):
            return False
        low, high = index.span(self.extents)
        size = form.buffer.shape[n]
        return always(low >= 0) and any(always(x < size) for x in (high, *self._tops(index)))

    def _tops(self, index: Affine) -> Iterator[Int]:
        """The highest values that what is known leaves to an index: a panel's number is bounded by
        the predicate on its first element."""
        for p in self._known:
            for atom, mine in index.terms[:1]:
                theirs = next((c for a, c in p.form.terms if a is atom), 0)
                if isinstance(theirs, Size) or isinstance(mine, Size):
                    continue
                factor = int(theirs) // int(mine) if not is_zero(mine) else 0
                rest = p.form - index * factor
                if factor > 0 and not rest.terms:
                    yield (p.bound - 1 - rest.const) // factor

    def flat(self, access: Access, but: frozenset[Var] = frozenset()) -> Affine | None:
        """Offset of the access in elements, over loop variables and the axes `but`; None where it
        is no affine form of them."""
        key = id(access), but
        if key not in self._flat:
            self._flat[key] = flat_form(self.over_loops(access, but))
        return self._flat[key]

    def offset(self, access: Access, guard: Guard, clamped: dict[Var, str] | None = None) -> Linear:
        """Offset of the access in elements; indices that are read from memory are read under
        `guard`."""
        axes = frozenset(clamped or ())
        form = self.flat(access, axes)
        if form is not None:
            return self.index.linear(form, clamped)

        def value(e: Expr) -> Value:
            return self.scalars.evaluate(e, guard)

        return self.memory.flat(self.over_loops(access, axes), clamped, value)

    def load(self, access: Access, guard: Guard) -> Value:
        """The value of an access."""
        if self.carried is not None and self.carried.holds(self, access):
            return self.carried.read(self, access)
        return self.load_from_memory(access, guard)

    def load_from_memory(self, access: Access, guard: Guard) -> Value:
        """The value of an access where it is kept, even if a register has it."""
        if self.is_safe(access):
            return self.memory.load(access.buffer, self.offset(access, Guard()), Guard())
        clamped, guard = self._clamped(access, guard)
        return self.memory.load(access.buffer, self.offset(access, guard, clamped), guard)

    def load_run(self, access: Access, count: int, guard: Guard) -> Value:
        """`count` elements that follow one another in memory, from the access on, as a vector."""
        if self.is_safe(access):
            return self.memory.load_run(access.buffer, self.offset(access, Guard()), count, Guard())
        clamped, guard = self._clamped(access, guard)
        offset = self.offset(access, guard, clamped)
        return self.memory.load_run(access.buffer, offset, count, guard)

    def load_tile(self, access: Access, shape: tuple[int, int], pitch: int, guard: Guard) -> Value:
        """Rows of bytes that lie `pitch` bytes apart, from the access on, as a tile register."""
        clamped: dict[Var, str] | None = None
        if self.is_safe(access):
            guard = Guard()
        else:
            clamped, guard = self._clamped(access, guard)
        offset = self.offset(access, guard, clamped)
        return self.memory.load_tile(access.buffer, offset, shape, pitch, guard)

    def _clamped(self, access: Access, guard: Guard) -> tuple[dict[Var, str], Guard]:
        """Axes of `access` to clamp, and the guard for what cannot be clamped.

        Under a condition nothing is: the condition was taken at the true point, the access would
        be made at another. One that unrolled loops decide leaves no guard, but counts as well.
        """
        affine = all(isinstance(i, Affine) for i in access.indices)
        used = self._axes_in(access)
        clamped: dict[Var, str] = {}
        unguarded = guard.scalar is None and guard.mask is None
        for p in self.clamp:
            found = self._axis_of(p)
            if found is not None and affine:
                it, binding, top = found
                decides = it.var in self.decisive.get(id(access), ())
                plain = unguarded and not decides
                if it.var not in used and not decides:
                    continue  # the access does not move with this axis
                linear = self.index.linear(binding)
                if plain and not linear.varies:
                    value = clamped.get(it.var, self.index.scalar(linear))
                    if top:
                        last = self.index.number(it.extent - 1)
                        clamped[it.var] = self.b.smaller(value, last)
                    else:
                        clamped[it.var] = self.b.larger(value, 0)
                    continue
            guard = self.both(guard, self.condition(p))
        return clamped, guard

    def _axes_in(self, access: Access) -> frozenset[Var]:
        """Variables of the affine indices of an access."""
        found = self._moving.get(id(access))
        if found is None:
            forms = [i for i in access.indices if isinstance(i, Affine)]
            found = self._moving[id(access)] = frozenset(v for i in forms for v in i.variables())
        return found

    def _axis_of(self, p: Predicate) -> tuple[Iter, Affine, bool] | None:
        """The axis whose upper (True) or lower end the predicate states."""
        if id(p) not in self._ends:
            self._ends[id(p)] = self._end(p)
        return self._ends[id(p)]

    def _end(self, p: Predicate) -> tuple[Iter, Affine, bool] | None:
        lower = -p.form
        for it, binding in zip(self.block.iters, self.block.bindings, strict=True):
            if same_int(p.bound, it.extent) and binding.same(p.form):
                return it, binding, True
            if same_int(p.bound, 1) and binding.same(lower):
                return it, binding, False
        return None

    def condition(self, p: Predicate) -> str | bool:
        """A predicate here: a constant, an i1 or a lane mask."""
        return self.index.below(self.index.linear(p.form), p.bound)

    def both(self, guard: Guard, condition: str | bool) -> Guard:
        """`guard` and a condition."""
        if condition is True:
            return guard
        if condition is False:
            return Guard("false", guard.mask)
        if self._is_mask(condition):
            assert self.index.lanes is not None
            width = self.index.lanes.width
            mask = (
                condition if guard.mask is None else self.index.both(guard.mask, condition, width)
            )
            return Guard(guard.scalar, mask)
        scalar = (
            condition if guard.scalar is None else self.b.op(f"and i1 {guard.scalar}, {condition}")
        )
        return Guard(scalar, guard.mask)

    def _is_mask(self, condition: str) -> bool:
        return condition in self.index.masks or condition.startswith("<")

    def guard(self, predicates: Iterable[Predicate]) -> Guard:
        """All predicates at once; `Guard("false")` if one cannot hold."""
        out = Guard()
        for p in predicates:
            out = self.both(out, self.condition(p))
        return out

    @property
    def fused(self) -> str:
        """LLVM's multiply-add; never one that may be a call of libm."""
        return "fma" if self.scalars.target.has_fma else "fmuladd"

    def combine(self, reducer: Reducer, old: list[Value], new: list[Value]) -> list[Value]:
        """`reducer` applied to two tuples of values."""
        saved = self.operands
        self.operands = {
            **dict(zip(reducer.lhs, old, strict=True)),
            **dict(zip(reducer.rhs, new, strict=True)),
        }
        out = [self.scalars.evaluate(e) for e in reducer.combine]
        self.operands = saved
        return out

    def identity(self, reducer: Reducer, n: int, lanes: int) -> Value:
        """The reducer's identity of element n."""
        value = self.scalars.evaluate(reducer.identity[n])
        return self.index.widen(value, lanes)

    def at_start(self) -> str | bool:
        """Whether this is the first point of the reduction, and it sets its element there."""
        if not self.block.init:
            return False
        condition: str | bool = True
        for it, binding in zip(self.block.iters, self.block.bindings, strict=True):
            if it.kind != "reduce":
                continue
            linear = self.index.linear(binding)
            if not any(linear.terms.values()):
                if linear.const != 0:
                    return False
                continue
            here = self.b.op(f"icmp eq i64 {self.index.scalar(linear)}, 0")
            condition = here if condition is True else self.b.op(f"and i1 {condition}, {here}")
        return condition

    def start(self, old: list[Value]) -> list[Value]:
        """The identity at the first point of the reduction, else what was accumulated."""
        reducer = self.block.reducer
        assert reducer is not None
        first = self.at_start()
        if first is False:
            return old
        return [
            self.first_or(first, self.identity(reducer, n, v.lanes), v) for n, v in enumerate(old)
        ]

    def first_or(self, first: str | bool, value: Value, old: Value) -> Value:
        """`value` where `first` holds, else `old`."""
        if isinstance(first, bool):
            return value if first else old
        ref = self.b.op(f"select i1 {first}, {value.type} {value.ref}, {old.type} {old.ref}")
        return Value(ref, value.dtype, value.lanes)

    def update(self, reducer: Reducer, old: list[Value], guard: Guard) -> list[Value]:
        """`combine(old, body)` at this point; a sum of products is a fused multiply-add."""
        product = self.block.body[0]
        if (
            len(old) == 1
            and isinstance(product, Call)
            and product.op == "mul"
            and is_float_sum(reducer)
        ):
            a, b = (self.scalars.evaluate(x, guard) for x in product.args)
            lanes = max(a.lanes, b.lanes, old[0].lanes)
            a, b, c = (self.index.widen(v, lanes) for v in (a, b, old[0]))
            name = f"llvm.{self.fused}.{suffix(c.dtype, lanes)}"
            self.b.declare(name, f"{c.type} @{name}({c.type}, {c.type}, {c.type})")
            ref = self.b.op(
                f"call {c.type} @{name}({a.type} {a.ref}, {b.type} {b.ref}, {c.type} {c.ref})"
            )
            return [Value(ref, c.dtype, lanes)]
        new = [self.scalars.evaluate(e, guard) for e in self.block.body]
        return self.combine(reducer, old, new)


def _plain_terms(form: Affine | None) -> tuple[int, tuple[tuple[Var, int], ...]] | None:
    """(constant, terms) of a form that takes no variable apart."""
    if form is None:
        return None
    terms = [(atom, int(c)) for atom, c in form.terms if isinstance(atom, Var)]
    return (int(form.const), tuple(terms)) if len(terms) == len(form.terms) else None


def _factors(block: Block) -> tuple[Expr, ...]:
    """The factors, of axes alone, of a sum of products whose terms with a factor 0 are left
    out."""
    if block.annotation(CONSTANT_AXES) is None or block.reducer is None:
        return ()
    if block.reducer.name != "sum" or len(block.body) != 1:
        return ()

    def split(e: Expr) -> Iterator[Expr]:
        if isinstance(e, Call) and e.op == "mul":
            for part in e.args:
                yield from split(part)
        elif not any(isinstance(x, Slot) for x in walk(e)):
            yield e

    return tuple(split(block.body[0]))


def _conditional(
    e: Expr, block: Block, under: frozenset[Var] = frozenset()
) -> Iterator[tuple[Access, frozenset[Var]]]:
    """Accesses that are made only under conditions, and the axes of these."""
    if isinstance(e, Slot):
        access = block.reads[e.index]
        if under:
            yield access, under
        for index in access.indices:
            if not isinstance(index, Affine):
                yield from _conditional(index, block, under)
    elif isinstance(e, Call):
        inside = under
        if e.op == "if_then_else":
            inside = under | frozenset(axes_of(e.args[0], block.reads))
        for n, x in enumerate(e.args):
            yield from _conditional(x, block, inside if n else under)


def is_float_sum(reducer: Reducer) -> bool:
    """Whether the reducer is + on floats that have a fused multiply-add."""
    e = reducer.combine[0]
    return (
        len(reducer.combine) == 1
        and isinstance(e, Call)
        and e.op == "add"
        and e.dtype in ("float32", "float64")  # there is no fused float16 on most processors
        and set(map(id, e.args)) == {id(reducer.lhs[0]), id(reducer.rhs[0])}
    )
