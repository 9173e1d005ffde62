"""Requests and replies between a process and its own children: length-prefixed pickles.

A request is a frozen dataclass that knows how it is answered (`Request`); open descriptors go with
it. A reply is unpickled with a list of what it may contain: a child whose memory was
overwritten by the code that it ran must not be able to make its parent do anything. Before all
replies comes an empty message: the child is ready.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import socket
import struct
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

from autosched.errors import MeasureError
from measure.process.containment import computing_at_most

HEADER = struct.Struct("<Q")
READY = HEADER.pack(0)
"""What a child says first: an empty message."""
MAX_FDS = 8
R = TypeVar("R")
_ROOTS = ("measure", "autosched")
_BUILTINS = ("set", "frozenset", "complex", "bytearray")


def resolve(name: str) -> Callable[..., Any]:
    """The function written "module:function". Raises MeasureError."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise MeasureError(f'expected "module:function", found {name!r}')
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as e:
        raise MeasureError(f"cannot find {name!r} in the measuring process: {e}") from e
    if not callable(function):
        raise MeasureError(f"{name!r} is no function: {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def encode(value: Any) -> bytes:
    """A message: length and pickle."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(body)) + body


@dataclass(frozen=True)
class Last(Generic[R]):
    """The answer of a process that is to be asked nothing more."""

    value: R


class Request(ABC, Generic[R]):
    """What a child is asked; subclasses are frozen dataclasses at the top of a module, whose fields
    are the arguments. `reply`: the types of the answer, which is checked where it arrives."""

    reply: ClassVar[tuple[type, ...]]

    def __init_subclass__(cls) -> None:
        (answer,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
        kinds = get_args(answer) if isinstance(answer, UnionType) else (answer,)
        cls.reply = tuple(object if k is Any else get_origin(k) or k for k in kinds)

    @abstractmethod
    def answer(self, fds: Sequence[int]) -> R | Last[R]:
        """In the child: do it. `fds` are closed afterwards."""


class _ReplyUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == "builtins" and name in _BUILTINS:
            return super().find_class(module, name)
        if module.split(".")[0] in _ROOTS:
            found = super().find_class(module, name)
            if isinstance(found, type):
                return found
        raise pickle.UnpicklingError(f"a reply may not contain {module}.{name}")


def decode_reply(body: bytes) -> tuple[str, Any, int]:
    """(kind, value, resident bytes) of a reply. Raises pickle.UnpicklingError on anything else."""
    try:
        kind, value, resident = _ReplyUnpickler(io.BytesIO(body)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as e:  # garbage raises nearly anything
        raise pickle.UnpicklingError(f"{type(e).__name__}: {e}") from e
    if kind not in ("value", "last", "error", "memory") or not isinstance(resident, int):
        raise pickle.UnpicklingError(f"a reply of unknown kind {kind!r}")
    return kind, value, resident


def send_request(
    sock: socket.socket, request: Request[Any], seconds: float, fds: Sequence[int] = ()
) -> None:
    """Send a request, and for how long all cores may work on it. Raises OSError if the other side
    is gone."""
    message = encode((request, seconds))
    sent = socket.send_fds(sock, [message], list(fds)) if fds else sock.send(message)
    if sent < len(message):
        sock.sendall(memoryview(message)[sent:])


def serve(sock: socket.socket) -> None:
    """In the child: answer requests until the other side closes."""
    sock.sendall(READY)
    while (request := _receive(sock)) is not None:
        sock.sendall(_answer(*request))


def _receive(sock: socket.socket) -> tuple[bytes, list[int]] | None:
    first, fds, _, _ = socket.recv_fds(sock, HEADER.size, MAX_FDS)
    if not first:
        return None
    header = first + _exactly(sock, HEADER.size - len(first))
    return _exactly(sock, HEADER.unpack(header)[0]), list(fds)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise EOFError("the parent closed the connection inside a message")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _answer(body: bytes, fds: list[int]) -> bytes:
    """The encoded reply to a request; errors travel as text, since not every exception pickles."""
    try:
        request, seconds = pickle.loads(body)
        with computing_at_most(seconds):
            value = request.answer(fds)
        if isinstance(value, Last):
            return encode(("last", value.value, resident_bytes()))
        return encode(("value", value, resident_bytes()))
    except MemoryError:
        return encode(("memory", traceback.format_exc(), resident_bytes()))
    except BaseException as e:  # sys.exit() in a user's function is an error like any other
        return encode(("error", _describe(e), resident_bytes()))
    finally:
        for fd in fds:
            os.close(fd)


def _describe(e: BaseException) -> str:
    try:
        return traceback.format_exc()
    except Exception:  # an exception whose own __str__ raises
        return f"{type(e).__name__} (its text could not be made)"


def resident_bytes() -> int:
    """Memory of this process that is in RAM."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
