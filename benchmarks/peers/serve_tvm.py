"""Apache TVM's MetaSchedule on one workload: tuned here, then told over a pipe when to run.

    python serve_tvm.py --workload matmul_add:1024,1024,1024 --trials 128 --mcpu znver4

The other end is `peer_client.Peer`, the protocol that of `serve.py`; the first answer comes after
the search, and its `about` says how that went: seconds, and the best after each trial that improved
on it. Runs in TVM's own environment and imports nothing of the project. Weights come at run time.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import json
import logging
import os
import signal
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import serve


def main() -> int:
    """Tune, answer that the program is ready, and serve until the input ends."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workload", required=True)
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--mcpu", required=True, help="the processor by LLVM's name")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["TVM_NUM_THREADS"] = str(options.threads)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)

    def answer(**fields: Any) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    try:
        _light_imports()
        tensors = make(options.workload)
        with tempfile.TemporaryDirectory() as folder:
            library, about = tune(tensors, options, folder)
        run = runner(library, tensors)
    except Exception as e:
        answer(ready=False, error=f"{type(e).__name__}: {e}")
        return 1
    call = min(serve.measure(_empty(options), 100, 0.05))
    serve.measure(run, 3, 0.1)
    answer(ready=True, engine="metaschedule", about=about)
    for line in sys.stdin:
        request = json.loads(line)
        times = serve.measure(run, int(request["calls"]), float(request["seconds"]))
        answer(min=min(times), median=statistics.median(times), calls=len(times), call=call)
    os._exit(0)


def _light_imports() -> int:
    """Register the x86 intrinsics only; TVM's own import takes 15 s in every process."""
    import tvm.s_tir

    name = "tvm.s_tir.tensor_intrin"
    if name not in sys.modules:
        module = types.ModuleType(name)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.submodule_search_locations is not None
        module.__path__ = list(spec.submodule_search_locations)
        sys.modules[name] = module
        tvm.s_tir.tensor_intrin = module
        importlib.import_module(name + ".x86")
    return 1


def tune(tensors: Any, options: argparse.Namespace, folder: str) -> tuple[Any, dict[str, Any]]:
    """The best program of the search, built, and how the search went."""
    import tvm
    from tvm import te
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.meta_schedule.builder.local_builder import default_build

    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.WARNING)
    func = te.create_prim_func(list(tensors))
    target = _target(options)
    trials: list[tuple[float, float]] = []
    start = time.perf_counter()
    database = ms.tir_integration.tune_tir(
        func,
        target,
        folder,
        max_trials_global=options.trials,
        num_trials_per_iter=min(64, options.trials),
        builder=ms.builder.LocalBuilder(max_workers=options.threads, initializer=_light_imports),
        runner=_logged(trials, start),
        num_tuning_cores=options.threads,
        seed=options.seed,
    )
    seconds = time.perf_counter() - start
    schedule = ms.tir_integration.compile_tir(database, func, target)
    if schedule is None:
        raise RuntimeError(f"no program after {len(trials)} trials")
    curve: list[tuple[int, float, float]] = []
    for n, (at, took) in enumerate(trials, 1):
        if not curve or took < curve[-1][2]:
            curve.append((n, round(at, 2), took))
    about = {"tvm": tvm.__version__, "trials": len(trials), "search_s": seconds, "curve": curve}
    return default_build(schedule.mod, target, None), about


def _target(options: argparse.Namespace) -> Any:
    import tvm

    kind = {"kind": "llvm", "mcpu": options.mcpu, "num-cores": options.threads}
    return tvm.target.Target(kind)


def _logged(trials: list[tuple[float, float]], start: float) -> Any:
    """TVM's local runner, one candidate at a time, noting when each was done and its time."""
    from tvm.ir.utils import derived_object
    from tvm.s_tir.meta_schedule.runner import LocalRunner, PyRunner

    @derived_object
    class Logged(PyRunner):  # type: ignore[misc]
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def run(self, inputs: Any) -> Any:
            futures = []
            for one in inputs:
                future = self.inner._inst.run([one])[0]
                result = (getattr(future, "_inst", None) or future).result()
                took = float("inf")
                if result.run_secs is not None:
                    took = statistics.median(float(s) for s in result.run_secs)
                trials.append((time.perf_counter() - start, took))
                futures.append(future)
            return futures

    return Logged(LocalRunner())


def runner(library: Any, tensors: Any) -> Callable[[], Any]:
    """A function without arguments that computes once."""
    import tvm

    rng = np.random.default_rng(0)
    shapes = [tuple(int(n) for n in t.shape) for t in tensors]
    arrays = [
        tvm.runtime.tensor(rng.standard_normal(shape).astype(np.float32), tvm.cpu(0))
        for shape in shapes
    ]
    main = library["main"]
    return lambda: main(*arrays)


def _empty(options: argparse.Namespace) -> Callable[[], Any]:
    """A call of a program that copies one number."""
    import tvm
    from tvm import te

    a = te.placeholder((1,), name="A", dtype="float32")
    tensors = (a, te.compute((1,), lambda i: a[i], name="B"))
    module = tvm.IRModule(
        {"main": te.create_prim_func(list(tensors)).with_attr("global_symbol", "main")}
    )
    return runner(tvm.driver.build(module, target=_target(options)), tensors)


def make(spec: str) -> Any:
    """The placeholders and the result of the workload written `name:int,int,...`, as TVM's own
    benchmarks write them."""
    name, _, arguments = spec.partition(":")
    makers = {f.__name__: f for f in (matmul, matmul_add, conv1d, conv2d, conv2d_bias_relu, conv3d)}
    makers |= {f.__name__: f for f in (depthwise_conv2d, norm, softmax, transpose_batch_matmul)}
    if name not in makers:
        raise ValueError(f"no workload {name!r}; there are {', '.join(makers)}")
    return makers[name](*(int(n) for n in arguments.split(",")))


def _input(name: str, *shape: int) -> Any:
    from tvm import te

    return te.placeholder(shape, name=name, dtype="float32")


def _product(n: int, depth: int, m: int) -> tuple[Any, ...]:
    from tvm import te

    a, b = _input("A", n, depth), _input("B", depth, m)
    k = te.reduce_axis((0, depth), name="k")
    return a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=[k]), name="C")


def matmul(n: int, depth: int, m: int) -> tuple[Any, ...]:
    return _product(n, depth, m)


def matmul_add(n: int, depth: int, m: int) -> tuple[Any, ...]:
    from tvm import te

    a, b, c = _product(n, depth, m)
    d = _input("D", n, m)
    return a, b, d, te.compute((n, m), lambda i, j: c[i, j] + d[i, j], name="out")


def _convolution(
    size: tuple[int, ...], ci: int, co: int, k: int, s: int, p: int, d: int = 1, g: int = 1
) -> tuple[Any, ...]:
    """Channels last: x (1, *size, ci), w (*[k], ci / g, co)."""
    from tvm import te, topi

    rank = len(size)
    x, w = _input("x", 1, *size, ci), _input("w", *[k] * rank, ci // g, co)
    out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n in size]
    taps = [te.reduce_axis((0, k), name=f"r{n}") for n in range(rank)]
    rc = te.reduce_axis((0, ci // g), name="rc")
    padded = topi.nn.pad(x, [0, *[p] * rank, 0])

    def value(n: Any, *at: Any) -> Any:
        *places, c = at
        read = [y * s + r * d for y, r in zip(places, taps, strict=True)]
        channel = c // (co // g) * (ci // g) + rc if g > 1 else rc
        return te.sum(padded[(n, *read, channel)] * w[(*taps, rc, c)], axis=[*taps, rc])

    return x, w, te.compute((1, *out, co), value, name="conv")


def conv1d(length: int, ci: int, co: int, k: int, s: int, p: int) -> tuple[Any, ...]:
    return _convolution((length,), ci, co, k, s, p)


def conv2d(
    h: int, w: int, ci: int, co: int, k: int, s: int, p: int, d: int = 1, g: int = 1
) -> tuple[Any, ...]:
    return _convolution((h, w), ci, co, k, s, p, d, g)


def conv3d(d: int, h: int, w: int, ci: int, co: int, k: int, s: int, p: int) -> tuple[Any, ...]:
    return _convolution((d, h, w), ci, co, k, s, p)


def conv2d_bias_relu(h: int, w: int, ci: int, co: int, k: int, s: int, p: int) -> tuple[Any, ...]:
    from tvm import te, topi

    x, weight, y = _convolution((h, w), ci, co, k, s, p)
    bias = _input("bias", co)
    total = te.compute(y.shape, lambda n, i, j, c: y[n, i, j, c] + bias[c], name="biased")
    return x, weight, bias, topi.nn.relu(total)


def depthwise_conv2d(h: int, w: int, c: int, k: int, s: int, p: int) -> tuple[Any, ...]:
    from tvm import te, topi

    x, weight = _input("x", 1, h, w, c), _input("w", k, k, c)
    oh, ow = ((n + 2 * p - k) // s + 1 for n in (h, w))
    rh, rw = te.reduce_axis((0, k), name="rh"), te.reduce_axis((0, k), name="rw")
    padded = topi.nn.pad(x, [0, p, p, 0])
    value = lambda n, i, j, ch: te.sum(  # noqa: E731
        padded[n, i * s + rh, j * s + rw, ch] * weight[rh, rw, ch], axis=[rh, rw]
    )
    return x, weight, te.compute((1, oh, ow, c), value, name="depthwise")


def norm(m: int, n: int) -> tuple[Any, ...]:
    from tvm import te

    a = _input("A", 1, m, n)
    i, j = te.reduce_axis((0, m), name="i"), te.reduce_axis((0, n), name="j")
    square = te.compute((1,), lambda b: te.sum(a[b, i, j] * a[b, i, j], axis=[i, j]), name="sq")
    return a, te.compute((1,), lambda b: te.sqrt(square[b]), name="norm")


def softmax(m: int, n: int) -> tuple[Any, ...]:
    from tvm import topi

    a = _input("A", m, n)
    return a, topi.nn.softmax(a, axis=1)


def transpose_batch_matmul(seq: int, heads: int, dim: int) -> tuple[Any, ...]:
    from tvm import te

    q, v = _input("q", 1, seq, heads, dim), _input("v", 1, seq, heads, dim)
    qt = te.compute((1, heads, seq, dim), lambda b, h, i, d: q[b, i, h, d], name="qt")
    vt = te.compute((1, heads, dim, seq), lambda b, h, d, j: v[b, j, h, d], name="vt")
    k = te.reduce_axis((0, dim), name="k")
    value = lambda b, h, i, j: te.sum(qt[b, h, i, k] * vt[b, h, k, j], axis=[k])  # noqa: E731
    return q, v, te.compute((1, heads, seq, seq), value, name="scores")


if __name__ == "__main__":
    sys.exit(main())
