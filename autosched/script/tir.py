"""The namespace `T` of the script language, so that editors know its names.

    from autosched.script import prim_func, tir as T

    @prim_func
    def add_one(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in T.serial(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + 1.0

Functions in the language are parsed, never run: what stands here says only how things are called.
Types of parameters (`Buffer`, `handle`) may be evaluated, since Python does so with annotations;
everything else raises ScriptError when called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Union

from autosched.errors import ScriptError

Shape = Union[int, tuple[int, ...], list[int]]


def _parsed(name: str) -> NoReturn:
    raise ScriptError(
        f"T.{name} is part of the script language, which is parsed and never run; "
        "decorate the function with @prim_func"
    )


# -- buffers


@dataclass(frozen=True)
class Buffer:
    """Type of a parameter: a dense row-major array. `scope` is global, local or shared; `name` is
    for a buffer whose name is no identifier."""

    shape: Shape
    dtype: str = "float32"
    scope: str = "global"
    name: str | None = None

    def __getitem__(self, index: Any) -> Any:
        _parsed("Buffer")

    def __setitem__(self, index: Any, value: Any) -> None:
        _parsed("Buffer")


class handle:
    """Type of a parameter that `match_buffer` describes."""


def match_buffer(
    handle: Any, shape: Shape, dtype: str = "float32", *, scope: str = "global", name: str = ""
) -> Any:
    """The buffer behind a parameter of type `handle`."""
    _parsed("match_buffer")


def var(dtype: str = "int64") -> Any:
    """A symbolic size, as `T.int64()` is."""
    _parsed("var")


def alloc_buffer(
    shape: Shape,
    dtype: str = "float32",
    *,
    scope: str = "global",
    align: tuple[tuple[int, int, int], ...] = (),
    name: str = "",
    placed: Any = False,
) -> Any:
    """An intermediate. `align` holds (axis, factor, offset): the axis' stride is `offset` modulo
    `factor`. In a loop it lives for one iteration, which makes the program a lowered one;
    `placed=True` says the same of one that lives for the whole call."""
    _parsed("alloc_buffer")


def func_attr(attrs: dict[str, Any]) -> None:
    """Attributes of the function."""
    _parsed("func_attr")


# -- loops


def grid(*extents: int) -> Any:
    """Nested serial loops: `for i, j in T.grid(4, 5)`."""
    _parsed("grid")


def serial(extent: int, *, annotations: dict[str, Any] | None = None) -> Any:
    """A loop from 0 to `extent`."""
    _parsed("serial")


def parallel(extent: int, *, annotations: dict[str, Any] | None = None) -> Any:
    """A loop whose iterations are divided over threads."""
    _parsed("parallel")


def vectorized(extent: int, *, annotations: dict[str, Any] | None = None) -> Any:
    """A loop whose iterations are lanes of vectors."""
    _parsed("vectorized")


def unroll(extent: int, *, annotations: dict[str, Any] | None = None) -> Any:
    """A loop of copies of its body."""
    _parsed("unroll")


def thread_binding(extent: int, *, thread: str, annotations: dict[str, Any] | None = None) -> Any:
    """A loop bound to a GPU axis, such as `blockIdx.x`."""
    _parsed("thread_binding")


# -- blocks


def block(name: str) -> Any:
    """`with T.block("C"):` one elementary computation over axes of its own."""
    _parsed("block")


class axis:
    """Axes of a block: a name, an extent, and what of the loops around it stands at."""

    @staticmethod
    def spatial(extent: int, binding: Any) -> Any:
        """An axis over elements that are computed independently."""
        _parsed("axis.spatial")

    @staticmethod
    def reduce(extent: int, binding: Any) -> Any:
        """An axis over values that are combined."""
        _parsed("axis.reduce")

    @staticmethod
    def sequential(extent: int, binding: Any) -> Any:
        """An axis that is visited in order."""
        _parsed("axis.sequential")

    @staticmethod
    def remap(kinds: str, loops: list[Any]) -> Any:
        """One axis a loop: `vi, vk = T.axis.remap("SR", [i, k])`; Q is a sequential axis."""
        _parsed("axis.remap")


def where(condition: Any) -> None:
    """Skip the points of the loops at which the condition does not hold."""
    _parsed("where")


def reads(*elements: Any) -> None:
    """The elements that the block reads; found from its statements where left out."""
    _parsed("reads")


def writes(*elements: Any) -> None:
    """The elements that the block writes; found from its statements where left out."""
    _parsed("writes")


def opaque(name: str) -> Any:
    """`with T.opaque(name):` statements of a routine over whole buffers, which T.reads and
    T.writes list by name."""
    _parsed("opaque")


def block_attr(attrs: dict[str, Any]) -> None:
    """Annotations of the block."""
    _parsed("block_attr")


def init() -> Any:
    """`with T.init():` what a reduction sets its elements to at its first point."""
    _parsed("init")


def identity() -> Any:
    """`with T.identity():` the neutral elements of a reduction that an earlier block initialises.
    Sums, products, maxima and minima need none."""
    _parsed("identity")


# -- values


def cast(value: Any, dtype: str) -> Any:
    """`value` converted; floats to integers truncate, what does not fit becomes the least or the
    largest integer, and NaN 0."""
    _parsed("cast")


def reinterpret(dtype: str, value: Any) -> Any:
    """The bits of `value` as a dtype of as many."""
    _parsed("reinterpret")


def call_extern(name: str, *args: Any) -> Any:
    """In routines: a call of a C function that `autosched.tir.extern.register` knows; a buffer
    stands for its memory."""
    _parsed("call_extern")


def evaluate(value: Any) -> None:
    """In routines: a call of a C function for what it does."""
    _parsed("evaluate")


def _function(name: str, doc: str) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        _parsed(name)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


if_then_else = _function("if_then_else", "(condition, a, b): only the side taken is evaluated.")
select = _function("select", "(condition, a, b): both sides are evaluated.")

clamp_index = _function("clamp_index", "(i, n): i, or the nearest to it of 0 to n - 1.")
wrap_index = _function("wrap_index", "(i, n): i % n, so that -1 is the last of n.")

add = _function("add", "a + b")
sub = _function("sub", "a - b")
mul = _function("mul", "a * b")
div = _function("div", "a / b, of floats")
floordiv = _function("floordiv", "a // b, rounded to minus infinity")
floormod = _function("floormod", "a % b, with the sign of b")
bitwise_and = _function("bitwise_and", "a & b, of integers")
bitwise_or = _function("bitwise_or", "a | b, of integers")
bitwise_xor = _function("bitwise_xor", "a ^ b, of integers")
bitwise_not = _function("bitwise_not", "~a, of integers")
shift_left = _function("shift_left", "a << b, of integers; 0 for b outside of the width")
shift_right = _function("shift_right", "a >> b, of integers; the sign for b outside of the width")
neg = _function("neg", "-a")
lt = _function("lt", "a < b")
le = _function("le", "a <= b")
gt = _function("gt", "a > b")
ge = _function("ge", "a >= b")
eq = _function("eq", "a == b")
ne = _function("ne", "a != b")

min = _function("min", "The smaller of two.")
max = _function("max", "The larger of two.")
abs = _function("abs", "|a|")
pow = _function("pow", "a to the power b.")
exp = _function("exp", "e to the power a.")
log = _function("log", "Natural logarithm.")
sqrt = _function("sqrt", "Square root.")
rsqrt = _function("rsqrt", "1 / sqrt(a)")
tanh = _function("tanh", "Hyperbolic tangent.")
erf = _function("erf", "Error function.")
sigmoid = _function("sigmoid", "1 / (1 + exp(-a))")
sin = _function("sin", "Sine.")
cos = _function("cos", "Cosine.")
floor = _function("floor", "Largest integer not above a, as a float.")
ceil = _function("ceil", "Smallest integer not below a, as a float.")
round = _function("round", "Nearest integer, as a float; ties to even.")
tan = _function("tan", "Tangent.")
asin = _function("asin", "Arc sine.")
acos = _function("acos", "Arc cosine.")
atan = _function("atan", "Arc tangent.")
atan2 = _function("atan2", "(y, x): the angle of the point (x, y).")
sinh = _function("sinh", "Hyperbolic sine.")
cosh = _function("cosh", "Hyperbolic cosine.")
asinh = _function("asinh", "Inverse hyperbolic sine.")
acosh = _function("acosh", "Inverse hyperbolic cosine.")
atanh = _function("atanh", "Inverse hyperbolic tangent.")
exp2 = _function("exp2", "2 to the power of a.")
exp10 = _function("exp10", "10 to the power of a.")
expm1 = _function("expm1", "exp(a) - 1, exact near 0.")
log2 = _function("log2", "Logarithm to base 2.")
log10 = _function("log10", "Logarithm to base 10.")
log1p = _function("log1p", "log(1 + a), exact near 0.")
hypot = _function("hypot", "(a, b): sqrt(a^2 + b^2).")
fmod = _function("fmod", "(a, b): the rest of a / b, with the sign of a.")
copysign = _function("copysign", "(a, b): |a| with the sign of b.")
trunc = _function("trunc", "The integer next to a towards 0, as a float.")
nextafter = _function("nextafter", "(a, b): the float next to a towards b.")
popcount = _function("popcount", "How many bits are set.")
clz = _function("clz", "How many bits above the highest set one are 0.")

float16 = _function("float16", "A float16: of a number or 'inf', '-inf', 'nan', or a cast.")
float32 = _function("float32", "A float32: of a number or 'inf', '-inf', 'nan', or a cast.")
float64 = _function("float64", "A float64: of a number or 'inf', '-inf', 'nan', or a cast.")
bfloat16 = _function("bfloat16", "A bfloat16: of a number, or of a float32.")
int8 = _function("int8", "An int8: of a number, or a cast.")
int16 = _function("int16", "An int16: of a number, or a cast.")
int32 = _function("int32", "An int32: of a number, or a cast.")
int64 = _function(
    "int64",
    "An int64: of a number, or a cast. Plain integers are int64. Without an argument, at the head "
    "of a function, a symbolic size: `n = T.int64()`, to stand in shapes given to T.match_buffer.",
)
uint8 = _function("uint8", "A uint8: of a number, or a cast.")
uint16 = _function("uint16", "A uint16: of a number, or a cast.")
uint32 = _function("uint32", "A uint32: of a number, or a cast.")
uint64 = _function("uint64", "A uint64: of a number, or a cast.")
bool = _function("bool", "A bool: of True or False, or a cast.")


def prim_func(func: Any) -> Any:
    """`autosched.script.prim_func`."""
    from autosched.script.parser import prim_func

    return prim_func(func)


def routine(func: Any) -> Any:
    """`autosched.script.routine`."""
    from autosched.script.parser import routine

    return routine(func)


def ir_module(cls: type) -> Any:
    """`autosched.script.ir_module`."""
    from autosched.script.parser import ir_module

    return ir_module(cls)
