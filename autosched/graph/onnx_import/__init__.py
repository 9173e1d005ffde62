"""ONNX models as modules of the graph level.

Operators keep their names and attributes. Inputs that are known become attributes where the
definition wants them so, small constant expressions (shape arithmetic) are computed at once, and an
operator without a definition comes in by its function body. A file is someone else's: names,
sizes, numbers of nodes and depth are checked, and nothing is read from outside of its folder.

    files       a path, bytes or a ModelProto -> a ModelProto within `Bounds`
    tensors     attributes, arrays, external data, types of inputs
    scope       names of a graph, bindings of its calls, the order of its nodes
    reader      graphs and nodes
    subgraphs   If; loops: Loop, Scan
    sequences   sequences and optional values, element by element
    functions   function bodies: the file's, ONNX's, and those of onnxruntime's operators
    microsoft   bodies of onnxruntime's operators; attention: those of its attention
    learned     operators of ai.onnx.ml: trees, linear models, steps of pipelines
    upgrade     operators of old opsets in today's form
    packed      weights of four bits
    many        operators with hundreds of arguments or results
    skeleton    models without their weights, and the modules of these
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autosched.graph.errors import Unsupported
from autosched.graph.onnx_import.files import BOUNDS, MALFORMED, Bounds, ModelLike, load
from autosched.graph.onnx_import.reader import Reader
from autosched.graph.onnx_import.scope import Origins, inputs_of
from autosched.tir.module import IRModule

__all__ = ["Bounds", "ModelLike", "OpenModel", "from_onnx"]


def from_onnx(
    model: ModelLike,
    shapes: Mapping[str, Sequence[int]] | None = None,
    bounds: Bounds = BOUNDS,
) -> IRModule:
    """The module of a model: its graph is the function `main`.

    `model`: a path, the file's bytes, or a ModelProto. `shapes` fixes the shapes of inputs by
    name; sizes that the file leaves open must be given. Raises Unsupported, naming node, operator
    and attribute.
    """
    return OpenModel(model, bounds).module(shapes or {})


class OpenModel:
    """A model whose open sizes are given each time that it is read. All modules share its
    constants."""

    def __init__(self, model: ModelLike, bounds: Bounds = BOUNDS) -> None:
        proto, folder = load(model, bounds)
        self._reader = Reader(proto, folder, bounds)

    def module(
        self, shapes: Mapping[str, Sequence[int]], origins: Origins | None = None
    ) -> IRModule:
        """As `from_onnx`; what is computed while the model is read is noted in `origins`."""
        try:
            return IRModule({}, {"main": self._reader.main(shapes, origins)})
        except MALFORMED as e:
            raise Unsupported(f"the model is malformed: {type(e).__name__}: {e}") from e

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(i.name for i in inputs_of(self._reader.model.graph))
