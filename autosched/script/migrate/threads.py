"""Whether loops over threads may run one after the other in a routine.

On a GPU the threads of a block run together and read what others have written. One after the other,
a thread finds only what those before it wrote. So a routine has what every thread keeps to itself:
of each buffer that threads share, a thread reads the elements that it writes, or those written in
a loop of their own over the same threads; and no thread keeps elements from one loop to the next.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from autosched.script.migrate.ranges import terms
from autosched.script.migrate.things import State, names_in, replaced

_SHARED = ("shared", "shared.dyn", "warp")


@dataclass(frozen=True)
class _Touch:
    """An access: the buffer, the indices, the loops around it from the function on."""

    buffer: str
    at: ast.expr
    is_store: bool
    loops: tuple[ast.For, ...]
    tests: tuple[ast.expr, ...]
    """Conditions around it."""


def check_threads(
    state: State,
    place: ast.FunctionDef,
    body: Sequence[ast.stmt],
    scopes: Mapping[str, str],
    launched: bool,
) -> None:
    """Raise ScriptError unless threads may run one after the other. `scopes` are those of the
    intermediates in `body`, the new text, whose loops have the name of their thread, or "";
    `launched`: some by T.launch_thread."""
    touches = list(_touches(body, (), ()))
    _check_again(state, place, touches)
    for buffer, scope in scopes.items():
        mine = [t for t in touches if t.buffer == buffer]
        if scope == "global" or not any(_threads(t.loops) for t in mine):
            continue
        if scope not in _SHARED and scope != "local":
            raise state.error(place, f"memory {scope!r} of threads has no counterpart here")
        if scope in _SHARED and launched:
            raise state.error(place, f"{buffer} is shared by threads, which run together there")
        for loop in {id(x): x for t in mine for x in _threads(t.loops)}.values():
            inside = [t for t in mine if loop in t.loops]
            if scope in _SHARED and not _is_kept(inside, loop):
                raise state.error(
                    place,
                    f"a thread reads elements of {buffer} that others write; one after the other "
                    "they would not be there",
                )
            outside = [t for t in mine if loop not in t.loops and _threads(t.loops)]
            others = [t for t in outside if not _encloses(t, inside)]
            if scope == "local" and others and not all(_tells(t) for t in (*inside, *others)):
                raise state.error(place, f"a thread keeps {buffer} from one loop to another")


def has_threads(function: ast.FunctionDef) -> bool:
    """Whether a function of the old text has loops over threads."""
    words = {x.attr for x in ast.walk(function) if isinstance(x, ast.Attribute)}
    return bool(words & {"thread_binding", "launch_thread"})


def _check_again(state: State, place: ast.FunctionDef, touches: Sequence[_Touch]) -> None:
    """Raise ScriptError where a loop over threads stands in another one over the same, which a GPU
    runs once and a routine once for each iteration, unless that makes no difference."""
    for inner in {id(x): x for t in touches for x in t.loops}.values():
        inside = [t for t in touches if inner in t.loops]
        around = inside[0].loops[: inside[0].loops.index(inner)]
        same = [x for x in around if _axis(x) and _axis(x) == _axis(inner)]
        if not same:
            continue
        stored = {t.buffer for t in touches if t.is_store and same[0] in t.loops}
        read = {t.buffer for t in inside if not t.is_store} & stored
        if read:
            raise state.error(
                place,
                f"two loops over {_axis(inner)}, one in the other, which run once together there; "
                f"the inner one reads {', '.join(sorted(read))}, which changes",
            )


def _axis(loop: ast.For) -> str:
    found: str = getattr(loop, "thread", "")
    return {"vthread": "vthread.x"}.get(found, found)


def _thread(loop: ast.For) -> str:
    found: str = getattr(loop, "thread", "")
    return found if found.startswith(("threadIdx", "vthread")) else ""


def _threads(loops: Sequence[ast.For]) -> list[ast.For]:
    return [x for x in loops if _thread(x)]


def _touches(
    nodes: Sequence[ast.stmt], loops: tuple[ast.For, ...], tests: tuple[ast.expr, ...]
) -> Iterator[_Touch]:
    for s in nodes:
        inner = (*loops, s) if isinstance(s, ast.For) else loops
        under = (*tests, s.test) if isinstance(s, (ast.If, ast.While)) else tests
        for field in ("body", "orelse"):
            yield from _touches(getattr(s, field, []), inner, under)
        own = [x for f, x in ast.iter_fields(s) if f not in ("body", "orelse")]
        for x in own:
            for part in x if isinstance(x, list) else [x]:
                for y in ast.walk(part) if isinstance(part, ast.AST) else ():
                    if isinstance(y, ast.Subscript) and isinstance(y.value, ast.Name):
                        is_store = isinstance(y.ctx, ast.Store)
                        yield _Touch(y.value.id, y.slice, is_store, loops, tests)


def _is_kept(touches: Sequence[_Touch], loop: ast.For) -> bool:
    """Whether each iteration of a loop over threads reads what it writes itself."""
    own = [t for t in touches if t.is_store and not _again(t, loop)]
    if not own or all(t.is_store for t in touches):
        return True
    if not any(_depends(t, loop) for t in own):
        return True  # each iteration writes all of the same elements
    if len({_text(t, loop) for t in touches}) == 1:
        return True
    rows = [_indices(t.at) for t in touches]
    return any(
        len({ast.unparse(row[n]) for row in rows}) == 1 and _tells_apart(rows[0][n], touches, loop)
        for n in range(min(map(len, rows)))
    )


def _indices(at: ast.expr) -> list[ast.expr]:
    return list(at.elts) if isinstance(at, ast.Tuple) else [at]


def _tells_apart(index: ast.expr, touches: Sequence[_Touch], loop: ast.For) -> bool:
    """Whether an index is another one in each iteration of a loop: a sum with its variable, and
    else with loops around it alone."""
    factors = terms(index) or {}
    around = touches[0].loops[: touches[0].loops.index(loop)]
    outer = {x.target.id for x in around if isinstance(x.target, ast.Name)}
    name = loop.target.id if isinstance(loop.target, ast.Name) else ""
    return name in factors and set(factors) <= {*outer, name}


def _depends(touch: _Touch, loop: ast.For) -> bool:
    """Whether the iteration of a loop tells which elements are accessed. Names given to values may
    hold it, so any name that is no loop counts."""
    inside = touch.loops[touch.loops.index(loop) + 1 :]
    parts = [touch.at, *touch.tests, *(x.iter for x in inside)]
    known = {x.target.id for x in touch.loops if isinstance(x.target, ast.Name) and x is not loop}
    return bool(set().union(*map(names_in, parts)) - known - {"T"})


def _again(touch: _Touch, loop: ast.For) -> bool:
    """Whether another loop over the same threads stands inside, around the access."""
    inside = touch.loops[touch.loops.index(loop) + 1 :]
    return any(_thread(x) == _thread(loop) for x in inside)


def _text(touch: _Touch, loop: ast.For) -> str:
    """The indices, loops inside named by their ranges: the set of elements of one iteration."""
    values: dict[str, ast.expr] = {}
    for x in touch.loops[touch.loops.index(loop) + 1 :]:
        assert isinstance(x.target, ast.Name)
        values[x.target.id] = ast.Name("range " + ast.unparse(x.iter), ast.Load())
    return ast.unparse(replaced(touch.at, values))


def _encloses(touch: _Touch, inside: Sequence[_Touch]) -> bool:
    """Whether the loops over threads around one access are around the others, too."""
    return any(set(map(id, _threads(touch.loops))) <= set(map(id, t.loops)) for t in inside)


def _tells(touch: _Touch) -> bool:
    """Whether the indices name the threads around an access."""
    used = names_in(touch.at)
    return all(
        isinstance(x.target, ast.Name) and x.target.id in used for x in _threads(touch.loops)
    )
