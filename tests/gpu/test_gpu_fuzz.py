"""Random legal GPU schedules of small programs: OpenCL results equal those of the plain program.

What the code generator refuses (a race, more than the target has) is no failure: only wrong results
and crashes are. How much is refused is bounded, so that the test cannot become empty.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from gpu_run import check

from autosched import te
from autosched.errors import CodegenError, ScheduleError
from autosched.schedule import BlockRV, LoopRV, Schedule
from autosched.tir.nodes import PrimFunc, kind_vars

Rng = random.Random


def chain(rng: Rng) -> PrimFunc:
    n, m = rng.randint(1, 9), rng.randint(1, 40)
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] * 2 + 1, name="B")
    c = te.compute(
        (n, m), lambda i, j: te.if_then_else(j > 0, b[i, j] - b[i, j - 1], b[i, j]), name="C"
    )
    d = te.compute((m, n), lambda j, i: c[i, j] + a[i, m - 1 - j], name="D")
    return te.create_prim_func([a, d])


def product(rng: Rng) -> PrimFunc:
    n, m, k = (rng.randint(2, 24) for _ in range(3))
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    bias = te.placeholder((m,), name="bias")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] + bias[j], name="D")
    return te.create_prim_func([a, b, bias, d])


def rows(rng: Rng) -> PrimFunc:
    n, m = rng.randint(1, 6), rng.randint(2, 70)
    a = te.placeholder((n, m), name="A")
    k, r = te.reduce_axis((0, m), name="k"), te.reduce_axis((0, m), name="r")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="top")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="E")
    total = te.compute((n,), lambda i: te.sum(e[i, r], axis=r), name="total")
    out = te.compute((n, m), lambda i, j: e[i, j] / total[i], name="out")
    return te.create_prim_func([a, out])


def window(rng: Rng) -> PrimFunc:
    n, c = rng.randint(3, 14), rng.randint(1, 5)
    a, w = te.placeholder((n, n, c), name="A"), te.placeholder((3, 3, c), name="W")
    pad = te.compute(
        (n + 2, n + 2, c),
        lambda y, x, z: te.if_then_else(
            te.all(y > 0, y <= n, x > 0, x <= n), a[y - 1, x - 1, z], 0.0
        ),
        name="pad",
    )
    p, q = te.reduce_axis((0, 3), name="p"), te.reduce_axis((0, 3), name="q")
    out = te.compute(
        (n, n, c),
        lambda y, x, z: te.sum(pad[y + p, x + q, z] * w[p, q, z], axis=[p, q]),
        name="out",
    )
    return te.create_prim_func([a, w, out])


PROGRAMS: tuple[Callable[[Rng], PrimFunc], ...] = (chain, product, rows, window)


class Scheduler:
    """Random primitives on one schedule. A refused one is taken back."""

    def __init__(self, rng: Rng, func: PrimFunc) -> None:
        self.rng, self.sch = rng, Schedule(func)
        self.x, self.y = rng.choice([1, 3, 4, 8, 16]), rng.choice([1, 2, 4])

    def attempt(self, step: Callable[[Schedule], None]) -> bool:
        trial = self.sch.copy()
        try:
            step(trial)
        except ScheduleError:
            return False
        self.sch = trial
        return True

    def run(self) -> Schedule:
        blocks = list(self.sch.get_blocks())
        root = blocks[-1]
        self.tile(root)
        for block in reversed(blocks[:-1]):
            self.place(block)
        return self.sch

    def factor(self) -> int:
        return self.rng.choice([1, 2, 3, 4, 5, 7])

    def split_loops(self, block: BlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
        """(spatial, reduction) loops that hold only this block."""
        site = self.sch.get(block)
        reduced = kind_vars(site, "reduce")
        own = [x for x in self.sch.get_loops(block) if len(self.sch.get_child_blocks(x)) == 1]
        own = [x for x in own if self.sch.get(x).kind == "serial"]
        return (
            [x for x in own if self.sch.get(x).var not in reduced],
            [x for x in own if self.sch.get(x).var in reduced],
        )

    def tile(self, block: BlockRV) -> None:
        """Spatial loops over blocks, virtual threads, threads and inner loops."""
        before = self.sch.copy()
        try:
            self.tiled(block)
        except ScheduleError:
            self.sch = before

    def tiled(self, block: BlockRV) -> None:
        rng, sch = self.rng, self.sch
        spatial, reduced = self.split_loops(block)
        if not spatial:
            raise ScheduleError("no loop to bind")
        if rng.random() < 0.4 and len(spatial) > 1:
            spatial = [sch.fuse(*spatial)]
        spatial = spatial[-2:]
        levels = [
            sch.split(x, [None, rng.choice([1, 2]), t, self.factor()])
            for x, t in zip(spatial, (self.y, self.x)[-len(spatial) :], strict=True)
        ]
        order = [x for level in zip(*levels, strict=True) for x in level]
        inner = list(order[3 * len(levels) :])
        if rng.random() < 0.5:
            order = [*order[: 3 * len(levels)], *reduced, *inner]
        else:
            order = [*order[: 3 * len(levels)], *inner, *reduced]
        sch.reorder(*order)
        for axis, level in zip("yx"[-len(levels) :], levels, strict=True):
            for loop, kind in zip(level[:3], ("blockIdx", "vthread", "threadIdx"), strict=True):
                if kind != "vthread" or rng.random() < 0.7:
                    self.attempt(lambda s, a=loop, b=f"{kind}.{axis}": s.bind(a, b))  # type: ignore[misc]
        for loop in inner:
            kind = rng.choice(["serial", "unroll", "vectorize"])
            if kind != "serial":
                self.attempt(lambda s, a=loop, b=kind: getattr(s, b)(a))  # type: ignore[misc]

    def place(self, block: BlockRV) -> None:
        """Inline a producer, compute it at a loop of its consumer, or tile it by itself."""
        rng = self.rng
        choice = rng.random()
        if choice < 0.2 and self.attempt(lambda s: s.compute_inline(block)):
            return
        consumers = self.sch.get_consumers(block)
        if choice < 0.85 and consumers:
            loops = self.sch.get_loops(consumers[-1])
            scope = rng.choice(["shared", "local", "global"])
            for loop in rng.sample(list(loops), len(loops)):

                def step(s: Schedule, loop: LoopRV = loop) -> None:
                    s.set_scope(block, 0, scope)
                    s.compute_at(block, loop)

                if self.attempt(step):
                    self.share(block)
                    if scope == "shared" and rng.random() < 0.5:
                        self.attempt(lambda s: s.double_buffer(block))
                    return
        self.tile(block)

    def share(self, block: BlockRV) -> None:
        """Bind loops of a block that stands inside others: its threads share it out."""
        spatial, reduced = self.split_loops(block)
        if reduced and self.rng.random() < 0.5:

            def across(s: Schedule) -> None:
                outer, lane = s.split(reduced[-1], [None, self.x])
                s.reorder(*spatial, lane, *reduced[:-1], outer)
                s.bind(lane, "threadIdx.x")

            if self.attempt(across):
                return
        if spatial and self.rng.random() < 0.8:

            def shared(s: Schedule) -> None:
                loop = s.fuse(*spatial) if len(spatial) > 1 else spatial[0]
                width = self.rng.choice([1, 1, 2, 4])
                _, y, x, v = s.split(loop, [None, self.y, self.x, width])
                if self.y > 1:
                    s.bind(y, "threadIdx.y")
                s.bind(x, "threadIdx.x")
                if width > 1 and not reduced:
                    s.vectorize(v)

            self.attempt(shared)


REFUSALS = (
    "is local, but",
    "both write",
    "nothing orders",
    "must stand innermost",
    "bound to",
    "no double",
)


def examples(seeds: range) -> None:
    ran = 0
    for seed in seeds:
        rng = random.Random(seed)
        plain = PROGRAMS[seed % len(PROGRAMS)](rng)
        sch = Scheduler(rng, plain).run()
        try:
            check(sch.func, plain, seed, nvrtc=seed % 5 == 0, atol=1e-4)
            ran += 1
        except CodegenError as e:
            if not any(word in str(e) for word in REFUSALS):
                raise
        except Exception as e:
            raise AssertionError(f"seed {seed}\n{plain.script()}\n{sch.trace}\n{sch.func}") from e
    assert ran >= len(seeds) // 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize("start", range(0, 24, 8))
def test_random_schedules(start: int) -> None:
    examples(range(start, start + 8))


@pytest.mark.long
@pytest.mark.parametrize("start", range(24, 224, 20))
def test_more_random_schedules(start: int) -> None:
    examples(range(start, start + 20))
