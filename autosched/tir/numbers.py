"""Replacing the numbers of a program: one candidate of a population, one instance of all sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from autosched.errors import ArgumentError
from autosched.integers import as_int
from autosched.tir.affine import Affine, Digit, Int, always
from autosched.tir.expr import Expr, Var, const, substitute
from autosched.tir.nodes import Access, Block, Buffer, Node, Predicate, PrimFunc
from autosched.tir.size import MAX_SIZE, Size
from autosched.tir.size_atoms import SizeVar


class Numbers:
    """Rewrites a program with every number `n` made `number(n)`, annotations included.

    Variables stay, and so do buffers whose shapes do. `exprs` replaces variables in expressions.
    """

    def __init__(
        self, number: Callable[[Int], Int], exprs: Mapping[Var, Expr] | None = None
    ) -> None:
        self.number = number
        self.exprs = dict(exprs or {})
        self.buffers: dict[Buffer, Buffer] = {}

    def func(self, func: PrimFunc) -> PrimFunc:
        """A whole function."""
        return replace(
            func,
            params=tuple(map(self.buffer, func.params)),
            body=tuple(map(self.node, func.body)),
            allocs=tuple(map(self.buffer, func.allocs)),
        )

    def node(self, node: Node) -> Node:
        """A part of a program."""
        if isinstance(node, Block):
            return replace(
                node,
                iters=tuple(replace(it, extent=self.number(it.extent)) for it in node.iters),
                bindings=tuple(map(self._form, node.bindings)),
                predicates=tuple(
                    Predicate(self._form(p.form), self.number(p.bound)) for p in node.predicates
                ),
                reads=tuple(map(self._access, node.reads)),
                writes=tuple(map(self._access, node.writes)),
                body=tuple(map(self._expr, node.body)),
                annotations=tuple((k, self._value(v)) for k, v in node.annotations),
            )
        return replace(
            node,
            extent=self.number(node.extent),
            body=tuple(map(self.node, node.body)),
            annotations=tuple((k, self._value(v)) for k, v in node.annotations),
            allocs=tuple(map(self.buffer, node.allocs)),
        )

    def buffer(self, old: Buffer) -> Buffer:
        """A buffer; the same object wherever it is asked for."""
        found = self.buffers.get(old)
        if found is None:
            shape = tuple(map(self.number, old.shape))
            align = tuple((a, self.number(f), self.number(o)) for a, f, o in old.align)
            before = [*old.shape, *(n for a in old.align for n in a)]
            after = [*shape, *(n for a in align for n in a)]
            same = all(x is y for x, y in zip(before, after, strict=True))
            found = self.buffers[old] = old if same else replace(old, shape=shape, align=align)
        return found

    def _form(self, form: Affine) -> Affine:
        terms = []
        for atom, c in form.terms:
            if isinstance(atom, Digit):
                mod = None if atom.mod is None else self.number(atom.mod)
                atom = Digit(self._form(atom.base), self.number(atom.div), mod)
            terms.append((atom, self.number(c)))
        return Affine(self.number(form.const), tuple(terms))

    def _access(self, access: Access) -> Access:
        indices = (
            self._form(i) if isinstance(i, Affine) else self._expr(i) for i in access.indices
        )
        return Access(self.buffer(access.buffer), tuple(indices))

    def _expr(self, e: Expr) -> Expr:
        return substitute(e, self.exprs) if self.exprs else e

    def _value(self, value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        plain = value is None or isinstance(value, (str, bool, float, list, dict))
        return value if plain else self.number(value)  # type: ignore[arg-type]


def specialize(func: PrimFunc, sizes: Mapping[str, int]) -> PrimFunc:
    """`func` with symbolic sizes, by name, made constants; sizes that are not named stay symbolic.

    Raises ArgumentError for a name that is no size of the function, and for a value out of range or
    with which an extent is below 1.
    """
    known = {v.name: v for v in func.sizes}
    values: dict[SizeVar, Int] = {}
    for name, value in sizes.items():
        if name not in known:
            have = ", ".join(known) or "none"
            raise ArgumentError(f"{func.name} has no symbolic size {name!r}; it has {have}")
        size = as_int(value)
        if size is None or not 1 <= size <= MAX_SIZE:
            raise ArgumentError(f"size {name} is {value!r}; expected an int from 1 to 2**48")
        values[known[name]] = size

    def number(n: Int) -> Int:
        return n.substitute(values) if isinstance(n, Size) else n

    exprs: dict[Var, Expr] = {v: const(n) for v, n in values.items() if isinstance(n, int)}
    out = Numbers(number, exprs).func(func)
    for b in out.params:
        if any(always(n < 1) for n in b.shape):
            given = ", ".join(f"{k} = {v}" for k, v in sizes.items())
            raise ArgumentError(f"with {given}, {b.name} has shape {b.shape}; extents are positive")
    return out
