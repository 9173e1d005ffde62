"""`autosched bench MODEL.onnx`: a call's time, kernel by kernel, beside what else is installed."""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.cli.model import build_model
from autosched.errors import WorkloadError
from autosched.graph.drawing import draw
from autosched.target.machine import fma_peak
from autosched.tuning.report.progress import format_seconds
from measure.local.lock import SlotLock

if TYPE_CHECKING:
    from autosched.graph.model import CompiledModel

_ENGINES = {
    "onnxruntime": """
import onnxruntime as ort
o = ort.SessionOptions(); o.intra_op_num_threads = threads; o.log_severity_level = 3
s = ort.InferenceSession(path, o, providers=["CPUExecutionProvider"])
call = lambda: s.run(None, inputs)
""",
    "openvino": """
import openvino as ov
core = ov.Core()
m = core.read_model(path)
m.reshape({n: a.shape for n, a in inputs.items()})
options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
c = core.compile_model(m, "CPU", {**options, "PERFORMANCE_HINT": "LATENCY"})
r = c.create_infer_request()
call = lambda: r.infer(inputs)
""",
}
_CHILD = """
from __future__ import annotations
import sys, time
import numpy as np
{draw}
path, threads = {path!r}, {threads}
rng = np.random.default_rng(0)
inputs = {{n: draw(rng, s, d) for n, s, d in {inputs!r}}}
{engine}
for line in sys.stdin:
    call()
    end = time.perf_counter() + float(line)
    while time.perf_counter() < end:
        start = time.perf_counter(); call(); print(time.perf_counter() - start)
    print("", flush=True)
"""


def bench_model(path: str, options: argparse.Namespace) -> int:
    """Time a model, and its kernels one by one; the engines run in alternation with it, each in a
    process of its own."""
    if options.args or options.layout_rewrite is not None:
        raise WorkloadError("a model takes no arguments and no --layout-rewrite; see --shape")
    model = build_model(path, options)
    rng = np.random.default_rng(0)
    inputs = [draw(rng, i.shape or (), i.dtype) for i in model.inputs]
    with SlotLock().timing():
        times = _turns(model, path, inputs, options.rounds)
        rows = _kernels(model, inputs)
        peak = None if options.no_limits else fma_peak(model.target, model.threads)
    answer = {
        "model": path,
        "target": str(model.target),
        "threads": model.threads,
        "seconds": {n: {"min": min(t), "median": float(np.median(t))} for n, t in times.items()},
        "peak_flops": peak,
        "kernels": rows,
    }
    if options.json:
        print(json.dumps(answer))
        return 0
    for name, t in times.items():
        ratio = min(t) / min(times["autosched"])
        median = format_seconds(float(np.median(t)))
        print(f"{name:12} {format_seconds(min(t)):>9} (median {median}), {ratio:.2f} x the first")
    whole = sum(r["seconds"] for r in rows)
    for r in sorted(rows, key=lambda r: -r["seconds"]):
        share = "" if peak is None else f" {r['gflops'] * 1e9 / peak:6.1%} of the peak"
        print(
            f"{r['kernel']:<44} {r['calls']:>3} x {format_seconds(r['seconds'] / r['calls']):>9} "
            f"{r['seconds'] / whole:6.1%} {r['gflops']:8.1f} GFLOP/s{share}"
        )
    return 0


def _kernels(model: CompiledModel, inputs: list[Any]) -> list[dict[str, Any]]:
    """A row a distinct kernel: calls, seconds of all of them, GFLOP/s."""
    from autosched.dag import ComputeDAG
    from autosched.graph.kernels import task_of

    rows: dict[str, dict[str, Any]] = {}
    for _, kernel, seconds in model.profile(*inputs, repeat=20):
        row = rows.setdefault(kernel.name, {"kernel": kernel.name, "calls": 0, "seconds": 0.0})
        row["calls"] += 1
        row["seconds"] += seconds
        row["implementation"] = kernel.implementation
        flop = 0.0 if kernel.function is None else ComputeDAG(task_of(kernel.function)).flop_ct
        row["gflops"] = flop * row["calls"] / row["seconds"] / 1e9
    return list(rows.values())


def _turns(
    model: CompiledModel, path: str, inputs: list[Any], rounds: int
) -> dict[str, list[float]]:
    """Seconds of calls of the model and of the engines that are installed."""
    described = [(i.name, i.shape, i.dtype) for i in model.inputs]
    times: dict[str, list[float]] = {"autosched": []}
    children = {}
    for name, engine in _ENGINES.items():
        if path.endswith(".onnx") and find_spec(name) is not None:
            code = _CHILD.format(
                draw=inspect.getsource(draw),
                path=path,
                threads=model.threads,
                inputs=described,
                engine=engine,
            )
            children[name] = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            times[name] = []
    try:
        for _ in range(rounds):
            end = time.perf_counter() + 0.2
            model(*inputs)
            while time.perf_counter() < end:
                start = time.perf_counter()
                model(*inputs)
                times["autosched"].append(time.perf_counter() - start)
            for name, child in children.items():
                assert child.stdin is not None
                assert child.stdout is not None
                child.stdin.write("0.2\n")
                child.stdin.flush()
                while (line := child.stdout.readline().strip()) != "":
                    times[name].append(float(line))
    finally:
        for child in children.values():
            child.kill()
            child.communicate()
    return {n: t for n, t in times.items() if t}
