"""The ONNX backend tests: which operators pass, which are refused and why.

    python tests/graph/conformance.py [--match REGEX] [--docs docs/onnx_operators.md]

A test is in scope if all its tensors have element types that te has and all operators are of the
default domain. Exit status 1 where a test gives another result or raises anything but Unsupported.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from autosched import graph

SCOPE = {
    onnx.TensorProto.DataType.Value(n)
    for n in ("FLOAT", "DOUBLE", "FLOAT16", "INT8", "INT16", "INT32", "INT64", "UINT8", "BOOL")
}
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


def cases():
    """(name, operator, model, [(inputs, outputs)], rtol, atol) of each test."""
    for kind in KINDS:
        for t in load_model_tests(kind=kind):
            if t.model is not None:
                sets = [tuple([_value(x) for x in side] for side in s) for s in t.data_sets]
                model = t.model
            else:
                model = onnx.load(Path(t.model_dir) / "model.onnx")
                sets = [
                    tuple(_stored(folder, model, what) for what in ("input", "output"))
                    for folder in sorted(Path(t.model_dir).glob("test_data_set_*"))
                ]
            yield t.name, _operator(model), model, sets, t.rtol, t.atol


def _value(x):
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    return [_value(y) for y in x] if isinstance(x, list) else x


def _stored(folder, model, what):
    out = []
    for n, info in enumerate(getattr(model.graph, what)):
        path = folder / f"{what}_{n}.pb"
        if path.exists():
            tensor = info.type.WhichOneof("value") == "tensor_type"
            kind = onnx.TensorProto if tensor else onnx.SequenceProto
            read = numpy_helper.to_array if tensor else numpy_helper.to_list
            out.append(read(kind.FromString(path.read_bytes())))
    return out


def _operator(model):
    return model.graph.node[0].op_type if len(model.graph.node) == 1 else "several operators"


def in_scope(g):
    """Whether a graph has only types that te has, and operators of the default domain."""
    infos = [*g.input, *g.output, *g.value_info]
    types = [i.type for i in infos]
    if any(t.WhichOneof("value") not in ("tensor_type", None) for t in types):
        return False
    kinds = {t.tensor_type.elem_type for t in types if t.WhichOneof("value")}
    kinds |= {t.data_type for t in g.initializer}
    for node in g.node:
        if node.domain not in ("", "ai.onnx"):
            return False
        for a in node.attribute:
            kinds |= {a.t.data_type} if a.type == onnx.AttributeProto.TENSOR else set()
            if a.name in ("to", "dtype", "output_dtype") and a.i:
                kinds.add(a.i)
            if not all(map(in_scope, [a.g] if a.HasField("g") else a.graphs)):
                return False
    return kinds - {0} <= SCOPE


def outcome(model, sets, rtol, atol):
    """(passed, failed or unsupported, why) of a model on its data sets."""
    given = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in given]
    try:
        for inputs, wanted in sets:
            pairs = zip(names, inputs, strict=False)
            shapes = {n: np.shape(x) for n, x in pairs if not isinstance(x, list)}
            got = graph.build(graph.from_onnx(model, shapes=shapes))(*inputs)
            if len(got) != len(wanted) or not all(map(_same(rtol, atol), got, wanted)):
                return "failed", "another result"
    except graph.Unsupported as e:
        return "unsupported", str(e)
    except Exception as e:  # whatever else is raised is a fault, and is reported
        return "failed", f"{type(e).__name__}: {e}"
    return "passed", ""


def _same(rtol, atol):
    def same(got, want):
        want = np.asarray(want)
        if (got.shape, got.dtype) != (want.shape, want.dtype):
            return False
        a, b = (np.asarray(x, "f8") for x in (got, want))
        return np.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True)

    return same


def _short(why):
    """A reason without the node's name and sizes."""
    why = re.sub(r"^node \S+ \((\w+)\): (\1: )?", "", why)
    return re.sub(r"the (input|output|initializer) '[^']*'", r"an \1", why)[:110]


def table(rows):
    """The report as Markdown."""
    scope = [r for r in rows if r[2]]
    passed = sum(r[3] == "passed" for r in scope)
    lines = [
        "# ONNX operators",
        "",
        "For those who want to know whether their ONNX model can be imported.",
        "",
        f"The table is of the backend tests of the package `onnx` ({onnx.__version__}), compiled "
        "with default schedules and",
        "compared with the results that they come with. Every test in scope that does not pass is "
        "refused with an",
        "error that names the operator. Results of bfloat16, out of scope, come as float32, which "
        "its tests",
        "do not take. Regenerate it with",
        "`python tests/graph/conformance.py --docs docs/onnx_operators.md`.",
        "",
        f"In scope (element types that te has, operators of the default domain): {len(scope)} "
        f"tests, {passed} passed ({100 * passed / max(len(scope), 1):.1f} %).",
        f"Out of scope: {len(rows) - len(scope)} tests (strings, sequences, float8, 4-bit and "
        "unsigned types, training).",
        "",
        "| operator | passed | of | refused because |",
        "|---|---|---|---|",
    ]
    by = collections.defaultdict(list)
    for r in scope:
        by[r[1]].append(r)
    for operator, tests in sorted(by.items()):
        why = sorted({_short(r[4]) for r in tests if r[3] != "passed"})
        good = sum(r[3] == "passed" for r in tests)
        reasons = textwrap.shorten("; ".join(why), 70, placeholder=" …").replace("|", "\\|")
        lines.append(f"| {operator} | {good} | {len(tests)} | {reasons} |")
    return "\n".join(lines) + "\n"


def main():
    """Run the tests; print what failed."""
    p = argparse.ArgumentParser()
    p.add_argument("--match", default="")
    p.add_argument("--docs")
    a = p.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, operator, model, sets, rtol, atol in cases():
        if re.search(a.match, name):
            found = outcome(model, sets, rtol, atol)
            rows.append((name, operator, in_scope(model.graph), *found))
            if found[0] == "failed":
                print(f"{name}: {found[1]}", flush=True)
    if a.docs:
        Path(a.docs).write_text(table(rows))
    print(dict(collections.Counter(("in " if r[2] else "out ") + r[3] for r in rows)))
    sys.exit(any(r[2] and r[3] == "failed" for r in rows))


if __name__ == "__main__":
    main()
