"""Errors of the graph level."""

from __future__ import annotations

from autosched.errors import AutoschedError, BuildError


class Unsupported(AutoschedError):
    """A model, an operator or a form of it that is not compiled; says which."""


class ExternalError(BuildError):
    """An external code generator failed, or what it made does not compute its function; names the
    generator and the function."""
