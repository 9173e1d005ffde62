"""What a register tile asks for ahead: the bytes after the panel that it reads again."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from guarded import compiled

from autosched.codegen.build import generate_ir
from autosched.codegen.llvm.blocks import prefetch
from autosched.codegen.llvm.blocks.points import Points
from autosched.lowering.lower import lower
from autosched.script import parse
from autosched.target import Target
from autosched.tir.expr import Var
from autosched.tir.nodes import PrimFunc, sites

TARGET = Target("llvm -mcpu=sapphirerapids -num-cores=2")

# C = A times the panels B of 32 columns; rows in tiles of 8, one panel after the other.
PRODUCT = """
@T.prim_func
def main(A: T.Buffer(({rows}, {depth}), "float32"), B: T.Buffer(({panels}, {depth}, 32), "float32"),
         C: T.Buffer(({rows}, {columns}), "float32")):
    for j0 in T.parallel({panels} // {inner}):
        for k0 in T.serial({blocks}):
            for i0 in T.serial({rows} // 8):
                for j1 in T.serial({inner}):
                    for k1 in T.serial({depth} // {blocks}):
                        for i1 in T.unroll(8):
                            for j2 in T.vectorized(32):
                                with T.block("C"):
                                    vi = T.axis.spatial({rows}, i0 * 8 + i1)
                                    vj = T.axis.spatial({columns}, (j0 * {inner} + j1) * 32 + j2)
                                    vk = T.axis.reduce({depth}, k0 * ({depth} // {blocks}) + k1)
                                    with T.init():
                                        C[vi, vj] = T.float32(0)
                                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj // 32, vk, vj % 32]
"""

# The same of bytes by VNNI: tiles read two panels of 16 columns, a term of each in turns.
BYTES = """
@T.prim_func
def main(A: T.Buffer(({rows}, {depth}), "uint8"),
         B: T.Buffer(({panels}, {depth} // 4, 16, 4), "int8"),
         C: T.Buffer(({rows}, {columns}), "int32")):
    for j0 in T.parallel({panels} // 2):
        for i0 in T.serial({rows} // 8):
            for k1 in T.serial({depth} // 4):
                for i1 in T.unroll(8):
                    for j1 in T.unroll(2):
                        for j2 in T.serial(16, annotations={"tensorize": "dot_16x4_u8s8s32_vnni"}):
                            for k2 in T.serial(4):
                                with T.block("C"):
                                    vi = T.axis.spatial({rows}, i0 * 8 + i1)
                                    vj = T.axis.spatial({columns}, j0 * 32 + j1 * 16 + j2)
                                    vk = T.axis.reduce({depth}, k1 * 4 + k2)
                                    with T.init():
                                        C[vi, vj] = T.int32(0)
                                    C[vi, vj] = C[vi, vj] + T.cast(A[vi, vk], "int32") * T.cast(
                                        B[vj // 16, vk // 4, vj % 16, vk % 4], "int32")
"""


def byte_product(rows: int, depth: int, panels: int) -> str:
    """The product of bytes."""
    text = BYTES
    values = {"rows": rows, "depth": depth, "panels": panels, "columns": 16 * panels}
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    for a, b in ((panels, 2), (rows, 8), (depth, 4)):
        text = text.replace(f"{a} // {b}", str(a // b))
    return text


def product(rows: int, depth: int, panels: int, inner: int = 1, blocks: int = 1) -> str:
    """The product with panels in groups of `inner`, its reduction cut into `blocks`."""
    text = PRODUCT
    values = {"rows": rows, "depth": depth, "panels": panels, "inner": inner, "blocks": blocks}
    for name, value in {**values, "columns": 32 * panels}.items():
        text = text.replace("{" + name + "}", str(value))
    for a, b in ((panels, inner), (rows, 8), (depth, blocks)):
        text = text.replace(f"{a} // {b}", str(a // b))
    return text


def func_of(text: str) -> PrimFunc:
    """The function of a text."""
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def asked_for(func: PrimFunc, monkeypatch: pytest.MonkeyPatch) -> prefetch.Prefetch:
    """What the code of a product asks for first, which is of its weights."""
    asked: list[prefetch.Prefetch] = []
    write = prefetch.Prefetch.write

    def noted(self: prefetch.Prefetch, points: Points) -> None:
        asked.append(self)
        write(self, points)

    monkeypatch.setattr(prefetch.Prefetch, "write", noted)
    assert "call void @llvm.prefetch.p0" in generate_ir(func, TARGET).ir
    assert asked[0].buffer.name == "B"
    return asked[0]


def test_what_is_read_once_is_asked_for_a_stretch_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each iteration asks for as many lines as it reads, as far ahead as the ones before."""
    func = func_of(product(8, 1024, 4))
    one = asked_for(func, monkeypatch)
    (site,) = sites(lower(func))
    loops = {x.var.name: x.var for x in site.loops}
    start = dict.fromkeys(loops.values(), 0)
    for panel, step in ((0, 0), (0, 1), (2, 7)):
        env = start | {loops["j0"]: panel, loops["k1"]: step}
        assert int(one.offset.evaluate(env)) == prefetch.AHEAD + (panel * 1024 + step) * 128
    assert one.lines * prefetch.LINE == 128


@pytest.mark.parametrize(
    ("text", "size", "passes"),
    [
        (product(32, 128, 4), 128 * 32 * 4, 4),
        (product(24, 128, 4), 128 * 32 * 4, 3),
        (product(56, 128, 4, inner=2), 128 * 32 * 4 * 2, 7),
        (byte_product(56, 512, 4), 512 * 32, 7),
        (byte_product(16, 512, 8), 512 * 32, 2),
    ],
)
def test_passes_ask_for_the_whole_next_panel(
    text: str, size: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    func = func_of(text)
    one = asked_for(func, monkeypatch)
    (site,) = sites(lower(func))
    loops = {x.var: range(int(x.extent)) for x in site.loops}
    used = [v for v in loops if one.offset.uses([v]) and v.name != "j0"]
    lines = set()
    for values in itertools.product(*(loops[v] for v in used)):
        env: dict[Var, int] = dict.fromkeys(loops, 0) | dict(zip(used, values, strict=True))
        at = int(one.offset.evaluate(env))
        lines |= {at // prefetch.LINE + n for n in range(one.lines)}
    wanted = set(range(size // prefetch.LINE, 2 * size // prefetch.LINE))
    assert wanted <= lines
    assert len(lines - wanted) <= len(wanted) // 4 + 2 * passes


@pytest.mark.parametrize(
    "text",
    [
        product(8, 128, 4),  # one pass over 64 KB
        product(32, 128, 4, inner=2, blocks=2),  # a group's panels are not read as they lie
        product(32, 16, 4),  # a panel of 2 KB
        product(32, 1024, 8, inner=8),  # more than a quarter of the second cache
        byte_product(8, 1 << 14, 4),  # one pass, over two stretches at a time
    ],
)
def test_nothing_is_asked_for_where_it_does_not_pay(text: str) -> None:
    assert "prefetch" not in generate_ir(func_of(text), TARGET).ir


def test_requests_behind_the_last_panel_do_no_harm() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (32, 128)).astype("float32")
    b = rng.integers(-4, 5, (4, 128, 32)).astype("float32")
    c = np.empty((32, 128), "float32")
    after = compiled(func_of(product(32, 128, 4)), [a, b, c])  # between forbidden pages
    np.testing.assert_array_equal(after[2], a @ b.transpose(1, 0, 2).reshape(128, 128))
