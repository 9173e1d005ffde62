"""How processes of this package are started from another: with the same modules."""

from __future__ import annotations

import os
import sys


def command(module: str, *arguments: str) -> list[str]:
    """What runs `module`, with `environment()`.

    Without `-P` Python would look for modules in the working folder first, which is anybody's: a
    `server.py` there, or a `json.py`, would be run in place of the true one.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def environment() -> dict[str, str]:
    """This process's, with the folders from which it imports, however it was told them."""
    path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    return {**os.environ, "PYTHONPATH": path}
