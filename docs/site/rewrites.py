"""An extension of griffe: docstrings as the reference shows them.

The docstring of a primitive has a section `rewrite:` with the program before and after it, which
would be read as prose and becomes a block of code. A method of `Schedule` says in a line what it
does and where its specification is (see `loops.split`); the reference shows the specification.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

SECTION = re.compile(r"^rewrite:\n((?:[ \t]+.*(?:\n|\Z)|\n)+)", re.MULTILINE)
SPECIFIED = re.compile(r"\bsee `(\w+)\.(\w+)`")


def as_code(text: str) -> str:
    """A docstring whose `rewrite:` sections are fenced blocks."""

    def fenced(match: re.Match[str]) -> str:
        code = textwrap.dedent(match[1]).strip("\n")
        return f"The program before and after:\n\n```text\n{code}\n```\n"

    return SECTION.sub(fenced, text)


class Rewrites(griffe.Extension):
    """Rewrites the docstrings that are loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Make `rewrite:` code."""
        if obj.docstring is not None:
            obj.docstring.value = as_code(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Put specifications in their places. Raises KeyError where there is no such function."""
        if pkg.path != "autosched":
            return
        for method in pkg["schedule.schedule.Schedule"].functions.values():
            found = method.docstring and SPECIFIED.search(method.docstring.value)
            if found:
                method.docstring.value = pkg[f"schedule.{found[1]}.{found[2]}"].docstring.value
