"""`autosched show MODEL.onnx`: what becomes of a model, as text."""

from __future__ import annotations

import argparse
from collections import Counter

from autosched.cli.model import build_model, read_model
from autosched.errors import WorkloadError

MODEL_FORMS = ("graph", "groups", "tasks", "plan")
"""Words of --as, besides script: the module as it is read, as it is fused, the distinct kernels
with their keys, the memory plan."""


def show_model(path: str, form: str, options: argparse.Namespace) -> str:
    """The text of a model. `script` is the loop IR of its kernels, scheduled."""
    from autosched.graph import passes
    from autosched.graph.ir import Function
    from autosched.graph.kernels import task_of
    from autosched.tir.canonical import workload_key

    compiled = not path.endswith(".onnx")
    if form == "plan" or compiled:
        if form != "plan":
            raise WorkloadError(f"a compiled folder has no {form}; show the ONNX file")
        model = build_model(path, options)
        host = "\n".join(f"in NumPy: {name}" for name in model.host_operators)
        calls = "\n".join(
            f"{c.result:<40} {c.kernel:<40} {model.by_name[c.kernel].implementation}"
            for c in model.spec.calls()
        )
        return "\n\n".join(filter(None, [str(model.plan), calls, host]))
    module = read_model(path, options)
    if form == "graph":
        return module.script()
    ready = passes.optimise(module)
    if form == "groups":
        return ready.script()
    if form == "script":
        model = build_model(path, options)
        return "\n".join(m.script() for m in model.lowered.values())
    main = ready.graphs["main"]
    assert isinstance(main, Function)
    uses = Counter(
        b.value.callee.name  # type: ignore[union-attr]
        for b in main.body.bindings
        if hasattr(getattr(b.value, "callee", None), "name")
    )
    rows: dict[str, tuple[int, str]] = {}
    for f in ready.graphs.values():
        if isinstance(f, Function) and f.is_primitive:
            key = workload_key(task_of(f))
            number, names = rows.get(key, (0, ""))
            rows[key] = (number + uses[f.name], f"{names}, {f.name}" if names else f.name)
    return "\n".join(f"{key}  {n:>3} x  {names}" for key, (n, names) in rows.items())
