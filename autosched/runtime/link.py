"""Object code into this process, and out of it again.

Every linked object is a `Library`, whose code is freed when it is dropped. An LLJIT keeps a few
kilobytes for each library that it ever had, so a new one is begun now and then; the old one goes
with its last library.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autosched.errors import BuildError
from autosched.target import initialize_llvm

_GENERATION = 64  # libraries an LLJIT; making one costs under a millisecond
_names = itertools.count()


class Library:
    """Linked code. `library[symbol]` is an address, valid as long as this object lives."""

    def __init__(self, jit: Any, tracker: Any, symbols: tuple[str, ...]) -> None:
        self._tracker = tracker
        self._jit = jit
        self._addresses = {name: int(tracker[name]) for name in symbols}

    def __getitem__(self, symbol: str) -> int:
        return self._addresses[symbol]


@dataclass
class _State:
    """The LLJIT that takes the next library."""

    lock: threading.Lock
    jit: Any = None
    room: int = 0


_state = _State(threading.Lock())


def link(
    code: bytes, symbols: tuple[str, ...], imports: Mapping[str, int] | None = None
) -> Library:
    """Link an object file; `imports` gives addresses of symbols beyond those of the process.

    Raises BuildError, naming what is missing, if a symbol cannot be resolved.
    """
    import llvmlite.binding as llvm

    builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
    for name, address in (imports or {}).items():
        builder.import_symbol(name, address)
    for name in symbols:
        builder.export_symbol(name)
    with _state.lock:
        if not _state.room:
            _state.jit, _state.room = _new_jit(), _GENERATION
        _state.room -= 1
        try:
            tracker = builder.link(_state.jit, f"autosched_{next(_names)}")
        except RuntimeError as e:
            raise BuildError(f"cannot link {', '.join(symbols)}: {e}") from e
        return Library(_state.jit, tracker, symbols)


def _new_jit() -> Any:
    import llvmlite.binding as llvm

    initialize_llvm()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        cpu=llvm.get_host_cpu_name(), reloc="pic", codemodel="small", jit=True
    )
    return llvm.create_lljit_compiler(machine, suppress_errors=True)
