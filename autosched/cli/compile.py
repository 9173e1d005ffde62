"""`autosched compile`."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from autosched.cli.common import filled
from autosched.cli.model import add_model_options, build_model, check_folder
from autosched.errors import WorkloadError

_EPILOG = """\
The folder holds object code, the constants as kernels take them, and the plan; it runs without onnx
and without a compiler: autosched run DIR, or graph.load(DIR) in Python.

examples:
  autosched compile resnet50.onnx
  autosched compile ocr.onnx --shape x=1,3,48,320 -o ocr/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    parser.add_argument("model", metavar="MODEL.onnx", help="an ONNX file")
    add_model_options(parser)
    parser.add_argument(
        "-o", "--output", type=filled, metavar="DIR", help="default: the file's name"
    )


def run(options: argparse.Namespace) -> int:
    """Compile a model into a folder."""
    if not options.model.endswith(".onnx"):
        raise WorkloadError(f"{options.model} is no ONNX file: its name does not end with .onnx")
    start = time.perf_counter()
    folder = options.output or Path(options.model).stem
    check_folder("-o", folder)
    model = build_model(options.model, options)
    model.save(folder)
    host = f", {len(model.host_operators)} operators in NumPy" if model.host_operators else ""
    recorded = sum(k.seconds is not None for k in model.kernels)
    print(
        f"{folder}: {len(model.kernels)} kernels ({len(model.by_name)} distinct, {recorded} from "
        f"records){host}, workspace {model.plan.bytes / 1e6:.1f} MB, constants "
        f"{sum(a.nbytes for a in model.constants) / 1e6:.1f} MB, "
        f"{time.perf_counter() - start:.1f} s"
    )
    return 0
