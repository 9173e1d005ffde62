"""Errors: where, what was found, what was expected."""

from __future__ import annotations

import pickle
import re

import pytest

from autosched.errors import ScriptError, VerifyError
from autosched.script import Limits, parse, parse_func

HEAD = '@T.prim_func\ndef main(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4, 6), "float32")):\n'
BLOCK = """    for i, j in T.grid(4, 6):
        with T.block("b"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.spatial(6, j)
"""
STORE = "            B[vi, vj] = "


def fails(text: str, message: str, line: int = 0, under: str = "") -> None:
    """`text` raises ScriptError at `line` with `under` underlined."""
    with pytest.raises(ScriptError) as caught:
        parse(text, check=False)
    shown = str(caught.value)
    assert message in shown
    if line:
        assert caught.value.line == line
        assert f"line {line}, column {caught.value.column}: " in shown
    if under:
        _, source, carets = shown.split("\n")
        begin = carets.index("^")
        assert source[begin : begin + carets.count("^")] == under


def test_the_whole_message() -> None:
    with pytest.raises(ScriptError) as caught:
        parse(HEAD + BLOCK + STORE + "A[vi, vj] + wj\n")
    assert str(caught.value) == (
        "line 7, column 37: 'wj' is not defined; expected an element of a buffer, an axis, a "
        "number, an operator or a function of T; did you mean 'j'?\n"
        "  7 |             B[vi, vj] = A[vi, vj] + wj\n"
        "    |                                     ^^"
    )
    assert (caught.value.line, caught.value.column) == (7, 37)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.line) == (str(caught.value), 7)


VALUES = [
    ("A[vi]", "A has 2 dimensions (4, 6); found 1 indices", "A[vi]"),
    ("A[vi, 0:2]", "expected one index a dimension", "vi, 0:2"),
    ("A", "A is a buffer, which is no value; expected A[...]", "A"),
    ("vi[0]", "vi is an axis; expected a buffer before [", "vi"),
    ("exp(A[vi, vj])", "expected a function of T, such as T.exp; did you mean T.exp?", "exp"),
    ("T.expp(A[vi, vj])", "T.expp is no function of values", "T.expp"),
    ("T.exp(A[vi, vj], 1)", "T.exp takes 1 arguments by position", "T.exp(A[vi, vj], 1)"),
    ("T.exp(x=A[vi, vj])", "T.exp takes 1 arguments", ""),
    ("T.exp(vi)", "exp is not defined on int64", "T.exp(vi)"),
    ("A[vi, vj] + vi", "operands of + have dtypes float32 and int64", "A[vi, vj] + vi"),
    ("A[vi, vj] @ 1", "MatMult is no operator; expected one of", ""),
    ("A[vi, vj] in B", "In is no comparison", ""),
    ("A[vi, vj] << 1", "<< is not defined on float32; expected integers", ""),
    ("~A[vi, vj]", "bitwise_not is not defined on float32", ""),
    ("vi", "B holds float32, found int64", "vi"),
    ("vi < 2", "B holds float32, found bool", "vi < 2"),
    ("vi and vj", "expected a condition, found a value of dtype int64", "vi"),
    ("1.0 if vi else 2.0", "expected a condition", "vi"),
    ("T.int8(300) + vi", "constant 300 does not fit int8", "300"),
    ("T.int8(1.5)", "1.5 is no int8", "1.5"),
    ('T.int8("inf")', "takes a number, found a string", '"inf"'),
    ('T.float32("x")', 'expected "inf", "-inf" or "nan"', '"x"'),
    ('T.cast(vi, "float8")', "unknown dtype 'float8'; expected one of float16", '"float8"'),
    ("T.cast(vi)", "T.cast needs the argument dtype", ""),
    ('T.cast(vi, "int8", 3)', "T.cast takes no more arguments", "3"),
    ("A[vi, T.float32(1)]", "an index is int64, found float32", "T.float32(1)"),
    ("[1, 2]", "List is no part of an expression", "[1, 2]"),
    ('"text"', "expected a number, found str", '"text"'),
    ("1j", "expected a number, found complex", "1j"),
    ("99999999999999999999", "an integer beyond 64 bits", "99999999999999999999"),
    ("A[A[vi, vj], 0]", "an index is int64, found float32", "A[vi, vj]"),
    ("[x for x in y]", "ListComp is no part of an expression", ""),
    ("(x := 1)", "NamedExpr is no part", ""),
]


@pytest.mark.parametrize(("text", "message", "under"), VALUES, ids=[v[0] for v in VALUES])
def test_values(text: str, message: str, under: str) -> None:
    fails(HEAD + BLOCK + STORE + text + "\n", message, 7, under)


BLOCKS = [
    ("pass", "the block stores nothing"),
    ("B[vi, vj] = 1\nB[vi, vj] = 2", "stored twice"),
    ("x = 1\nvk = T.axis.spatial(4, i)", "axes come before"),
    ("vk = T.axis.spatial(4)", "T.axis.spatial needs the argument binding"),
    ("vk = T.axis.spatial(0, i)", "an axis' extent is a constant integer from 1 up"),
    ("vk = T.axis.spatial(vi, i)", "an axis' extent is a constant integer"),
    ("vk = T.axis.spatial(4, vi)", "vi is an axis; the binding in T.axis.spatial is made of loop"),
    ("vk = T.axis.spatial(4, i * j)", "the binding in T.axis.spatial must be affine"),
    ("vk = T.axis.spatial(4, A[i, j])", "made of loop variables, not of elements"),
    ("vk = T.axis.spatial(4, k)", "'k' is not defined"),
    ("vk = T.axis.other(4, i)", "unknown axis 'other'"),
    ("vi = T.axis.spatial(4, i)", "'vi' is defined already"),
    ("i = T.axis.spatial(4, i)", "'i' is defined already"),
    ("T = T.axis.spatial(4, i)", "T is the namespace"),
    ('vk = T.axis.remap("SS", [i])', "names 1 axes with 2 kinds and 1 loops"),
    ('vk = T.axis.remap("X", [i])', "unknown kind 'X'"),
    ('vk = T.axis.remap("S", [i + 1])', "expected a loop variable"),
    ("T.where(i)", "T.where is a comparison of loop variables"),
    ("T.where(i < 2 or j < 3)", "T.where is a comparison of loop variables"),
    ("T.where(i != 2)", "NotEq cannot be a predicate"),
    ("T.where(vi < 2)", "vi is an axis; T.where is made of loop variables"),
    ("T.reads(A)", "expected an element of a buffer"),
    ("T.reads(A[vi, vj])\nT.reads(A[vi, vj])", "T.reads stands twice"),
    ("T.reads()\nB[vi, vj] = A[vi, vj]", "A[vi, vj] is read, but T.reads does not list it"),
    ("T.reads(A[vi, vj])\nB[vi, vj] = A[vi, vj + 0 * vi - 1 + 2]", "is read, but T.reads"),
    ("T.writes(A[vi, vj])\nB[vi, vj] = 1", "T.writes lists A[vi, vj], which is not stored"),
    ("T.writes()\nB[vi, vj] = 1", "T.writes does not list all"),
    ("T.block_attr([1])", "annotations are a dict"),
    ("T.block_attr({1: 2})", "a key of annotations is a string"),
    ("T.block_attr({'a': vi})", "expected a literal"),
    ("T.block_attr({'a': b'x'})", "a string with the prefix 'b'"),
    ("T.block_attr({'a': float('1')})", 'expected "inf", "-inf" or "nan"'),
    ("T.other(1)", "expected axes"),
    ("return 1", "expected axes"),
    ("import os", "expected axes"),
    ("B[vi, vj] /= 2", "or A[i] +=, -= or *= value"),
    ("x, y = 1, 2", "expected a name, or an element of a buffer"),
    ("B[vi, vj] = C[vi, vj] = 1", "expected axes"),
    ('with T.other("inner"):\n    B[vi, vj] = 1', "expected T.init() or T.identity()"),
    ("with T.let(x, vi):\n    B[vi, vj] = x", "name the value inside the block, x = value"),
    ("if vi < 2:\n    B[vi, vj] = 1", "one in each branch"),
    ("if vi < 2:\n    B[vi, vj] = 1\nelse:\n    B[vi, 0] = 1", "must store to the same element"),
    ("B[vi, vj] = A[vi, vj]\nA[vi, vj] = B[vi, vj]", "B is read after the block has stored to it"),
    ("with T.init():\n    B[vi, vj] = 0\nB[vi, vj] = A[vi, vj]", "a reduction combines"),
    ("with T.init():\n    B[vi, vj] = 1\nB[vi, vj] += A[vi, vj]", "identity of reducer reduce is"),
    ("with T.init():\n    B[vi, vj] = vi\nB[vi, vj] += A[vi, vj]", "an identity is a constant"),
    (
        "with T.init():\n    B[vi, vj] = 5.0\nB[vi, vj] += A[vi, vj]",
        "to begin with another value, store that in a block before",
    ),
    ("with T.init():\n    B[vi, 0] = 0\nB[vi, vj] += A[vi, vj]", "the identity of B[vi, vj] is"),
    ("with T.init():\n    pass\nB[vi, vj] += A[vi, vj]", "expected a store"),
    ("with T.init(1):\n    B[vi, vj] = 0\nB[vi, vj] += 1", "T.init takes no arguments"),
    (
        "with T.init():\n    B[vi, vj] = 0\nx = B[vi, vj]\nB[vi, vj] = x * A[vi, vj]",
        "a combination is made of the names",
    ),
    ("with T.init():\n    B[vi, vj] = 0\nx = B[vi, vj]\nB[vi, vj] = x * 2", "with 0 new values"),
    (
        "with T.init():\n    B[vi, vj] = 0\nx = B[vi, vj]\ny = vi\nB[vi, vj] = x",
        "B holds float32, found int64",
    ),
]


@pytest.mark.parametrize(("statements", "message"), BLOCKS, ids=[b[0][:40] for b in BLOCKS])
def test_blocks(statements: str, message: str) -> None:
    lines = "".join(f"            {x}\n" for x in statements.split("\n"))
    fails(HEAD + BLOCK + lines, message)


FUNCTIONS = [
    ("", "the script has no function"),
    ("x = 1", "expected @T.prim_func and a function"),
    ("def main(): pass", "expected the decorator @T.prim_func"),
    ("@other\ndef main(): pass", "expected the decorator @T.prim_func"),
    ("@T.prim_func\n@T.prim_func\ndef main(): pass", "and no other"),
    ("@T.prim_func\ndef main(A): pass", "parameter A needs a type"),
    ("@T.prim_func\ndef main(A: int): pass", "parameter A needs a type"),
    ("@T.prim_func\ndef main(A: T.Buffer((4,)) = 1): pass", "expected plain parameters"),
    ("@T.prim_func\ndef main(*A: T.Buffer((4,))): pass", "expected plain parameters"),
    ("@T.prim_func\ndef main(A: T.handle): pass", "no T.match_buffer describes the handle A"),
    ("@T.prim_func\ndef main(A: T.Buffer((4,), 'f')): pass", "unknown dtype 'f'"),
    ("@T.prim_func\ndef main(A: T.Buffer((0,))): pass", "constant integer from 1 up"),
    ("@T.prim_func\ndef main(A: T.Buffer((n,))): pass", "'n' is not defined"),
    ("@T.prim_func\ndef main(A: T.Buffer((2**3,))): pass", "there is no operator **"),
    ("@T.prim_func\ndef main(A: T.Buffer((1 << 62,))): pass", "at most 1099511627776 are"),
    (
        "@T.prim_func\ndef main(A: T.Buffer((4611686018427387904, 2))): pass",
        "at most 1099511627776 are",
    ),
    ("@T.prim_func\ndef main(A: T.Buffer(())):\n    x = 1", "expected a loop"),
    ("@T.prim_func\ndef main(T: T.Buffer(())):\n    pass", "T is the namespace"),
    ("@T.prim_func\ndef main(A: T.Buffer((4,))):\n    A = T.alloc_buffer((4,))", "'A' is defined"),
    ("@T.prim_func\ndef main():\n    for i in T.serial(4):\n        pass", "no block inside"),
    ("@T.prim_func\ndef main():\n    for i in [1]:\n        pass", "expected T.grid"),
    ("@T.prim_func\ndef main():\n    for i in T.grid(4, 4):\n        pass", "2 extents for 1"),
    ("@T.prim_func\ndef main():\n    for i, j in T.serial(4):\n        pass", "expected one name"),
    ("@T.prim_func\ndef main():\n    for i in T.serial(1, 4):\n        pass", "loops start at 0"),
    ("@T.prim_func\ndef main():\n    for i in T.thread_binding(4):\n        pass", "needs thread="),
    ("@T.prim_func\ndef main():\n    while True:\n        pass", "expected a loop"),
    (
        "@T.prim_func\ndef main():\n    if 1 < 2:\n        pass\n    else:\n        pass",
        "no `else`",
    ),
    ("@T.prim_func\ndef main():\n    with open('x'):\n        pass", 'expected T.block("name")'),
    (
        '@T.prim_func\ndef main(A: T.Buffer[(128,), "float32"]): pass',
        "T.Buffer takes parentheses; write T.Buffer((128,), 'float32')",
    ),
    (
        '@T.prim_func\ndef main():\n    with T.block("root"):\n        for i in T.grid(4): pass',
        "the root block is not written here",
    ),
    ("@T.prim_func\ndef main():\n    with T.let(x, 1):\n        pass", "name the value"),
    ("@T.prim_func\ndef main():\n    with T.block():\n        pass", "needs the argument name"),
    ("@T.prim_func\ndef main(): pass\n@T.prim_func\ndef main(): pass", "two functions are named"),
    ("@T.ir_module\nclass M(B):\n    pass", "no base classes"),
    ("@T.ir_module\nclass M:\n    x = 1", "expected @T.prim_func and a function"),
    ("@T.ir_module\nclass M:\n    pass\n@T.ir_module\nclass N:\n    pass", "expected one module"),
    ("async def main(): pass", "'async' is no part of a script"),
    ("@T.prim_func\ndef main(A: T.Buffer((4,)):\n    pass", "no Python syntax"),
    ("@T.prim_func\n  def main(): pass", "no Python syntax: unexpected indent"),
]


@pytest.mark.parametrize(("text", "message"), FUNCTIONS, ids=[f[0][:60] for f in FUNCTIONS])
def test_functions(text: str, message: str) -> None:
    fails(text, message)


def test_columns_are_counted_in_characters_and_long_lines_are_cut() -> None:
    fails(HEAD + BLOCK + STORE + '"é" + x\n', "expected a number, found str", 7, '"é"')
    long = " + ".join(["A[vi, vj]"] * 30)
    fails(HEAD + BLOCK + STORE + f"{long} + nothing + {long}\n", "'nothing' is not", 7, "nothing")


def test_line_ends_of_every_kind() -> None:
    text = (HEAD + BLOCK + STORE + "A[vi, vj]\n").replace("\n", "\r\n")
    assert parse_func(text).name == "main"
    fails(text.replace("A[vi, vj]\r", "A[vi, x]\r"), "'x' is not defined", 7, "x")


def test_a_text_is_needed() -> None:
    with pytest.raises(ScriptError, match="a script is a string, found bytes"):
        parse(b"")  # type: ignore[arg-type]
    two = (HEAD + "    pass\n") + (HEAD + "    pass\n").replace("main", "other")
    with pytest.raises(ScriptError, match="expected one function, found main, other"):
        parse_func(two, check=False)


def test_programs_that_break_rules_are_refused() -> None:
    text = HEAD + BLOCK + STORE + "A[vi, vj + 1]\n"
    with pytest.raises(VerifyError, match=r"index 1, vj \+ 1, reaches 1..6") as caught:
        parse(text)
    assert "line 4, column 9: bounds: block 'b' reads" in str(caught.value)
    assert parse_func(text, check=False).name == "main"


def test_limits() -> None:
    text = HEAD + BLOCK + STORE + "A[vi, vj]\n"
    for limits, message in (
        (Limits(characters=100), "characters; at most 100"),
        (Limits(nodes=20), "more than 20 nodes"),
        (Limits(depth=1), "brackets nest more than 1 deep"),
        (Limits(blocks=0), "more than 0 blocks"),
        (Limits(bytes=100), "with B the buffers have 192 bytes; at most 100 are allowed"),
    ):
        padded = text + "    " + "\n    ".join(["pass"] * 2000) + "\n"
        with pytest.raises(ScriptError, match=message):
            parse(padded if "nodes" in message else text, limits=limits)


def nested_loops(count: int) -> str:
    return "".join(" " * (n + 4) + f"for i{n} in T.serial(1):\n" for n in range(count))


def doubling_names(count: int) -> str:
    """Each name stands for twice as much as the one before."""
    values = ["A[vi, vj]", *(f"x{n} + x{n}" for n in range(count))]
    return "".join(f"            x{n} = {v}\n" for n, v in enumerate(values))


WIDE = "A[vi, vj] + "
HOSTILE = {
    "brackets": STORE + "(" * 5000 + "1" + ")" * 5000,
    "signs": STORE + "-" * 100_000 + "1",
    "nots": STORE + "not " * 100_000 + "vi",
    "sum": STORE + WIDE * 300 + "1.0",
    "long sum": STORE + WIDE * 50_000 + "1.0",
    "attributes": STORE + "T" + ".a" * 50_000,
    "subscripts": STORE + "A" + "[0]" * 50_000,
    "calls": STORE + "T.exp" + "()" * 50_000,
    "choices": STORE + "1.0 if vi < 1 else " * 5000 + "1.0",
    "comparisons": STORE + "1 < " * 50_000 + "1",
    "conditions": STORE + "vi < 1 and " * 20_000 + "vi < 1",
    "names": doubling_names(64) + STORE + "x63",
    "digits": STORE + "1" * 5000,
    "hexadecimal": STORE + "0x" + "f" * 50_000,
    "number and keyword": STORE + "1if vi else 2",
    "sum beyond 64 bits": STORE + "A[vi + 9223372036854775807 + 1, vj]",
    "surrogate": STORE + "A[vi, '\ud800']",
    "nul": STORE + "A[vi, \0]",
    "byte order mark": "\ufeff",
    "many stores": "".join(f"            B[vi, {n}] = 1.0\n" for n in range(40)),
    "generator": STORE + "T.max(x for x in A)",
    "import": STORE + "__import__('os').system('true')",
    "attribute of the namespace": STORE + "T.__class__(1.0)",
    "call of itself": STORE + "main(A, B)",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values(name: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse(HEAD + BLOCK + HOSTILE[name] + "\n")
    assert caught.value.line > 0
    assert f"line {caught.value.line}, column {caught.value.column}: " in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_hostile_functions() -> None:
    many = ", ".join(f"i{n}" for n in range(3000))
    fails(HEAD + nested_loops(99), "no Python syntax: expected an indented block")
    fails(HEAD + nested_loops(120) + " " * 130 + "pass\n", "too many levels of indentation")
    fails(HEAD + f"    for {many} in T.grid({many.replace('i', '1')}):\n        pass\n", "100 deep")
    fails(HEAD + "    T.func_attr(" + "{'a': " * 500 + "1" + "}" * 500 + ")\n", "brackets nest")
    fails(HEAD + "    T.func_attr({'a': 1, 'a': 2})\n", "have the key 'a' twice", 3, "'a'")
    fails(HEAD.replace("(4, 6)", "(4.0, 6)") + "    pass\n", "constant integer from 1 up", 2, "4.0")
    fails("", "has no function", 1)
    fails("#" * 2_000_000, "at most 1048576 are read", 1)


def test_attributes_that_mean_nothing_are_refused() -> None:
    body = BLOCK + STORE + "A[vi, vj]\n"
    parse(HEAD + '    T.func_attr({"layout_free": ("A",), "FLOP": 24})\n' + body)
    for attrs in ('{"layout_free": 3}', '{"layout_free": ("Z",)}', '{"é": 1, "FLOP": "x"}'):
        column = 34 if "FLOP" in attrs else 33
        with pytest.raises(VerifyError, match=f"line 3, column {column}: attributes: "):
            parse(HEAD + f"    T.func_attr({attrs})\n" + body)


@pytest.mark.parametrize(
    "align", ["1", "((0, 8),)", "((0, 0, 0),)", '((0, "8", 1),)', "((0, -8, 1),)"]
)
def test_align_that_is_none(align: str) -> None:
    text = HEAD + f'    C = T.alloc_buffer((4, 6), "float32", align={align})\n'
    fails(text + BLOCK + STORE + "A[vi, vj]\n", "align is a tuple of (axis, factor, offset)", 3)


@pytest.mark.parametrize(
    "align", ["((1, 8, 1),)", "((0, 8, 8),)", "((0, 8, -1),)", "((0, 8, 1), (0, 4, 0))"]
)
def test_align_that_no_buffer_has(align: str) -> None:
    """A last axis, an offset out of range, one axis twice."""
    text = HEAD + f'    C = T.alloc_buffer((4, 6), "float32", align={align})\n'
    text += BLOCK.replace('"b"', '"c"') + "            C[vi, vj] = A[vi, vj]\n"
    with pytest.raises(VerifyError, match="C has align"):
        parse(text + BLOCK + STORE + "C[vi, vj]\n")


def test_align_beyond_memory() -> None:
    text = HEAD + '    C = T.alloc_buffer((4, 6), "float32", align=((0, 1 << 62, 1),))\n'
    text = text.replace("1 << 62", str(1 << 62))
    fails(text + BLOCK + STORE + "A[vi, vj]\n", "at most 1099511627776 are allowed")


@pytest.mark.parametrize("value", ["a\\import", "\\\\i", "a\\", "\n\\N", "\"\\i'"])
def test_backslashes_come_back(value: str) -> None:
    body = BLOCK + STORE + "A[vi, vj]\n"
    func = parse_func(HEAD + f"    T.func_attr({{'note': {value!r}}})\n" + body)
    assert func.attr("note") == value
    assert parse_func(func.script()).attr("note") == value


@pytest.mark.parametrize("text", [r"'\i'", r"'\\\i'", r"'\N{DASH}'", r"'\xg0'"])
def test_escapes_that_none_are(text: str) -> None:
    fails(HEAD + f"    T.func_attr({{'note': {text}}})\n", "unknown escape in a string: \\", 3)


@pytest.mark.parametrize(
    ("loop", "block", "message"),
    [
        ('"chunk": "x"', "", "loop 'i': chunk is iterations of a parallel loop"),
        ('"chunk": -5', "", "at a time; found -5"),
        ('"chunk": 0', "", "at a time; found 0"),
        ('"chunk": 9223372036854775807', "", "found 9223372036854775807"),
        ('"streaming": True', "", "a loop has no key 'streaming' (it is one of a block)"),
        ('"tensorize": 3', "", "a loop has no key 'tensorize'"),
        ("", '"streaming": 1', "block 'b': streaming is whether"),
        ("", '"FLOP": "x"', "block 'b': FLOP is the number of operations"),
        (
            "",
            '"chunks": 1',
            "block 'b': a block has no key 'chunks'; did you mean 'chunk'?",
        ),
    ],
)
def test_annotations_that_mean_nothing_are_refused(loop: str, block: str, message: str) -> None:
    text = HEAD.replace("(4, 6)", "(4,)") + (
        f"    for i in T.parallel(4, annotations={{{loop}}}):\n"
        '        with T.block("b"):\n'
        "            vi = T.axis.spatial(4, i)\n"
        f"            T.block_attr({{{block}}})\n"
        "            B[vi] = A[vi]\n"
    )
    with pytest.raises(VerifyError, match=re.escape(message)):
        parse(text)


def test_annotations_that_mean_something() -> None:
    text = HEAD.replace("(4, 6)", "(4,)") + (
        '    for i in T.parallel(4, annotations={"chunk": 2, "auto_scheduler_x": "y"}):\n'
        '        with T.block("b"):\n'
        "            vi = T.axis.spatial(4, i)\n"
        '            T.block_attr({"FLOP": 1, "streaming": True, "auto_scheduler_y": [1]})\n'
        "            B[vi] = A[vi]\n"
    )
    assert parse_func(parse_func(text).script()).script() == parse_func(text).script()


@pytest.mark.parametrize("thread", ["foo", "", "threadIdx.w"])
def test_threads_that_no_gpu_has(thread: str) -> None:
    nest = f'    for i in T.thread_binding(4, thread="{thread}"):\n        for j in range(6):\n'
    block = "".join(f"    {line}\n" for line in BLOCK.split("\n")[1:-1])
    text = HEAD + nest + block + "    " + STORE + "A[vi, vj]\n"
    with pytest.raises(VerifyError, match=f"loop 'i' has thread axis '{thread}'; expected one of"):
        parse(text)
    parse(text.replace(f'"{thread}"', '"threadIdx.x"'))
