"""Engines: each turns a workload into a function without arguments, and says what it left where.

`open_engine(name, workload, threads, weights)` gives an `Engine`: `run()` computes once, `output()`
is the result of the last run as a NumPy array in the workload's own layout. What a library reads
from the environment (threads, kernels) is set by whoever starts the server.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from workload import Array, Workload

Weights = Literal["run-time", "constant"]
ENGINES = (
    "numpy",
    "numpy-skx",
    "torch",
    "torch-alloc",
    "torch-cl",
    "torch-compile",
    "torch-compile-ma",
    "torch-compile-cl",
    "ort",
    "openvino",
    "openvino-nhwc",
)
"""`-skx`: OpenBLAS forced to its AVX-512 kernels. `-alloc`: PyTorch allocates its result. `-cl`:
tensors channels last. `-ma`: mode max-autotune. `-nhwc`: tensors handed over channels last."""


@dataclass(frozen=True)
class Engine:
    """An opened engine. `about` names versions and settings; `holds` is what must live as long as
    it: the libraries keep addresses of arrays, not the arrays."""

    run: Callable[[], Any]
    output: Callable[[], Array]
    about: dict[str, Any]
    holds: tuple[Any, ...] = ()


def open_engine(name: str, workload: Workload, threads: int, weights: Weights) -> Engine:
    """Prepare an engine for a workload. Raises ValueError where it has no such operation."""
    if name not in ENGINES:
        raise ValueError(f"no engine {name!r}; there are {', '.join(ENGINES)}")
    kind, *variant = name.split("-")
    opened = {"numpy": _numpy, "torch": _pytorch, "ort": _onnxruntime, "openvino": _openvino}[kind]
    return opened(workload, variant, threads, weights)


def _numpy(workload: Workload, variant: list[str], threads: int, weights: Weights) -> Engine:
    import threadpoolctl  # type: ignore[import-not-found,unused-ignore]

    compute = workload.numpy
    if compute is None:
        raise ValueError("NumPy has no such operation")
    arrays = {**workload.inputs, **workload.weights}
    out = np.empty(workload.shape, np.float32)
    blas = [
        {k: pool.get(k) for k in ("version", "architecture", "num_threads")}
        for pool in threadpoolctl.threadpool_info()
        if pool.get("internal_api") == "openblas"
    ]
    return Engine(
        lambda: compute(arrays, out), lambda: out, {"numpy": np.__version__, "blas": blas}
    )


def _pytorch(workload: Workload, variant: list[str], threads: int, weights: Weights) -> Engine:
    import torch  # type: ignore[import-not-found,unused-ignore]

    if ("cl" in variant) and not workload.image:
        raise ValueError("channels last is for images")
    torch.set_num_threads(threads)
    compiled = "compile" in variant
    constants = list(workload.weights) if weights == "constant" else []

    def tensor(array: Array) -> Any:
        t = torch.from_numpy(array)
        return t.contiguous(memory_format=torch.channels_last) if "cl" in variant else t

    out = None
    # What is compiled allocates its own result, as does an operation without an `out=` form.
    if not (compiled or workload.image or "alloc" in variant):
        out = torch.empty(workload.shape)

    class Module(torch.nn.Module):  # type: ignore[misc,name-defined,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            for name in constants:
                self.register_buffer(f"w_{name}", tensor(workload.weights[name]))

        def forward(self, arguments: dict[str, Any]) -> Any:
            frozen = {name: getattr(self, f"w_{name}") for name in constants}
            if out is None and not workload.image:
                return workload.torch({**arguments, **frozen}, None)
            return workload.torch({**arguments, **frozen}, out)

    arrays = {**workload.inputs, **workload.weights}
    arguments = {k: tensor(v) for k, v in arrays.items() if k not in constants}
    call: Any = Module().eval()
    if compiled:
        import torch._inductor.config as settings

        os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="inductor_")
        settings.freezing = weights == "constant"
        call = torch.compile(call, mode="max-autotune" if "ma" in variant else None, fullgraph=True)
    else:
        # Without the module's hooks in between: the fastest way that a user has to call it.
        call = call.forward
    # Freezing refuses inference mode; elsewhere it saves the book-keeping of gradients.
    torch.set_grad_enabled(False)
    last: list[Any] = [None]

    def run() -> None:
        last[0] = call(arguments)

    about = {"torch": torch.__version__, "mkldnn": torch.backends.mkldnn.is_available()}
    return Engine(run, lambda: last[0].contiguous().numpy(), about)


def _model(workload: Workload, weights: Weights) -> tuple[bytes, dict[str, Array]]:
    """The ONNX model and what has to be fed to it."""
    import onnx  # type: ignore[import-not-found,unused-ignore]
    from onnx import TensorProto, helper, numpy_helper

    feeds = {k: np.ascontiguousarray(v) for k, v in workload.inputs.items()}
    if weights == "run-time":
        feeds |= {k: np.ascontiguousarray(v) for k, v in workload.weights.items()}
    used = {name for node in workload.nodes for name in node.inputs}
    if weights == "run-time" and used & workload.weights.keys() != workload.weights.keys():
        raise ValueError("the ONNX form of this workload has its weights as constants only")
    graph = helper.make_graph(
        [helper.make_node(n.op, list(n.inputs), [n.output], **n.attrs) for n in workload.nodes],
        "graph",
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, v.shape) for k, v in feeds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, workload.shape)],
        [
            numpy_helper.from_array(v, k)
            for k, v in {**workload.weights, **workload.constants}.items()
            if k in used and k not in feeds
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    model.ir_version = 9
    onnx.checker.check_model(model)
    return onnx.shape_inference.infer_shapes(model).SerializeToString(), feeds


def _onnxruntime(workload: Workload, variant: list[str], threads: int, weights: Weights) -> Engine:
    import onnxruntime  # type: ignore[import-not-found,unused-ignore]

    model, feeds = _model(workload, weights)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    values = {k: onnxruntime.OrtValue.ortvalue_from_numpy(v) for k, v in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    out = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros(workload.shape, np.float32))
    binding.bind_ortvalue_output("y", out)
    return Engine(
        lambda: session.run_with_iobinding(binding),
        lambda: np.asarray(out.numpy()),
        {"onnxruntime": onnxruntime.__version__},
        holds=(feeds, values),
    )


def _openvino(workload: Workload, variant: list[str], threads: int, weights: Weights) -> Engine:
    import openvino  # type: ignore[import-not-found,unused-ignore]

    model, feeds = _model(workload, weights)
    core = openvino.Core()
    graph = core.read_model(model)
    nhwc = "nhwc" in variant
    shape = workload.shape
    if nhwc:
        if not workload.image:
            raise ValueError("NHWC is for images")
        graph = _channels_last(graph)
        feeds["x"] = np.ascontiguousarray(np.moveaxis(feeds["x"], 1, -1))
        shape = (shape[0], *shape[2:], shape[1])
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        # Its default on this kind of processor is bfloat16.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(graph, "CPU", settings)
    request = compiled.create_infer_request()
    tensors = {k: openvino.Tensor(v, shared_memory=True) for k, v in feeds.items()}
    for name, tensor in tensors.items():
        request.set_tensor(name, tensor)
    out = np.zeros(shape, np.float32)
    kept = openvino.Tensor(out, shared_memory=True)
    request.set_output_tensor(kept)
    about = {
        "openvino": openvino.__version__,
        "precision": str(compiled.get_property("INFERENCE_PRECISION_HINT")),
    }
    return Engine(
        # Shared outputs: the default would copy the result into a fresh array.
        lambda: request.infer(share_outputs=True),
        lambda: np.moveaxis(out, -1, 1) if nhwc else out,
        about,
        holds=(core, compiled, feeds, tensors, kept),
    )


def _channels_last(graph: Any) -> Any:
    from openvino import Layout  # type: ignore[import-not-found,unused-ignore]
    from openvino.preprocess import PrePostProcessor  # type: ignore[import-not-found,unused-ignore]

    steps = PrePostProcessor(graph)
    steps.input("x").tensor().set_layout(Layout("NHWC"))
    steps.input("x").model().set_layout(Layout("NCHW"))
    steps.output().model().set_layout(Layout("NCHW"))
    steps.output().tensor().set_layout(Layout("NHWC"))
    return steps.build()
