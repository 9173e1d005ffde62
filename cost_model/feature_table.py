"""Per-store features: what a learned model is told of each block of a candidate.

`FEATURES` is the table of names, units and formulas. Groups 1 to 5 are those of Ansor (Zheng et
al., OSDI 2020, and `auto_scheduler`'s `feature.cc`); group 6 is what this code generator makes
true, group 7 what a GPU makes of the store's kernel. All are functions of the scheduled program, of
ints or of a population's columns; groups 1 to 6 are equal to those of the lowered program. Unit
loops count nowhere. Values are not scaled, since trees only compare.

Words of the table: *points* are the points of the block that are computed, tails and recomputation
included; *loops* are those with more than one iteration; *inside loop d* means one iteration of it;
`B0` is the buffer written, `B1` … those read: by the first parameter that each is computed from,
then in the order in which they are written.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Feature:
    """One column: its group of the table, unit and formula."""

    group: int
    name: str
    unit: str
    formula: str


BUFFERS = 5
"""Buffers described; further ones are left out."""


CURVE = 10


CURVE_BASE = 8.0


CLASSES = ("mad", "addsub", "mul", "divmod", "cmp", "mathfunc", "otherfunc")


KINDS = {"vec": "vectorized", "unroll": "unrolled", "parallel": "parallel"}


POSITIONS = (
    *("none", "inner_spatial", "middle_spatial", "outer_spatial"),
    *("inner_reduce", "middle_reduce", "outer_reduce", "mixed"),
)


THREADS = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz")


def _table() -> tuple[Feature, ...]:
    found: list[Feature] = []

    def add(group: int, name: str, unit: str, formula: str) -> None:
        found.append(Feature(group, name, unit, formula))

    for kind in ("float", "int"):
        for name in CLASSES:
            what = "multiply and add that depends on it" if name == "mad" else name
            add(1, f"{kind}_{name}", "operations", f"{kind} {what} in the body x points")
    add(1, "bool_op", "operations", "connectives of truth values in the body x points")
    add(1, "select_op", "operations", "selections in the body x points")
    for name, kind in KINDS.items():
        add(1, f"{name}_num", "loops", f"number of {kind} loops")
        add(1, f"{name}_prod", "iterations", f"product of the extents of the {kind} loops")
        add(1, f"{name}_len", "iterations", f"extent of the innermost {kind} loop, or 1")
        for position in POSITIONS:
            add(1, f"{name}_type_{position}", "0 or 1", f"where the innermost {kind} loop stands")
    add(1, "is_gpu", "0 or 1", "a loop is bound to a GPU axis")
    for thread in THREADS:
        add(1, f"{thread.replace('.', '_')}_len", "iterations", f"extent bound to {thread}")
    add(1, "vthread_len", "iterations", "product of the extents bound to virtual threads")
    for n in range(BUFFERS):
        b = f"B{n}"
        for kind in ("read", "write", "read_write"):
            add(2, f"{b}_acc_{kind}", "0 or 1", f"{b} is accessed so")
        add(2, f"{b}_bytes", "bytes", "accesses x size of an element, over all points")
        add(2, f"{b}_unique_bytes", "bytes", "size of the box touched")
        add(2, f"{b}_lines", "cache lines", "bytes x min(stride x size, 64) / size / 64")
        add(2, f"{b}_unique_lines", "cache lines", "lines of the box touched")
        for kind in ("loop", "serial", "none"):
            add(2, f"{b}_reuse_{kind}", "0 or 1", "reused over a loop, from another block, or not")
        add(2, f"{b}_reuse_dis_iter", "iterations", "of all loops inside the innermost reusing one")
        add(2, f"{b}_reuse_dis_bytes", "bytes", "of all buffers touched inside that loop")
        add(2, f"{b}_reuse_ct", "iterations", "extent of that loop, 0 without reuse")
        for kind in ("bytes", "unique_bytes", "lines", "unique_lines"):
            add(2, f"{b}_{kind}_d_reuse_ct", "per reuse", f"{kind} / max(reuse_ct, 0.5)")
        add(2, f"{b}_stride", "elements", "step of the innermost loop that moves the access")
    for n in range(CURVE):
        add(
            3,
            f"arith_intensity_{n}",
            "FLOP / byte",
            f"of the smallest sub-nest with {CURVE_BASE:.0f}^{n} points, else of the whole nest",
        )
    add(4, "alloc_size", "bytes", "size of B0 as lowering allocates it")
    add(4, "alloc_prod", "bytes", "alloc_size x alloc_outer_prod")
    add(4, "alloc_outer_prod", "iterations", "of the loops around the allocation")
    add(4, "alloc_inner_prod", "iterations", "of the loops inside it")
    add(5, "outer_prod", "iterations", "product of all extents")
    add(5, "num_loops", "loops", "number of loops")
    add(5, "unrolled_copies", "instructions", "vector instructions of one iteration of the code")
    for name, unit, formula in _OWN:
        add(6, name, unit, formula)
    for name, unit, formula in GPU:
        add(7, f"gpu_{name}", unit, formula)
    return tuple(found)


_OWN = (
    ("iterations", "iterations", "runs of the innermost serial iteration (a register tile)"),
    ("lanes", "elements", "elements of a vector instruction that do work"),
    ("accumulators", "registers", "vector accumulators alive through the innermost reduction"),
    ("live", "registers", "vector registers wanted in the register tile"),
    ("spilled", "registers", "live - registers of the target, at least 0"),
    ("loads", "instructions", "vector and broadcast loads of one iteration"),
    ("gathered", "elements", "elements of one iteration loaded one by one"),
    ("guarded", "instructions", "loads of one iteration behind conditions on the axes"),
    ("loads_per_copy", "ratio", "(loads + gathered) / unrolled_copies"),
    ("entries", "times", "innermost reduction loops entered and their results stored"),
    ("reduction", "iterations", "iterations / entries: steps of a register tile's reduction"),
    ("waste", "ratio", "points / points of the domain: tails and recomputation"),
    ("packed_bytes", "bytes", "written by blocks that only copy, in the whole program"),
    ("thread_bytes", "bytes", "scratch of one thread, in the whole program"),
    ("scratch_bytes", "bytes", "all intermediates of the program"),
    ("resident_lines", "cache lines", "everything that the program touches"),
    ("degree", "iterations", "parallel iterations of the stage"),
    ("share", "ratio", "share of the stage's work of the slowest thread"),
    ("forks", "times", "parallel loops of the stage started"),
    ("l1_lines", "cache lines", "entering the first-level caches, whole program"),
    ("l2_lines", "cache lines", "entering the second-level caches, whole program"),
    ("l3_lines", "cache lines", "entering the last-level cache, whole program"),
    ("pages", "pages", "missing the first-level TLB, whole program"),
    ("flop_per_l1_line", "FLOP / line", "float operations of the block / l1_lines"),
    ("flop_per_l2_line", "FLOP / line", "float operations of the block / l2_lines"),
)


GPU = (
    ("blocks", "blocks", "of the store's kernel"),
    ("threads", "threads", "of a block"),
    ("virtual", "threads", "virtual threads of a thread"),
    ("shared_bytes", "bytes", "shared memory of a block, with what goes through it across threads"),
    ("registers", "registers", "of a thread: local arrays, operands, addresses (estimated)"),
    ("copies", "statements", "of the largest unrolled body"),
    ("occupancy", "ratio", "share of a processor's threads that its blocks can fill"),
    ("warp_share", "ratio", "threads / threads of the block's warps"),
    ("wave_share", "ratio", "share of all waves of blocks that is filled"),
    ("requested", "bytes", "of global memory that threads ask for"),
    ("sectors", "sectors", "of 32 bytes that the requests of warps fall into"),
    ("coalesced", "ratio", "requested / (32 x sectors)"),
    ("shared_loads", "words", "read from shared memory"),
    ("conflicts", "times", "that a request of shared memory is repeated, a proxy from its step"),
    ("requests", "instructions", "of threads, that load and store"),
    ("waves", "passes", "of warps through shared memory"),
    ("turns", "times", "that the innermost serial loop goes round, over all threads"),
    ("steps", "times", "that a block fetches into shared memory"),
    ("exposed", "times", "that it waits for what it fetches, since no step before did"),
    ("guarded", "points", "asked for in an unrolled body"),
    ("flop", "operations", "arithmetic of the kernel"),
    ("intensity", "FLOP / byte", "flop / requested: reuse within a block"),
)
"""Figures of `search/gpu.py`, 0 on CPUs."""


FEATURES = _table()


def markdown() -> str:
    """The table as a document: `docs/features.md`."""
    lines = ["# Features of a store", "", "For those who read or change what the cost model sees."]
    lines += ["", *(__doc__ or "").splitlines()[2:], ""]
    lines += ["| group | feature | unit | formula |", "|---|---|---|---|"]
    lines += [f"| {f.group} | `{f.name}` | {f.unit} | {f.formula} |" for f in FEATURES]
    return "\n".join(lines) + "\n"
