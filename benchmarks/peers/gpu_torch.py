"""PyTorch on a CUDA device, in a process of its own, told over a pipe what to time.

Runs in an environment with a CUDA build of torch and imports nothing of the project. Reads one
JSON object a line, {"op": name, "args": [...]}, and answers each with one: {"seconds": s} or
{"error": text}. float32 with TF32 off. Calls stand in a CUDA graph, so that no launching is timed;
of layouts the fastest counts.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

CALLS, REPEATS = 20, 15


def seconds_of(torch: Any, run: Callable[[], Any]) -> float:
    """Median seconds of a call, by the device's events."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            run()
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        graph.replay()
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / CALLS)
    return statistics.median(times)


def matmul(torch: Any, n: int, depth: int, m: int) -> list[Callable[[], Any]]:
    """cuBLAS."""
    a, b = torch.randn(n, depth, device="cuda"), torch.randn(depth, m, device="cuda")
    out = torch.empty(n, m, device="cuda")
    return [lambda: torch.matmul(a, b, out=out)]


def conv2d(
    torch: Any, h: int, w: int, ci: int, co: int, k: int, s: int, p: int, d: int = 1, g: int = 1
) -> list[Callable[[], Any]]:
    """cuDNN, channels first and last."""
    layouts = torch.contiguous_format, torch.channels_last
    return [
        partial(torch.nn.functional.conv2d, x, f, None, s, p, d, g)
        for x, f in (_data(torch, layout, h, w, ci, co, k, g) for layout in layouts)
    ]


def conv2d_bias_relu(
    torch: Any, h: int, w: int, ci: int, co: int, k: int, s: int, p: int
) -> list[Callable[[], Any]]:
    """cuDNN, in one call and in two."""
    runs: list[Callable[[], Any]] = []
    for layout in (torch.contiguous_format, torch.channels_last):
        x, f = _data(torch, layout, h, w, ci, co, k, 1)
        b = torch.randn(co, device="cuda")
        runs.append(partial(torch.cudnn_convolution_relu, x, f, b, (s, s), (p, p), (1, 1), 1))
        runs.append(partial(_two_calls, torch, x, f, b, s, p))
    return runs


def _two_calls(torch: Any, x: Any, f: Any, b: Any, s: int, p: int) -> Any:
    return torch.relu_(torch.nn.functional.conv2d(x, f, b, s, p))


def _data(
    torch: Any, layout: Any, h: int, w: int, ci: int, co: int, k: int, g: int
) -> tuple[Any, Any]:
    """Input and weights."""
    x = torch.randn(1, ci, h, w, device="cuda").to(memory_format=layout)
    f = torch.randn(co, ci // g, k, k, device="cuda").to(memory_format=layout)
    return x, f


def depthwise_conv2d(
    torch: Any, h: int, w: int, c: int, k: int, s: int, p: int
) -> list[Callable[[], Any]]:
    """cuDNN's or PyTorch's own."""
    return conv2d(torch, h, w, c, c, k, s, p, 1, c)


def copy(torch: Any, n: int, m: int) -> list[Callable[[], Any]]:
    """A copy: as many bytes read and written as an operator on rows has."""
    x, y = torch.randn(n, m, device="cuda"), torch.empty(n, m, device="cuda")
    return [lambda: y.copy_(x)]


def matmul_mixed(
    torch: Any, n: int, depth: int, m: int, dtype: str, out: str
) -> list[Callable[[], Any]]:
    """cuBLAS: of halves with sums in float32; of int8 with sums in int32, the second operand in
    either layout."""
    if dtype == "int8":
        a = torch.randint(-100, 100, (n, depth), device="cuda").to(torch.int8)
        b = torch.randint(-100, 100, (depth, m), device="cuda").to(torch.int8)
        turned = b.t().contiguous().t()
        return [lambda: torch._int_mm(a, b), lambda: torch._int_mm(a, turned)]
    a = torch.randn(n, depth, device="cuda").to(getattr(torch, dtype))
    b = torch.randn(depth, m, device="cuda").to(getattr(torch, dtype))
    result = torch.empty(n, m, device="cuda", dtype=getattr(torch, out))
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    return [lambda: torch.matmul(a, b, out=result)]


def conv2d_mixed(
    torch: Any,
    h: int,
    w: int,
    ci: int,
    co: int,
    k: int,
    s: int,
    p: int,
    d: int,
    g: int,
    dtype: str,
    out: str,
) -> list[Callable[[], Any]]:
    """cuDNN of halves, with results of the same dtype, channels first and last."""
    kind = getattr(torch, dtype)
    runs: list[Callable[[], Any]] = []
    for layout in (torch.contiguous_format, torch.channels_last):
        x, f = (t.to(kind) for t in _data(torch, layout, h, w, ci, co, k, g))
        runs.append(partial(torch.nn.functional.conv2d, x, f, None, s, p, d, g))
    return runs


RUNS = (matmul, conv2d, conv2d_bias_relu, depthwise_conv2d, copy)
LOW = (matmul_mixed, conv2d_mixed)
OPS = {f.__name__: f for f in (*RUNS, *LOW)}


def main() -> int:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print
    try:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("this torch sees no CUDA device")
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        about = f"torch {torch.__version__}, {torch.cuda.get_device_name()}"
    except Exception as e:
        print(json.dumps({"error": f"{type(e).__name__}: {e}"}), file=answers)
        return 1
    print(json.dumps({"ready": about}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            runs = OPS[request["op"]](torch, *request["args"])
            answer: dict[str, Any] = {"seconds": min(seconds_of(torch, run) for run in runs)}
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
