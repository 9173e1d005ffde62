"""The process that first runs C source of a code generator: `python external_child.py FOLDER`.

Reads FOLDER/given.npz and calls the functions of FOLDER/external.so; their results, and what they
did to memory that is not theirs, go to FOLDER/found.npz. Each array stands between zones that must
stay as they are. Imports NumPy alone, so that it starts fast.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np

ZONE = 4096
"""Bytes before and after each array."""
MARK = 0xA5


def guarded(size: int) -> np.ndarray[Any, Any]:
    """Bytes between two zones, on a multiple of 64, all of them MARK."""
    raw = np.full(size + 2 * ZONE + 64, MARK, np.uint8)
    at = -raw.ctypes.data % 64
    return raw[at : at + size + 2 * ZONE]


def unlike(wanted: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Another number in the place of each element, so that a result that is not written shows."""
    if wanted.dtype.kind == "f":
        return np.where(np.isnan(wanted), 0, np.nan).astype(wanted.dtype)
    other: np.ndarray[Any, Any] = np.invert(wanted)
    return other


def run(entry: Any, inputs: list[Any], wanted: list[Any], workspace: int) -> tuple[list[Any], str]:
    """The results of one function, and what is wrong with how it treats memory."""
    arrays = [*inputs, *wanted]
    places = [guarded(a.nbytes) for a in arrays]
    for place, a in zip(places, [*inputs, *map(unlike, wanted)], strict=True):
        place[ZONE : ZONE + a.nbytes] = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    scratch = guarded(workspace)
    cells = (ctypes.c_void_p * len(places))(*(p.ctypes.data + ZONE for p in places))
    entry(cells, ctypes.c_void_p(scratch.ctypes.data + ZONE), 1)
    for n, place in enumerate([*places, scratch]):
        if np.any(place[:ZONE] != MARK) or np.any(place[len(place) - ZONE :] != MARK):
            what = f"argument {n}" if n < len(places) else "its workspace"
            return [], f"writes before or after {what}"
    for n, a in enumerate(inputs):
        kept = places[n][ZONE : ZONE + a.nbytes]
        if np.any(kept != np.ascontiguousarray(a).reshape(-1).view(np.uint8)):
            return [], f"writes to its input {n}"
    out = [
        place[ZONE : ZONE + a.nbytes].copy().view(a.dtype).reshape(a.shape)
        for place, a in zip(places[len(inputs) :], wanted, strict=True)
    ]
    return out, ""


def main(folder: Path) -> None:
    """Run all functions, in order; the name of each is printed before it runs."""
    library = ctypes.CDLL(str(folder / "external.so"))
    found: dict[str, Any] = {}
    with np.load(folder / "given.npz") as given:
        names = [k.removesuffix("/entry") for k in given.files if k.endswith("/entry")]
        for name in names:
            print(name, flush=True)
            inputs, results, workspace = map(int, given[f"{name}/entry"])
            arrays = [given[f"{name}/{n}"] for n in range(inputs + results)]
            entry = library[f"autosched_external_{name}"]
            entry.restype = None
            made, fault = run(entry, arrays[:inputs], arrays[inputs:], workspace)
            found[f"{name}/fault"] = np.array(fault)
            found |= {f"{name}/{n}": x for n, x in enumerate(made)}
    np.savez(folder / "found.npz", **found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
