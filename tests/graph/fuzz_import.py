"""Mutated ONNX models: each is read, or refused by one Unsupported, in bounded time and memory.

    python tests/graph/fuzz_import.py --count 100000 [--seed 0] [--one N]

Half of the mutants are changed as messages (fields, dims, names, wire data of subgraphs, opsets,
external paths), half as bytes (flips, lengths, wire types, cuts, splices). The process limits its
own address space and the time of a mutant. Exit status 1 after printing the first failure.
"""

from __future__ import annotations

import argparse
import collections
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import Message
from graph_models import info, model, residual_net
from onnx import helper
from onnx.helper import make_node

from autosched.graph import Unsupported
from autosched.graph.onnx_import import Bounds, from_onnx

MEMORY = 256 << 20
"""Bytes of address space that reading a mutant of a few KB may add."""
SECONDS = 10
"""What one mutant may take, on a busy machine."""
BOUNDS = Bounds(bytes=1 << 20, nodes=2000, elements=1 << 24)
NUMBERS = (0, 1, 2, -1, 3, 7, 8, 16, 127, 255, 1 << 16, (1 << 31) - 1, -(1 << 31), 1 << 32,
           (1 << 63) - 1, -(1 << 63), 1 << 62)  # fmt: skip
FLOATS = (0.0, -1.0, 0.5, 1e-38, 1e38, float("inf"), float("nan"), -0.0, 3.0)
TEXTS = ("", "x", "y", "w1", "a", "../../etc/passwd", "/etc/passwd", "weights.bin", "com.microsoft",
         "ai.onnx.ml", "Loop", "If", "Scan", "Conv", "Gemm", "Reshape", "Resize", "Concat", "Split",
         "TopK", "Einsum", "LSTM", "Identity", "Expand", "Range", "body", "then_branch", "axes",
         "\x1b[2J", "a" * 300, "é\u202e", "0", "-1")  # fmt: skip


def bases():
    """Small models that together use every part of the format that is read."""
    rng = np.random.default_rng(0)
    x = info("x", [2, 3])
    then, other = (
        helper.make_graph([make_node(op, ["x"], [op])], op, [], [info(op, [2, 3])])
        for op in ("Neg", "Abs")
    )
    body = helper.make_graph(
        [make_node("Identity", ["go"], ["more"]), make_node("Add", ["s", "x"], ["t"])],
        "body", [info("i", [], "int64"), info("go", [], "bool"), info("s", [2, 3])],
        [info("more", [], "bool"), info("t", [2, 3]), info("s", [2, 3])],
    )  # fmt: skip
    control = model(
        [make_node("ReduceSum", ["x"], ["n"], keepdims=0), make_node("Cast", ["n"], ["c"], to=9),
         make_node("If", ["c"], ["b"], then_branch=then, else_branch=other),
         make_node("Loop", ["k", "", "b"], ["y", "z"], body=body)],
        [x], [info("y", [2, 3]), info("z", [3, 2, 3])], {"k": np.array(3)},
    )  # fmt: skip
    shapes = model(
        [make_node("Shape", ["x"], ["s"]), make_node("Gather", ["s", "zero"], ["n"]),
         make_node("Concat", ["n", "rest"], ["to"], axis=0),
         make_node("Reshape", ["x", "to"], ["r"]),
         make_node("Slice", ["r", "zero", "n"], ["t"]),
         make_node("Split", ["t"], ["u", "v"], axis=1),
         make_node("Expand", ["u", "n"], ["y"])],
        [x], [info("y", None), info("v", None)],
        {"zero": np.array([0]), "rest": np.array([-1, 1])},
    )  # fmt: skip
    image = model(
        [make_node("Resize", ["i", "", "f"], ["a"], mode="nearest"),
         make_node("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
         make_node("Pad", ["b", "p"], ["c"]), make_node("Softmax", ["c"], ["d"], axis=-1),
         make_node("TopK", ["d", "k"], ["v", "j"]), make_node("Transpose", ["v"], ["y"])],
        [info("i", [1, 2, 4, 4])], [info("y", None), info("j", None, "int64")],
        {"f": np.array([1, 1, 1.5, 2], "f4"), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
         "k": np.array([2])},
    )  # fmt: skip
    own = helper.make_function(
        "own", "twice", ["a"], ["b"],
        [make_node("Add", ["a", "a"], ["s"]), make_node("LeakyRelu", ["s"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    called = model([make_node("twice", ["x"], ["t"], domain="own"),
                    make_node("Gelu", ["t"], ["y"], domain="com.microsoft")], [x],
                   [info("y", [2, 3])])  # fmt: skip
    called.functions.append(own)
    called.opset_import.extend(helper.make_opsetid(d, 1) for d in ("own", "com.microsoft"))
    outside = model([make_node("MatMul", ["x", "w"], ["y"])], [x], [info("y", [2, 4])],
                    {"w": rng.standard_normal((3, 4)).astype("f4")})  # fmt: skip
    tensor = outside.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights.bin"), ("offset", "16"), ("length", "48")):
        tensor.external_data.add(key=key, value=value)
    net = residual_net(rng)
    return [net, control, shapes, image, called, outside]


def messages(message, limit=400):
    """A message and those inside it, by a walk that ends."""
    found, at = [message], 0
    while at < len(found) and len(found) < limit:
        for f, value in found[at].ListFields():
            if f.message_type is not None:
                found += list(value) if f.is_repeated else [value]
        at += 1
    return found


def changed_message(base: Message, rng: random.Random) -> bytes:
    """A model with one to three fields changed."""
    proto = type(base)()
    proto.CopyFrom(base)
    for _ in range(rng.randint(1, 3)):
        every = messages(proto)
        _change(rng.choice(every), rng, every)
    return proto.SerializeToString()


def _change(message, rng, every):
    field = rng.choice(message.DESCRIPTOR.fields)
    name = field.name
    if field.message_type is not None:
        donors = [m for m in every if m.DESCRIPTOR is field.message_type]
        _change_part(message, name, field, rng, donors)
        return
    value = _scalar(field, rng)
    if not field.is_repeated:
        if rng.random() < 0.2:
            message.ClearField(name)
        else:
            setattr(message, name, value)
        return
    values = getattr(message, name)
    kind = rng.random()
    if kind < 0.4 and len(values):
        values[rng.randrange(len(values))] = value
    elif kind < 0.6 and len(values):
        del values[rng.randrange(len(values))]
    elif kind < 0.9:
        values.extend([value] * rng.choice((1, 1, 2, 40)))
    else:
        message.ClearField(name)


def _change_part(message, name, field, rng, donors):
    part = getattr(message, name)
    if not field.is_repeated:
        if donors and rng.random() < 0.6:
            copy = type(donors[0])()
            copy.CopyFrom(rng.choice(donors))
            if copy.ByteSize() < 100_000:
                part.CopyFrom(copy)
        else:
            message.ClearField(name)
    elif len(part) and rng.random() < 0.4:
        del part[rng.randrange(len(part))]
    elif donors:
        copy = type(donors[0])()
        copy.CopyFrom(rng.choice(donors))
        if copy.ByteSize() < 100_000:
            part.add().CopyFrom(copy)


def _scalar(field, rng):
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(FLOATS)
    if kind == field.CPPTYPE_STRING:
        text = rng.choice(TEXTS)
        return text.encode() if field.type == field.TYPE_BYTES else text
    if kind == field.CPPTYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])
    small = kind == field.CPPTYPE_INT32
    number = rng.choice(NUMBERS)
    if kind in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64):
        return abs(number)
    return max(min(number, (1 << 31) - 1), -(1 << 31)) if small else number


def changed_bytes(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """The bytes of a model with flips, lengths and wire types changed, cut, or spliced."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if not out:
            break
        at, kind = rng.randrange(len(out)), rng.random()
        if kind < 0.35:
            out[at] = rng.randrange(256)
        elif kind < 0.5:
            out[at] ^= 1 << rng.randrange(8)  # the low bits of a tag are its wire type
        elif kind < 0.6:
            out[at : at + 1] = b"\xff\xff\xff\xff\x0f"  # a length of 4 GiB
        elif kind < 0.7:
            out[at : at + rng.randint(1, 20)] = b""
        elif kind < 0.8:
            out[at:at] = rng.randbytes(rng.randint(1, 8))
        elif kind < 0.9:
            begin = rng.randrange(len(other))
            out[at:at] = other[begin : begin + rng.randint(1, 60)]
        else:
            out = out[:at]
    return bytes(out)


def mutant(n: int, seed: int, protos, texts) -> bytes:
    """Mutant n of a seed."""
    rng = random.Random(seed * 1_000_003 + n)
    at = rng.randrange(len(protos))
    if n % 2:
        return changed_bytes(texts[at], rng.choice(texts), rng)
    return changed_message(protos[at], rng)


def _late(number, frame):
    raise TimeoutError(f"more than {SECONDS} s")


def run(numbers, seed: int) -> tuple[collections.Counter, float]:
    """What became of mutants, and seconds of CPU; prints the first failure and ends."""
    warnings.simplefilter("ignore")
    protos = bases()
    texts = [p.SerializeToString() for p in protos]
    folder = Path(tempfile.mkdtemp(prefix="fuzz-import-"))
    (folder / "weights.bin").write_bytes(bytes(64))
    path = folder / "m.onnx"
    for data in texts:  # what is imported and cached once counts for none of them
        path.write_bytes(data)
        from_onnx(path)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    used = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    signal.signal(signal.SIGALRM, _late)
    seen: collections.Counter = collections.Counter()
    slowest, begin = (0.0, -1), time.process_time()
    for n in numbers:
        data = mutant(n, seed, protos, texts)
        start = time.process_time()
        signal.alarm(SECONDS)
        try:
            if n % 8:
                from_onnx(data, bounds=BOUNDS)
            else:
                path.write_bytes(data)
                from_onnx(path, bounds=BOUNDS)
            seen["read"] += 1
        except Unsupported as e:
            seen["no ONNX model" if str(e).startswith("no ONNX") else "refused"] += 1
            if "MemoryError" in str(e) or "TimeoutError" in str(e):
                _report(n, seed, data, e)
        except BaseException as e:
            _report(n, seed, data, e)
        signal.alarm(0)
        slowest = max(slowest, (time.process_time() - start, n))
    print(f"slowest: {slowest[0] * 1e3:.0f} ms, mutant {slowest[1]}")
    return seen, time.process_time() - begin


def _report(n, seed, data, error):
    traceback.print_exception(error)
    print(f"mutant {n} of seed {seed} ({len(data)} bytes): {type(error).__name__}: {error}")
    print(f"again: python {__file__} --seed {seed} --one {n}")
    sys.exit(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="another one makes others")
    parser.add_argument("--one", type=int, help="this mutant only")
    options = parser.parse_args()
    numbers = range(options.count) if options.one is None else [options.one]
    seen, spent = run(numbers, options.seed)
    print(dict(seen), f"{spent / len(numbers) * 1e3:.2f} ms of CPU each")


if __name__ == "__main__":
    main()
