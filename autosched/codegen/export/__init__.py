"""Ahead of time: built functions as an object file and a C header, with nothing of Python."""

from autosched.codegen.export.files import Exported, export

__all__ = ["Exported", "export"]
