"""One engine on one ONNX model, in a process of its own, told over a pipe when to run.

    python serve_model.py --engine ort --model M.onnx --inputs in.npz --outputs out.npz --threads 2

Runs in the peers' environment and imports nothing of the project. The first run's outputs go to
`--outputs`, in the model's order. Requests and answers are those of `serve.py`, with a `call` of 0:
what a call costs is part of what a model's user pays.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from serve import answering, measure, requests

Feeds = dict[str, np.ndarray[Any, Any]]
Opened = tuple[Callable[[], Any], Callable[[], list[Any]], str]
"""Runs once; the outputs of the last run; the library's version."""


def main() -> int:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", required=True, choices=sorted(ENGINES))
    for name in ("model", "inputs", "outputs"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("f32", "bf16"), default="f32", help="of OpenVINO")
    options = parser.parse_args()
    answer = answering()
    try:
        start = time.perf_counter()
        with np.load(options.inputs) as stored:
            feeds = {name: stored[name] for name in stored.files}
        run, outputs, version = ENGINES[options.engine](
            options.model, feeds, options.threads, options.precision
        )
        load = time.perf_counter() - start
        run()
        np.savez(options.outputs, *outputs())
        measure(run, 3, 0.1)
    except Exception as e:
        answer(ready=False, error=f"{type(e).__name__}: {str(e)[:500]}")
        return 1
    answer(ready=True, about={"version": version, "load_s": load})
    for request in requests():
        times = measure(run, int(request["calls"]), float(request["seconds"]))
        answer(min=min(times), median=statistics.median(times), calls=len(times), call=0.0)
    # Some engines' threads do not survive the teardown of the interpreter.
    os._exit(0)


def _onnxruntime(path: str, feeds: Feeds, threads: int, precision: str) -> Opened:
    """In float32: it has no other for models of float32."""
    import onnxruntime  # type: ignore[import-not-found,unused-ignore]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    return (
        lambda: session.run_with_iobinding(binding),
        lambda: [value.numpy() for value in binding.get_outputs()],
        onnxruntime.__version__,
    )


def _openvino(path: str, feeds: Feeds, threads: int, precision: str) -> Opened:
    import openvino  # type: ignore[import-not-found,unused-ignore]

    core = openvino.Core()
    model = core.read_model(path)
    model.reshape({name: list(value.shape) for name, value in feeds.items()})
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": str(threads),
        # Its default on processors with bfloat16 is not float32.
        "INFERENCE_PRECISION_HINT": precision,
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    for name, value in feeds.items():
        request.set_tensor(name, openvino.Tensor(np.ascontiguousarray(value)))
    outputs = range(len(model.outputs))
    return (
        request.infer,
        lambda: [request.get_output_tensor(n).data for n in outputs],
        openvino.__version__,
    )


ENGINES: dict[str, Callable[[str, Feeds, int, str], Opened]] = {
    "ort": _onnxruntime,
    "openvino": _openvino,
}

if __name__ == "__main__":
    sys.exit(main())
