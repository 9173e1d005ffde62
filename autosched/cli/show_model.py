"""`autosched show MODEL.onnx`: what becomes of a model, as text."""

from __future__ import annotations

import argparse

from autosched.cli.model import build_model, read_model
from autosched.errors import WorkloadError

MODEL_FORMS = ("graph", "groups", "tasks", "plan")
"""Words of --as, besides script: the module as it is read, as it is fused, the distinct kernels,
each implementation with its key, the memory plan."""


def show_model(path: str, form: str, options: argparse.Namespace) -> str:
    """The text of a model. `script` is the loop IR of its kernels, scheduled."""
    from autosched.graph import passes
    from autosched.graph.tasks import kernel_groups
    from autosched.target import Target

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
    target = Target(options.target)
    return "\n".join(
        f"{a.key}  {g.calls:>3} x  {', '.join(g.names)}{f' by {a.name}' if a.name else ''}"
        for g in kernel_groups(ready, target)
        for a in g.alternatives
    )
