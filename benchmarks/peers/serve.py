"""One engine on one workload, in a process of its own, told over a pipe when to run.

    python serve.py --engine ort --workload matmul:1024,1024,1024 --threads 2 --weights run-time

Runs in the peers' environment and imports nothing of the project. Reads one JSON object a line and
answers each with one:

    (at start)                      {"ready": true, "engine", "relative_error", "about", ...}
    {"calls": 5, "seconds": 0.03}   {"min": seconds, "median": seconds, "calls": n, "call": seconds}
    end of input                    the process ends

`call` is the minimum on the smallest workload of the kind: what a call costs. It includes a little
computing, so a time less `call` is in the engine's favour.
What libraries print goes to stderr, so that the pipe carries answers only.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any


def main() -> int:
    """Serve until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", choices=("run-time", "constant"), default="run-time")
    options = parser.parse_args()

    answer = answering()
    try:
        engine, smallest, fields = _open(options)
    except Exception as e:
        answer(ready=False, error=f"{type(e).__name__}: {e}")
        return 1
    answer(ready=True, **fields)
    for request in requests():
        times = measure(engine.run, int(request["calls"]), float(request["seconds"]))
        call = min(measure(smallest.run, 20, 0.1 * float(request["seconds"])))
        answer(min=min(times), median=statistics.median(times), calls=len(times), call=call)
    # Some engines' threads do not survive the teardown of the interpreter.
    os._exit(0)


def answering() -> Callable[..., None]:
    """A function that writes its keywords as one answer. What libraries print goes to stderr from
    here on, and the process ends with its parent."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # A peer may be stopped when its parent dies, and would then stay.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)

    def answer(**fields: Any) -> None:
        print(json.dumps(fields), file=answers, flush=True)

    return answer


def requests() -> Iterator[dict[str, Any]]:
    """The requests, until the input ends."""
    for line in sys.stdin:
        yield json.loads(line)


def _open(options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """Open the engine and check its result; returns it, the same on the smallest workload of the
    kind, and the fields of the first answer."""
    import engines
    import numpy as np
    import workloads

    start = time.perf_counter()
    tiny = workloads.make(workloads.smallest(options.workload))
    # These make a pool of threads a model; a second pool would spin beside the first.
    own_pool = options.engine.startswith(("ort", "openvino"))
    smallest = engines.open_engine(
        options.engine, tiny, 1 if own_pool else options.threads, options.weights
    )
    smallest.run()
    workload = workloads.make(options.workload)
    engine = engines.open_engine(options.engine, workload, options.threads, options.weights)
    engine.run()
    setup = time.perf_counter() - start

    wide = {k: v.astype(np.float64) for k, v in {**workload.inputs, **workload.weights}.items()}
    expected = workload.reference(wide)
    found = engine.output().astype(np.float64).reshape(expected.shape)
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    if not error < 1e-4:
        raise ArithmeticError(f"the result is wrong: relative error {error:.1e}")
    measure(engine.run, 3, 0.1)
    fields = {
        "engine": options.engine,
        "relative_error": error,
        "setup_s": setup,
        "about": engine.about,
    }
    return engine, smallest, fields


def measure(run: Callable[[], Any], calls: int, seconds: float) -> list[float]:
    """Times in seconds of at least `calls` calls that together take at least `seconds`."""
    clock = time.perf_counter
    times: list[float] = []
    end = clock() + seconds
    while len(times) < calls or clock() < end:
        start = clock()
        run()
        times.append(clock() - start)
    return times


if __name__ == "__main__":
    sys.exit(main())
