"""Tensors, their axes, and the expression node that reads one element of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Self, Union

from autosched.checks import mapping, shown
from autosched.errors import TensorExprError
from autosched.integers import as_int, integer, plain
from autosched.te.axes import AxisKind as AxisKind
from autosched.te.axes import Extent as Extent
from autosched.te.axes import IterVar as IterVar
from autosched.te.axes import Range as Range
from autosched.te.axes import broadcast as broadcast
from autosched.te.axes import check_shape as check_shape
from autosched.te.axes import positive as positive
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.affine import sometimes
from autosched.tir.expr import Expr, ExprLike
from autosched.tir.height import nodes
from autosched.tir.nodes import Reducer
from autosched.tir.routine import Routine
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar


class Kept:
    """An operation: told by identity and never changed, so a copy is itself; a pickle is another
    one, and so are the axes and tensors in it."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def output(self, index: int = 0) -> Tensor:
        """The tensor that is output `index`. Raises TensorExprError if there is none."""
        op: Any = self
        number = integer("output", index, 0, TensorExprError)
        if number >= getattr(op, "num_outputs", 1):
            raise TensorExprError(f"{op.name} has no output {number}")
        made: Tensor | None = vars(op).get("_outputs", {}).get(number)
        placed = isinstance(op, PlaceholderOp)
        shape, dtype = (op.shape, op.dtype) if placed else op.result(number)
        return Tensor(op.name, shape, dtype, op, number) if made is None else made

    def __reduce__(self) -> tuple[Any, ...]:
        given = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        if "attrs" in given:
            given["attrs"] = dict(given["attrs"])  # what is read-only cannot be pickled
        return _unpickled, (type(self), given)


def _unpickled(kind: type[Any], given: dict[str, Any]) -> Any:
    if "attrs" in given:
        given["attrs"] = MappingProxyType(given["attrs"])
    return kind(**given)


@dataclass(frozen=True, eq=False)
class PlaceholderOp(Kept):
    """The origin of an input."""

    name: str
    shape: tuple[Extent, ...]
    dtype: str
    auto_named: bool = False

    axis: tuple[IterVar, ...] = ()
    reduce_axis: tuple[IterVar, ...] = ()

    @property
    def attrs(self) -> Mapping[str, Any]:
        """No attributes: those of an input stand with its reader."""
        return {}

    @property
    def input_tensors(self) -> list[Tensor]:
        """None."""
        return []


@dataclass(frozen=True, eq=False)
class ComputeOp(Kept):
    """A computation: element `body[n]` of output n at the point `axis`, or, with a reducer, the
    combination of `body` over `reduce_axis`."""

    name: str
    axis: tuple[IterVar, ...]
    reduce_axis: tuple[IterVar, ...]
    body: tuple[Expr, ...]
    reducer: Reducer | None
    attrs: Mapping[str, Any]
    tag: str = ""
    auto_named: bool = False
    written: Expr | None = field(default=None, repr=False)
    """What operators on whole tensors wrote: the element, operands of rank 0 written out."""

    @property
    def shape(self) -> tuple[Extent, ...]:
        """Shape of every output."""
        return tuple(a.extent for a in self.axis)

    def result(self, index: int) -> tuple[tuple[Extent, ...], str]:
        """Shape and dtype of an output."""
        return self.shape, self.body[index].dtype

    @property
    def num_outputs(self) -> int:
        """How many tensors it computes."""
        return len(self.body)

    @property
    def input_tensors(self) -> list[Tensor]:
        """Every tensor that is read, once, in order of first appearance."""
        seen: dict[int, Tensor] = {}
        for body in self.body:
            for e in nodes(body):
                if isinstance(e, TensorRead):
                    seen.setdefault(id(e.tensor), e.tensor)
        return list(seen.values())


@dataclass(frozen=True, eq=False)
class ScanOp(Kept):
    """A recurrence over the first axis, made by te.scan: step t of state n is element t of
    `update[n]`, for t in the domain of `scan_axis`; the steps before it are those of `init[n]`.

    `state` are the placeholders through which the updates read earlier steps; `stages` are the
    computations of one step, producers first, updates included.
    """

    name: str
    scan_axis: IterVar
    init: tuple[Tensor, ...]
    update: tuple[Tensor, ...]
    state: tuple[Tensor, ...]
    stages: tuple[ComputeOp, ...]
    inputs: tuple[Tensor, ...]
    attrs: Mapping[str, Any]
    tag: str = ""
    auto_named: bool = False

    reduce_axis: tuple[IterVar, ...] = ()

    @property
    def num_outputs(self) -> int:
        """How many states it has."""
        return len(self.state)

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The scan axis."""
        return (self.scan_axis,)

    def result(self, index: int) -> tuple[tuple[Extent, ...], str]:
        """Shape and dtype of a state, whole."""
        return self.state[index].shape, self.state[index].dtype

    @property
    def input_tensors(self) -> list[Tensor]:
        """The first steps and the updates."""
        return [*self.init, *self.update]


@dataclass(frozen=True, eq=False)
class ExternOp(Kept):
    """A computation that a routine does, made by te.extern: its parameters are `inputs`, then the
    outputs of `shapes` and `dtypes`, which need not be 0 at first where it `sets_all`."""

    name: str
    inputs: tuple[Tensor, ...]
    shapes: tuple[tuple[Extent, ...], ...]
    dtypes: tuple[str, ...]
    routine: Routine
    attrs: Mapping[str, Any]
    tag: str = ""
    auto_named: bool = False
    sets_all: bool = False
    axis: tuple[IterVar, ...] = ()
    reduce_axis: tuple[IterVar, ...] = ()

    @property
    def num_outputs(self) -> int:
        """How many tensors it computes."""
        return len(self.shapes)

    def result(self, index: int) -> tuple[tuple[Extent, ...], str]:
        """Shape and dtype of an output."""
        return self.shapes[index], self.dtypes[index]

    @property
    def input_tensors(self) -> list[Tensor]:
        """The inputs."""
        return list(self.inputs)


Operation = Union[PlaceholderOp, ComputeOp, ScanOp, ExternOp]


class Tensor(ex.Operators):
    """An array of `shape` and `dtype`, an input or the result of a computation.

    Indexed by `A[i, j]`, `A[i][j]` or `A(i, j)`; of rank 0 by `A[()]`, `A()`, or used directly in
    arithmetic with elements. Arithmetic and the functions of `te` on a whole tensor make the tensor
    of the results, operands being broadcast as in NumPy: `A + 1`, `te.exp(A) * bias`.
    `==` with another Tensor is identity; write `A() == B()` to compare elements.
    """

    __slots__ = ("dtype", "name", "op", "shape", "value_index")

    def __init__(
        self, name: str, shape: tuple[Extent, ...], dtype: str, op: Operation, value_index: int = 0
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.op = op
        self.value_index = value_index
        # Tensors are told by identity: `op.output` gives back the first that was made.
        vars(op).setdefault("_outputs", {}).setdefault(value_index, self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self.name, self.shape, self.dtype, self.op, self.value_index)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {self.shape}, {self.dtype})"

    def __call__(self, *indices: ExprLike) -> Expr:
        """The element at `indices`. Raises TensorExprError on a wrong number or type of indices."""
        if len(indices) != len(self.shape):
            raise TensorExprError(
                f"{self.name} has rank {len(self.shape)} (shape {self.shape}); "
                f"found {len(indices)} indices"
            )
        return TensorRead(self, tuple(self._index(n, i) for n, i in enumerate(indices)))

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Any:
        given = indices if isinstance(indices, tuple) else (indices,)
        if 0 < len(given) < len(self.shape):
            return TensorSlice(self, tuple(self._index(n, i) for n, i in enumerate(given)))
        return self(*given)

    def __iter__(self) -> Any:
        raise TensorExprError(f"{self.name} is a tensor and cannot be iterated over; index it")

    def _index(self, dimension: int, index: ExprLike) -> Expr:
        where = f"index {dimension} of {self.name}"
        if isinstance(index, (slice, type(None), type(...))):
            raise TensorExprError(
                f"{where} is {index!r}; slices are not supported, give every index"
            )
        e = ex.as_expr(index)
        if not dtypes.is_int(e.dtype):
            raise TensorExprError(f"{where} is {e!r} of dtype {e.dtype}; expected an integer")
        if isinstance(e, ex.Const) and not (
            e.value >= 0 and sometimes(e.value < self.shape[dimension])
        ):
            raise TensorExprError(f"{where} is {e.value}; its extent is {self.shape[dimension]}")
        return ex.cast(e, dtypes.INDEX)

    def __as_expr__(self) -> Expr:
        if self.shape:
            raise TensorExprError(
                f"{self.name} has rank {len(self.shape)} (shape {self.shape}) and is used without "
                f"indices; write {self.name}[{', '.join('ijklmnop'[: len(self.shape)])}]"
            )
        # In a larger expression what was written without indices is written out.
        value = self._written
        return TensorRead(self, ()) if value is None else value

    @property
    def _written(self) -> Expr | None:
        return self.op.written if isinstance(self.op, ComputeOp) else None

    def __elementwise__(
        self, function: Callable[..., Expr], name: str, operands: Sequence[ExprLike]
    ) -> Tensor:
        """The tensor of `function` of each element of the operands, broadcast as in NumPy.

        Raises TensorExprError where shapes do not fit, or an operand depends on an axis: there the
        tensor lacks its indices.
        """
        tensors = [x for x in operands if isinstance(x, Tensor) and x.shape]
        for x in operands:
            if isinstance(x, (Expr, TensorSlice)) and _depends(x):
                self.__as_expr__()
        shape = broadcast([t.shape for t in tensors], [t.name for t in tensors])
        axis = tuple(
            IterVar(f"i{n}", dtypes.INDEX, 0, extent, "spatial", name)
            for n, extent in enumerate(shape)
        )

        def element(x: ExprLike) -> ExprLike:
            if not isinstance(x, Tensor):
                return x
            own = axis[len(axis) - len(x.shape) :]
            return x(*(0 if n == 1 else a for n, a in zip(x.shape, own, strict=True)))

        body = value = function(*map(element, operands))
        if not shape:
            value = function(*(x.__as_expr__() if isinstance(x, Tensor) else x for x in operands))
        op = ComputeOp(name, axis, (), (body,), None, MappingProxyType({}), "", True, value)
        return Tensor(name, shape, body.dtype, op)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Tensor) or self.shape:
            return self is other
        return self.__as_expr__() == other

    def __ne__(self, other: object) -> Any:
        if isinstance(other, Tensor) or self.shape:
            return self is not other
        return self.__as_expr__() != other

    def __bool__(self) -> bool:
        # `if tensor:` asks whether there is one, but that of a comparison asks for its result.
        if self.dtype == "bool" and self._written is not None:
            raise TensorExprError(ex.NO_TRUTH_VALUE)
        return True


@dataclass(frozen=True, eq=False)
class TensorSlice(ex.Operators):
    """`A[i]` of a tensor of two dimensions and more: to be indexed further, `A[i][j]`."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Any:
        more = indices if isinstance(indices, tuple) else (indices,)
        return self.tensor[(*self.indices, *more)]

    def __iter__(self) -> Any:
        raise TensorExprError(f"{self!r} is part of a tensor and cannot be iterated over; index it")

    def __as_expr__(self) -> Expr:
        return self.tensor(*self.indices)  # which says how many indices are missing

    def __repr__(self) -> str:
        return f"{self.tensor.name}[{', '.join(map(repr, self.indices))}]"


def _depends(e: Expr | TensorSlice) -> bool:
    """Whether a value depends on an axis."""
    parts = e.indices if isinstance(e, TensorSlice) else (e,)
    return any(isinstance(x, IterVar) for part in parts for x in nodes(part))


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class TensorRead(Expr):
    """The element of `tensor` at `indices`, each of dtype int64."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """That of the tensor."""
        return self.tensor.dtype

    def same_leaf(self, other: TensorRead) -> bool:
        """Whether both read the same element of the same tensor."""
        return self.tensor is other.tensor and all(
            ex.same(x, y) for x, y in zip(self.indices, other.indices, strict=True)
        )

    def __repr__(self) -> str:
        return f"{self.tensor.name}[{', '.join(map(repr, self.indices)) or '()'}]"


def check_name(name: Any, what: str) -> str:
    """`name` if it is a printable string; logs refuse others, since they could steer terminals."""
    if not isinstance(name, str) or not name or not name.isprintable():
        raise TensorExprError(
            f"name of {what} is {shown(name)}; expected non-empty, printable text"
        )
    return str(name)


def check_attrs(attrs: Any, what: str) -> dict[str, Any]:
    """Attributes of an operation, by name, numbers as Python's."""
    given = mapping(f"attrs of {what}", attrs, "a mapping from texts to values", TensorExprError)
    return {key: plain(value) for key, value in given.items()}


def check_tag(tag: Any, what: str) -> str:
    """The tag of an operation: any text."""
    if not isinstance(tag, str):
        raise TensorExprError(f"tag of {what} is {shown(tag)}; expected a text")
    return tag


def placeholder(shape: Any, dtype: str = "float32", name: str | None = None) -> Tensor:
    """An input of `shape` (a tuple of positive ints or sizes; `()` for a scalar) and `dtype`.

    Raises TensorExprError on an extent that may be below 1 and on an unknown dtype.
    """
    label = check_name("placeholder" if name is None else name, "a placeholder")
    checked = check_shape(shape, f"placeholder {label}")
    dtypes.check(dtype, f"placeholder {label}")
    return Tensor(label, checked, dtype, PlaceholderOp(label, checked, dtype, name is None))


def reduce_axis(dom: tuple[int, Extent | Expr], name: str | None = None) -> IterVar:
    """A reduction axis over [begin, end), `dom` being that pair; `end` may be symbolic."""
    label = check_name("rv" if name is None else name, "a reduction axis")
    where = f"reduction axis {label}"
    if not isinstance(dom, (tuple, list)) or len(dom) != 2:
        raise TensorExprError(f"domain of {where} is {dom!r}; expected (begin, end)")
    begin, end = dom
    if isinstance(begin, ex.Const):
        begin = begin.value
    first = as_int(begin)
    if first is None:
        raise TensorExprError(f"begin of {where} is {begin!r}; expected an int")
    last = as_int(end)
    if last is None and not isinstance(end, (Expr, Size)):
        raise TensorExprError(f"end of {where} is {end!r}; expected an int or a size")
    extent = positive((end if last is None else last) - first, f"extent of {where}")
    return IterVar(label, dtypes.INDEX, first, extent, "reduce", "", name is None)


def var(name: str = "n", dtype: str = dtypes.INDEX) -> SizeVar:
    """A symbolic size: a number of at least 1 that the shapes of the arrays in a call decide.

    It stands in shapes, in domains of reductions and in expressions, alone or in sums, products and
    quotients by constants: `te.placeholder((n, 2 * n + 1))`. Each must follow from the shape of a
    parameter. `dtype` may be "int32", too: sizes are kept and computed in int64 all the same.
    Raises TensorExprError for another dtype.
    """
    if not isinstance(dtype, str) or dtype not in (dtypes.INDEX, "int32"):
        raise TensorExprError(
            f"variable {shown(name)} has dtype {shown(dtype)}; a symbolic size is int64 or int32, "
            "and a scalar of another dtype is an input: te.placeholder((), dtype)"
        )
    return SizeVar(check_name(name, "a variable"), dtypes.INDEX)
