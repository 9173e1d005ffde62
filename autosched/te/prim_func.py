"""From tensor expressions to a function of the loop IR: one plain loop nest a computation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched.errors import TensorExprError
from autosched.te.tensor import (
    ComputeOp,
    Extent,
    IterVar,
    Operation,
    PlaceholderOp,
    Tensor,
    TensorRead,
    check_name,
)
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, from_expr
from autosched.tir.expr import Expr, Slot, Var
from autosched.tir.nodes import Access, Annotations, Block, Buffer, For, Index, Iter, Node, PrimFunc
from autosched.tir.verify_bounds import known_bounds
from autosched.tir.verify_form import size_faults


def create_prim_func(tensors: Sequence[Tensor], name: str = "main") -> PrimFunc:
    """The function whose parameters are `tensors` in this order, inputs and outputs.

    Each computation that the computed ones among them need becomes a block in a nest of serial
    loops over its spatial, then its reduction axes; producers come first. Computed tensors that are
    not listed become intermediates. Function attributes: "layout_free", the names of parameters
    whose layout is free, and "FLOP" where all computations state theirs. Block annotations:
    the attributes "FLOP" and "auto_scheduler_…" of the computation.

    Raises TensorExprError if an input is used and not listed, if nothing is computed, if two
    tensors or two sizes bear one name, if a symbolic size does not follow from the shapes of the
    parameters, or if an element outside a tensor is read. An index that data decide,
    such as `T[I[i], j]`, is not looked at: the data must keep it inside.
    """
    return translate(tensors, name)[0]


def translate(tensors: Sequence[Tensor], name: str) -> tuple[PrimFunc, dict[ComputeOp, str]]:
    """What `create_prim_func` makes, and the name of each computation's block."""
    check_name(name, "a function")
    params = _check_params(tensors)
    ops = [op for op in topological([t.op for t in params]) if isinstance(op, ComputeOp)]
    names = _Names(params, ops)
    listed = {id(t) for t in params}
    buffers = {id(t): Buffer(names.tensor(t), t.shape, t.dtype) for t in params}
    for op in ops:
        for t in op.input_tensors:
            if isinstance(t.op, PlaceholderOp) and id(t) not in listed:
                raise TensorExprError(
                    f"{op.name} reads the placeholder {t.name}, which is not a parameter of "
                    f"{name}; add it to the list"
                )
            if id(t) not in buffers:
                buffers[id(t)] = Buffer(names.tensor(t), t.shape, t.dtype)
    outputs: dict[int, dict[int, Buffer]] = {id(op): {} for op in ops}
    for t in _tensors(params, ops):
        if isinstance(t.op, ComputeOp):
            outputs[id(t.op)][t.value_index] = buffers[id(t)]
    body = tuple(_nest(op, names, outputs[id(op)], buffers) for op in ops)
    func = PrimFunc(name, tuple(buffers[id(t)] for t in params), body, _attrs(ops, params, name))
    _check_sizes(func)
    outside = next(known_bounds(func), None)
    if outside is not None:
        raise TensorExprError(
            f"{outside.message}; "
            "read it under te.if_then_else with a condition that keeps it inside"
        )
    return func, {op: names.labels[id(op)] for op in ops}


def _check_sizes(func: PrimFunc) -> None:
    taken: set[str] = set()
    for v in func.sizes:
        if v.name in taken:
            raise TensorExprError(f"two sizes are named {v.name}; pass te.var another name")
        taken.add(v.name)
    for fault in size_faults(func):
        raise TensorExprError(fault.message)


def _check_params(tensors: Sequence[Tensor]) -> list[Tensor]:
    if isinstance(tensors, Tensor) or not isinstance(tensors, (list, tuple)):
        raise TensorExprError(f"expected a list of tensors, found {tensors!r}")
    for n, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TensorExprError(f"item {n} of the list of tensors is {t!r}; expected a Tensor")
        if any(t is u for u in tensors[:n]):
            raise TensorExprError(f"{t.name} is listed twice")
    if all(isinstance(t.op, PlaceholderOp) for t in tensors):
        listed = ", ".join(t.name for t in tensors) or "nothing"
        raise TensorExprError(
            f"no output among the listed tensors ({listed}): a placeholder is an input; "
            "list the computed tensors too"
        )
    return list(tensors)


def topological(outputs: Sequence[Operation]) -> list[Operation]:
    """Every operation needed, producers first, otherwise in the order of use."""
    order: list[Operation] = []
    seen: set[int] = set()
    # An explicit stack: a chain of computations may be deeper than Python recurses.
    stack = [(op, False) for op in reversed(outputs)]
    while stack:
        op, expanded = stack.pop()
        if id(op) in seen and not expanded:
            continue
        if expanded:
            order.append(op)
            continue
        seen.add(id(op))
        stack.append((op, True))
        stack += [(t.op, False) for t in reversed(op.input_tensors) if id(t.op) not in seen]
    return order


def _tensors(params: Sequence[Tensor], ops: Sequence[ComputeOp]) -> list[Tensor]:
    """Every tensor there is an object of, once: parameters first."""
    seen = {id(t): t for t in params}
    for op in ops:
        for t in op.input_tensors:
            seen.setdefault(id(t), t)
    return list(seen.values())


class _Names:
    """Names of blocks and buffers. Those the user chose must differ; the others are numbered."""

    def __init__(self, params: Sequence[Tensor], ops: Sequence[ComputeOp]) -> None:
        self.taken: dict[str, object] = {}
        self.labels: dict[int, str] = {}
        every = _tensors(params, ops)
        origins = {id(t.op): t.op for t in every} | {id(op): op for op in ops}
        for op in origins.values():
            if not op.auto_named:
                self._claim(op.name, op)
        for op in origins.values():
            self.labels[id(op)] = self.fresh(op.name) if op.auto_named else op.name
        # The parts of a tuple are called after their computation.
        for t in every:
            if t.name != t.op.name:
                self._claim(self.tensor(t), t)

    def _claim(self, name: str, thing: object) -> None:
        if name in self.taken:
            raise TensorExprError(
                f"two tensors are named {name}; names of tensors must differ, pass name="
            )
        self.taken[name] = thing

    def fresh(self, base: str) -> str:
        """`base`, or `base_1`, `base_2`, … if taken."""
        name, n = base, 0
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken[name] = base
        return name

    def tensor(self, t: Tensor) -> str:
        """Name of the tensor's buffer."""
        label = self.labels[id(t.op)]
        return label if t.name == t.op.name else f"{label}_v{t.value_index}"


def _nest(
    op: ComputeOp, names: _Names, outputs: dict[int, Buffer], buffers: dict[int, Buffer]
) -> Node:
    label = names.labels[id(op)]
    axes = (*op.axis, *op.reduce_axis)
    taken: set[str] = set()
    loops, iters = [], []
    values: dict[Var, Expr] = {}
    for a in axes:
        axis_name = _unused(a.name, taken)
        loop, inner = Var(axis_name), Var(f"v{axis_name}")
        loops.append((loop, a.extent))
        iters.append(Iter(inner, a.extent, a.kind))
        values[a] = inner + a.begin
    for e in op.body:
        if ex.height(e) > ex.MAX_HEIGHT:
            raise TensorExprError(
                f"the expression of {label} nests {ex.height(e)} deep; at most {ex.MAX_HEIGHT} "
                "levels are taken, so sum long lists in several computations, or by te.sum"
            )
    reader = _Reader(values, {i.var: a.extent for i, a in zip(iters, axes, strict=True)}, buffers)
    body = tuple(reader.expr(e) for e in op.body)
    spatial = tuple(Affine.of(i.var) for i in iters if i.kind == "spatial")
    writes = []
    for n, e in enumerate(op.body):
        # A part of a tuple that nobody asked for is computed all the same.
        target = outputs.get(n) or Buffer(names.fresh(f"{label}_v{n}"), op.shape, e.dtype)
        writes.append(Access(target, spatial))
    block: Node = Block(
        name=label,
        iters=tuple(iters),
        bindings=tuple(Affine.of(v) for v, _ in loops),
        predicates=(),
        reads=tuple(reader.reads),
        writes=tuple(writes),
        body=body,
        reducer=op.reducer,
        annotations=_annotations(op),
    )
    for v, extent in reversed(loops):
        block = For(v, extent, (block,))
    return block


def _unused(name: str, taken: set[str]) -> str:
    out, n = name, 0
    while out in taken:
        n += 1
        out = f"{name}_{n}"
    taken.add(out)
    return out


class _Reader:
    """Turns the tensor reads of an expression into slots, one for each distinct access."""

    def __init__(
        self, values: dict[Var, Expr], extents: dict[Var, Extent], buffers: dict[int, Buffer]
    ) -> None:
        self.values = values
        self.extents = extents
        self.buffers = buffers
        self.reads: list[Access] = []

    def expr(self, e: Expr) -> Expr:
        """`e` over the block's axes and slots."""
        return ex.rewrite(e, self._leaf)

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, IterVar):
            return self.values[e]
        if not isinstance(e, TensorRead):
            return None
        access = Access(self.buffers[id(e.tensor)], tuple(self._index(i) for i in e.indices))
        for n, other in enumerate(self.reads):
            if same_access(access, other):
                return Slot(n, e.dtype)
        self.reads.append(access)
        return Slot(len(self.reads) - 1, e.dtype)

    def _index(self, index: Expr) -> Index:
        e = self.expr(index)
        form = from_expr(e, lambda v: v in self.extents)
        # Substituting nothing simplifies the digits by what the extents tell.
        return e if form is None else form.substitute({}, self.extents)


def same_access(a: Access, b: Access) -> bool:
    """Whether both name the same element."""
    if a.buffer is not b.buffer:
        return False
    for x, y in zip(a.indices, b.indices, strict=True):
        if isinstance(x, Affine) and isinstance(y, Affine):
            if not x.same(y):
                return False
        elif isinstance(x, Affine) or isinstance(y, Affine) or not ex.same(x, y):
            return False
    return True


def _annotations(op: ComputeOp) -> Annotations:
    kept = {
        key: value
        for key, value in op.attrs.items()
        if key == "FLOP" or key.startswith("auto_scheduler_")
    }
    return tuple(sorted(kept.items()))


def _attrs(ops: Sequence[ComputeOp], params: Sequence[Tensor], name: str) -> Annotations:
    attrs: dict[str, Any] = {}
    if all("FLOP" in op.attrs for op in ops):
        attrs["FLOP"] = sum(op.attrs["FLOP"] for op in ops)
    free: list[str] = []
    for op in ops:
        for t in op.attrs.get("layout_free_placeholders", ()):
            if not any(t is p for p in params):
                raise TensorExprError(
                    f"{op.name} declares the layout of {t.name} free, "
                    f"which is not a parameter of {name}"
                )
            if t.name not in free:
                free.append(t.name)
    if free:
        attrs["layout_free"] = tuple(free)
    return tuple(sorted(attrs.items()))
