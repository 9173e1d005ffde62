"""The version, in a module that imports nothing: the package itself hands out all public names."""

from __future__ import annotations

__version__ = "0.1.0"
