"""TVMScript as script text of this project, and a report of what has no counterpart.

    found = migrate(open("program.py").read())
    print(found.text)               # the functions that could be rewritten
    for function in found.refused:
        print(function.name, function.error)

By hand:  python -m autosched.script.migrate program.py -o rewritten.py
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autosched.checks import instance
from autosched.errors import AutoschedError, ScriptError, VerifyError
from autosched.script.limits import LIMITS, Limits
from autosched.script.migrate.calls import Sibling
from autosched.script.migrate.direct import Direct
from autosched.script.migrate.found import functions, renamed, thing_of
from autosched.script.migrate.function import Function
from autosched.script.migrate.macros import Written, expanded
from autosched.script.migrate.mixed import PLACE, Mixed, Parts, units
from autosched.script.migrate.recent import as_before
from autosched.script.migrate.several import with_tuples
from autosched.script.migrate.things import Note, Thing
from autosched.script.migrate.threads import has_threads
from autosched.script.migrate.vectors import scalar_loops
from autosched.script.parser import parse, parse_func
from autosched.script.source import Source
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc
from autosched.tir.routine import Routine
from autosched.tir.verify import faults

Constant: TypeAlias = "int | float | bool | str"
_MOST_OPAQUE = 8
"""Nests of one function that become opaque blocks; beyond, it becomes a routine."""

__all__ = ["Migrated", "Migration", "Note", "migrate"]


@dataclass(frozen=True)
class Migrated:
    """One function: its text here (empty if it could not be rewritten), what a reader must know of
    the rewriting, and the error of the rewriting or of the verifier, or None."""

    name: str
    line: int
    text: str
    notes: tuple[Note, ...]
    error: AutoschedError | None
    is_routine: bool = False
    """Whether it runs as it is written, and nothing schedules it."""
    description: str = ""
    """Of a function that accumulates in what its caller passes, the text by its blocks: no program,
    but what `TensorIntrin.register` takes."""


@dataclass(frozen=True)
class Migration:
    """What became of a file."""

    functions: tuple[Migrated, ...]

    @property
    def text(self) -> str:
        """The functions that could be rewritten, and pass the verifier."""
        return "\n\n".join(f.text for f in self.functions if f.error is None)

    @property
    def refused(self) -> tuple[Migrated, ...]:
        """The functions that could not."""
        return tuple(f for f in self.functions if f.error is not None)

    def program(self) -> PrimFunc | Routine | IRModule:
        """What `text` is the script of. Raises ScriptError where nothing could be rewritten."""
        return parse(self.text)

    def report(self) -> str:
        """A line for each function, and for each note."""
        lines = []
        for f in self.functions:
            problem = "" if f.error is None else f"refused: {str(f.error).splitlines()[0]}"
            done = "rewritten as a routine" if f.is_routine else "rewritten"
            lines.append(f"{f.name} (line {f.line}): {problem or done}")
            lines += [f"    {note}" for note in f.notes]
        return "\n".join(lines) + "\n"


def migrate(
    text: str,
    constants: Mapping[str, Constant | Sequence[Constant]] | None = None,
    *,
    check: bool = True,
    limits: Limits = LIMITS,
) -> Migration:
    """Rewrite every function decorated with TVMScript's `prim_func` in the Python text `text`.

    Nothing of the text is executed. What is not analysable is refused, never guessed at: each
    function is rewritten, or refused with the reason.

    Args:
        constants: numbers, dtypes and tuples of them that functions name and the text does not
            define, such as the arguments of a Python function that makes them.
        check: parse and verify what was rewritten; a function that fails is refused.

    Raises ScriptError for what is no Python, or is longer than `limits` allow.
    """
    instance("migrate: the text", text, str, "Python text", ScriptError)
    source = Source(text)
    if len(text) > limits.characters:
        raise source.error_at(
            1, 0, f"the text has {len(text)} characters; at most {limits.characters} are read"
        )
    given = _things(constants or {})
    try:
        written = expanded(renamed(ast.parse(source.text)), given)
        found = list(functions(as_before(written.tree)))
    except (SyntaxError, ValueError) as e:
        line = getattr(e, "lineno", None) or 1
        raise source.error_at(line, 0, f"no Python syntax: {e}") from e
    except (RecursionError, MemoryError) as e:
        raise source.error_at(source.longest_line(), 0, "the text nests too deeply here") from e
    out: list[Migrated] = []
    titles: set[str] = set()
    counts = Counter(node.name for node, _ in found)
    siblings = {
        node.name: Sibling(scalar_loops(with_tuples(node, given)), {**names, **given})
        for node, names in found
        if counts[node.name] == 1
    }
    for node, names in found:
        title, n = node.name, 0
        while title in titles:
            n += 1
            title = f"{node.name}_{n}"
        titles.add(title)
        done = _with_macros(source, written, node, title)
        if done.error is None:
            known = {**names, **given}
            new = _migrated(source, with_tuples(node, given), known, title, check, limits, siblings)
            done = replace(new, notes=(*done.notes, *new.notes))
        out.append(done)
    return Migration(tuple(out))


def _with_macros(source: Source, written: Written, node: ast.FunctionDef, title: str) -> Migrated:
    """A function of which nothing is known but what was found when its macros were written out."""
    first = source.first_line - 1
    notes = written.notes.get(node.lineno, [])
    refused = written.refused.get(node.lineno)
    return Migrated(
        title,
        node.lineno,
        "",
        tuple(Note(x.lineno + first, x.col_offset + 1, message) for x, message in notes),
        None if refused is None else source.error(*refused),
    )


def _migrated(
    source: Source,
    node: ast.FunctionDef,
    names: Mapping[str, Thing],
    title: str,
    check: bool,
    limits: Limits,
    siblings: Mapping[str, Sibling],
) -> Migrated:
    """The function by its blocks; what cannot be stated so, as a routine. Threads must keep to
    themselves what they share in either."""
    node = scalar_loops(node)
    if has_threads(node):
        direct = _attempt(source, Direct(source, node, names, siblings), node, title, False, limits)
        if direct.error is not None:
            return direct
    found = _attempt(source, Function(source, node, names), node, title, check, limits)
    if found.error is None:
        return found
    again = _attempt(source, Direct(source, node, names, siblings), node, title, check, limits)
    if again.error is not None:
        return again
    mixed = _mixed(source, node, names, title, check, limits, siblings)
    if mixed is not None:
        return mixed
    notes = (_reason(source, node, found.error), *again.notes)
    return replace(again, notes=notes, is_routine=True, description=_description(found, limits))


def _mixed(
    source: Source,
    node: ast.FunctionDef,
    names: Mapping[str, Thing],
    title: str,
    check: bool,
    limits: Limits,
    siblings: Mapping[str, Sibling],
) -> Migrated | None:
    """The function by its blocks, those nests opaque that cannot be stated so; None where that is
    all of it, or it is not known which."""
    nests = units(node.body)
    if len(nests) < 2 or has_threads(node) or not check:
        return None
    direct = Parts(source, node, names, siblings)
    direct.read(title)
    opaque: dict[int, str] = {}
    while len(opaque) < min(len(nests) - 1, _MOST_OPAQUE):
        function = Mixed(source, node, names, direct.parts, opaque)
        found = _attempt(source, function, node, title, check, limits)
        if found.error is None:
            return found if opaque else None
        nest = function.nest_of(found.error)
        if nest is None or id(nest) in opaque or id(nest) not in direct.parts:
            return None
        opaque[id(nest)] = _plain(found.error)
    function = Mixed(source, node, names, direct.parts, opaque)
    found = _attempt(source, function, node, title, check, limits)
    return found if found.error is None else None


def _description(found: Migrated, limits: Limits) -> str:
    """A text that breaks no rule but one: it accumulates in parameters that it does not
    initialise, as descriptions of tensor intrinsics do. Else nothing."""
    if not isinstance(found.error, VerifyError):
        return ""
    func = parse_func(found.text, check=False, limits=limits)
    ends = tuple(
        f"accumulates in {b.name}, which no block before it initialises" for b in func.params
    )
    return found.text if all(f.message.endswith(ends) for _, f in faults(func)) else ""


def _plain(error: AutoschedError) -> str:
    """What an error says, without its place."""
    lines = str(error).splitlines()
    text = lines[0] if isinstance(error, ScriptError) or len(lines) == 1 else lines[1]
    return PLACE.sub("", text)


def _reason(source: Source, node: ast.FunctionDef, error: AutoschedError) -> Note:
    """Why a function is a routine, and where in it the reason stands, if that is known."""
    lines = str(error).splitlines()
    line, column = node.lineno + source.first_line - 1, node.col_offset + 1
    text = lines[0] if len(lines) == 1 else lines[1]
    if isinstance(error, ScriptError) and error.line:
        line, column = error.line, error.column
        text = lines[0].removeprefix(f"line {line}, column {column}: ")
    return Note(line, column, f"a routine, which nothing schedules: {text}")


def _attempt(
    source: Source,
    function: Function | Direct,
    node: ast.FunctionDef,
    title: str,
    check: bool,
    limits: Limits,
) -> Migrated:
    new, error = "", None
    try:
        tree = ast.fix_missing_locations(function.read(title))
        new = ast.unparse(tree) + "\n"
        if check:
            parse(new, limits=limits)
    except AutoschedError as e:
        error = e
    except RecursionError:
        error = source.error(node, "the function nests too deeply")
    return Migrated(title, node.lineno, new, tuple(function.notes), error)


def _things(constants: Mapping[str, Constant | Sequence[Constant]]) -> dict[str, Thing]:
    out: dict[str, Thing] = {}
    for key, value in constants.items():
        thing = thing_of(value)
        if thing is None:
            raise ScriptError(
                f"migrate: the constant {key} is {value!r}; expected a number, a dtype or a tuple"
            )
        out[key] = thing
    return out
