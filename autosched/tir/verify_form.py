"""Rules on the form and the meaning of programs: nodes, scopes and types. See `verify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from autosched.errors import TensorExprError
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Int, always
from autosched.tir.annotations import annotation_fault, is_flop
from autosched.tir.expr import Call, Const, Expr, Slot, Var, call, walk
from autosched.tir.faults import READS, WHERE, WRITES, Fault
from autosched.tir.form_parts import blocks, forms, is_plain, is_size
from autosched.tir.height import MAX_HEIGHT, height
from autosched.tir.intrin import KEY as TENSORIZED
from autosched.tir.nodes import (
    LOOP_KINDS,
    THREADS,
    Access,
    Block,
    Buffer,
    For,
    IterKind,
    PrimFunc,
    Reducer,
    buffers_of,
    loops_of,
    sites,
)
from autosched.tir.numbers import Numbers
from autosched.tir.operations import OPS
from autosched.tir.scope import SCOPES
from autosched.tir.shapes import solve, unsolved_message
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar


def _label(block: Block) -> str:
    return f"block {block.name!r}"


def _may_be_empty(n: object) -> bool:
    """Whether `n` is a symbolic extent that is 0 for some sizes, and never less: a recurrence of
    `T` steps computes `T - 1` of them."""
    return isinstance(n, Size) and always(n >= 0)


def nodes(func: PrimFunc) -> Iterator[Fault]:
    """Counts and kinds without which a program cannot even be printed."""
    for loop in loops_of(func):
        if loop.kind not in LOOP_KINDS:
            yield Fault(
                None,
                f"loop {loop.var.name!r} has kind {loop.kind!r}; "
                f"expected one of {', '.join(LOOP_KINDS)}",
            )
    for block in blocks(func):
        name = _label(block)
        if len(block.iters) != len(block.bindings):
            yield Fault(
                None, f"{name} has {len(block.iters)} axes and {len(block.bindings)} bindings"
            )
        if not block.writes or len(block.writes) != len(block.body):
            yield Fault(
                None,
                f"{name} writes {len(block.writes)} elements and computes {len(block.body)} values",
            )
        r = block.reducer
        if r is not None and not (
            len(r.lhs) == len(r.rhs) == len(r.combine) == len(r.identity) == len(block.writes)
        ):
            yield Fault(
                None,
                f"{name} writes {len(block.writes)} elements with reducer {r.name!r} of "
                f"{len(r.lhs)} accumulated and {len(r.rhs)} new values, {len(r.combine)} results "
                f"and {len(r.identity)} identities",
            )
        for where, form in forms(block):
            if not is_plain(form):
                yield Fault(
                    None,
                    f"{name}: {where} has a coefficient that is no integer, or a digit whose "
                    "divisor or modulus is below 1",
                )


def expressions(func: PrimFunc) -> Iterator[Fault]:
    """Node types, operations, argument counts, slots in range."""
    for block in blocks(func):
        name = _label(block)
        for where, root in _roots(block):
            if height(root) > MAX_HEIGHT:
                yield Fault(None, f"{name}: {where} nests more than {MAX_HEIGHT} deep")
                continue
            for e in walk(root):
                wrong = _wrong_node(e, block)
                if wrong:
                    yield Fault(None, f"{name}: {where} {wrong}")
        for n in range(len(block.reads)):
            if _reads_itself(block, n):
                yield Fault(None, f"{name}: the index of read {n} depends on its own value")


def attributes(func: PrimFunc) -> Iterator[Fault]:
    """Attributes and annotations that mean something have values that mean it."""
    free = func.attr("layout_free", ())
    names = sorted(b.name for b in func.params)
    if not isinstance(free, (list, tuple)) or not all(name in names for name in free):
        yield Fault(
            None,
            f"attribute layout_free is {free!r}; expected a list of names of parameters "
            f"({', '.join(names)})",
            "layout_free",
        )
    flop = func.attr("FLOP")
    if flop is not None and not is_flop(flop):
        message = f"FLOP of {func.name} is {flop!r}; expected a number from 0 up"
        yield Fault(None, message, "FLOP")
    for loop in loops_of(func):
        for key, value in loop.annotations:
            # Loops that an intrinsic does are marked by `tensorize`.
            wrong = (
                None
                if key == TENSORIZED and isinstance(value, str)
                else annotation_fault(key, value, "loop")
            )
            if wrong is not None:
                yield Fault(loop, f"loop {loop.var.name!r}: {wrong}")
    for block in blocks(func):
        for key, value in block.annotations:
            wrong = annotation_fault(key, value, "block")
            if wrong is not None:
                yield Fault(block, f"{_label(block)}: {wrong}")


def _wrong_node(e: Expr, block: Block) -> str | None:
    if isinstance(e, Call):
        row = OPS.get(e.op)
        if row is None:
            return f"calls {e.op!r}, which is no operation"
        if len(e.args) != row.arity:
            return f"gives {len(e.args)} arguments to {e.op}, which takes {row.arity}"
    elif isinstance(e, Slot):
        if not 0 <= e.index < len(block.reads):
            return f"uses slot {e.index} of {len(block.reads)} reads"
    elif not isinstance(e, (Var, Const)):
        return (
            f"has a {type(e).__name__}, which is for tensor expressions; "
            "expected variables, constants, slots and calls"
        )
    return None


def _reads_itself(block: Block, start: int) -> bool:
    pending, seen = [start], set()
    while pending:
        for index in block.reads[pending.pop()].indices:
            if isinstance(index, Affine):
                continue
            for e in walk(index):
                if isinstance(e, Slot) and 0 <= e.index < len(block.reads):
                    if e.index == start:
                        return True
                    if e.index not in seen:
                        seen.add(e.index)
                        pending.append(e.index)
    return False


def sizes(func: PrimFunc) -> Iterator[Fault]:
    """Extents and shapes are integers of at least 1; loops have bodies; symbolic sizes follow from
    the shapes of the parameters."""
    names = [v.name for v in func.sizes]
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield Fault(None, f"{names.count(name)} sizes are named {name!r}; names must differ")
    yield from size_faults(func)
    for loop in loops_of(func):
        name = f"loop {loop.var.name!r}"
        if not (is_size(loop.extent) or _may_be_empty(loop.extent)):
            yield Fault(loop, f"{name} has extent {loop.extent!r}; expected an integer from 1 up")
        if not loop.body:
            yield Fault(loop, f"{name} has no body")
        if (loop.thread is not None) != (loop.kind == "thread"):
            yield Fault(loop, f"{name} is {loop.kind} with thread axis {loop.thread!r}")
        elif loop.thread is not None and loop.thread not in THREADS:
            expected = ", ".join(THREADS)
            yield Fault(loop, f"{name} has thread axis {loop.thread!r}; expected one of {expected}")
    for block in blocks(func):
        for it in block.iters:
            if it.kind not in get_args(IterKind):
                expected = ", ".join(get_args(IterKind))
                message = f"axis {it.var.name} has kind {it.kind!r}; expected one of {expected}"
                yield Fault(block, f"{_label(block)}: {message}")
            if not (is_size(it.extent) or (it.kind == "sequential" and _may_be_empty(it.extent))):
                message = (
                    f"axis {it.var.name} has extent {it.extent!r}; expected an integer from 1 up"
                )
                yield Fault(block, f"{_label(block)}: {message}")


def size_faults(func: PrimFunc) -> Iterator[Fault]:
    """Symbolic sizes, wherever they stand, that do not follow from the shapes of the parameters."""
    solved, unsolved = solve(func)
    known = {s.var for s in solved}
    stray = dict.fromkeys(unsolved)

    def number(n: Int) -> Int:
        if isinstance(n, Size):
            stray.update(dict.fromkeys(v for v in n.variables() if v not in known))
        return n

    Numbers(number).func(func)
    for block in blocks(func):
        for _, root in _roots(block):
            for e in walk(root):
                if isinstance(e, SizeVar) and e not in known:
                    stray[e] = None
    for var in stray:
        yield Fault(None, unsolved_message(func, var))


def buffers(func: PrimFunc) -> Iterator[Fault]:
    """Buffers are declared once, with a known dtype and scope and a shape of integers from 1 up."""
    declared = [*func.params, *func.allocs, *(b for loop in loops_of(func) for b in loop.allocs)]
    for b in dict.fromkeys([*declared, *buffers_of(func)]):
        if b.dtype not in dtypes.DTYPES:
            expected = ", ".join(dtypes.DTYPES)
            yield Fault(None, f"{b.name} has dtype {b.dtype!r}; expected one of {expected}")
        inner = all(b is not p for p in func.params)
        if not all(is_size(n) or (inner and _may_be_empty(n)) for n in b.shape):
            yield Fault(None, f"{b.name} has shape {b.shape}; expected integers from 1 up")
        if b.scope not in SCOPES:
            yield Fault(
                None, f"{b.name} has scope {b.scope!r}; expected one of {', '.join(SCOPES)}"
            )
        yield from _alignment(func, b)
    for b in dict.fromkeys(declared):
        if declared.count(b) > 1:
            yield Fault(None, f"{b.name} is declared {declared.count(b)} times")


def _alignment(func: PrimFunc, b: Buffer) -> Iterator[Fault]:
    """Only intermediates have strides of their own, and not along the last dimension."""
    if b.align and any(b is p for p in func.params):
        yield Fault(None, f"{b.name} is a parameter, which is dense; only intermediates have align")
    last = -1
    for axis, factor, offset in b.align:
        if not (last < axis < len(b.shape) - 1 and 0 <= offset < factor):
            yield Fault(
                None,
                f"{b.name} has align {b.align}; expected (axis, factor, offset) in order of the "
                "axes, no last axis, offset from 0 to factor - 1",
            )
            break
        last = axis


def names(func: PrimFunc) -> Iterator[Fault]:
    """Blocks have names of their own, and indices as many as their buffers have dimensions."""
    seen: set[str] = set()
    for block in blocks(func):
        if block.name in seen:
            yield Fault(
                block, f"another block is named {block.name!r}; schedules find blocks by name"
            )
        seen.add(block.name)
        for mark, accesses in _marked(block):
            for a in accesses:
                rank, count = len(a.buffer.shape), len(a.indices)
                if rank != count:
                    what = f"{count} indices to {a.buffer.name}, which has {rank} dimensions"
                    yield Fault(block, f"{_label(block)} gives {what}", mark)


def _marked(block: Block) -> tuple[tuple[str, tuple[Access, ...]], ...]:
    """Reads and writes, with how their lines begin."""
    return ((READS, block.reads), (WRITES, block.writes))


def _roots(block: Block) -> Iterator[tuple[str, Expr]]:
    """Every expression of a block, with the words for where it stands."""
    for e in block.body:
        yield "the body", e
    for access in (*block.reads, *block.writes):
        for index in access.indices:
            if not isinstance(index, Affine):
                yield f"an index of {access.buffer.name}", index
    if block.reducer is not None:
        for e in (*block.reducer.combine, *block.reducer.identity):
            yield f"reducer {block.reducer.name!r}", e


def scopes(func: PrimFunc) -> Iterator[Fault]:
    """Loop variables and axes are unique; forms and expressions use what is defined around them."""
    seen: set[Var] = set()
    for loop in loops_of(func):
        if loop.var in seen:
            yield Fault(loop, f"loop variable {loop.var.name} belongs to two loops")
        seen.add(loop.var)
    placed = {b for loop in loops_of(func) for b in loop.allocs} | set(func.allocs)
    for site in sites(func):
        block = site.block
        axes = {i.var for i in block.iters}
        if len(axes) < len(block.iters) or axes & seen:
            yield Fault(block, f"{_label(block)}: axes must have variables of their own")
        for what, mark, strange, scope in _strangers(
            block, axes, {x.var for x in site.loops}, placed
        ):
            names = ", ".join(v.name for v in strange)
            yield Fault(block, f"{_label(block)}: {what} uses {names}, which is not {scope}", mark)


def _strangers(
    block: Block, axes: set[Var], loops: set[Var], placed: set[Buffer]
) -> Iterator[tuple[str, str, list[Var], str]]:
    """(what, its mark, variables in it that are out of scope, what would be in) over a block."""
    parts: list[tuple[str, str, Affine | Expr, set[Var], str]] = []
    for it, binding in zip(block.iters, block.bindings, strict=True):
        parts.append((f"the binding of {it.var.name}", it.var.name, binding, loops, _LOOP))
    for p in block.predicates:
        parts.append(("a predicate", WHERE, p.form, loops, _LOOP))
    for mark, accesses in _marked(block):
        for access in accesses:
            # Only a buffer that lowering shrunk is indexed from where its region begins.
            known = axes | loops if access.buffer in placed else axes
            for index in access.indices:
                parts.append((f"an index of {access.buffer.name}", mark, index, known, _AXIS))
    parts += [("the body", "", e, axes, _AXIS) for e in block.body]
    for what, mark, form, known, scope in parts:
        strange = _strange(form, known)
        if strange:
            yield what, mark, strange, scope


_LOOP = "a loop around the block"
_AXIS = "an axis of the block"


def _strange(form: Affine | Expr, known: set[Var]) -> list[Var]:
    if isinstance(form, Affine):
        found = list(form.variables())
    else:
        found = [e for e in walk(form) if isinstance(e, Var) and not isinstance(e, SizeVar)]
    return [v for v in dict.fromkeys(found) if v not in known]


def placement(func: PrimFunc) -> Iterator[Fault]:
    """In lowered form every intermediate is allocated in a loop around all its accesses."""
    places: dict[Buffer, For | None] = dict.fromkeys(func.allocs)
    for loop in loops_of(func):
        places.update(dict.fromkeys(loop.allocs, loop))
    if not places:
        return
    params = set(func.params)
    for site in sites(func):
        for access in (*site.block.reads, *site.block.writes):
            b = access.buffer
            if b in params:
                continue
            if b not in places:
                yield Fault(site.block, f"buffer {b.name} is neither a parameter nor allocated")
            elif places[b] is not None and places[b] not in site.loops:
                yield Fault(
                    site.block,
                    f"{_label(site.block)} uses {b.name} outside the loop that allocates it",
                )


def types(func: PrimFunc) -> Iterator[Fault]:
    """Calls, slots, indices, writes and reducers have the dtypes that they must have."""
    for block in blocks(func):
        for where, root in _roots(block):
            for e in walk(root):
                wrong = _wrong_type(e, block)
                if wrong:
                    yield Fault(block, f"{_label(block)}: {where}: {wrong}")
        for access in (*block.reads, *block.writes):
            for index in access.indices:
                dtype = dtypes.INDEX if isinstance(index, Affine) else index.dtype
                if dtype != dtypes.INDEX:
                    yield Fault(
                        block,
                        f"{_label(block)}: an index of {access.buffer.name} has dtype {dtype}",
                    )
        for access, value in zip(block.writes, block.body, strict=True):
            if value.dtype != access.buffer.dtype:
                yield Fault(
                    block,
                    f"{_label(block)} writes {value.dtype} to {access.buffer.name}, "
                    f"which holds {access.buffer.dtype}",
                    WRITES,
                )
        if block.reducer is not None:
            yield from _reducer_types(block, block.reducer)


def _wrong_type(e: Expr, block: Block) -> str | None:
    if isinstance(e, Slot):
        held = block.reads[e.index].buffer.dtype
        return None if e.dtype == held else f"slot {e.index} has dtype {e.dtype}, its buffer {held}"
    if not isinstance(e, Call):
        return None if e.dtype in dtypes.DTYPES else f"dtype {e.dtype!r} is unknown"
    if e.op == "cast":
        return None if e.dtype in dtypes.DTYPES else f"a cast to the unknown dtype {e.dtype!r}"
    if e.op == "reinterpret":
        source = e.args[0].dtype
        known = {source, e.dtype} <= set(dtypes.DTYPES)
        fits = known and dtypes.reinterprets(source, e.dtype)
        return None if fits else f"the bits of {source} are reinterpreted as {e.dtype}"
    try:
        expected = call(e.op, *e.args).dtype
    except TensorExprError as error:
        return str(error)
    return None if e.dtype == expected else f"{e.op} has dtype {e.dtype}; expected {expected}"


def _reducer_types(block: Block, r: Reducer) -> Iterator[Fault]:
    known = {*r.lhs, *r.rhs}
    for e in (*r.combine, *r.identity):
        if any(isinstance(x, Slot) for x in walk(e)):
            yield Fault(block, f"{_label(block)}: reducer {r.name!r} reads a buffer")
    for e in r.combine:
        for v in _strange(e, known):
            yield Fault(block, f"{_label(block)}: reducer {r.name!r} uses {v.name}")
    for e in r.identity:
        for v in _strange(e, set()):
            yield Fault(block, f"{_label(block)}: an identity of reducer {r.name!r} uses {v.name}")
    for n, access in enumerate(block.writes):
        found = {x.dtype for x in (r.lhs[n], r.rhs[n], r.combine[n], r.identity[n])}
        if found != {access.buffer.dtype}:
            yield Fault(
                block,
                f"{_label(block)}: reducer {r.name!r} computes {', '.join(sorted(found))} "
                f"for {access.buffer.name}, which holds {access.buffer.dtype}",
            )
