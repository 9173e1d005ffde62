"""Who may import whom, no circles (imports in functions and for types included), what is loaded,
how long a file may be."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("autosched", "measure", "cost_model", "records", "server")

CORE = "autosched"
"""All of autosched but its two outer parts, which are packages of their own in this table."""
OUTER = ("autosched.tuning", "autosched.cli")
MAY_IMPORT = {
    CORE: {CORE},
    "records": {"records"},
    "cost_model": {CORE, "cost_model"},
    "measure": {CORE, "measure"},
    "autosched.tuning": {CORE, "measure", "cost_model", "records", "autosched.tuning"},
    "server": {CORE, "measure", "cost_model", "records", "autosched.tuning", "server"},
    "autosched.cli": {
        CORE, "measure", "cost_model", "records", "autosched.tuning", "server", "autosched.cli",
    },
}  # fmt: skip
"""Part -> the parts that it may import from."""
OUTWARD = {"autosched", "autosched.auto_scheduler", "autosched.graph"}
"""Modules that hand out names of outer parts lazily, inside `__getattr__`."""


def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    out = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            out[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return out


MODULES = modules()


def part_of(module: str) -> str:
    """The row of the table that a module belongs to."""
    for outer in OUTER:
        if module == outer or module.startswith(f"{outer}."):
            return outer
    return module.split(".")[0]


def is_type_checking(node: ast.stmt) -> bool:
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def statements(body: list[ast.stmt], *, deep: bool) -> Iterator[ast.stmt]:
    """Statements run on import; with `deep` those inside functions and type checks too."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not deep:
            continue
        if is_type_checking(node) and not deep:
            assert isinstance(node, ast.If)
            yield from statements(node.orelse, deep=deep)
            continue
        for inside in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, inside, []), deep=deep)
        for handler in getattr(node, "handlers", []):
            yield from statements(handler.body, deep=deep)


@cache
def imported(module: str, *, deep: bool) -> set[str]:
    """Modules of ours that a module imports, each by its own name."""
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in statements(ast.parse(path.read_text()).body, deep=deep):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for a in node.names:
                inner = f"{base}.{a.name}"
                found.add(inner if inner in MODULES else base)
    return {name for name in found if name.split(".")[0] in PACKAGES}


def test_imports_follow_the_table():
    wrong = []
    for module in sorted(MODULES):
        part = part_of(module)
        allowed = MAY_IMPORT["server" if module in OUTWARD else part]
        names = (name for name in imported(module, deep=True) if part_of(name) not in allowed)
        wrong += [f"{module} ({part}) may not import {name}" for name in sorted(names)]
    assert not wrong, "\n".join(wrong)


def test_the_command_line_imports_parts_inside_commands():
    entry = "autosched.cli.main"
    if entry in MODULES:
        outer = {part_of(m) for m in imported(entry, deep=False)}
        assert outer <= {CORE, "autosched.cli"}, (
            f"{entry} imports {outer} before it is known what for"
        )


CLOSING: dict[str, dict[str, str]] = {
    "a type of an argument or field; the importer is made by, or called with, the other": {
        "autosched.codegen.gpu.kernel": "autosched.codegen.gpu.lookback",
        "autosched.codegen.llvm.blocks.carry": "autosched.codegen.llvm.function",
        "autosched.codegen.llvm.blocks.copies": "autosched.codegen.llvm.function",
        "autosched.codegen.llvm.blocks.gated": "autosched.codegen.llvm.function",
        "autosched.codegen.llvm.function": "autosched.codegen.llvm.generate",
        "autosched.codegen.llvm.outline": "autosched.codegen.llvm.generate",
        "autosched.codegen.llvm.parts": "autosched.codegen.llvm.function",
        "autosched.codegen.llvm.runs": "autosched.codegen.llvm.function",
        "autosched.codegen.llvm.routine_parallel": "autosched.codegen.llvm.routine",
        "autosched.codegen.llvm.blocks.points": "autosched.codegen.llvm.blocks.carry",
        "autosched.codegen.llvm.blocks.separable": "autosched.codegen.llvm.function",
        "autosched.codegen.llvm.blocks.tensor": "autosched.codegen.llvm.function",
        "autosched.codegen.llvm.blocks.tile": "autosched.codegen.llvm.function",
        "autosched.codegen.llvm.blocks.transpose": "autosched.codegen.llvm.function",
        "autosched.graph.onnx_import.functions": "autosched.graph.onnx_import.reader",
        "autosched.graph.onnx_import.loops": "autosched.graph.onnx_import.reader",
        "autosched.graph.onnx_import.packed": "autosched.graph.onnx_import.upgrade",
        "autosched.graph.onnx_import.sequences": "autosched.graph.onnx_import.reader",
        "autosched.graph.onnx_import.subgraphs": "autosched.graph.onnx_import.reader",
        "autosched.graph.recursion": "autosched.graph.executor",
        "autosched.graph.repeat": "autosched.graph.executor",
        "autosched.graph.reverse": "autosched.graph.reverse_calls",
        "autosched.graph.values": "autosched.graph.machine",
        "autosched.script.migrate.blocks": "autosched.script.migrate.function",
        "autosched.script.migrate.parts": "autosched.script.migrate.function",
        "autosched.schedule.more": "autosched.schedule.schedule",
        "autosched.schedule.state": "autosched.schedule.schedule",
        "autosched.te.stage.stage": "autosched.te.stage.schedule",
        "autosched.tuning.pools": "autosched.tuning.options",
        "autosched.tuning.run.scheduler_callbacks": "autosched.tuning.run.scheduler",
        "measure.local.job": "measure.local.slot",
    },
    "a method that users call on a value: its work is done by a module that knows values": {
        "autosched.graph.ir": "autosched.graph.printer",
        "autosched.graph.model": "autosched.graph.saved autosched.graph.export",
        "autosched.schedule.trace": "autosched.schedule.schedule",
        "autosched.te.stage.schedule": "autosched.te.stage.replay",
        "autosched.tir.expr": "autosched.tir.printer",
        "autosched.tir.nodes": "autosched.tir.admit autosched.tir.equal autosched.tir.numbers "
        "autosched.tir.printer",
        "autosched.tuning.task": "autosched.tuning.policies autosched.tuning.run.session "
        "autosched.tuning.report.text",
    },
    "a table filled on first use, so that importing the registry loads no entries": {
        "autosched.graph.external": "autosched.graph.generators",
        "autosched.graph.prelude": "autosched.script",
        "autosched.graph.strategies": "autosched.graph.ops.alternatives",
        "autosched.ops.registry": "autosched.ops.tensors",
        "autosched.tir.intrin": "autosched.codegen.intrinsics autosched.script",
    },
    "one half of a command or process, loaded only where it is asked for": {
        "autosched.cli.tune": "autosched.cli.tune_model",
        "autosched.building.build": "autosched.building.gpu",
        "measure.cluster.settings": "measure.cluster.certs",
        "server.programs.worker": "server.programs.model_worker",
    },
}
"""Reason -> module -> the modules that it imports inside functions or for types, though they lead
back to it. Removing these imports leaves no circle. The table only shrinks."""
ALLOWED = {
    (a, b) for lines in CLOSING.values() for a, names in lines.items() for b in names.split()
}


def graph_of(*, deep: bool) -> dict[str, set[str]]:
    """Module -> modules of ours that it imports. What is handed out lazily counts as no import."""
    out = {}
    for name in MODULES:
        found = imported(name, deep=deep and name not in OUTWARD)
        # A package imports its own parts; those name the package only as part of a path.
        out[name] = {m for m in found if m in MODULES and m != name}
    return out


def circle(graph: dict[str, set[str]]) -> list[str] | None:
    """Modules that import each other in a circle, the first one again at the end."""
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> list[str] | None:
        if name in path:
            return [*path[path.index(name) :], name]
        if name not in done:
            for other in sorted(graph[name]):
                found = visit(other, (*path, name))
                if found:
                    return found
            done.add(name)
        return None

    return next((found for name in sorted(graph) if (found := visit(name, ()))), None)


def reaches(graph: dict[str, set[str]], begin: str, end: str) -> bool:
    """Whether imports lead from one module to another."""
    seen, todo = set(), [begin]
    while todo:
        name = todo.pop()
        if name == end:
            return True
        if name not in seen:
            seen.add(name)
            todo += graph[name]
    return False


def test_a_circle_is_found():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def test_module_level_imports_have_no_circle():
    found = circle(graph_of(deep=False))
    assert found is None, f"modules import in a circle: {' -> '.join(found)}"


def test_imports_in_functions_and_for_types_have_no_circle():
    graph = graph_of(deep=True)
    gone = {(a, b) for a, b in ALLOWED if a not in graph or b not in graph[a]}
    assert not gone, f"remove from CLOSING what is no import any more: {sorted(gone)}"
    idle = {(a, b) for a, b in ALLOWED if not reaches(graph, b, a)}
    assert not idle, f"remove from CLOSING what closes no circle any more: {sorted(idle)}"
    found = circle({a: {b for b in names if (a, b) not in ALLOWED} for a, names in graph.items()})
    assert found is None, (
        f"imports inside functions or for types close a circle: {' -> '.join(found)}; break it, or "
        "give the import that closes it a reason in CLOSING"
    )


TOP_LEVEL = {"measure": (12, 40), "server": (13, None), "records": (12, None)}
"""Package -> how many names may stand at its top level, and how many arrows between them."""


@pytest.mark.parametrize("package", sorted(TOP_LEVEL))
def test_the_top_level_of_a_package_can_be_drawn(package):
    def top(module: str) -> str:
        return module.split(".")[1]

    inside = {m for m in MODULES if m.startswith(f"{package}.")}
    arrows = {
        (top(m), top(other))
        for m in inside
        for other in imported(m, deep=True) & inside
        if top(m) != top(other)
    }
    names = {top(m) for m in inside}
    most_names, most_arrows = TOP_LEVEL[package]
    assert len(names) <= most_names, sorted(names)
    assert most_arrows is None or len(arrows) <= most_arrows, sorted(arrows)


LONGEST = 450
"""Lines of a source file, tests included."""


def test_no_source_file_is_long():
    folders = (*PACKAGES, "tests", "benchmarks", "examples", "docs")
    files = (f for folder in folders for f in (ROOT / folder).rglob("*.py"))
    lines = {str(f.relative_to(ROOT)): len(f.read_text("utf-8").splitlines()) for f in files}
    long = {name: n for name, n in lines.items() if n > LONGEST}
    assert not long, f"more than {LONGEST} lines: {long}; move a matter to a module of its own"


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `code`."""
    text = f"import sys\n{code}\nprint(' '.join(sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


@pytest.mark.parametrize("code", ["import autosched", "import autosched as at; at.te.placeholder"])
def test_importing_autosched_loads_no_compiler_and_no_model(code):
    heavy = {"llvmlite", "xgboost", "sqlalchemy", "rich", "torch"}
    assert not heavy & {name.split(".")[0] for name in loaded_by(code)}


def test_a_supervisor_of_slots_loads_no_dask():
    """It waits for weeks; its slots load what they need."""
    code = "import autosched.cli.worker, measure.cluster.settings, measure.cluster.supervisor"
    heavy = {"dask", "distributed"}
    assert not heavy & {name.split(".")[0] for name in loaded_by(code)}


@pytest.mark.parametrize("package", ["records", "measure", "cost_model", "autosched.tuning"])
def test_each_package_can_be_imported_first(package):
    loaded_by(f"import {package}")


def test_records_loads_nothing_of_the_others():
    others = {"autosched", "measure", "cost_model", "server"}
    assert not others & {name.split(".")[0] for name in loaded_by("import records")}


def test_public_names():
    names = loaded_by(
        "import autosched as at\n"
        "for name in at.__all__: assert getattr(at, name) is not None, name\n"
        "assert callable(at.lower) and callable(at.build)\n"
        "assert set(at.__all__) <= set(dir(at))"
    )
    assert "autosched" in names


def test_public_names_are_not_hidden_by_modules():
    import autosched

    taken = {m.split(".")[1] for m in MODULES if m.startswith("autosched.") and m.count(".") == 1}
    hidden = taken & set(autosched.__all__) - set(autosched._SUBPACKAGES)
    assert not hidden, f"importing autosched.{hidden.pop()} would put a module in place of a name"


def test_public_names_of_graph_are_not_hidden_by_modules():
    from autosched import graph

    modules = {m.split(".")[2] for m in MODULES if m.startswith("autosched.graph.")}
    assert not modules & set(graph.__all__) - set(graph._PARTS)
    assert all(getattr(graph, name) is not None for name in graph.__all__)


def test_unknown_names_are_attribute_errors():
    import autosched

    with pytest.raises(AttributeError, match="module 'autosched' has no attribute 'nothing'"):
        _ = autosched.nothing
