"""Programs that are refused, each with the message that says why and where."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph
from autosched.errors import ScriptError, WorkloadError
from autosched.script import parse

DATA = """
    @G.data("A")
    class List:
        Cons: (A, List[A])
        Nil: ()
    @G.function("A, B")
    def map(f: G.Fn[[A], B], xs: List[A]) -> List[B]:
        match xs:
            case Cons(x, rest):
                return Cons(f(x), map(f, rest))
            case Nil():
                return Nil()
    @G.function("s: Shape")
    def both(x: G.Tensor(s, "float32"), y: G.Tensor(s, "float32")) -> G.Tensor(s, "float32"):
        return x + y
    @G.function("n: ShapeVar")
    def rows(x: G.Tensor((n,), "float32")) -> G.Tensor((n,), "float32"):
        return op.exp(x)
    @G.function("s: Shape")
    def doubled(x: G.Tensor(s, "float32")) -> G.Tensor(s, "float32"):
        return op.concat(x, x, axis=0)
    @G.function
    def add1(x: G.Tensor((), "int32")) -> G.Tensor((), "int32"):
        return x + 1
"""
BODIES = {
    "an argument of another type": "return add1(1.5)",
    "an argument bound elsewhere": "y = op.exp(G.const([1.0, 2.0]))\nreturn add1(y)",
    "a tensor for a list": "return map(add1, 3)",
    "an item of another type": "return Cons(1, Cons(G.const([1.0]), Nil()))",
    "a function of another item": "return map(add1, Cons(G.const([1.0]), Nil()))",
    "the result of a function value": "f = lambda x: (x, x)\ny: G.Tensor((), 'int32') = f(1)\n"
        "return y",
    "too few arguments": "return map(add1)",
    "too many fields": "return Cons(1, 2, Nil())",
    "a call of no function": "x = op.exp(1.0)\nreturn x(1)",
    "branches of two types": "c = 1 == 1\nreturn (1, 2) if c else 1",
    "branches of two dtypes": "c = 1 == 1\nx = op.exp(1.0)\ny = add1(1)\nreturn x if c else y",
    "a condition that is none": "return 1 if add1(2) else 2",
    "a condition of several values": "c = G.const([1, 2]) == 1\nreturn 1 if c else 2",
    "shapes that do not fit": "x = G.const([1.0, 2.0, 3.0])\ny = G.const([1.0, 2.0])\nreturn x + y",
    "dtypes that do not fit": "x = G.const([1.0, 2.0])\ny = G.const([1, 2])\nreturn x + y",
    "an operator on a list": "return op.exp(Nil())",
    "an operator on a function": "return op.exp(add1)",
    "an operator on a tuple": "t = (1, 2)\nreturn t + t",
    "a part that there is not": "t = (1, 2)\nreturn t[2]",
    "a part of no tuple": "x = add1(1)\nreturn x[0]",
    "too many names for a tuple": "t = (1, 2)\na, b, c = t\nreturn a",
    "a missing case": "match Cons(1, Nil()):\n    case Cons(x, _):\n        return x",
    "missing nested cases": "match (Cons(1, Nil()), Cons(1, Nil())):\n"
        "    case (Nil(), Cons(x, _)):\n"
    "        return x\n    case (Cons(_, Nil()), _):\n        return 2",
    "a pattern of another type": "match 1:\n    case Cons(x, _):\n        return x\n"
        "    case _:\n        return 1",
    "a field too many in a pattern": "match Nil():\n    case Cons(x, y, z):\n        return x",
    "a constructor as a variable": "match Cons(1, Nil()):\n    case Nil:\n        return 1",
    "a constructor that there is not": "match Cons(1, Nil()):\n    case Empty():\n        return 1",
    "a variable twice in a pattern": "match Cons(1, Nil()):\n    case Cons(x, x):\n"
        "        return x",
    "cases of two types": "match Cons(1, Nil()):\n    case Cons(x, _):\n        return x\n"
    "    case Nil():\n        return Nil()",
    "a name that is not bound": "return nothing + 1",
    "a use before the definition": "y = x\nx = 1\nreturn y",
    "the stated type": "x: G.Tensor((2,), 'float32') = add1(1)\nreturn x",
    "a type that there is not": "x: Vector = add1(1)\nreturn x",
    "a data type without its arguments": "x: List = Nil()\nreturn x",
    "a parameter of which nothing is known": "f = lambda x: x\nreturn 1",
    "a type inside of itself": "def f(x):\n    return f\nreturn f(1)",
    "a function on itself": "f = lambda g: g(g)\nreturn 1",
    "type arguments": "return map[G.Tensor((), 'int32')](add1, Nil())",
    "a truth value for a number": "return add1(1 == 1)",
    "a value after return": "return 1\nreturn 2",
    "no return": "x = 1",
    "branches that both go on": "if 1 == 1:\n    if 1 == 2:\n        return 1\n    x = 2\n"
        "else:\n    x = 1\n" * 6 + "return x",
    "an operator that there is not": "return op.squash(1.0)",
    "an attribute that there is not": "return op.relu(1.0, slope=2)",
    "arguments by name": "return add1(x=1)",
    "a loop": "for i in range(3):\n    x = i\nreturn 1",
    "a number from another line": "a = 1.5\nreturn add1(a)",
    "a stated type that a number has not": "x: int32 = 1.5\nreturn x",
    "a stated type that a function has not": "f: G.Fn[[float32], int32] = add1\nreturn 1",
    "a name that one branch gives": "if 1 == 1:\n    y = 1\nelse:\n    z = 2\nreturn y",
    "an operator of another library": "return op.multiply(1, 2)",
    "an operator that is nearly there": "return op.rellu(1.0)",
    "too many inputs": "return op.add(1, 2, 3)",
    "an input by name": "return op.relu(x=add1(1))",
    "a function of another library": "return np.exp(1.0)",
    "a value that nothing uses": "op.exp(1.0)\nreturn 1",
    "tensors of two shapes for one": "return both(G.const([1.0]), G.const([1.0, 2.0]))",
    "a shape argument that does not fit": "return rows[3](G.const([1.0, 2.0]))",
    "a dtype for a shape": "return both['float32'](1.0, 1.0)",
    "a result of another shape": "return doubled(G.const([1.0]))",
    "a shape as a type": "x: s = 1\nreturn x",
    "a name as a shape": "x: G.Tensor(n, 'float32') = add1(1)\nreturn x",
    "a type that grows": "x = (1, 1)\n" + "x = (x, x)\n" * 20 + "return x",
}  # fmt: skip
"""The body of `main`, with what DATA has around."""


def test_ill_typed_programs(golden):
    texts = []
    for name, body in BODIES.items():
        lines = "\n".join(f"        {line}" for line in body.split("\n"))
        text = f"@G.module\nclass M:{DATA}    @G.function\n    def main():\n{lines}\n"
        with pytest.raises(ScriptError) as e:
            parse(text)
        texts.append(f"# {name}\n{e.value}\n")
    golden("ill_typed", "\n".join(texts))
    assert len(texts) >= 60


def test_declarations_that_are_refused():
    for text, message in [
        ("@G.data\nclass T:\n    Cons: ()\n@G.data\nclass U:\n"
            "    Cons: ()", "two definitions are named Cons"),
        ("@G.data\nclass T:\n    f: ()\n@G.function\n"
            "def f(): return 1", "two definitions are named f"),
        ('@G.data("A, A")\nclass T:\n    X: (A,)', "names of type parameters"),
        ("@G.data\nclass T:\n    X: (B,)", "no type is named B"),
        ("@G.data\nclass T:\n    x = 1", "expected a constructor"),
        ("@G.function\ndef f(x: t) -> t: return x", "no type is named t; type parameters"),
        ('@G.function("t")\ndef f(x: t) -> t: return 1', "declared"),
        ("@G.function\n"
            "def f(x, x): return 1", "argument 'x' in function definition|two parameters"),
        ("@G.function\ndef f(*x): return 1", "expected plain parameters"),
        ("@G.function\ndef f(x): return f", "f: the result"),
        ('@G.function("s: Size")\ndef f(x): return x', "no kind is named Size; expected"),
        ('@G.function("s: Shape")\ndef f(x: s): return x', "declared as of kind Shape"),
        ('@G.function("s")\ndef f(x: G.Tensor(s, "int8")): return x', "by @G.function..s: Shape"),
        ('@G.function("n")\ndef f(x: G.Tensor((n,), "int8")): return x', "by @G.function..n: Sha"),
        ('@G.data("s: Shape")\nclass T:\n    X: (A,)', "of a data type are types"),
    ]:  # fmt: skip
        lines = "\n".join(f"    {line}" for line in text.split("\n"))
        with pytest.raises(ScriptError, match=message):
            parse(f"@G.module\nclass M:\n{lines}\n")


@pytest.mark.parametrize(
    ("dtype", "text", "number"),
    [
        ("uint8", "n + 300", "300"),
        ("uint8", "n > -1", "-1"),
        ("float16", "n + 1e6", "1000000.0"),
        ("uint8", "n + G.const([1, 300], 'uint8')", "300"),
        ("int32", "n + G.const(1.5, 'int32')", "1.5"),
    ],
)
def test_a_number_that_its_dtype_does_not_have_is_refused(dtype, text, number):
    program = f"@G.module\nclass M:\n    @G.function\n    def main(n: G.Tensor((), '{dtype}')):\n"
    with pytest.raises(ScriptError, match=f"line 5.*the number {number} is no value of {dtype}"):
        parse(f"{program}        return {text}\n")


@pytest.mark.parametrize(("value", "dtype"), [(300, "uint8"), (1.5, "uint8"), (1e6, "float16")])
def test_a_number_of_a_call_is_refused_likewise(value, dtype):
    x = graph.var("x", (), dtype)
    for make in (lambda: x + value, lambda: graph.const([value], dtype)):
        with pytest.raises(WorkloadError, match=f"the number {value} is no value of {dtype}"):
            make()
    assert graph.const(0.1, "float16").value == np.float16(0.1)
    assert graph.const(np.inf, "float16").value == np.inf


def test_plain_numbers_beside_conditions_and_as_indices():
    x = graph.var("x", (3,))
    rows = graph.op.where(graph.op.greater(x, 0), x, -1e9)
    made = graph.module(main=graph.function([x], [rows, graph.op.gather(x, 1)]))
    a = np.array([1, -2, 3], "f4")
    first, second = graph.evaluate(made, "main", a)
    np.testing.assert_array_equal(first, np.where(a > 0, a, np.float32(-1e9)))
    assert second == -2
