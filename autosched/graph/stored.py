"""Files that are written whole and say what they should hold, so that damage is seen when they are
read."""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_HEAD = b'{"crc32": "%08x", "data": '
_HEAD_BYTES = len(_HEAD % 0)
_ROW = 512
"""Words that are added up before zlib sees them."""


def write_whole(path: Path, parts: Iterable[Any]) -> int:
    """Write buffers, one after the other, into a file that others see either whole or not at
    all; its checksum, also where others write to the same path. Raises OSError with its name."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with made.open("xb") as file:
            file.writelines(parts)
        found = checksum(np.fromfile(made, np.uint8))
        os.replace(made, path)
        return found
    except BaseException as e:
        made.unlink(missing_ok=True)
        if isinstance(e, OSError) and e.errno:  # of a full disk no name is told
            raise OSError(e.errno, e.strerror, str(path)) from e
        raise


def seal(data: Any) -> bytes:
    """JSON data with its checksum, as JSON text."""
    body = json.dumps(data).encode()
    return _HEAD % zlib.crc32(body) + body + b"}"


def unseal(text: bytes) -> Any:
    """The inverse of `seal`. Raises ValueError for a text that `seal` did not make."""
    body = text[_HEAD_BYTES:-1]
    if text[:_HEAD_BYTES] != _HEAD % zlib.crc32(body) or text[-1:] != b"}":
        raise ValueError("its checksum is not that of its contents")
    return json.loads(body)


def checksum(raw: npt.NDArray[np.uint8]) -> int:
    """Of bytes that may be many: zlib's CRC-32 of their sums as rows of 4 KB, by rows and by
    columns: a sum by rows alone does not see the order within a row. NumPy adds them up at the
    speed of memory, 6 ms for 100 MB, where some builds of zlib read 1 GB/s."""
    whole = len(raw) // (8 * _ROW) * (8 * _ROW)
    rows = raw[:whole].view("<u8").reshape(-1, _ROW)
    found = zlib.crc32(raw[whole:].data)
    for axis in (0, 1):
        found = zlib.crc32(rows.sum(axis).data, found)
    return found
