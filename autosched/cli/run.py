"""`autosched run`."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from autosched.cli.common import filled
from autosched.cli.model import add_model_options, build_model, is_model
from autosched.errors import ArgumentError, WorkloadError

_EPILOG = """\
examples:
  autosched run resnet50/ --input data=image.npy
  autosched run resnet50.onnx --input data=image.npy --output scores.npz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "model", metavar="DIR|MODEL.onnx", help="what `autosched compile` wrote, or an ONNX file"
    )
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy",
        help="an input's array, as numpy.save writes it; also gives sizes that an ONNX file leaves "
        "open",
    )  # fmt: skip
    parser.add_argument(
        "--output", type=filled, metavar="FILE.npz", help="write the outputs there, by name"
    )
    add_model_options(parser)


def run(options: argparse.Namespace) -> int:
    """Run a model once."""
    if not is_model(options.model):
        raise WorkloadError(
            f"{options.model} is neither an ONNX file nor a folder that `autosched compile` wrote"
        )
    inputs = dict(_array(text) for text in options.input)
    if options.model.endswith(".onnx"):  # sizes that the file leaves open are those of the arrays
        fixed = dict(options.shape)
        options.shape += [(n, a.shape) for n, a in inputs.items() if n not in fixed]
    model = build_model(options.model, options)
    names = [i.name for i in model.inputs]
    unknown = next((n for n in inputs if n not in names), None)
    if unknown is not None:
        raise ArgumentError(f"no input is named {unknown!r}; there are {', '.join(names)}")
    missing = [i for i in model.inputs if i.name not in inputs]
    if missing:
        wanted = ", ".join(f"{i.name} ({i.dtype} {i.shape})" for i in missing)
        raise ArgumentError(f"inputs are missing: {wanted}; give each by --input NAME=FILE.npy")
    outputs = model.run(inputs)
    named = {o.name: a for o, a in zip(model.outputs, outputs, strict=True)}
    if options.output:
        _write(options.output, named)
    for name, a in named.items():
        text = np.array2string(a.reshape(-1)[:6], precision=6, separator=", ")
        more = ", …" if a.size > 6 else ""
        print(f"{name}: {a.dtype} {a.shape} {text[:-1]}{more}]")
    return 0


def _write(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """What np.savez writes, whatever the names are: they are the model's."""
    try:
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w") as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    except OSError as e:
        raise ArgumentError(f"--output {path} cannot be written: {e.strerror}") from e


def _array(text: str) -> tuple[str, np.ndarray]:
    name, equals, path = text.partition("=")
    if not equals or not Path(path).is_file():
        raise ArgumentError(f"--input {text!r}: expected NAME=FILE.npy, and the file to be there")
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as e:
        raise ArgumentError(f"--input {text!r}: expected numbers as numpy.save writes them") from e
    if not isinstance(array, np.ndarray):
        with array:
            names = ", ".join(array.files)
        raise ArgumentError(
            f"--input {text!r}: the file is an archive, of numpy.savez, with {names or 'nothing'}; "
            "expected one array as numpy.save writes it"
        )
    return name, array
