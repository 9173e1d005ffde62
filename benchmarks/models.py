"""Whole ONNX models beside onnxruntime and OpenVINO, untuned or from records.

    python benchmarks/models.py FOLDER|MODEL.onnx ... [--threads 2 1] [--db URL] [--precision int8]

`MODEL.npz` beside a model holds its inputs as `in_NAME`; without it, inputs are drawn at random for
models whose sizes are all fixed. Each model is compiled once a number of threads; its outputs are
compared with onnxruntime's (where the engines differ among themselves, with either's; for a model
with quantised operators or values of 16 bits, and with --precision, in parts of the largest
value); then all sides are timed in turns, each engine in a process that is stopped outside its
turns. A side's time is the minimum over all turns, a ratio that of the faster engine over ours.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import common
import numpy as np
import onnx
from peer_client import PEER_PYTHON, ROOT, OtherLoad, Peer, PeerError, close

from autosched import graph
from autosched.graph.passes.precision import PRECISIONS

SERVER = ROOT / "benchmarks" / "peers" / "serve_model.py"
ENGINES = ("ort", "openvino")
QUANTISED = ("Quantize", "Quant", "QLinear", "Integer")
BYTES = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)
"""Types of the weights of models that are no float models, whatever they compute in."""
HALVES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
UNTUNED_MEAN, UNTUNED_LEAST = 0.95, 0.7
RELATIVE, ABSOLUTE = 1e-3, 1e-4
STEPS = 0.02
"""Of the largest value: how far outputs of quantised models, and those of values or products in
less than float32, may lie apart."""
Array = np.ndarray[Any, Any]


def main() -> int:
    """Compare all models; the exit status is 1 if an output was wrong or a model was refused."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", metavar="FOLDER|MODEL.onnx")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--db", help="records to take tuned kernels from")
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="of our products; bfloat16: of OpenVINO's, too",
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a side's turn, at least")
    parser.add_argument("--python", default=str(PEER_PYTHON), help="interpreter with the engines")
    options = parser.parse_args()
    found = [
        compare(path, threads, options)
        for path in _paths(options.models)
        for threads in options.threads
    ]
    bars = [row for threads in options.threads for row in _bars(found, threads)]
    common.finish("models", {"models": found, "tuned": options.db is not None, "bars": bars})
    return int(any("error" in row for row in found))


def compare(path: Path, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one model: what was measured, or the error that was met."""
    row: dict[str, Any] = {"model": path.stem, "threads": threads}
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = onnx.load(path)
            feeds = _feeds(path, model)
            row["quantised"] = any(any(w in n.op_type for w in QUANTISED) for n in model.graph.node)
            row["of_bytes"] = any(
                w.data_type in BYTES and len(w.dims) > 1 for w in model.graph.initializer
            )
            row["of_halves"] = any(w.data_type in HALVES for w in model.graph.initializer)
            peers = _open(path, feeds, threads, Path(folder), options)
        except (ValueError, PeerError) as e:
            return _failed(row, e)
        try:
            row |= _compile_and_check(path, feeds, threads, Path(folder), row, options)
            row |= _timed(row.pop("call"), peers, options)
        except (ArithmeticError, graph.Unsupported) as e:
            return _failed(row, e)
        finally:
            close(peers)
    times = "  ".join(f"{name} {s * 1e3:.3f}" for name, s in row["seconds"].items())
    print(
        f"{path.stem}, {threads} thread{'s' * (threads > 1)}: {row['ratio']:.3f} of "
        f"{row['fastest']} | ms: {times} | {row['kernels']} kernels, compiled in "
        f"{row['compile_s']:.1f} s | error {row['error_of_largest']:.1e} of the largest value of "
        f"{row['equal_to']} | "
        f"other load {row['other_load_cores']:.2f} cores",
        flush=True,
    )
    return row


def _compile_and_check(
    path: Path,
    feeds: dict[str, Array],
    threads: int,
    folder: Path,
    row: dict[str, Any],
    options: argparse.Namespace,
) -> dict[str, Any]:
    start = time.perf_counter()
    module = graph.from_onnx(str(path), shapes={k: v.shape for k, v in feeds.items()})
    compiled = graph.build(
        module,
        target=f"llvm -num-cores={threads}",
        records=options.db,
        precision=options.precision,
    )
    took = time.perf_counter() - start
    arrays = [feeds[i.name] for i in compiled.inputs]
    found = compiled(*arrays)
    rounded = row["quantised"] or row["of_halves"] or options.precision != "float32"
    oracle, error = _compared(found, folder, rounded)
    return {
        "call": lambda: compiled(*arrays),
        "compile_s": took,
        "kernels": len(compiled.kernels),
        "equal_to": oracle,
        "error_of_largest": error,
    }


def _compared(found: Sequence[Array], folder: Path, quantised: bool) -> tuple[str, float]:
    """The engine that the outputs are equal to, and the error. Another one than onnxruntime counts
    only where the engines differ as well: onnxruntime's sigmoid, for one, is off by 1.2e-7, more
    than is allowed where all of an output is as small as 6e-5. Raises ArithmeticError."""
    outputs = {}
    for engine in ENGINES:
        path = folder / f"{engine}.npz"
        if path.exists():
            with np.load(path) as stored:
                outputs[engine] = [stored[f"arr_{n}"] for n in range(len(stored.files))]
    try:
        return "ort", _error(found, outputs["ort"], quantised)
    except ArithmeticError:
        for engine, expected in outputs.items():
            if engine == "ort":
                continue
            if not _agree(outputs["ort"], expected, quantised) and _agree(
                found, expected, quantised
            ):
                return engine, _error(found, expected, quantised)
        raise


def _agree(found: Sequence[Array], expected: Sequence[Array], quantised: bool) -> bool:
    try:
        _error(found, expected, quantised)
    except ArithmeticError:
        return False
    return True


def _error(found: Sequence[Array], expected: Sequence[Array], quantised: bool) -> float:
    """The largest difference as a part of the largest value. Raises ArithmeticError where outputs
    differ by more than they may."""
    worst = 0.0
    if len(found) != len(expected):
        raise ArithmeticError(f"{len(found)} outputs, onnxruntime has {len(expected)}")
    for n, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            raise ArithmeticError(
                f"output {n} is {ours.dtype}{ours.shape}, onnxruntime's is "
                f"{theirs.dtype}{theirs.shape}"
            )
        a, b = ours.astype(np.float64), theirs.astype(np.float64)
        finite = np.isfinite(b)
        largest = float(np.abs(b[finite]).max(initial=0.0)) or 1.0
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.where(same, 0.0, np.abs(a - b))
        may = STEPS * largest if quantised else RELATIVE * np.abs(b) + ABSOLUTE * largest
        if not np.all(apart <= np.where(finite, may, 0.0)):
            raise ArithmeticError(f"output {n} differs by {np.nanmax(apart) / largest:.1e}")
        worst = max(worst, float(apart.max(initial=0.0)) / largest)
    return worst


def _timed(call: Any, peers: Sequence[Peer], options: argparse.Namespace) -> dict[str, Any]:
    """All sides in turns; see `common.compare`, whose rules for disturbed rounds are these."""
    turns: dict[str, list[float]] = {"autosched": []} | {p.engine: [] for p in peers}
    loads: list[float] = []
    common.measure(call, 3, 0.1)
    for _ in range(options.rounds):
        load = OtherLoad(peers)
        turns["autosched"].append(common.measure(call, 5, options.seconds))
        time.sleep(common.SETTLE_SECONDS)  # our own pool's workers fall asleep
        for peer in peers:
            turns[peer.engine].append(peer.turn(5, options.seconds)[0])
        loads.append(load.cores())
    seconds = {name: min(times) for name, times in turns.items()}
    fastest = min((p.engine for p in peers), key=seconds.__getitem__)
    return {
        "seconds": seconds,
        "fastest": fastest,
        "ratio": seconds[fastest] / seconds["autosched"],
        "other_load_cores": sum(loads) / len(loads),
        "engines": {p.engine: p.about for p in peers},
    }


def _open(
    path: Path, feeds: dict[str, Array], threads: int, folder: Path, options: argparse.Namespace
) -> list[Peer]:
    """The engines that take the model. Raises PeerError if onnxruntime, the oracle, does not."""
    np.savez(folder / "in.npz", **feeds)
    opened: list[Peer] = []
    for engine in ENGINES:
        words = [options.python, str(SERVER), "--engine", engine, "--model", str(path)]
        words += ["--inputs", str(folder / "in.npz"), "--outputs", str(folder / f"{engine}.npz")]
        precision = "bf16" if options.precision == "bfloat16" else "f32"
        command = [*words, "--threads", str(threads), "--precision", precision]
        try:
            opened.append(Peer(engine, path.stem, threads, "constant", command=command))
        except PeerError as e:
            if engine == "ort":
                raise
            print(f"  left out: {str(e)[:300]}")
    return opened


def _feeds(path: Path, model: Any) -> dict[str, Array]:
    """The stored inputs, or random ones. Raises ValueError where sizes are not fixed."""
    stored = path.with_suffix(".npz")
    if stored.exists():
        with np.load(stored) as arrays:
            return {k.removeprefix("in_"): arrays[k] for k in arrays.files if k.startswith("in_")}
    rng = np.random.default_rng(0)
    feeds = {}
    constants = {t.name for t in model.graph.initializer}
    for value in (i for i in model.graph.input if i.name not in constants):
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        if not all(shape):
            raise ValueError(f"input {value.name} has sizes that are not fixed; store {stored}")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        drawn = rng.standard_normal(shape)
        feeds[value.name] = (drawn if dtype.kind == "f" else drawn > 0).astype(dtype)
    return feeds


def _paths(given: Iterable[str]) -> list[Path]:
    paths = [Path(name) for name in given]
    return [m for p in paths for m in (sorted(p.glob("*.onnx")) if p.is_dir() else [p])]


def _failed(row: dict[str, Any], error: Exception) -> dict[str, Any]:
    text = f"{type(error).__name__}: {error}"
    print(f"{row['model']}, {row['threads']} threads: FAILED: {text[:400]}", flush=True)
    return row | {"error": text}


def _bars(found: Sequence[dict[str, Any]], threads: int) -> list[dict[str, Any]]:
    rows = [r for r in found if r["threads"] == threads]
    wrong = [r["model"] for r in rows if "error" in r]
    case = f"{len(rows)} models, {threads} thread{'s' * (threads > 1)}"
    equal = f"{len(rows) - len(wrong)} equal; not: {', '.join(wrong) or 'none'}"
    bars = [common.bar(case, "all equal to onnxruntime", equal, not wrong)]
    ratios = {
        r["model"]: r["ratio"]
        for r in rows
        if "error" not in r and not (r["quantised"] or r["of_bytes"] or r["of_halves"])
    }
    if ratios:
        mean = math.exp(sum(map(math.log, ratios.values())) / len(ratios))
        least = min(ratios, key=ratios.__getitem__)
        bars += [
            common.bar(
                f"{case}: float, geometric mean",
                f">= {UNTUNED_MEAN:.2f} of the faster engine",
                f"{mean:.3f}",
                mean >= UNTUNED_MEAN,
            ),
            common.bar(
                f"{case}: float, least",
                f">= {UNTUNED_LEAST:.2f}",
                f"{ratios[least]:.3f} ({least})",
                ratios[least] >= UNTUNED_LEAST,
            ),
        ]
    return bars


if __name__ == "__main__":
    sys.exit(main())
