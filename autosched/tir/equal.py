"""Structural equality of programs.

    same_func(a, b)             # bool
    first_difference(a, b)      # None, or where they differ in words

Two functions are the same if neither a schedule nor a code generator can tell them apart: the
same tree of loops and blocks, names of blocks and buffers, shapes, dtypes, attributes, bindings,
predicates, accesses and bodies. Not compared are names of variables, which nothing refers to, of
reducers of one's own, and in which of two equal accesses a slot stands. Affine forms are equal
whatever the order of their terms.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from autosched.tir import dtypes
from autosched.tir.affine import Affine, Digit, Int
from autosched.tir.expr import Call, Const, Slot, Var
from autosched.tir.forms import tidy, tidy_index
from autosched.tir.nodes import (
    Access,
    Annotations,
    Block,
    Buffer,
    For,
    Index,
    Node,
    PrimFunc,
    Reducer,
)
from autosched.tir.opaque import Opaque, Whole
from autosched.tir.printer import function_name
from autosched.tir.reducers import known_name
from autosched.tir.routine import numbered_text
from autosched.tir.size import Size


def same_func(a: PrimFunc, b: PrimFunc) -> bool:
    """Whether `a` and `b` are one program; see the module. Populations are not compared."""
    return first_difference(a, b) is None


def first_difference(a: PrimFunc, b: PrimFunc) -> str | None:
    """The first difference in program order, such as `block 'C': reads differ: …`; else None."""
    try:
        _Comparison().functions(a, b)
    except _Difference as found:
        return str(found)
    return None


class _Difference(Exception):
    pass


def _differ(where: str, what: str, a: object, b: object) -> None:
    raise _Difference(f"{where}: {what} differs: {a} and {b}")


class _Comparison:
    """Numbers variables and buffers of both sides in the order in which they are met."""

    def __init__(self) -> None:
        self.mine: dict[int, int] = {}
        self.theirs: dict[int, int] = {}
        self.count = 0

    def tie(self, x: Var | Buffer, y: Var | Buffer) -> bool:
        """Take `x` for `y` from here on; False if either stands for something else already."""
        self.count += 1
        n = self.count
        return self.mine.setdefault(id(x), n) == self.theirs.setdefault(id(y), n)

    def functions(self, a: PrimFunc, b: PrimFunc) -> None:
        where = f"function {a.name}"
        self.equal(where, "name", function_name(a.name), function_name(b.name))
        self.annotations(where, "attributes", a.attrs, b.attrs)
        self.equal(where, "number of sizes", len(a.sizes), len(b.sizes))
        for x, y in zip(a.sizes, b.sizes, strict=True):
            self.tie(x, y)
        self.buffers(where, "parameters", a.params, b.params)
        self.buffers(where, "allocations", a.allocs, b.allocs)
        self.bodies(where, a.body, b.body)

    def equal(self, where: str, what: str, x: Any, y: Any) -> None:
        if x != y:
            _differ(where, what, x, y)

    def numbers(self, where: str, what: str, x: Int, y: Int) -> None:
        if _number(x, self.mine) != _number(y, self.theirs):
            _differ(where, what, x, y)

    def annotations(self, where: str, what: str, a: Annotations, b: Annotations) -> None:
        x, y = ({k: _plain(v) for k, v in notes} for notes in (a, b))
        self.equal(where, what, x, y)

    def buffers(self, where: str, what: str, a: Sequence[Buffer], b: Sequence[Buffer]) -> None:
        self.equal(where, f"number of {what}", len(a), len(b))
        for x, y in zip(a, b, strict=True):
            self.buffer(where, x, y)

    def buffer(self, where: str, x: Buffer, y: Buffer) -> None:
        mine, theirs = (
            (b.name, tuple(_number(n, numbers) for n in b.shape), b.dtype, b.scope, _plain(b.align))
            for b, numbers in ((x, self.mine), (y, self.theirs))
        )
        if mine != theirs or not self.tie(x, y):
            _differ(where, "a buffer", x, y)

    def bodies(self, where: str, a: Sequence[Node], b: Sequence[Node]) -> None:
        self.equal(where, "number of parts", len(a), len(b))
        for x, y in zip(a, b, strict=True):
            if isinstance(x, For) and isinstance(y, For):
                self.loops(where, x, y)
            elif isinstance(x, Block) and isinstance(y, Block):
                _Blocks(self, x, y).compare()
            else:
                _differ(where, "a part", type(x).__name__, type(y).__name__)

    def loops(self, where: str, a: For, b: For) -> None:
        where = f"loop {a.var.name} in {where}"
        self.numbers(where, "extent", a.extent, b.extent)
        self.equal(where, "kind", (a.kind, a.thread), (b.kind, b.thread))
        self.annotations(where, "annotations", a.annotations, b.annotations)
        if not self.tie(a.var, b.var):
            _differ(where, "variable", a.var.name, b.var.name)
        self.buffers(where, "allocations", a.allocs, b.allocs)
        self.bodies(where, a.body, b.body)


class _Blocks:
    """The comparison of two blocks."""

    def __init__(self, outer: _Comparison, a: Block, b: Block) -> None:
        self.outer, self.a, self.b = outer, a, b
        self.where = f"block {a.name!r}"

    def compare(self) -> None:
        a, b, outer, where = self.a, self.b, self.outer, self.where
        outer.equal("a block", "name", a.name, b.name)
        outer.equal(where, "axes", *([i.kind for i in block.iters] for block in (a, b)))
        for i, j in zip(a.iters, b.iters, strict=True):
            outer.numbers(where, f"the extent of {i.var.name}", i.extent, j.extent)
            if not outer.tie(i.var, j.var):
                _differ(where, "an axis", i.var.name, j.var.name)
        for n, (x, y) in enumerate(zip(a.bindings, b.bindings, strict=True)):
            self.forms(f"binding {n}", x, y)
        outer.equal(where, "number of predicates", len(a.predicates), len(b.predicates))
        for n, (p, q) in enumerate(zip(a.predicates, b.predicates, strict=True)):
            self.forms(f"predicate {n}", p.form + -p.bound, q.form + -q.bound)
        for what, mine, theirs in (("read", a.reads, b.reads), ("write", a.writes, b.writes)):
            outer.equal(where, f"number of {what}s", len(mine), len(theirs))
            for n, (r, s) in enumerate(zip(mine, theirs, strict=True)):
                outer.buffer(where, r.buffer, s.buffer)
                self.indices(f"{what} {n}", r, s)
        outer.annotations(where, "annotations", a.annotations, b.annotations)
        self.reducers(a.reducer, b.reducer)
        outer.equal(where, "number of values", len(a.body), len(b.body))
        for n, (e, f) in enumerate(zip(a.body, b.body, strict=True)):
            self.expressions(f"value {n}", e, f)

    def reducers(self, a: Reducer | None, b: Reducer | None) -> None:
        if a is None or b is None:
            if a is not b:
                _differ(self.where, "reducer", a and a.name, b and b.name)
            return
        outer, where = self.outer, self.where
        outer.equal(where, "init", self.a.init, self.b.init)
        outer.equal(where, "reducer", known_name(a), known_name(b))
        outer.equal(where, "length of the reducer", len(a.lhs), len(b.lhs))
        # Blocks may share a reducer, so its variables are tied for this block only.
        both = tuple(zip((*a.lhs, *a.rhs), (*b.lhs, *b.rhs), strict=True))
        for x, y in both:
            outer.equal(where, "dtype of the reducer", x.dtype, y.dtype)
            outer.mine.pop(id(x), None)
            outer.theirs.pop(id(y), None)
        for n, (x, y) in enumerate(both):
            outer.mine[id(x)] = outer.theirs[id(y)] = -1 - n
        for e, f in zip((*a.combine, *a.identity), (*b.combine, *b.identity), strict=True):
            self.expressions("reducer", e, f)

    def forms(self, what: str, x: Affine, y: Affine) -> None:
        mine, theirs = _key(x, self.a, self.outer.mine), _key(y, self.b, self.outer.theirs)
        if mine != theirs:
            _differ(self.where, what, x.to_expr(), y.to_expr())

    def indices(self, what: str, x: Access, y: Access) -> None:
        self.outer.equal(self.where, f"rank of {what}", len(x.indices), len(y.indices))
        for i, j in zip(x.indices, y.indices, strict=True):
            self.expressions(what, tidy_index(i), tidy_index(j))

    def expressions(self, what: str, x: Index, y: Index) -> None:
        mine, theirs = _key(x, self.a, self.outer.mine), _key(y, self.b, self.outer.theirs)
        if mine != theirs:
            texts = (str(i.to_expr() if isinstance(i, Affine) else i) for i in (x, y))
            _differ(self.where, what, *texts)


def _key(e: Index, block: Block, numbers: dict[int, int]) -> Hashable:
    """Equal for equal forms and expressions, given the numbers of variables and buffers."""
    if isinstance(e, Affine):
        form = tidy(e)
        terms = frozenset(
            (_key_of_atom(a, block, numbers), _number(c, numbers)) for a, c in form.terms
        )
        return (_number(form.const, numbers), terms)
    if isinstance(e, Var):
        return ("variable", numbers.get(id(e), e.name), e.dtype)
    if isinstance(e, Const):
        return ("constant", _constant(e), e.dtype)
    if isinstance(e, Slot):
        return _slot(e.index, block, numbers)
    if isinstance(e, Call):
        return (e.op, e.dtype, *(_key(x, block, numbers) for x in e.args))
    if isinstance(e, Whole):
        return ("whole",)
    if isinstance(e, Opaque):
        buffers = (numbers.get(id(b), b.name) for b in e.buffers)
        return ("opaque", numbered_text(e.routine), *buffers)
    return ("other", type(e).__name__, id(e))


def _key_of_atom(atom: Var | Digit, block: Block, numbers: dict[int, int]) -> Hashable:
    if isinstance(atom, Var):
        return _key(atom, block, numbers)
    mod = None if atom.mod is None else _number(atom.mod, numbers)
    return ("digit", _key(atom.base, block, numbers), _number(atom.div, numbers), mod)


def _number(n: Int, numbers: dict[int, int]) -> Hashable:
    """Equal for equal numbers, given the numbers of size variables."""
    return n.name_key(lambda v: numbers.get(id(v), v.name)) if isinstance(n, Size) else int(n)


def _slot(index: int, block: Block, numbers: dict[int, int]) -> Hashable:
    """What is read: slots of two equal accesses are one."""
    if not 0 <= index < len(block.reads):
        return ("slot", index)
    access = block.reads[index]
    inside = (_key(tidy_index(i), block, numbers) for i in access.indices)
    return ("read", numbers.get(id(access.buffer), access.buffer.name), *inside)


def _constant(c: Const) -> str:
    # repr tells -0.0 from 0.0 and makes NaN equal to itself
    if dtypes.is_float(c.dtype):
        return repr(float(c.value))
    return repr(bool(c.value) if c.dtype == "bool" else int(c.value))


def _plain(value: Any) -> Any:
    """A value of an annotation so that equality tells True from 1 and a list from a tuple."""
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_plain, value))
    if isinstance(value, dict):
        return ("dict", *((_plain(k), _plain(v)) for k, v in value.items()))
    plain = value.item() if hasattr(value, "item") else value
    return (type(plain).__name__, repr(plain))
