"""From tensor expressions to a function of the loop IR: one plain loop nest a computation.

The stages of a scan share one loop over its steps: `for t: (stage, …, update)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from autosched.errors import TensorExprError
from autosched.te.compute import compute
from autosched.te.extern import extern_block
from autosched.te.scan_func import Scans, Step
from autosched.te.tensor import (
    ComputeOp,
    ExternOp,
    IterVar,
    Operation,
    PlaceholderOp,
    ScanOp,
    Tensor,
    TensorRead,
    check_name,
)
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.admit import admitted
from autosched.tir.affine import Affine, Int, is_zero
from autosched.tir.expr import Expr, Slot, Var
from autosched.tir.faults import Fault, Rule
from autosched.tir.from_expr import from_expr
from autosched.tir.height import MAX_HEIGHT, MAX_SIZE, height, size
from autosched.tir.nodes import Access, Annotations, Block, Buffer, For, Index, Iter, Node, PrimFunc

MOST_BYTES = (1 << 62) - 1
"""Of all buffers of a function: offsets are int64."""


def create_prim_func(tensors: Sequence[Tensor], name: str = "main") -> PrimFunc:
    """The function whose parameters are `tensors` in this order, inputs and outputs.

    Each computation that the computed ones among them need becomes a block in a nest of serial
    loops over its spatial, then its reduction axes; producers come first. Computed tensors that are
    not listed become intermediates. The stages of a scan stand in one loop over its steps, after
    what they read that depends on no state. Function attributes: "layout_free", the names of
    parameters whose layout is free, and "FLOP" where all computations state theirs. Block
    annotations: the attributes "FLOP" and "auto_scheduler_…" of the computation.

    Tensors that bear one name get different ones: `C`, `C_1`.

    Raises TensorExprError if an input is used and not listed, if nothing is computed, if two sizes
    bear one name, if a symbolic size does not follow from the shapes of the
    parameters, or if an element is read that is not provably inside its tensor. Of an index that
    data decide, such as `T[I[i], j]`, nothing is known: `clamp_index`, `wrap_index` or
    `if_then_else` keep it inside.
    """
    return translate(tensors, name)[0]


def translate(
    tensors: Sequence[Tensor], name: str
) -> tuple[PrimFunc, dict[ComputeOp | ExternOp, str]]:
    """What `create_prim_func` makes, and the name of each computation's block."""
    check_name(name, "a function")
    params = _check_params(tensors)
    ops = [op for op in topological([t.op for t in params]) if not isinstance(op, PlaceholderOp)]
    scans = Scans(params, ops)
    names = _Names(params, ops, scans)
    listed = {id(t) for t in params}
    buffers = {id(t): Buffer(names.tensor(t), t.shape, t.dtype) for t in params}
    for op in ops:
        if isinstance(op, ScanOp):
            _place_states(op, scans, names, _tensors(params, ops), buffers)
    for op in ops:
        for t in op.input_tensors:
            if isinstance(t.op, PlaceholderOp) and id(t) not in listed | buffers.keys():
                raise TensorExprError(
                    f"{op.name} reads the placeholder {t.name}, which is not a parameter of "
                    f"{name}; add it to the list"
                )
            if id(t) not in buffers:
                step = scans.stages.get(id(t.op))
                shape = t.shape if step is None else (step.extent, *t.shape[1:])
                buffers[id(t)] = Buffer(names.tensor(t), shape, t.dtype)
    _check_sizes(buffers.values())
    nests = _Nests(names, scans, _tensors(params, ops), buffers)
    body = tuple(node for op in ops for node in nests.of(op))
    func = PrimFunc(name, tuple(buffers[id(t)] for t in params), body, _attrs(ops, params, name))
    axes = {names.labels[id(op)]: op for op in ops if isinstance(op, ComputeOp)}
    _check_names(func)
    admitted(func, refusal=lambda found: _refused(found, axes))
    made = (op for op in ops if isinstance(op, (ComputeOp, ExternOp)))
    return func, {op: names.labels[id(op)] for op in made}


def _check_sizes(buffers: Iterable[Buffer]) -> None:
    """What no memory holds is refused, as the parser does: offsets in bytes are int64."""
    total = 0
    for b in buffers:
        count = prod(n for n in b.shape if isinstance(n, int))
        total += count * dtypes.itemsize(b.dtype)
        if total > MOST_BYTES:
            raise TensorExprError(
                f"with {b.name} the buffers have {total} bytes; at most {MOST_BYTES} are allowed"
            )


def _check_names(func: PrimFunc) -> None:
    taken: set[str] = set()
    for v in func.sizes:
        if v.name in taken:
            raise TensorExprError(f"two sizes are named {v.name}; pass te.var another name")
        taken.add(v.name)


def _refused(found: Sequence[tuple[Rule, Fault]], ops: Mapping[str, ComputeOp]) -> TensorExprError:
    """What to say of a program that breaks rules: the first, with a way out in the user's words."""
    rule, fault = found[0]
    if fault.ways is not None:
        return TensorExprError(fault.message + _in_axes(fault, ops))
    advice = "; read it under te.if_then_else with a condition that keeps it inside"
    return TensorExprError(fault.message + (advice if rule.name == "bounds" else ""))


def _in_axes(fault: Fault, ops: Mapping[str, ComputeOp]) -> str:
    """The ways out, over the axes by the names that their computation gave them."""
    assert isinstance(fault.node, Block)
    assert fault.ways is not None
    op = ops.get(fault.node.name)
    text = re.sub(r"\bT\.", "te.", fault.ways.text("te"))
    if op is None:
        return text
    axes = zip(fault.node.iters, (*op.axis, *op.reduce_axis), strict=True)
    plain = {it.var.name: a.name for it, a in axes if is_zero(a.begin)}
    return re.sub(r"\bv\w+", lambda found: plain.get(found[0], found[0]), text)


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
        if not isinstance(op, PlaceholderOp):
            stack += [(t.op, False) for t in reversed(op.input_tensors) if id(t.op) not in seen]
    return order


def _tensors(params: Sequence[Tensor], ops: Sequence[Operation]) -> list[Tensor]:
    """Every tensor there is an object of, once: parameters first."""
    seen = {id(t): t for t in params}
    for op in ops:
        for t in op.input_tensors:
            seen.setdefault(id(t), t)
    return list(seen.values())


class _Names:
    """Names of blocks and buffers, all different: the first of those the user chose keeps its name,
    the others, and those nobody chose, are numbered."""

    def __init__(self, params: Sequence[Tensor], ops: Sequence[Operation], scans: Scans) -> None:
        self.taken: set[str] = set()
        self.labels: dict[int, str] = {}
        self.parts: dict[int, str] = {}
        # A state goes by the name of its scan.
        every = [t for t in _tensors(params, ops) if id(t.op) not in scans.states]
        origins = {id(t.op): t.op for t in every} | {id(op): op for op in ops}
        for op in origins.values():
            if not op.auto_named and op.name not in self.taken:
                self.taken.add(op.name)
                self.labels[id(op)] = op.name
        for op in origins.values():
            if id(op) not in self.labels:
                self.labels[id(op)] = self.fresh(op.name)
        # The parts of a tuple are called after their computation.
        for t in every:
            if t.name != t.op.name:
                self.parts[id(t)] = self.fresh(f"{self.labels[id(t.op)]}_v{t.value_index}")

    def fresh(self, base: str) -> str:
        """`base`, or `base_1`, `base_2`, … if taken."""
        name, n = base, 0
        while name in self.taken:
            n += 1
            name = f"{base}_{n}"
        self.taken.add(name)
        return name

    def tensor(self, t: Tensor) -> str:
        """Name of the tensor's buffer."""
        return self.parts.get(id(t)) or self.labels[id(t.op)]


def _place_states(
    scan: ScanOp, scans: Scans, names: _Names, tensors: Sequence[Tensor], buffers: dict[int, Buffer]
) -> None:
    """Give the states of `scan`, their updates and where possible their inits the buffers of its
    results."""
    results = {t.value_index: t for t in reversed(tensors) if t.op is scan}
    for n, (init, update, state) in enumerate(zip(scan.init, scan.update, scan.state, strict=True)):
        result = results.get(n)
        if result is None:  # a result that nobody asked for
            buffer = Buffer(names.fresh(f"{names.labels[id(scan)]}_v{n}"), state.shape, state.dtype)
        else:
            name = names.tensor(result)
            buffer = buffers.setdefault(id(result), Buffer(name, state.shape, state.dtype))
        buffers[id(state)] = buffers[id(update)] = buffer
        for t in (t for t in tensors if t.op is scan and t.value_index == n):
            buffers.setdefault(id(t), buffer)  # a gradient has objects of its own
        if scans.writes_state(init):
            buffers[id(init)] = buffer


class _Nests:
    """The loop nests of operations."""

    def __init__(
        self,
        names: _Names,
        scans: Scans,
        tensors: Sequence[Tensor],
        buffers: dict[int, Buffer],
    ) -> None:
        self.names, self.scans, self.buffers = names, scans, buffers
        self.outputs: dict[int, dict[int, Buffer]] = {}
        for t in tensors:
            if isinstance(t.op, (ComputeOp, ExternOp)):
                self.outputs.setdefault(id(t.op), {})[t.value_index] = buffers[id(t)]

    def of(self, op: ComputeOp | ScanOp | ExternOp) -> list[Node]:
        """The nests of `op`; none of a stage, which stands in its scan's."""
        if isinstance(op, ExternOp):
            return [self._extern(op)]
        if isinstance(op, ScanOp):
            return self._scan(op)
        return [] if id(op) in self.scans.stages else [self._nest(op, None)]

    def _extern(self, op: ExternOp) -> Block:
        label = self.names.labels[id(op)]
        outs = dict(self.outputs.get(id(op), {}))
        for n in range(op.num_outputs):
            if n not in outs:
                outs[n] = Buffer(self.names.fresh(f"{label}_v{n}"), *op.result(n))
        ins = [self.buffers[id(t)] for t in op.inputs]
        return extern_block(op, label, ins, [outs[n] for n in range(op.num_outputs)])

    def _scan(self, scan: ScanOp) -> list[Node]:
        out: list[Node] = []
        for init, state in zip(scan.init, scan.state, strict=True):
            target = self.buffers[id(state)]
            if self.buffers[id(init)] is not target:
                copy = compute(init.shape, init, name=f"{scan.name}_init")
                self.names.labels[id(copy.op)] = self.names.fresh(copy.name)
                self.outputs[id(copy.op)] = {0: target}
                out.append(self._nest(copy.op, None))
        step = self.scans.steps[id(scan)]
        body = tuple(self._nest(stage, step) for stage in scan.stages)
        return [*out, For(step.loop, step.extent, body)]

    def _nest(self, op: ComputeOp, step: Step | None) -> Node:
        """The nest of one computation; of a stage, what stands inside the time loop."""
        label = self.names.labels[id(op)]
        axes = (*op.axis, *op.reduce_axis)
        taken = set() if step is None else {step.loop.name}
        loops, iters, bindings = [], [], []
        values: dict[Var, Expr] = {}
        for a in axes:
            if step is not None and a is op.axis[0]:
                inner = Var(f"v{step.loop.name}")
                iters.append(Iter(inner, step.extent, "sequential"))
                bindings.append(Affine.of(step.loop))
                values[a] = inner + step.first
                continue
            axis_name = free_name(a.name, taken)
            loop, inner = Var(axis_name), Var(f"v{axis_name}")
            loops.append((loop, a.extent))
            iters.append(Iter(inner, a.extent, a.kind))
            bindings.append(Affine.of(loop))
            values[a] = inner + a.begin
        for e in op.body:
            if height(e) > MAX_HEIGHT:
                raise TensorExprError(
                    f"the expression of {label} nests {height(e)} deep; at most "
                    f"{MAX_HEIGHT} levels are taken, so sum long lists in several "
                    "computations, or by te.sum"
                )
            if size(e) > MAX_SIZE:
                raise TensorExprError(
                    f"the expression of {label} has {size(e):.0e} nodes where each part is written "
                    f"out as often as it is used; at most {MAX_SIZE} are taken, so compute what is "
                    "used several times in a te.compute of its own"
                )
        extents = {i.var: i.extent for i in iters}
        reader = _Reader(values, extents, self.buffers, step)
        body = tuple(reader.expr(e) for e in op.body)
        own = tuple(Affine.of(i.var) for i in iters[: len(op.axis)])
        writes = []
        outputs = self.outputs.get(id(op), {})
        for n, e in enumerate(op.body):
            target = outputs.get(n)
            indices = own
            if target is None:
                # A part of a tuple that nobody asked for is computed all the same.
                shape = op.shape if step is None else (step.extent, *op.shape[1:])
                target = Buffer(self.names.fresh(f"{label}_v{n}"), shape, e.dtype)
            elif step is not None and any(target is self.buffers[id(s)] for s in step.scan.state):
                indices = (own[0] + step.first, *own[1:])
            writes.append(Access(target, indices))
        node: Node = Block(
            name=label,
            iters=tuple(iters),
            bindings=tuple(bindings),
            predicates=(),
            reads=tuple(reader.reads),
            writes=tuple(writes),
            body=body,
            reducer=op.reducer,
            annotations=_annotations(op),
        )
        for v, extent in reversed(loops):
            node = For(v, extent, (node,))
        return node


def free_name(name: str, taken: set[str]) -> str:
    """The name, or with a number the next one, that nothing has; it is taken then."""
    found, n = name, 0
    while found in taken:
        n += 1
        found = f"{name}_{n}"
    taken.add(found)
    return found


class _Reader:
    """Turns the tensor reads of an expression into slots, one for each distinct access."""

    def __init__(
        self,
        values: dict[Var, Expr],
        extents: Mapping[Var, Int],
        buffers: dict[int, Buffer],
        step: Step | None,
    ) -> None:
        self.values = values
        self.extents = extents
        self.buffers = buffers
        self.step = step
        self.reads: list[Access] = []

    def expr(self, e: Expr) -> Expr:
        """`e` over the block's axes and slots."""
        return ex.rewrite(e, self._leaf)

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, IterVar):
            return self.values[e]
        if not isinstance(e, TensorRead):
            return None
        indices = tuple(self._index(i) for i in e.indices)
        if self.step is not None and self.step.is_stage(e.tensor):
            # Its buffer begins at the first step that is computed.
            first, *others = indices
            assert isinstance(first, Affine)
            indices = (first - self.step.first, *others)
        access = Access(self.buffers[id(e.tensor)], indices)
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


def _attrs(ops: Sequence[Operation], params: Sequence[Tensor], name: str) -> Annotations:
    attrs: dict[str, Any] = {}
    computed = [op for op in ops if isinstance(op, (ComputeOp, ExternOp))]
    if all("FLOP" in op.attrs for op in computed):
        attrs["FLOP"] = sum(op.attrs["FLOP"] for op in computed)
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
