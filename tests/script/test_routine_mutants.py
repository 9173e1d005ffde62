"""Texts with tokens changed at random: read and rewritten, or refused with an error of ours."""

from __future__ import annotations

import random
import re
import warnings

import pytest
from tvmscript_programs import HEAD
from tvmscript_routines import ROUTINES

from autosched.errors import AutoschedError
from autosched.script import parse
from autosched.script.migrate import migrate

TOKEN = re.compile(r"\n *|\w+|[^\w\s]| ")
ODD = [
    "0",
    "-1",
    "9223372036854775807",
    "True",
    "x",
    "T",
    "()",
    "'s'",
    "1.5",
    "None",
    "lambda",
    "while",
    "if",
    "*",
]


def mutant(text: str, rng: random.Random) -> str:
    """The text with up to three tokens removed, replaced or repeated."""
    tokens = TOKEN.findall(text)
    for _ in range(rng.randint(1, 3)):
        at, kind = rng.randrange(len(tokens)), rng.random()
        if kind < 0.3:
            del tokens[at]
        elif kind < 0.7:
            tokens[at] = rng.choice(tokens)
        elif kind < 0.85:
            tokens.insert(at, rng.choice(tokens))
        else:
            tokens[at] = rng.choice(ODD)
    return "".join(tokens)


def survey(count: int, seed: int) -> int:
    """How many of `count` mutants of old texts, and of the routines made of them, are read."""
    rng, read = random.Random(seed), 0
    olds = [HEAD + text for text in ROUTINES.values()]
    news = [migrate(text).text for text in olds]
    for n in range(count):
        text = mutant(rng.choice(olds if n % 2 else news), rng)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)
                made = [f.text for f in migrate(text).functions if not f.error] if n % 2 else [text]
            for new in made:
                func = parse(new)
                again = parse(func.script())
                assert again.same(func), new  # type: ignore[arg-type]
                read += 1
        except AutoschedError:
            continue
    return read


def test_mutants_are_read_or_refused() -> None:
    assert survey(300, 1) >= 10


@pytest.mark.long
def test_mutants_are_read_or_refused_long() -> None:
    assert survey(10000, 2) >= 300
