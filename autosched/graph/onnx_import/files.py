"""What is read, and how much of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Union

from autosched.checks import instance, path_text
from autosched.graph.errors import Unsupported

if TYPE_CHECKING:
    import onnx

ModelLike = Union[str, "os.PathLike[str]", bytes, "onnx.ModelProto"]


@dataclass(frozen=True)
class Bounds:
    """What a file may ask for: `bytes` of the file, `nodes` with those of subgraphs and function
    bodies (and as many inputs, outputs and constants), `depth` of subgraphs and functions,
    `elements` and `rank` of one value.

    Import allocates the file, its constants once more, and up to 64 KiB a node: no value is
    computed that has more than `fold.SMALL` elements.
    """

    bytes: int = 1 << 31
    nodes: int = 100_000
    depth: int = 28
    elements: int = 1 << 32
    rank: int = 32


BOUNDS = Bounds()
MALFORMED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What protobuf, onnx and NumPy raise where a file breaks the rules of its format."""


def load(model: ModelLike, bounds: Bounds) -> tuple[onnx.ModelProto, Path | None]:
    """The model and the folder that its external data is in, None where it has no path. Raises
    Unsupported for what is no model, and for one with too many nodes."""
    try:
        import onnx
    except ImportError as e:
        raise Unsupported(
            "reading ONNX files needs the package onnx: pip install 'autosched[onnx]'"
        ) from e
    from google.protobuf.message import DecodeError

    instance("bounds", bounds, Bounds, "Bounds", Unsupported)
    folder = None
    if isinstance(model, onnx.ModelProto):
        proto = model
    else:
        if not isinstance(model, bytes):
            path = Path(path_text("the model", model, Unsupported))
            folder, model = path.parent, _read(path, bounds)
        if len(model) > bounds.bytes:
            raise Unsupported(f"the model has {len(model)} bytes; at most {bounds.bytes} are read")
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(model)
        except (DecodeError, RuntimeError, ValueError) as e:
            raise Unsupported(f"no ONNX model: {e}") from e
    if not proto.HasField("graph"):
        raise Unsupported("no ONNX model: the file has no graph")
    if len(proto.graph.node) > bounds.nodes:
        raise Unsupported(
            f"the model has {len(proto.graph.node)} nodes; more than {bounds.nodes} nodes are not "
            "read"
        )
    g = proto.graph
    for what, found in (("inputs", g.input), ("outputs", g.output), ("constants", g.initializer)):
        if len(found) > bounds.nodes:
            raise Unsupported(f"the model has {len(found)} {what}; at most {bounds.nodes} are read")
    return proto, folder


def _read(path: Path, bounds: Bounds) -> bytes:
    try:
        size = path.stat().st_size
        if size > bounds.bytes:
            raise Unsupported(f"{path} has {size} bytes; at most {bounds.bytes} are read")
        return path.read_bytes()
    except OSError as e:
        raise Unsupported(f"{path} cannot be read: {e.strerror}; expected an ONNX file") from e
