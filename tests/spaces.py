"""The space of a workload, made once for all tests of a process that tune it anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from autosched.sketch import generate
from autosched.sketch.space import Space
from autosched.sketch.state import Rule
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

generate_space = generate.generate_space
SPACES: dict[tuple[str, str], Space] = {}


@pytest.fixture(scope="module", autouse=True)
def one_space_a_workload() -> Iterator[None]:
    """A space is made once a process, and its recordings with it: they take most of the time of a
    run of few trials. Tests of search and sketch make theirs anew."""

    def generated(func: PrimFunc, target: Target, custom_rules: Sequence[Rule] = ()) -> Space:
        key = (func.script(), str(target))
        if custom_rules:
            return generate_space(func, target, custom_rules)
        if key not in SPACES:
            SPACES[key] = generate_space(func, target)
        return SPACES[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generate, "generate_space", generated)
        yield
