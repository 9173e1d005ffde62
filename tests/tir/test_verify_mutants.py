"""The verifier with a rule, a fault or an answer switched off: some program of the tables shows it.

Mutants are made from the sources of `verify_*.py`, so that a rule that is added without a program
fails here.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType, ModuleType

import pytest
from verify_illegal import ILLEGAL as WITHOUT_OPAQUE
from verify_legal import LEGAL as LEGAL_WITHOUT_OPAQUE
from verify_opaque_programs import ILLEGAL_OPAQUE, LEGAL_OPAQUE
from verify_parts import Illegal

import autosched.tir
from autosched import te
from autosched.errors import AutoschedError
from autosched.ops import matmul, softmax
from autosched.tir import verify_races
from autosched.tir.faults import Fault, Rule
from autosched.tir.nodes import PrimFunc
from autosched.tir.opaque import opaque_blocks, pieces
from autosched.tir.plain import is_plain
from autosched.tir.size_atoms import Undecided
from autosched.tir.verify import OF_PLAIN, RULES, faults
from autosched.tir.verify_opaque import OPAQUE

ILLEGAL = (*WITHOUT_OPAQUE, *ILLEGAL_OPAQUE)
LEGAL = (*LEGAL_WITHOUT_OPAQUE, *LEGAL_OPAQUE)
EVERY = (*OPAQUE, *(rule for group in RULES for rule in group))
PLACED, CROSSING = OPAQUE
LAST = len(RULES) - 1
GROUP = {rule.name: n for n, group in enumerate(RULES) for rule in group}
GROUP |= {PLACED.name: -1, CROSSING.name: len(RULES)}
BREAKS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    Undecided,
)
"""How a rule breaks down on programs that rules before it should have refused."""
Outcome = tuple[tuple[str, str], ...]


def outcome(func: PrimFunc, without: str = "") -> Outcome:
    """(rule, message) of each fault, of the first group that finds something."""
    return tuple((rule.name, fault.message) for rule, fault in _faults(func, without))


def _faults(func: PrimFunc, without: str) -> list[tuple[Rule, Fault]]:
    """As `verify.faults`, with one rule left out, and with all the others of plain programs too."""
    if opaque_blocks(func):
        found = _broken(func, (PLACED,), without)
        nests = [] if found else [p for p in pieces(func) if isinstance(p, PrimFunc)]
        found += [
            (rule, fault)
            for part in nests
            for rule, fault in _faults(part, without)
            if rule.name != "outputs" or fault.node is not None
        ]
        return found or _broken(func, (CROSSING,), without)
    return next((x for x in (_broken(func, group, without) for group in RULES) if x), [])


def _broken(func: PrimFunc, rules: tuple[Rule, ...], without: str) -> list[tuple[Rule, Fault]]:
    return [(r, fault) for r in rules if r.name != without for fault in r.check(func)]


@cache
def made(n: int) -> PrimFunc:
    return ILLEGAL[n].make()


def of(rule: str) -> list[Illegal]:
    return [x for x in ILLEGAL if x.rule == rule]


@pytest.mark.parametrize("n", range(len(ILLEGAL)))
def test_one_rule_alone_refuses(n: int) -> None:
    """With the rule it is refused by it and nothing else; without, a later group, which builds on
    the rule, refuses it or breaks down. Nothing builds on the rules of the last group."""
    illegal, func = ILLEGAL[n], made(n)
    found = outcome(func)
    assert {rule for rule, _ in found} == {illegal.rule, *illegal.also}, found
    assert any(illegal.says in message for _, message in found), found
    try:
        rest = outcome(func, illegal.rule)
    except BREAKS:
        if GROUP[illegal.rule] >= LAST:
            raise
        return
    later = {rule for rule, _ in rest} - illegal.also
    assert all(GROUP[rule] > GROUP[illegal.rule] for rule in later), rest


@pytest.mark.parametrize("n", range(len(LEGAL)))
def test_the_programs_beside_them_are_legal(n: int) -> None:
    assert outcome(LEGAL[n]()) == ()


@pytest.mark.parametrize("n", range(len(ILLEGAL)))
def test_verify_says_the_same(n: int) -> None:
    """The outcomes here are those of the verifier itself."""
    said = tuple((rule.name, fault.message) for rule, fault in faults(made(n)))
    assert said == outcome(made(n))


@pytest.mark.parametrize("n", range(len(LEGAL)))
def test_verify_accepts_the_programs_beside_them(n: int) -> None:
    assert faults(LEGAL[n]()) == []


@pytest.mark.parametrize("n", range(len(ILLEGAL)))
def test_rules_left_out_of_plain_programs_are_kept_by_them(n: int) -> None:
    if GROUP[ILLEGAL[n].rule] == LAST and ILLEGAL[n].rule not in OF_PLAIN:
        assert not is_plain(made(n))


def test_programs_that_are_not_scheduled_are_plain() -> None:
    assert sum(is_plain(make()) for make in LEGAL) > 2
    for tensors in (matmul(8, 8, 8), softmax(8, 8)):
        func = te.create_prim_func(tensors)
        assert is_plain(func)
        assert outcome(func) == ()


def test_every_rule_has_a_program_and_every_program_a_rule() -> None:
    assert [name for name in GROUP if not of(name)] == []
    assert {x.rule for x in ILLEGAL} <= GROUP.keys()


# Mutants of the sources


@dataclass(frozen=True)
class Mutant:
    """A function of the verifier, and one change to it: of those that there are number `place`."""

    name: str
    function: FunctionType
    path: tuple[str, ...]
    node: ast.FunctionDef
    place: int

    def code(self) -> CodeType:
        """The function's code with the change."""
        other = copy.deepcopy(self.node)
        _, change = list(_places(other))[self.place]
        change()
        return _code_of(_alone(other, self.path), self.path)


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(autosched.tir.__path__):
        if found.name.startswith("verify_"):
            yield importlib.import_module(f"autosched.tir.{found.name}")


def mutants() -> Iterator[Mutant]:
    """Every fault left out, every reason for one, and every answer of yes or no always the same."""
    for module in modules():
        for path, node in _functions(ast.parse(inspect.getsource(module)).body):
            function = _resolve(module, path)
            for place, (what, _) in enumerate(_places(node)):
                name = f"{module.__name__}.{'.'.join(path)}: {what}"
                yield Mutant(name, function, path, node, place)


def _alone(node: ast.FunctionDef, path: tuple[str, ...]) -> CodeType:
    """A module with nothing but this function, or the class with this method."""
    tree = ast.parse(f"class {path[0]}: pass" if len(path) > 1 else "")
    if tree.body:
        assert isinstance(tree.body[0], ast.ClassDef)
        tree.body[0].body = [node]
    else:
        tree.body = [node]
    return compile(ast.fix_missing_locations(tree), "<mutant>", "exec")


def _functions(body: list[ast.stmt]) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield (node.name,), node
        elif isinstance(node, ast.ClassDef):
            for path, inner in _functions(node.body):
                yield (node.name, *path), inner


def _resolve(module: ModuleType, path: tuple[str, ...]) -> FunctionType:
    found: object = module
    for name in path:
        found = getattr(found, name)
    assert isinstance(found, FunctionType), path
    return found


def _code_of(code: CodeType, path: tuple[str, ...]) -> CodeType:
    for name in path:
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
    return code


def _places(node: ast.FunctionDef) -> Iterator[tuple[str, Callable[[], None]]]:
    """What can be changed in a function: (a name for it, what changes it)."""
    returns = "" if node.returns is None else ast.unparse(node.returns)
    if returns == "bool":
        for answer in (True, False):
            yield f"always {answer}", lambda a=answer: _answer(node, a)  # type: ignore[misc]
    for body in _bodies(node):
        for n, s in enumerate(body):
            line = ast.unparse(s).splitlines()[0][:90]
            value = s.value if isinstance(s, (ast.Expr, ast.Return)) else None
            if isinstance(s, ast.Expr) and isinstance(value, (ast.Yield, ast.YieldFrom)):
                if "Fault" in returns:
                    yield line, lambda b=body, k=n: _pass(node, b, k)  # type: ignore[misc]
            elif isinstance(s, ast.Return) and returns == "Iterator[Fault]":
                if value is not None:
                    yield line, lambda b=body, k=n: _nothing(b, k)  # type: ignore[misc]
            elif returns in ("str | None", "Fault | None") and _tells(s):
                yield line, lambda b=body, k=n: _none(b, k)  # type: ignore[misc]


def _tells(s: ast.stmt) -> bool:
    """Whether a statement returns something other than None."""
    return isinstance(s, ast.Return) and s.value is not None and ast.unparse(s.value) != "None"


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Every list of statements below a function, those of functions inside it left out."""
    for name in ("body", "orelse"):
        found = getattr(node, name, None)
        if isinstance(found, list) and found and isinstance(found[0], ast.stmt):
            yield found
            for s in found:
                if not isinstance(s, (ast.FunctionDef, ast.ClassDef)):
                    yield from _bodies(s)
    for handler in getattr(node, "handlers", ()):
        yield from _bodies(handler)


def _answer(node: ast.FunctionDef, answer: bool) -> None:
    # The old body stays behind, for the free variables of the function.
    node.body.insert(0, ast.Return(ast.Constant(answer)))


def _pass(node: ast.FunctionDef, body: list[ast.stmt], n: int) -> None:
    body[n] = ast.Pass()
    node.body.append(ast.Return())
    node.body += [ast.Expr(ast.Yield())]  # never reached: it stays a generator


def _nothing(body: list[ast.stmt], n: int) -> None:
    body[n] = ast.Return(ast.Tuple([], ast.Load()))


def _none(body: list[ast.stmt], n: int) -> None:
    body[n] = ast.Return(ast.Constant(None))


EQUIVALENT = {
    "autosched.tir.verify_writes._is_usual: always False": "a shortcut past the proof",
    "autosched.tir.verify_reads._has_shared_nest: always True": "a shortcut past the search",
    "autosched.tir.verify_reads._settled: always False": "a shortcut past the search",
}
"""Mutants that change no answer, and why."""
ALL = [m for m in mutants() if m.name not in EQUIVALENT]


def test_mutants_reach_every_rule() -> None:
    names = {m.function for m in ALL}
    assert len(ALL) > 100
    assert all(rule.check in names for rule in EVERY)


@cache
def expected(n: int) -> Outcome:
    return outcome(made(n))


@pytest.mark.parametrize("mutant", ALL, ids=lambda m: m.name)
def test_some_program_shows_it(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """An illegal program is refused in another way or accepted, or a legal one is refused."""
    # Going through the points of the small programs here would make up for a proof that is gone.
    monkeypatch.setattr(verify_races, "MAX_POINTS", 0)
    programs = [(made(n), expected(n)) for n in _order(mutant)] + [(f, ()) for f in legal()]
    before = mutant.function.__code__
    mutant.function.__code__ = mutant.code()
    try:
        assert any(_differs(func, known) for func, known in programs), (
            "no program shows it: add one to verify_illegal.py"
        )
    finally:
        mutant.function.__code__ = before


@cache
def legal() -> tuple[PrimFunc, ...]:
    return tuple(make() for make in LEGAL)


def _order(mutant: Mutant) -> list[int]:
    """The illegal programs, those first whose rules stand in the module of the mutant."""
    module = mutant.function.__module__
    near = {r.name for r in EVERY if r.check.__module__ == module}
    return sorted(range(len(ILLEGAL)), key=lambda n: ILLEGAL[n].rule not in near)


def _differs(func: PrimFunc, known: Outcome) -> bool:
    try:
        return outcome(func) != known
    except AutoschedError:
        return True
    except BREAKS:
        return True
    except RecursionError:
        return True
