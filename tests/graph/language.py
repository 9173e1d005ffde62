"""Modules of the graph level: of a few calls, or from short texts; its values as Python's."""

from __future__ import annotations

from autosched import graph
from autosched.graph import nn, op
from autosched.graph.values import Tagged
from autosched.script import parse

SCALAR = 'G.Tensor((), "int32")'


def module(body: str, head: str = ""):
    """The module of definitions, which are indented by four columns."""
    lines = "\n".join(f"    {line}" for line in (head + body).strip("\n").split("\n"))
    mod = parse(f"@G.module\nclass M:\n{lines}\n")
    assert parse(mod.script()).same(mod)
    assert parse(mod.script()).script() == mod.script()
    assert graph.check(mod).same(mod)
    return mod


def value(x):
    """Lists as lists, arrays as numbers."""
    if isinstance(x, Tagged) and x.constructor in ("Cons", "Nil"):
        return [value(i) for i in graph.from_list(x)]
    if isinstance(x, Tagged):
        return (x.constructor, *map(value, x.fields))
    if isinstance(x, tuple):
        return tuple(map(value, x))
    return x.tolist()


def program(text: str):
    """A module from the short form of the table."""
    lines = []
    for line in text.strip("\n").split("\n"):
        params, mark, rest = line.partition("::def ")
        if mark:
            line = "def " + rest
        if line.startswith("def "):
            lines.append(f'@G.function("{params}")' if mark else "@G.function")
        lines.append(line.replace("[S]", f"[{SCALAR}]").replace(": S", f": {SCALAR}")
                     .replace("[S, S]", f"[{SCALAR}, {SCALAR}]").replace("-> S:", f"-> {SCALAR}:")
                     if "S: (Nat" not in line else line)  # fmt: skip
    return module("\n".join(lines))


def dense_twice():
    """The sum of a value with itself, which is computed once."""
    x, w = graph.var("x", (1, 64), "float32"), graph.var("w", (32, 64), "float32")
    a = op.relu(nn.dense(x, w))
    return graph.module(main=graph.function([x, w], op.add(a, a)))
