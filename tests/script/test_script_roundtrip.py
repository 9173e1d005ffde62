"""`parse(p.script())` is `p`, for every kind of program there is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from roundtrip import check, check_all, executed
from script_fuzz import GOLDEN, OPERATORS, operator, scripts_in

from autosched import te
from autosched.errors import TensorExprError, VerifyError
from autosched.schedule import Schedule
from autosched.script import parse, parse_func, parse_module
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Digit
from autosched.tir.canonical import workload_key
from autosched.tir.dtypes import ARITHMETIC
from autosched.tir.equal import first_difference
from autosched.tir.expr import Const, Expr, Slot, Var
from autosched.tir.module import IRModule
from autosched.tir.nodes import Access, Block, Buffer, For, Iter, Predicate, PrimFunc, Reducer
from autosched.tir.verify import verify


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    func = operator(name)
    check_all(func)
    assert workload_key(parse_func(func.script())) == workload_key(func)


@pytest.mark.parametrize("name", ["matmul_add", "conv2d_bias_relu", "softmax", "argmax"])
def test_sketches(name: str) -> None:
    """What the search makes of operators."""
    func = operator(name)
    space = generate_space(func, Target("llvm -mcpu=x86-64-v3"))
    population = space.sample(np.random.default_rng(0), 12)
    for row in range(len(population)):
        check_all(space.schedule(*space.candidate(population, row)).func)


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("*.txt")), ids=lambda f: f.stem)
def test_golden_files(file) -> None:
    """Programs come back from their text, and the trace's text makes the second of the first."""
    text = file.read_text(encoding="utf-8")
    before, after = scripts_in(text)
    for script in (before, after):
        func = parse_func(script)
        assert func.script() == script
        check_all(func)
    middle = text.removeprefix(before).partition("@T.prim_func")[0]
    assert first_difference(executed(middle, parse_func(before)).func, parse_func(after)) is None


def expression(make, *dtypes: str, out: str = "") -> PrimFunc:
    """`make` of elements of inputs of these dtypes."""
    inputs = [te.placeholder((4, 3), name=f"A{n}", dtype=t) for n, t in enumerate(dtypes)]
    body = lambda i, j: make(*(a[i, j] for a in inputs))  # noqa: E731
    return te.create_prim_func([*inputs, te.compute((4, 3), body, name=out or "out")])


@pytest.mark.parametrize("dtype", ARITHMETIC)
def test_dtypes(dtype: str) -> None:
    compared = "float32" if dtype == "bfloat16" else dtype  # which is for storage only

    def choice(a: Expr, b: Expr) -> Expr:
        return te.if_then_else(b != b, te.const(1, dtype), a)

    check_all(expression(choice, dtype, compared))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", [o for o in ex.OPS if ex.OPS[o].result != "given"])
def test_operations(op: str) -> None:
    """Alone, and in every place of each one with a symbol and of a call, so that brackets stand
    where they must."""
    row = ex.OPS[op]
    bools = op in ("and", "or", "not")
    dtype = "bool" if bools else "float64" if row.result == "float" else "int32"
    kinds = ["bool", "int8", "int8"] if op in ("select", "if_then_else") else [dtype] * row.arity
    inputs = [te.placeholder((4,), name=f"A{n}", dtype=t) for n, t in enumerate(kinds)]
    makers = [lambda e: e]
    for outer, other in ex.OPS.items():
        if other.symbol or outer in ("not", "max"):
            makers += [partial(_nested, outer, other.arity, n) for n in range(other.arity)]
    outputs = []
    for n, make in enumerate(makers):
        body = lambda i: make(ex.call(op, *(a[i] for a in inputs)))  # noqa: B023, E731
        outputs.append(te.compute((4,), body, name=f"out{n}"))
    check(te.create_prim_func([*inputs, *outputs]))


def _nested(outer: str, arity: int, place: int, inner: Expr) -> Expr:
    """`inner` as one operand of `outer`, its own first operand as the others; or `inner`."""
    assert isinstance(inner, ex.Call)
    others = [a for a in (*inner.args, inner) if a.dtype == inner.dtype]
    try:
        return ex.call(outer, *(inner if n == place else others[0] for n in range(arity)))
    except TensorExprError:  # not defined on these types
        return inner


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -2.25, 1e-40, 3e38, "inf", "-inf", "nan", 0.1])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_float_constants(value, dtype: str) -> None:
    check_all(expression(lambda a: a + Const(float(value), dtype), dtype))


@pytest.mark.parametrize("value", [-(2**63), 2**63 - 1, -1, 0])
def test_integer_constants(value: int) -> None:
    check_all(expression(lambda a: a - te.const(value, "int64"), "int64"))
    check_all(expression(lambda a: te.const(value, "int64") - a, "int64"))


def test_brackets_of_the_same_level() -> None:
    check_all(expression(lambda a, b: a - (b - a) - (a - b - a), "int32", "int32"))
    check_all(expression(lambda a, b: a // (b // (a % b)) % (a * b), "int32", "int32"))
    check_all(
        expression(
            lambda a, b: te.if_then_else(
                te.all(te.any(a < b, te.all(a > b, b != a)), te.any(a == b, b >= a)), a, b
            ),
            "int8",
            "int8",
        )
    )
    check_all(expression(lambda a, b: (a < b) == (b < a), "int8", "int8"))


# -- reductions


def reduction(reducer, *dtypes: str) -> PrimFunc:
    inputs = [te.placeholder((4, 6), name=f"A{n}", dtype=t) for n, t in enumerate(dtypes)]
    k = te.reduce_axis((0, 6), name="k")
    many = len(inputs) > 1
    found = te.compute(
        (4,),
        lambda i: reducer(
            tuple(a[i, k] for a in inputs) if many else inputs[0][i, k] + inputs[0][i, 0], axis=k
        ),
        name="S",
    )
    return te.create_prim_func([*inputs, *(found if many else [found])])


def decomposed(func: PrimFunc) -> PrimFunc:
    schedule = Schedule(func)
    block = schedule.get_block("S")
    schedule.decompose_reduction(block, schedule.get_loops(block)[-1])
    return schedule.func


def factored(func: PrimFunc) -> PrimFunc:
    schedule = Schedule(func)
    schedule.rfactor(schedule.split(schedule.get_loops(schedule.get_block("S"))[-1], [None, 2])[1])
    return schedule.func


log_sum = te.comm_reducer(lambda x, y: x + y + x * y, lambda t: te.const(0, t), name="log_sum")
scaled = te.comm_reducer(lambda x, y: te.max(x, y) + te.const(0, x.dtype),
                         lambda t: te.const(-3e4, t), name="scaled")  # fmt: skip
both = te.comm_reducer(
    lambda x, y: (x[0] + y[0], te.max(x[1], y[1])),
    lambda s, t: (te.const(0, s), te.const(-128, t)),
    name="both",
)
REDUCERS = {
    **{f"{r.__name__} {t}": (r, t) for r in (te.sum, te.prod, te.max, te.min)
       for t in ("float32", "float16", "int8", "uint8", "int64")},
    "log_sum": (log_sum, "float64"),
    "low maximum": (te.comm_reducer(te.max, lambda t: te.const(-3e4, t), name="low"), "float32"),
    "scaled": (scaled, "float32"),
    "both": (both, "float32", "int8"),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCERS)
@pytest.mark.parametrize("form", [lambda f: f, decomposed, factored], ids=["", "decomposed", "rf"])
def test_reducers(name: str, form) -> None:
    reducer, *dtypes = REDUCERS[name]
    func = form(reduction(reducer, *dtypes))
    check_all(func)


def test_a_reducer_without_identity_is_known() -> None:
    text = decomposed(reduction(te.sum, "float32")).script()
    assert "T.identity" not in text
    assert "with T.identity():" in decomposed(reduction(log_sum, "float32")).script()


# -- forms and nodes that only primitives make


def block_with(
    bindings: tuple[Affine, ...],
    loops: tuple[tuple[Var, int], ...],
    predicates: tuple[Predicate, ...] = (),
    **fields: object,
) -> PrimFunc:
    a, b = Buffer("A", (64,), "float32"), Buffer("B", (64,), "float32")
    iters = tuple(Iter(Var(f"v{n}"), 64) for n in range(len(bindings)))
    block = Block(
        "b", iters, bindings, predicates, (Access(a, (Affine.of(iters[0].var),)),),
        (Access(b, (Affine.of(iters[0].var),)),), (Slot(0, "float32"),), **fields,
    )  # fmt: skip
    node: For | Block = block
    for var, extent in reversed(loops):
        node = For(var, extent, (node,))
    return PrimFunc("main", (a, b), (node,))


OUTER, INNER = Var("i"), Var("j")
LOOPS = ((OUTER, 8), (INNER, 8))
x, y = Affine.of(OUTER), Affine.of(INNER)


@pytest.mark.parametrize(
    "form",
    [
        x * 8 + y,
        y + x * 8 - 3,
        -x * 8 - y + 63,
        Affine.of(Digit(x * 8 + y, 4, 3)),
        Affine.of(Digit(x * 12 + y, 4, 3)),
        Affine.of(Digit(x * 8 + y, 4, None), 2) + Affine.of(Digit(y, 1, 4), -1) + 5,
        Affine.of(Digit(Affine.of(Digit(x * 8 + y, 2, None)), 3, None)),
        Affine.of(Digit(Affine.of(Digit(x * 8 + y, 2, None)), 1, 3)),
        Affine.of(Digit(Affine.of(Digit(x * 8 + y, 2, 5)) + y, 3, 2)),
        Affine.of(Digit(x, 1, None)) + y,
        Affine.of(Digit(x, 3, 1)) + y,
        Affine(5),
        Affine(0),
    ],
    ids=str,
)
def test_forms(form: Affine) -> None:
    check(block_with((form, x), LOOPS, (Predicate(form, 60), Predicate(form - 5, 55))))


def test_annotations_and_kinds() -> None:
    notes = (("a", 1), ("b", True), ("c", "x\"'\n"), ("d", (1,)), ("e", [1, (2.5, None)]),
             ("f", {"k": float("inf"), "n": -1}), ("g", np.float32(0.5)), ("h", ()))  # fmt: skip
    func = block_with((x * 8 + y,), LOOPS, annotations=notes)
    (outer,) = func.body
    assert isinstance(outer, For)
    for kind in ("serial", "parallel", "vectorized", "unrolled"):
        check(
            replace(func, body=(replace(outer, kind=kind, annotations=notes),), attrs=notes), False
        )
    check(replace(func, body=(replace(outer, kind="thread", thread="blockIdx.x"),)), False)


def test_placed_and_other_allocations() -> None:
    a, b, c = (
        Buffer(n, (16,), "float32", s)
        for n, s in zip("ABC", ("global", "local", "global"), strict=True)
    )
    i, j, v, w = Var("i"), Var("j"), Var("v"), Var("w")

    def copy(name: str, source: Buffer, target: Buffer, axis: Var, loop: Var) -> Block:
        return Block(
            name, (Iter(axis, 16),), (Affine.of(loop),), (), (Access(source, (Affine.of(axis),)),),
            (Access(target, (Affine.of(axis),)),), (Slot(0, "float32"),),
        )  # fmt: skip

    two = (For(i, 16, (copy("p", a, b, v, i),)), For(j, 16, (copy("q", b, c, w, j),)))
    plain = PrimFunc("main", (a, c), two)
    assert "placed" not in check(plain).script()
    placed = replace(plain, allocs=(b,))
    assert check(placed).allocs[0].scope == "local"
    assert first_difference(plain, placed) is not None
    inside = For(Var("o"), 1, two, allocs=(b,))
    check(PrimFunc("main", (a, c), (inside,)))


def test_accesses_that_are_not_affine() -> None:
    idx = te.placeholder((6,), name="idx", dtype="int32")
    data = te.placeholder((9, 3), name="data")

    def gather(i, j):
        at = te.max(te.min(idx[i].astype("int64"), 8), 0)
        return data[at, j] + data[at, 0] + data[i // 2 * j % 3, j]

    check_all(te.create_prim_func([idx, data, te.compute((6, 3), gather, name="out")]))


def test_an_index_may_choose() -> None:
    """The choice is proved to stay inside by the conditions of its branches."""
    data = te.placeholder((9, 3), name="data")
    at = lambda i: te.if_then_else(i < 3, i + 6, te.if_then_else(i < 12, i - 3, 0))  # noqa: E731
    func = te.create_prim_func([data, te.compute((20, 3), lambda i, j: data[at(i), j], name="out")])
    verify(check(func))
    wrong = func.script().replace("vi - 3", "vi - 4")
    with pytest.raises(VerifyError, match=r"reaches -1\.\.8"):
        parse(wrong)


def test_long_sums_come_back() -> None:
    """As unrolled stencils have them."""
    a = te.placeholder((400,), name="a")

    def sums(count: int) -> PrimFunc:
        body = lambda i: sum((a[i + n] * (n + 1.0) for n in range(1, count)), a[i])  # noqa: E731
        return te.create_prim_func([a, te.compute((8,), body, name="out")])

    check_all(sums(190))
    with pytest.raises(TensorExprError, match=r"nests \d+ deep; at most 200"):
        sums(300)


def test_sequential_axes_and_values_named_before_stores() -> None:
    """Two states, each computed from the old values of both."""
    s, r = Buffer("S", (5,), "float32"), Buffer("R", (5,), "float32")
    t, v = Var("t"), Var("vt")
    here, before = (Affine.of(v, 1, ) + n for n in (1, 0))  # fmt: skip
    reads = (Access(s, (before,)), Access(r, (before,)))
    slots: tuple[Expr, ...] = (Slot(0, "float32"), Slot(1, "float32"))
    block = Block(
        "step", (Iter(v, 4, "sequential"),), (Affine.of(t),), (), reads,
        (Access(s, (here,)), Access(r, (here,))), (slots[0] + slots[1], slots[0] - slots[1]),
    )  # fmt: skip
    func = PrimFunc("main", (s, r), (For(t, 4, (block,)),))
    text = check(func).script()
    assert "y0 = S[vt] + R[vt]" in text
    in_place = replace(
        block, writes=tuple(reads), body=(slots[0] + 1.0, slots[1] + slots[0])
    )  # fmt: skip
    check(replace(func, body=(For(t, 4, (in_place,)),)))


def test_equal_accesses_are_one_slot() -> None:
    func = block_with((x * 8 + y,), LOOPS)
    block = func.body[0].body[0].body[0]
    twice = replace(block, reads=block.reads * 2, body=(Slot(0, "float32") + Slot(1, "float32"),))
    body = (For(OUTER, 8, (For(INNER, 8, (twice,)),)),)
    check(replace(func, body=body), False)


def test_a_reducer_of_ones_own_that_ignores_a_part() -> None:
    lhs, rhs = (Var("x0"), Var("x1")), (Var("y0"), Var("y1"))
    reducer = Reducer("first", lhs, rhs, (lhs[0] + rhs[0], lhs[1]), (ex.const(0), ex.const(0)))
    a, b, c = (Buffer(n, (4,), "int64") for n in "ABC")
    i, k, vi, vk = Var("i"), Var("k"), Var("vi"), Var("vk")
    block = Block(
        "b", (Iter(vi, 4), Iter(vk, 4, "reduce")), (Affine.of(i), Affine.of(k)), (),
        (Access(a, (Affine.of(vk),)),), tuple(Access(z, (Affine.of(vi),)) for z in (b, c)),
        (Slot(0, "int64"), ex.const(0)), reducer,
    )  # fmt: skip
    func = PrimFunc("main", (a, b, c), (For(i, 4, (For(k, 4, (block,)),)),))
    text = func.script()
    assert text.index("y1 = 0") < text.index("B[vi] = x0 + y0")
    # Its identity is not neutral, which the parser finds.
    with pytest.raises(Exception, match="not neutral"):
        parse(text)


# -- modules


def test_modules() -> None:
    functions = {"main": operator("softmax"), "other": replace(operator("matmul"), name="other")}
    module = IRModule(functions)
    found = parse(module.script())
    assert isinstance(found, IRModule)
    assert list(found) == ["main", "other"]
    assert found.script() == module.script()
    for name, func in functions.items():
        assert first_difference(found[name], func) is None
    single = IRModule.of(operator("softmax"))
    again = parse(single.script())
    assert isinstance(again, IRModule)
    assert again.script() == single.script()
    assert isinstance(parse(IRModule().script()), IRModule)
    bare = "\n".join(f.script() for f in functions.values())
    assert parse_module(bare).script() == module.script()
    assert parse_module(functions["main"].script()).script() == single.script()


@pytest.mark.parametrize(("make", "value"), [(te.sum, 0), (te.prod, 1), (te.prod, 0)])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_reductions_over_constants_that_index_arithmetic_folds(make, value, dtype: str) -> None:
    k = te.reduce_axis((0, 3), name="k")
    out = te.compute((4,), lambda i: make(te.const(value, dtype), axis=k), name="C")
    func = te.create_prim_func([out])
    check_all(func)
    (text,) = (parse(func.script().replace("= C[vi] +", "+=")).script(),)
    assert text == func.script()


def test_digits_of_constants_print_as_they_are_read() -> None:
    """A digit of nothing, first in a form of which the others are subtracted."""
    func = parse_func(
        """
@T.prim_func
def main(B: T.Buffer((8, 5), "int8")):
    for i, j in T.grid(8, 5):
        with T.block("B"):
            v = T.axis.spatial(8, 7 - i)
            w = T.axis.spatial(5, 4 - j)
            B[v, w] = T.int8(1)
"""
    )
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("B"))
    sch.split(sch.fuse(i, *sch.split(j, [None, 2, 3])), [None, 2])
    check(sch.func)
