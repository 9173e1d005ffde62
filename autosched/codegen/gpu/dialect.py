"""`Dialect`: what differs between the languages of C that kernels are printed in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autosched.errors import CodegenError


@dataclass(frozen=True)
class Dialect:
    """How one language writes what `codegen.c_source` prints.

    `values` are the C types of values by dtype, `stored` those of elements in memory where they
    differ. `math` gives the name of a function of the operation table for a dtype.
    """

    name: str
    prologue: str
    helper: str
    """Qualifiers of a helper function."""
    values: dict[str, str]
    stored: dict[str, str]
    indices: dict[str, str]
    """How the number of a block or thread is read, by axis."""
    shared: str
    """Qualifiers of an array in shared memory."""
    align: str
    head: Callable[[str, int, tuple[int, int, int]], str]
    """The head of a kernel: (name, threads, block) -> text before the parameter list."""
    pointer: Callable[[str, str, str, bool], str]
    """A parameter: (type, name, memory, is read only) -> text."""
    vector_pointer: Callable[[str, str], str]
    """The type of a pointer to vectors: (vector type, memory) -> text."""
    barrier: Callable[[frozenset[str]], str]
    math: Callable[[str, str], str]
    unsigned: dict[str, str]
    infinity: Callable[[str], str]
    nan: Callable[[str], str]
    half: str
    """Helpers `f16_load(bits)`, `f16_store(value)` and `f16_round(value)`."""
    bits: tuple[str, str]
    """Names of (bits of a float, float of bits)."""
    lanes: Callable[[str], tuple[int, ...]]
    """Widths of vectors of a stored type."""
    vector_name: Callable[[str], str]
    """What vectors of a stored type are called, without their width."""
    ticket: str
    """The number, from 0 up, that an address in global memory counts: one after the other."""
    fence: str
    """What is written before is seen before what is written after it; likewise what is read."""
    reserved: frozenset[str] = frozenset()
    """Words that no name of a program may be, besides those of all languages."""
    copied_lanes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Greater widths in which elements of a stored type are copied, as `copied_vector`."""
    copied_vector: str = ""
    shuffle: bool = False
    """Whether the threads of a warp can exchange values."""
    asynchronous: Mapping[str, str] = field(default_factory=dict)
    """Helpers `copy_16(to, from)`, `copy_8` and `copy_4` that begin a copy from global to shared
    memory, with `_where` in their names of zeros unless their third argument holds, and
    `copied()`, which waits for those of this thread; `commit()`, which ends a group of them, and
    `copied_but_1()` and so on, which wait for all but so many groups. Empty where there are none.
    """
    warp: Callable[[str], str | None] = lambda name: None
    """Helpers, by name, of what the threads of a warp do together: `ldmatrix_x2(to, from)` and
    `_x4`, which load matrices of 8 rows of 16 bytes, `_trans` in their names transposed; products
    by the names of their intrinsics, `(c0, c1, c2, c3, a, b)`; and those of warpgroups."""

    def value_type(self, dtype: str) -> str:
        """The C type of a value."""
        if dtype not in self.values:
            raise CodegenError(f"{self.name} has no type for {dtype}")
        return self.values[dtype]

    def stored_type(self, dtype: str) -> str:
        """The C type of an element in memory."""
        return self.stored.get(dtype) or self.value_type(dtype)
