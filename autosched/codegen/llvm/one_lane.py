"""Stores of a single lane, which LLVM is not to choose instructions for.

Where a processor truncates as it stores (AVX-512), LLVM 22 makes a masked store of truncated lanes
under a constant mask of one lane a store of that lane before truncation: eight bytes where there is
one, over the neighbours (llvm-project issue 179489, mended in LLVM 23). Truncations also come from
instruction selection, of arithmetic on bytes for instance, so every such store of integers that
have wider ones is written as what it is, the store of one element. The passes fold masks, so this
comes after them.
"""

from __future__ import annotations

import re
from itertools import count

_NARROW = re.compile(r"@llvm\.masked\.store\.v\d+i(8|16|32)\.")
_STORE = re.compile(
    r" *(?:tail )?call void @llvm\.masked\.store\.\S*\("
    r"(?P<vector><\d+ x (?P<element>i8|i16|i32)>) (?P<value>%[^ ,]+), "
    r"ptr (?P<attributes>[^%]*)(?P<at>%[^ ,]+), "
    r"<\d+ x i1> <(?P<mask>[^>]*)>\).*"
)


def has_narrow_masked_stores(ir_text: str) -> bool:
    """Whether IR may have such stores once it is optimised: kernels of floats are not printed."""
    return _NARROW.search(ir_text) is not None


def one_lane_stores(ir_text: str) -> str:
    """Optimised IR with its masked stores of one lane as stores of an element; the text itself if
    it has none."""
    numbers = count()

    def element(found: re.Match[str]) -> str:
        lanes = [n for n, bit in enumerate(found["mask"].split(", ")) if bit == "i1 true"]
        if len(lanes) != 1:
            return found[0]
        (lane,), name, kind = lanes, f"%one.lane.{next(numbers)}", found["element"]
        given = re.search(r"align (\d+)", found["attributes"])
        align = min(int(given[1]) if given else 1, int(kind[1:]) // 8)
        return (
            f"  {name} = extractelement {found['vector']} {found['value']}, i64 {lane}\n"
            f"  {name}.at = getelementptr {kind}, ptr {found['at']}, i64 {lane}\n"
            f"  store {kind} {name}, ptr {name}.at, align {align}"
        )

    return _STORE.sub(element, ir_text)
