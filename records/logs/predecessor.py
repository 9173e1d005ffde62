"""Lines of TVM's auto_scheduler: what they were measured for.

A line names its workload by a key, which is plain where it is a name with arguments,
`["matmul_add", 1024, 1024, 1024, "float32"]`, and a hash where a model's layers were tuned.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

LONGEST = 200
"""Characters of a command that a message quotes."""
_NAME, _HASH = re.compile(r"[A-Za-z_]\w*", re.ASCII), re.compile(r"[0-9a-f]{32}")


def is_line(data: Any) -> bool:
    """Whether a line's JSON is a measurement of TVM's auto_scheduler."""
    return isinstance(data, dict) and {"i", "r"} <= data.keys() and "kind" not in data


def command_of(data: dict[str, Any]) -> str | None:
    """The command that tunes the workload of a line here; None if its key is not plain."""
    try:
        key = json.loads(data["i"][0][0])
        name, args = (key[0], key[1:]) if isinstance(key, list) else (None, [])
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _HASH.fullmatch(name):
        return None
    if not all(isinstance(a, (int, float, str)) for a in args):
        return None
    words = ["autosched", "tune", name, *(a if isinstance(a, str) else json.dumps(a) for a in args)]
    text = " ".join(map(shlex.quote, words))
    return text if len(text) <= LONGEST and text.isprintable() else None
