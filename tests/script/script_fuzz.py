"""Scripts to round-trip, and random damage to them."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

from autosched import te
from autosched.lowering.lower import lower
from autosched.ops import get
from autosched.tir.nodes import PrimFunc

OPERATORS: dict[str, tuple[int, ...]] = {
    "matmul": (8, 9, 10),
    "matmul_add": (7, 4, 6),
    "batch_matmul": (2, 4, 5, 6),
    "matmul_bias_gelu": (4, 5, 6),
    "transpose_batch_matmul": (4, 2, 4),
    "conv1d": (9, 3, 4, 3, 2, 1),
    "conv2d": (8, 7, 3, 4, 3, 2, 1),
    "conv2d_bias_relu": (6, 6, 2, 3, 3, 1, 1),
    "conv2d_bn_relu": (5, 5, 2, 3, 3, 2, 1),
    "conv2d_capsule": (4, 4, 2, 2, 3, 2, 1, 2),
    "conv2d_transpose": (3, 4, 2, 3, 3, 2, 1),
    "two_matmuls": (3, 4, 5, 2),
    "mul_add_relu": (3, 4),
    "transpose_batch_matmul_softmax": (3, 2, 2),
    "winograd_conv2d": (5, 4, 2, 2, 1),
    "conv3d": (5, 4, 6, 2, 3, 3, 1, 1),
    "depthwise_conv2d": (7, 7, 3, 3, 2, 1),
    "max_pool2d": (8, 8, 3, 3, 2, 1),
    "softmax": (4, 5),
    "layer_norm": (4, 6),
    "norm": (4, 5),
    "argmax": (4, 5),
}
"""Operators of the library at small sizes, by name."""

GOLDEN = Path(__file__).parents[1] / "schedule" / "golden"


@cache
def operator(name: str) -> PrimFunc:
    return te.create_prim_func(get(name)(*OPERATORS[name]))


def scripts_in(text: str) -> list[str]:
    """The functions in a golden file, without what stands between them."""
    parts = re.split(r"(?m)^(?=@T\.prim_func)", text)[1:]
    out = []
    for part in parts:
        lines = part.split("\n")
        end = next((n for n, x in enumerate(lines[2:], 2) if x and x[0] not in " )"), len(lines))
        out.append("\n".join(lines[:end]).rstrip() + "\n")
    return out


@cache
def corpus() -> tuple[str, ...]:
    """Valid scripts of every kind, small ones."""
    texts = [f.script() for name in OPERATORS for f in (operator(name), lower(operator(name)))]
    for file in sorted(GOLDEN.glob("*.txt")):
        texts += scripts_in(file.read_text(encoding="utf-8"))
    return tuple(dict.fromkeys(texts))


_TOKEN = re.compile(r'\s+|"[^"\n]*"|\w+|\S')
_WORDS = [
    "-1",
    "0",
    "1",
    "2",
    "3",
    "7",
    "1.0",
    "1e400",
    "-0.0",
    "9223372036854775807",
    "18446744073709551616",
    "0x10",
    "1_000",
    "1j",
    "None",
    "True",
    "T",
    "T.float32",
    "T.int8",
    "T.axis.spatial",
    "T.axis.reduce",
    "T.axis.remap",
    "T.where",
    "T.reads",
    "T.writes",
    "T.init",
    "T.identity",
    "T.grid",
    "T.serial",
    "T.parallel",
    "T.vectorized",
    "T.unroll",
    "T.thread_binding",
    "T.alloc_buffer",
    "T.match_buffer",
    "T.handle",
    "T.Buffer",
    "T.block",
    "T.block_attr",
    "T.func_attr",
    "T.if_then_else",
    "T.select",
    "T.cast",
    "T.exp",
    "T.max",
    "T.pow",
    "T.none",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "=",
    "+=",
    "==",
    "<",
    ">=",
    "//",
    "%",
    "*",
    "+",
    "-",
    "**",
    "~",
    ".",
    "not",
    "and",
    "or",
    "if",
    "else",
    "for",
    "in",
    "with",
    "def",
    "class",
    "return",
    "lambda",
    "pass",
    "import",
    "while",
    "try",
    '"float32"',
    '"x"',
    "'y'",
    '""',
    "#",
    "\\",
    "@",
    ";",
    "!",
    "$",
    "?",
    "é",
    "²",
    "\x00",
    "�",
    "\u2028",
    "vi",
    "vj",
    "i",
    "j",
    "k",
    "A",
    "B",
    "C",
    "out",
]


def damaged(chance: random.Random, texts: tuple[str, ...]) -> str:
    """A valid script with one to four random edits."""
    text = chance.choice(texts)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        text = chance.choice(_EDITS)(chance, text, texts)
    return text


def _tokens(chance: random.Random, text: str, texts: tuple[str, ...]) -> str:
    """Replace, drop, repeat, insert or exchange tokens."""
    tokens = _TOKEN.findall(text)
    if len(tokens) < 2:
        return text + chance.choice(_WORDS)
    n = chance.randrange(len(tokens))
    kind = chance.randrange(6)
    if kind == 0:
        tokens[n] = chance.choice(_WORDS)
    elif kind == 1:
        del tokens[n]
    elif kind == 2:
        tokens.insert(n, tokens[n])
    elif kind == 3:
        tokens.insert(n, chance.choice(_WORDS))
    elif kind == 4:
        m = chance.randrange(len(tokens))
        tokens[n], tokens[m] = tokens[m], tokens[n]
    else:
        tokens[n] = chance.choice(tokens)
    return "".join(tokens)


def _numbers(chance: random.Random, text: str, texts: tuple[str, ...]) -> str:
    """Change a number: this keeps the syntax and breaks the meaning."""
    places = list(re.finditer(r"\b\d+\b", text))
    if not places:
        return text
    m = chance.choice(places)
    new = chance.choice(("0", "1", "2", "-1", "-3", "5", "17", "1000003", str(2**62), str(2**63)))
    return text[: m.start()] + new + text[m.end() :]


def _names(chance: random.Random, text: str, texts: tuple[str, ...]) -> str:
    """Exchange a name for another one of the text."""
    places = list(re.finditer(r"\b[A-Za-z_]\w*\b", text))
    if not places:
        return text
    m, other = chance.choice(places), chance.choice(places)
    return text[: m.start()] + other.group() + text[m.end() :]


def _lines(chance: random.Random, text: str, texts: tuple[str, ...]) -> str:
    """Drop, repeat, move, indent or borrow lines."""
    lines = text.split("\n")
    n = chance.randrange(len(lines))
    kind = chance.randrange(6)
    if kind == 0:
        del lines[n]
    elif kind == 1:
        lines.insert(n, lines[n])
    elif kind == 2:
        m = chance.randrange(len(lines))
        lines[n], lines[m] = lines[m], lines[n]
    elif kind == 3:
        lines[n] = chance.choice(("    ", " ", "\t")) + lines[n]
    elif kind == 4:
        lines[n] = lines[n].removeprefix("    ")
    else:
        lines.insert(n, chance.choice(chance.choice(texts).split("\n")))
    return "\n".join(lines)


def _characters(chance: random.Random, text: str, texts: tuple[str, ...]) -> str:
    """Change one character, or cut the text off."""
    if not text:
        return text
    n = chance.randrange(len(text))
    kind = chance.randrange(4)
    if kind == 0:
        return text[:n] + text[n + 1 :]
    if kind == 1:
        return text[:n] + chr(chance.choice((chance.randrange(128), chance.randrange(65536))))
    if kind == 2:
        return text[:n] + chr(chance.randrange(128)) + text[n + 1 :]
    return text[:n] + chance.choice("()[]{}'\"#\\\n") + text[n:]


def _nests(chance: random.Random, text: str, texts: tuple[str, ...]) -> str:
    """Put something that nests into the text."""
    n, depth = chance.randrange(len(text) + 1), chance.choice((3, 30, 300, 3000))
    piece = chance.choice(
        ("(", "[", "-", "not ", "T.exp(", "A[", "1 + ", "{1:", "a if b else ", "a.b", "x = ", "(-")
    )
    close = {"(": ")", "[": "]", "{": "}"}
    ends = [close[c] for c in piece if c in close] * depth
    return text[:n] + piece * depth + chance.choice(("", "1" + "".join(ends))) + text[n:]


_EDITS = (_tokens, _tokens, _numbers, _names, _names, _lines, _lines, _characters, _nests)
