"""`autosched quantise`."""

from __future__ import annotations

import argparse
from pathlib import Path

from autosched.cli.common import filled
from autosched.cli.model import add_model_options, build_module, check_folder, read_model
from autosched.errors import WorkloadError

_EPILOG = """\
The samples are arrays by the names of the model's inputs (numpy.savez); the first axis of each may
be a multiple of the input's: then they are so many samples. The folder that is written runs like
one of autosched compile.

examples:
  autosched quantise resnet18.onnx --samples images.npz -o resnet18_int8/
  autosched quantise net.onnx --samples x.npz --scheme entropy --skip head -o net_int8/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    parser.add_argument("model", metavar="MODEL.onnx", help="an ONNX file of a float model")
    parser.add_argument(
        "--samples",
        type=filled,
        metavar="FILE.npz",
        required=True,
        help="inputs that calls will be like",
    )
    parser.add_argument(
        "--scheme", choices=("minmax", "percentile", "entropy"), default="minmax",
        help="how the range of activations follows from the samples (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--percentile", type=float, default=99.99, metavar="P",
        help="percent of the values that --scheme percentile keeps (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--skip", type=filled, action="append", default=[], metavar="LAYER",
        help="a layer that stays as it is, by the name that the report has",
    )  # fmt: skip
    add_model_options(parser)
    parser.add_argument(
        "-o", "--output", type=filled, metavar="DIR", help="default: the file's name with _int8"
    )


def run(options: argparse.Namespace) -> int:
    """Quantise a model, print the errors, compile it into a folder."""
    import numpy as np

    from autosched.graph.quantisation import quantise

    if not options.model.endswith(".onnx"):
        raise WorkloadError(f"{options.model} is no ONNX file: its name does not end with .onnx")
    folder = options.output or f"{Path(options.model).stem}_int8"
    check_folder("-o", folder)
    module = read_model(options.model, options)
    try:
        with np.load(options.samples, allow_pickle=False) as file:
            samples = {n: file[n] for n in file.files}
    except (OSError, ValueError, AttributeError) as e:
        raise WorkloadError(
            f"{options.samples} cannot be read as samples ({e}); expected a file of numpy.savez"
        ) from e
    found = quantise(module, samples, options.scheme, options.percentile, options.skip)
    print(found.table())
    build_module(found.module, options).save(folder)
    print(f"{folder}: {len(found.layers)} layers of 8 bits")
    return 0
