"""Random well-typed programs of the graph language, which are programs of Python as well."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from autosched import graph

INTS, FLOATS = ": int32", ': G.Tensor((3,), "float32")'
LIST = ": List[int32]"
HEAD = """
@G.module
class M:
    from prelude import map, foldl, foldr
    @G.function
    def twice(f, x):
        return f(f(x))
    @G.function
    def count(n: int32, total: int32):
        if n <= 0:
            return total
        return count(n - 1, total + n)
    @G.function("s: Shape")
    def same(x: G.Tensor(s, "float32"), y: G.Tensor(s, "float32")) -> G.Tensor(s, "float32"):
        return x + y * y
"""


@dataclass
class Cons:
    """An item and the rest."""

    head: Any
    tail: Any
    __match_args__ = ("head", "tail")


class Nil:
    """The list without items."""


class G:
    """What the text says of types, in Python."""

    Fn: ClassVar[Any] = {}

    class Tensor:
        """A type."""

        def __init__(self, shape: Any, dtype: str) -> None: ...

    @staticmethod
    def const(values: Any) -> Any:
        """An array."""
        return np.array(values, "float32")


def foldl(f, start, xs):
    while isinstance(xs, Cons):
        start, xs = f(start, xs.head), xs.tail
    return start


def foldr(f, end, xs):
    return end if isinstance(xs, Nil) else f(xs.head, foldr(f, end, xs.tail))


def map_(f, xs):
    return Nil() if isinstance(xs, Nil) else Cons(f(xs.head), map_(f, xs.tail))


def count(n, total):
    while n > 0:
        n, total = n - 1, total + n
    return total


IN_PYTHON = {
    "G": G, "Cons": Cons, "Nil": Nil, "foldl": foldl, "foldr": foldr, "map": map_, "count": count,
    "twice": lambda f, x: f(f(x)), "same": lambda x, y: x + y * y, "int32": None,
}  # fmt: skip


class Seeded:
    """Choices by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        return low + int(self.random.random() * (high - low + 1))


INT, ARRAY, BOOL = "int", "array", "bool"


def pair(a, b):
    return ("pair", a, b)


def lists(a):
    return ("list", a)


def fn(a, b):
    return ("fn", a, b)


class Chooser(Protocol):
    """What a program is drawn by."""

    def number(self, low: int, high: int) -> int:
        """A number in [low, high]."""
        ...


class Program:
    """Draws the body of a function of p, q and s: statements that bind, and an expression of a type
    at the end."""

    def __init__(self, chooser):
        self.number, self.names = chooser.number, itertools.count()
        self.inside = 0
        self.scope = [("p", INT), ("q", ARRAY), ("s", lists(INT))]

    def text(self, name):
        """The definition of a function `name`."""
        result = self.type()
        lines = self.statements(self.number(0, 4), result)
        lines.append(f"return {self.expr(result, 3)}")
        return [f"def {name}(p{INTS}, q{FLOATS}, s{LIST}):", *(f"    {line}" for line in lines)]

    def one(self, items):
        """One of several."""
        return items[self.number(0, len(items) - 1)]

    def type(self, depth=2):
        """A type of values; function types are made where functions are."""
        kind = self.number(0, 5 if depth else 3)
        if kind < 4:
            return (INT, INT, ARRAY, BOOL)[kind]
        inside = self.type(depth - 1)
        return lists(inside) if kind == 4 else pair(inside, self.type(depth - 1))

    # Statements

    def bound(self, name, t):
        """The scope with a name bound, anew or again."""
        self.scope = [(n, u) for n, u in self.scope if n != name] + [(name, t)]

    def statements(self, count, result=None):
        """Lines that bind names; with `result` some may return a value of that type."""
        lines = []
        for _ in range(count):
            ways = [self.binding, self.binding, self.branches, self.cases, self.nested, self.loop]
            if result is not None:
                ways.append(lambda: self.early(result))
            lines += self.one(ways)()
        return lines

    def fresh(self):
        """A name: a new one, or one that may be bound again."""
        again = self.number(0, 1) == 0 and not self.inside  # of another type, in all branches
        return "v" if again else f"v{next(self.names)}"

    def binding(self):
        again = [(n, t) for n, t in self.scope if n == "v" and t in (INT, ARRAY)]
        if again and self.number(0, 2) == 0:
            return [f"v {self.one('+-')}= {self.expr(again[0][1], 2)}"]
        t = self.type() if self.number(0, 6) else fn(INT, INT)
        name = f"v{next(self.names)}" if t[0] == "fn" else self.fresh()
        stated = ": G.Fn[[int32], int32]" if t[0] == "fn" else ""
        line = f"{name}{stated} = {self.expr(t, 3)}"
        self.bound(name, t)
        return [line]

    def early(self, result):
        return [f"if {self.expr(BOOL, 2)}:", f"    return {self.expr(result, 2)}"]

    def nested(self):
        a, b, c = (f"v{next(self.names)}" for _ in range(3))
        t, u, w = self.type(1), self.type(1), self.type(1)
        line = f"({a}, {b}), {c} = {self.expr(pair(t, u), 2)}, {self.expr(w, 2)}"
        for n, x in ((a, t), (b, u), (c, w)):
            self.bound(n, x)
        return [line]

    def loop(self):
        """A function that calls itself, and a call of it."""
        f, name, t = f"f{next(self.names)}", f"v{next(self.names)}", self.one((INT, ARRAY))
        kind = "int32" if t == INT else 'G.Tensor((3,), "float32")'
        outer = list(self.scope)
        self.scope = [(n, u) for n, u in self.scope if n != "v"] + [("n", INT), ("total", t)]
        step = self.expr(t, 2)
        self.scope = outer
        lines = [
            f"def {f}(n: int32, total: {kind}) -> {kind}:",
            "    if n <= 0:",
            "        return total",
            f"    return {f}(n - 1, {step})",
        ]
        lines.append(f"{name} = {f}({self.one(('2', 'p'))}, {self.expr(t, 1)})")
        self.bound(name, t)
        return lines

    def branch(self, targets, bound=()):
        """Lines of a branch that gives values to `targets`, which are names with types; those that
        have one of that type may be left as they are."""
        outer = list(self.scope)
        self.inside += 1
        for name, t in bound:
            self.bound(name, t)
        lines = self.statements(self.number(0, 1)) if self.number(0, 3) == 0 else []
        for name, t in targets:
            if (name, t) in outer and (name, t) in self.scope and self.number(0, 2) == 0:
                continue
            lines.append(f"{name} = {self.expr(t, 2)}")
            self.bound(name, t)
        self.scope = outer
        self.inside -= 1
        return [f"    {line}" for line in lines or ["pass"]]

    def targets(self):
        """Names for what branches give: new ones, or some that are bound already."""
        found = {self.fresh(): self.type() for _ in range(self.number(1, 2))}
        known = [(n, t) for n, t in self.scope if n.startswith("v") and t[0] != "fn"]
        if known and self.number(0, 1):
            name, t = self.one(known)
            found[name] = t
        return list(found.items())

    def branches(self):
        targets = self.targets()
        lines = [f"if {self.expr(BOOL, 2)}:", *self.branch(targets)]
        for _ in range(self.number(0, 1)):
            lines += [f"elif {self.expr(BOOL, 1)}:", *self.branch(targets)]
        if not all(x in self.scope for x in targets) or self.number(0, 1):
            lines += ["else:", *self.branch(targets)]
        for name, t in targets:
            self.bound(name, t)
        return lines

    def cases(self):
        targets, item = self.targets(), self.one((INT, ARRAY))
        n = next(self.names)
        h, r = f"h{n}", f"r{n}"
        lines = [f"match {self.expr(lists(item), 2)}:"]
        if self.number(0, 1):
            inner = self.branch(targets, [(h, item), (r, lists(item))])
            lines += [f"    case Cons({h}, Cons(_, {r})):", *(f"    {x}" for x in inner)]
        inner = self.branch(targets, [(h, item)])
        lines += [f"    case Cons({h}, _):", *(f"    {x}" for x in inner)]
        last = self.one(("Nil()", "_"))
        lines += [f"    case {last}:", *(f"    {x}" for x in self.branch(targets))]
        if last != "_" and self.number(0, 3) == 0:
            lines.append("    case _: raise")
        for name, t in targets:
            self.bound(name, t)
        return lines

    # Expressions

    def expr(self, t, depth):
        """The text of an expression of type `t`."""
        known = [n for n, u in self.scope if u == t]
        if known and self.number(0, 2) == 0:
            return self.one(known)
        if depth == 0:
            return known[-1] if known else self.leaf(t)
        ways = [self.choice, self.project, *self.makers(t)]
        if t not in (BOOL,):
            ways.append(self.fold)
        return self.one(ways)(t, depth - 1)

    def makers(self, t):
        if t in (INT, ARRAY):
            return [self.arithmetic, self.head]
        if t == BOOL:
            return [self.comparison]
        if t[0] == "fn":
            return [self.function]
        return [self.mapped, self.made] if t[0] == "list" else [self.made]

    def leaf(self, t):
        if t == INT:
            return str(self.number(-5, 5))
        if t == ARRAY:
            return "G.const([1.0, -2.0, 0.5])"
        if t == BOOL:
            return "(p < 2)"
        if t[0] == "fn":
            return f"(lambda u: {self.leaf(t[2])})"
        if t[0] == "list":
            return f"Cons({self.leaf(t[1])}, Nil())"
        return f"({self.leaf(t[1])}, {self.leaf(t[2])})"

    def choice(self, t, depth):
        if t[0] == "fn":  # branches that are functions would be called through a variable
            return self.leaf(t)
        then, other = self.expr(t, depth), self.expr(t, depth)
        return f"({then} if {self.expr(BOOL, depth)} else {other})"

    def project(self, t, depth):
        n = self.number(0, 1)
        other = self.one([INT, ARRAY])
        parts = (t, other) if n == 0 else (other, t)
        return f"{self.expr(pair(*parts), depth)}[{n}]"

    def arithmetic(self, t, depth):
        sign = self.one("+-*")
        if t == INT and self.number(0, 4) == 0:
            return f"twice({self.expr(fn(INT, INT), depth)}, {self.expr(INT, depth)})"
        if t == INT and self.number(0, 4) == 0:
            return f"count({self.one(['p', '3', '-1'])}, {self.expr(t, depth)})"
        if t == ARRAY and self.number(0, 4) == 0:
            return f"same({self.expr(t, depth)}, {self.expr(t, depth)})"
        right = self.expr(t, depth) if sign != "*" else self.leaf(t)
        return f"({self.expr(t, depth)} {sign} {right})"

    def comparison(self, t, depth):
        kind = self.number(0, 3)
        if kind == 3:
            a, b, c = (self.expr(INT, depth) for _ in range(3))
            return f"({a} {self.one(('<', '<='))} {b} {self.one(('<', '!='))} {c})"
        if kind:
            word = self.one(["and", "or"])
            return f"({self.expr(BOOL, depth)} {word} {self.expr(BOOL, depth)})"
        sign = self.one(["<", "==", "!="])
        return f"({self.expr(INT, depth)} {sign} {self.expr(INT, depth)})"

    def function(self, t, depth):
        name = f"u{next(self.names)}"
        outer = list(self.scope)  # in Python a name that is bound again is another one inside, too
        self.scope = [(n, u) for n, u in self.scope if n != "v"] + [(name, t[1])]
        body = self.expr(t[2], depth)
        self.scope = outer
        return f"(lambda {name}: {body})"

    def head(self, t, depth):
        default = self.expr(t, depth)
        return f"foldr(lambda h, ignored: h, {default}, {self.expr(lists(t), depth)})"

    def fold(self, t, depth):
        item = self.one([INT, ARRAY])
        a, x = f"a{next(self.names)}", f"x{next(self.names)}"
        xs, start = self.expr(lists(item), depth), self.expr(t, depth)
        if t[0] == "fn":
            return start
        self.scope += [(a, t), (x, item)]
        body = self.expr(t, min(depth, 1))
        self.scope = self.scope[:-2]
        return f"foldl(lambda {a}, {x}: {body}, {start}, {xs})"

    def mapped(self, t, depth):
        item = self.one([INT, ARRAY])
        return f"map({self.expr(fn(item, t[1]), depth)}, {self.expr(lists(item), depth)})"

    def made(self, t, depth):
        if t[0] == "pair":
            return f"({self.expr(t[1], depth)}, {self.expr(t[2], depth)})"
        return f"Cons({self.expr(t[1], depth)}, {self.expr(t, depth)})"


def module_text(functions: list[list[str]]) -> str:
    """The text of a module of functions of p, q and s, and of `main`, which has the results of
    all."""
    names = [lines[0][4 : lines[0].index("(")] for lines in functions]
    calls = ", ".join(f"{n}(p, q, s)" for n in names)
    main = [f"def main(p{INTS}, q{FLOATS}, s{LIST}):", f"    return ({calls}, 0)"]
    rows = [r for lines in (*functions, main) for r in ("@G.function", *lines)]
    return HEAD + "\n".join(f"    {r}" for r in rows) + "\n"


ARGUMENTS = np.int32(2), np.array([0.5, 1.0, -1.5], "float32"), [np.int32(1), np.int32(2)]


def in_python(lines: list[str]) -> Any:
    """The result of a function by Python itself. Lists are lists."""
    text = "\n".join(lines)
    for kind in (INTS, FLOATS, LIST):
        text = text.replace(kind, "")
    # NumPy's += writes into the array.
    text = re.sub(r"v ([+-])= (.*)", r"v = v \1 \2", text)
    scope = dict(IN_PYTHON)
    code = "from __future__ import annotations\n" + text
    exec(code, scope)  # text that this module has made
    p, q, s = ARGUMENTS
    xs: Any = Nil()
    for x in reversed(s):
        xs = Cons(x, xs)
    with np.errstate(all="ignore"):
        return plain(scope[lines[0][4 : lines[0].index("(")]](p, q, xs))


def plain(x: Any) -> Any:
    """A value with lists and numbers of Python."""
    if isinstance(x, graph.Tagged):
        return [plain(i) for i in graph.from_list(x)]
    if isinstance(x, (Cons, Nil)):
        found = []
        while isinstance(x, Cons):
            found.append(plain(x.head))
            x = x.tail
        return found
    if isinstance(x, tuple):
        return tuple(map(plain, x))
    return x.tolist() if hasattr(x, "tolist") else x
