"""The script language: loop IR as text in Python's syntax. `script()` prints it, `parse` reads it.

from autosched.script import parse, prim_func, ir_module, tir as T
"""

from autosched.script import tir
from autosched.script.limits import Limits
from autosched.script.parser import (
    ir_module,
    parse,
    parse_func,
    parse_module,
    prim_func,
    routine,
)

__all__ = [
    "Limits",
    "ir_module",
    "parse",
    "parse_func",
    "parse_module",
    "prim_func",
    "routine",
    "tir",
]
