"""The language as people write it: what is inferred, the shorter forms, decorators."""

# The bodies of decorated functions are parsed and never run, so nothing in them need be defined.
# ruff: noqa: F821
from __future__ import annotations

import linecache
import textwrap

import numpy as np
import pytest

from autosched import te
from autosched.errors import ScriptError, VerifyError
from autosched.ops import argmax, matmul_add, softmax
from autosched.script import ir_module, parse, parse_func, prim_func
from autosched.script import tir as T
from autosched.tir import interp
from autosched.tir.canonical import workload_key
from autosched.tir.equal import first_difference
from autosched.tir.module import IRModule
from autosched.tir.nodes import Block, PrimFunc, sites

N = 6
SCALE = 0.5


def function(body: str, params: str = "", **options: object) -> PrimFunc:
    """A function from `A` and `B` of shape (4, 6) to `C` of shape (4, 6) and `S` of shape (4,)."""
    params = params or ", ".join(
        f'{n}: T.Buffer({s}, "float32")'
        for n, s in (("A", "(4, 6)"), ("B", "(4, 6)"), ("C", "(4, 6)"), ("S", "(4,)"))
    )
    text = f"@T.prim_func\ndef main({params}):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    return parse_func(text, **options)


def block_of(func: PrimFunc) -> Block:
    (site,) = sites(func)
    return site.block


POINT = """
for i, j in T.grid(4, 6):
    with T.block("b"):
        vi, vj = T.axis.remap("SS", [i, j])
"""
ROWS = """
for i, k in T.grid(4, 6):
    with T.block("b"):
        vi, vk = T.axis.remap("SR", [i, k])
"""


def point(*statements: str, **options: object) -> Block:
    """The block over all of C, with these statements."""
    return block_of(function(POINT + _indented(statements), check=False, **options))


def rows(*statements: str, **options: object) -> Block:
    """The block that reduces rows."""
    return block_of(function(ROWS + _indented(statements), check=False, **options))


def _indented(statements: tuple[str, ...]) -> str:
    return textwrap.indent("\n".join(statements), "        ") + "\n"


def value(text: str, **options: object) -> str:
    """How the printer shows the value stored by `C[vi, vj] = text`."""
    func = function(POINT + f"        C[vi, vj] = {text}\n", check=False, **options)
    line = func.script().strip().split("\n")[-1]
    return line.split(" = ")[1]


# -- a whole program


def test_the_shortest_form_of_a_program_has_the_key_of_its_tensor_expression() -> None:
    func = parse_func('''
"""A matmul with an addition."""
from autosched.script import prim_func, tir as T

@prim_func
def main(
    A: T.Buffer((8, 6)), B: T.Buffer((6, 10)), C: T.Buffer((8, 10)), out: T.Buffer((8, 10)),
) -> None:
    """Adds."""
    M = T.alloc_buffer((8, 10))
    for i, j, k in T.grid(8, 10, 6):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                M[vi, vj] = 0.0
            M[vi, vj] += A[vi, vk] * B[vk, vj]
    for i in range(8):
        for j in range(10):
            with T.block("out"):
                vi = T.axis.S(8, i)
                vj = T.axis.S(10, j)
                out[vi, vj] = M[vi, vj] + C[vi, vj]
''')
    expected = te.create_prim_func(matmul_add(8, 6, 10))
    key = workload_key(parse_func(expected.script()))
    assert key == workload_key(expected)
    assert [b.dtype for b in func.params] == ["float32"] * 4
    free = tuple(x for x in expected.attrs if x[0] != "layout_free")
    assert workload_key(func) == workload_key(
        PrimFunc(expected.name, expected.params, expected.body, free)
    )


@pytest.mark.parametrize(
    ("make", "sizes"), [(matmul_add, (4, 3, 5)), (softmax, (3, 4)), (argmax, (3, 4))]
)
def test_reads_and_writes_are_inferred_as_tensor_expressions_give_them(make, sizes) -> None:
    func = te.create_prim_func(make(*sizes))
    lines = func.script().split("\n")
    short = "\n".join(x for x in lines if "T.reads" not in x and "T.writes" not in x)
    assert first_difference(func, parse_func(short)) is None


# -- numbers


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("A[vi, vj] + 1", "A[vi, vj] + T.float32(1.0)"),
        ("2.0 * A[vi, vj]", "T.float32(2.0) * A[vi, vj]"),
        ("-1.5", "T.float32(-1.5)"),
        ("-A[vi, vj]", "T.neg(A[vi, vj])"),
        (
            "T.max(0, T.min(A[vi, vj], 6))",
            "T.max(T.float32(0.0), T.min(A[vi, vj], T.float32(6.0)))",
        ),
        (
            "1.0 if A[vi, vj] > 0 else 2",
            "T.if_then_else(A[vi, vj] > T.float32(0.0), T.float32(1.0), T.float32(2.0))",
        ),
        (
            "T.select(0 < A[vi, vj] < 1, A[vi, vj], 0)",
            "T.select(T.float32(0.0) < A[vi, vj] and A[vi, vj] < T.float32(1.0), A[vi, vj], "
            "T.float32(0.0))",
        ),
        ("T.float32(vi)", 'T.cast(vi, "float32")'),
        ("T.float32(1)", "T.float32(1.0)"),
        ('T.cast(A[vi, vj], "float32")', "A[vi, vj]"),
        ('T.cast(vi + 1, "float32")', 'T.cast(vi + 1, "float32")'),
        ("T.float32(T.int8(3) + 4)", 'T.cast(T.int8(3) + T.int8(4), "float32")'),
        ("T.exp(1 + 1.0)", "T.exp(T.float32(1.0) + T.float32(1.0))"),
        (
            "A[vi, vj] if not (vi < 2 or vj > 3) else 0.0",
            "T.if_then_else(not (vi < 2 or vj > 3), A[vi, vj], T.float32(0.0))",
        ),
        ('T.float32("-inf")', 'T.float32("-inf")'),
        ("(((A[(vi), vj])))", "A[vi, vj]"),
    ],
)  # fmt: skip
def test_numbers_take_the_type_around_them(text: str, shown: str) -> None:
    assert value(text) == shown


def test_a_float_of_another_type_is_an_error() -> None:
    for text in ("A[vi, vj] + T.float64(1.0)", "vi", "vi + 1.5", "A[vi, vj] + vi", "True"):
        with pytest.raises(ScriptError):
            value(text)


# -- blocks


def test_names_given_to_values() -> None:
    block = point("t = A[vi, vj] * 2.0", "u: T.float32 = t + t", "C[vi, vj] = u * t")
    assert len(block.reads) == 1
    assert str(block.body[0]).count("slot0") == 3


def test_a_choice_between_two_stores() -> None:
    block = point(
        "if vi < 2:", "    C[vi, vj] = A[vi, vj]", "else:", "    if vj < 3:",
        "        C[vi, vj] = 0", "    else:", "        C[vi, vj] = B[vi, vj]",
    )  # fmt: skip
    expected = point("C[vi, vj] = A[vi, vj] if vi < 2 else (0 if vj < 3 else B[vi, vj])")
    assert str(block.body[0]) == str(expected.body[0])


def test_conditions_around_blocks_are_predicates() -> None:
    func = function("""
    for i, j in T.grid(5, 8):
        if i < 4 and 0 <= j - 1 <= 5:
            with T.block("b"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(6, j - 1)
                C[vi, vj] = A[vi, vj]
    """)
    same = function("""
    for i, j in T.grid(5, 8):
        with T.block("b"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(6, j - 1)
            T.where(i < 4 and -j < 0 and j - 1 < 6)
            C[vi, vj] = A[vi, vj]
    """)
    assert [(str(p.form.to_expr()), p.bound) for p in block_of(func).predicates] == [
        (str(p.form.to_expr()), p.bound) for p in block_of(same).predicates
    ]


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("i < 3", {0, 1, 2}),
        ("i <= 3", {0, 1, 2, 3}),
        ("i > 3", {4, 5, 6, 7}),
        ("i >= 3", {3, 4, 5, 6, 7}),
        ("i == 3", {3}),
        ("3 > i", {0, 1, 2}),
        ("i * 2 < i + 3", {0, 1, 2}),
        ("1 < i <= 5 and i % 2 == 0", {2, 4}),
    ],
)
def test_predicates(text: str, points: set[int]) -> None:
    func = function(
        f"""
        for i in T.serial(8):
            with T.block("b"):
                vi = T.axis.spatial(8, i)
                T.where({text})
                S[vi] = 1
        """,
        'S: T.Buffer((8,), "int32")',
        check=False,
    )
    out = np.zeros(8, "int32")
    interp.run(func, [out])
    assert set(np.flatnonzero(out)) == points


# -- reductions


@pytest.mark.parametrize(
    ("update", "name"),
    [
        ("S[vi] = S[vi] + A[vi, vk]", "sum"),
        ("S[vi] = A[vi, vk] + S[vi]", "sum"),
        ("S[vi] += A[vi, vk] * B[vi, vk]", "sum"),
        ("S[vi] = S[vi] * A[vi, vk]", "prod"),
        ("S[vi] *= A[vi, vk]", "prod"),
        ("S[vi] = T.max(A[vi, vk], S[vi])", "max"),
        ("S[vi] = T.min(S[vi], A[vi, vk])", "min"),
    ],
)
def test_known_reducers(update: str, name: str) -> None:
    neutral = {"sum": "0", "prod": "1.0", "max": 'T.float32("-inf")', "min": 'T.float32("inf")'}
    block = rows("with T.init():", f"    S[vi] = {neutral[name]}", update)
    assert block.reducer is not None
    assert (block.reducer.name, block.init) == (name, True)
    later = rows(update)
    assert later.reducer is not None
    assert (later.reducer.name, later.init) == (name, False)
    assert [a.buffer.name for a in later.reads] == [a.buffer.name for a in block.reads]


def test_an_element_listed_in_reads_is_read() -> None:
    """Then the block is no reduction, but one that reads its own element."""
    assert rows("T.reads(S[vi], A[vi, vk])", "S[vi] = S[vi] + A[vi, vk]").reducer is None
    both = rows(
        "T.reads(S[vi], A[vi, vk])", "with T.init():", "    S[vi] = 0", "S[vi] += A[vi, vk]"
    )
    assert both.reducer is not None
    assert len(both.reads) == 1


def test_reducers_of_ones_own() -> None:
    block = rows(
        "with T.init():", "    S[vi] = 0",
        "x = S[vi]", "d = A[vi, vk] - B[vi, vk]", "y = d * d", "both = x + y",
        "S[vi] = both + x * y",
    )  # fmt: skip
    assert block.reducer is not None
    assert str(block.reducer.combine[0]) == "x + y + x * y"
    assert len(block.body) == 1
    low = rows(
        "with T.init():", "    S[vi] = -3e38", "S[vi] = T.max(S[vi], A[vi, vk])"
    )  # neutral enough, but not the maximum's own
    assert low.reducer is not None
    assert low.reducer.name == "reduce"


def test_two_sums_at_once() -> None:
    func = parse_func("""
@T.prim_func
def main(A: T.Buffer((4, 6)), S: T.Buffer((4,)), Q: T.Buffer((4,))):
    for i, k in T.grid(4, 6):
        with T.block("b"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                Q[vi] = 1
                S[vi] = 0
            S[vi] += A[vi, vk]
            Q[vi] *= A[vi, vk] * 2.0
""")
    a = np.random.default_rng(0).random((4, 6), np.float32)
    s, q = np.zeros(4, np.float32), np.zeros(4, np.float32)
    interp.run(func, [a, s, q])
    np.testing.assert_allclose(s, a.sum(1), rtol=1e-5)
    np.testing.assert_allclose(q, (2 * a).prod(1), rtol=1e-5)
    assert parse_func(func.script()).script() == func.script()


# -- functions and modules


def test_handles() -> None:
    func = parse_func("""
@T.prim_func
def main(b: T.handle, A: T.Buffer((4,), "int8"), c: T.handle):
    C = T.match_buffer(c, [4], dtype="int8")
    B = T.match_buffer(b, 4, "int8")
    for i in T.serial(0, 4):
        with T.block("b"):
            v = T.axis.remap("S", [i])
            C[v] = A[v] + B[v]
""")
    assert [b.name for b in func.params] == ["B", "A", "C"]


def test_decorated_functions_are_parsed_from_their_file() -> None:
    rows_here = np.int64(4)

    @prim_func
    def scaled(A: T.Buffer((4, 6), "float32"), out: T.Buffer((rows_here, N), "float32")):
        for i, j in T.grid(rows_here, N):
            with T.block("out"):
                vi, vj = T.axis.remap("SS", [i, j])
                out[vi, vj] = A[vi, vj] * SCALE

    assert isinstance(scaled, PrimFunc)
    assert scaled.name == "scaled"
    assert "T.float32(0.5)" in scaled.script()
    assert prim_func(scaled) is scaled
    assert parse_func(scaled.script()).script() == scaled.script()


def test_decorated_classes_are_modules() -> None:
    @ir_module
    class Module:
        @T.prim_func
        def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in T.parallel(4, annotations={"chunk": 1}):
                with T.block("B"):
                    v = T.axis.spatial(4, i)
                    T.block_attr({"streaming": True})
                    B[v] = A[v]

    assert isinstance(Module, IRModule)
    assert parse(Module.script()).script() == Module.script()
    with pytest.raises(ScriptError, match="no function decorated"):
        ir_module(int)


def test_errors_in_files_name_file_and_line() -> None:
    def wrong(A: T.Buffer((4,), "float32")):
        for i in T.serial(4):
            with T.block("B"):
                A[i] = missing

    with pytest.raises(ScriptError) as caught:
        prim_func(wrong)
    first = wrong.__code__.co_firstlineno
    assert caught.value.line == first + 3
    assert caught.value.column == 24
    message = str(caught.value)
    assert message.startswith(f"{__file__}, line {first + 3}, column 24: 'missing' is not defined")
    with pytest.raises(ScriptError, match="decorates a function, found int"):
        prim_func(3)  # type: ignore[arg-type]
    names: dict[str, object] = {}
    exec("def unknown(): pass", names)
    with pytest.raises(ScriptError, match="cannot be read"):
        prim_func(names["unknown"])  # type: ignore[arg-type]


def test_other_code_in_the_place_of_a_function_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Python 3.13 has it for what is executed within `python -c`."""
    text = "import sys; sys.path\n"
    monkeypatch.setitem(linecache.cache, "<made>", (len(text), None, [text], "<made>"))
    names: dict[str, object] = {}
    exec(compile("def unknown(): pass", "<made>", "exec"), names)
    with pytest.raises(ScriptError, match=r"unknown cannot be read \(other code"):
        prim_func(names["unknown"])  # type: ignore[arg-type]


def test_decorated_functions_are_verified() -> None:
    with pytest.raises(VerifyError, match="B\\[v \\+ 1\\]"):

        @prim_func
        def main(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
            for i in T.serial(4):
                with T.block("B"):
                    v = T.axis.spatial(4, i)
                    A[v] = B[v + 1]


def test_the_namespace_has_every_name_of_the_language() -> None:
    from autosched.script.exprs import INTRINSICS
    from autosched.script.functions import LOOPS
    from autosched.tir.dtypes import DTYPES

    names = {*INTRINSICS, *LOOPS, *DTYPES, "Buffer", "match_buffer", "handle", "alloc_buffer"}
    names |= {"func_attr", "grid", "block", "block_attr", "axis", "init", "identity", "reads"}
    names |= {"writes", "where", "cast", "prim_func", "ir_module"}
    assert not {n for n in names if not hasattr(T, n)}
    assert all(getattr(T, n).__doc__ for n in names)
    for call in (lambda: T.grid(4), lambda: T.exp(1.0), lambda: T.axis.spatial(4, 0)):
        with pytest.raises(ScriptError, match="is parsed and never run"):
            call()
    assert T.Buffer((4,)).dtype == "float32"
