"""Steps of a decoder whose cache of keys and values grows, by `graph.build_dynamic`.

The model has the sizes of GPT-2 (124 million parameters) and random weights. Ours and onnxruntime
do steps in turns, the cache of each step an input of the next; a step's time is the median of a
turn's, and the least of all turns. The builds are timed apart: two of exact lengths come first,
then one for all lengths up to a capacity.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import common
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from peer_client import PEER_PYTHON, Peer

from autosched import graph

SERVER = Path(__file__).resolve().parent / "peers" / "serve_decoder.py"
POSITIONS = 1024


def main() -> None:
    """Print a line a length, and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[40, 100, 250, 500, 740, 900])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768, help="64 for each head")
    parser.add_argument("--words", type=int, default=50257)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8, help="of a turn")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.onnx"
        path.write_bytes(model(options.layers, options.width, options.words))
        dynamic = graph.build_dynamic(path, threads=options.threads)
        shape = (1, options.width // 64, 1, 64)
        for first in (1, 2):
            _steps(dynamic, np.zeros((*shape[:2], first, 64), np.float32), options.layers, 1)
        for length in options.lengths:
            rows.append(row := compare(dynamic, path, length, options))
            print(
                f"{length} positions: build {row['build_s']:.2f} s, step {row['ours_ms']:.1f} ms, "
                f"onnxruntime {row['onnxruntime_ms']:.1f}, ratio {row['ratio']:.2f}",
                flush=True,
            )
    print(json.dumps({"benchmark": "decoder", "rows": rows, "builds": dynamic.builds}))


def compare(
    dynamic: graph.DynamicModel, path: Path, length: int, options: argparse.Namespace
) -> dict[str, float]:
    """Steps up to a length on both sides."""
    start = np.zeros((1, options.width // 64, length - options.steps, 64), np.float32)
    began = time.perf_counter()
    _steps(dynamic, start, options.layers, 1)
    build = time.perf_counter() - began
    words = ["--model", str(path), "--threads", str(options.threads), "--length", str(length)]
    command = [str(PEER_PYTHON), str(SERVER), *words, "--steps", str(options.steps)]
    with Peer("ort", f"decoder {length}", options.threads, command=command) as peer:
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(_steps(dynamic, start, options.layers, options.steps))
            time.sleep(common.SETTLE_SECONDS)  # our own pool's workers fall asleep
            theirs.append(peer.turn(1, 0.0)[0])
    a, b = min(ours), min(theirs)
    return {
        "length": length, "build_s": build, "ours_ms": a * 1e3, "onnxruntime_ms": b * 1e3,
        "ratio": b / a,
    }  # fmt: skip


def _steps(dynamic: graph.DynamicModel, start: np.ndarray, layers: int, steps: int) -> float:
    """The median of the seconds that a step takes."""
    seconds = []
    past = [start] * (2 * layers)
    for _ in range(steps):
        began = time.perf_counter()
        _, *past = dynamic(np.array([[1]]), *past)
        seconds.append(time.perf_counter() - began)
    return float(np.median(seconds))


def model(layers: int, width: int, words: int) -> bytes:
    """A decoder: a token and the keys and values of those before it -> scores of all words, and the
    longer keys and values."""
    rng, heads = np.random.default_rng(0), width // 64
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def const(value: np.ndarray) -> str:
        name = f"c{len(constants)}"
        constants.append(numpy_helper.from_array(value, name))
        return name

    def weight(*shape: int) -> str:
        return const(rng.standard_normal(shape, np.float32) * np.float32(0.02))

    def node(op: str, *inputs: str, name: str = "", **attrs: object) -> str:
        out = name or f"t{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [out], **attrs))
        return out

    def norm(x: str) -> str:
        scale = const(np.ones(width, np.float32))
        return node("LayerNormalization", x, scale, weight(width), axis=-1)

    def linear(x: str, n: int, m: int) -> str:
        return node("Add", node("MatMul", x, weight(n, m)), weight(m))

    size = node("Gather", node("Shape", "k0"), const(np.asarray(2)))
    place = node("Gather", weight(POSITIONS, width), size)
    x = node("Add", node("Gather", weight(words, width), "token"), place)
    split = const(np.asarray([1, 1, heads, 64]))
    joined = const(np.asarray([1, 1, width]))
    for n in range(layers):
        y = norm(x)
        q, k, v = (
            node("Transpose", node("Reshape", linear(y, width, width), split), perm=[0, 2, 1, 3])
            for _ in range(3)
        )
        k = node("Concat", f"k{n}", k, axis=2, name=f"new_k{n}")
        v = node("Concat", f"v{n}", v, axis=2, name=f"new_v{n}")
        scores = node("MatMul", q, node("Transpose", k, perm=[0, 1, 3, 2]))
        shares = node("Softmax", node("Mul", scores, const(np.float32([0.125]))), axis=-1)
        mixed = node("Transpose", node("MatMul", shares, v), perm=[0, 2, 1, 3])
        x = node("Add", x, linear(node("Reshape", mixed, joined), width, width))
        wide = linear(norm(x), width, 4 * width)
        x = node("Add", x, linear(node("Mul", wide, node("Sigmoid", wide)), 4 * width, width))
    scores = node("MatMul", norm(x), weight(width, words), name="scores")
    caches = [f"{kind}{n}" for n in range(layers) for kind in "kv"]
    info = helper.make_tensor_value_info
    inputs = [info("token", TensorProto.INT64, [1, 1])]
    inputs += [info(c, TensorProto.FLOAT, [1, heads, "n", 64]) for c in caches]
    outputs = [
        info(name, TensorProto.FLOAT, None) for name in (scores, *(f"new_{c}" for c in caches))
    ]
    made = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(made, opset_imports=opsets, ir_version=9).SerializeToString()


if __name__ == "__main__":
    main()
