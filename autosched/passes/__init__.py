"""Passes over modules: named functions from IRModule to IRModule, and sequences of them.

run = Sequential([inline, simplify, dead_code]).run(mod)
print(run.after)
"""

from autosched.passes.base import Pass, PassRun, Sequential, Step, func_pass
from autosched.passes.dead_code import dead_code
from autosched.passes.inline import inline
from autosched.passes.simplify import lower, simplify

__all__ = [
    "Pass",
    "PassRun",
    "Sequential",
    "Step",
    "dead_code",
    "func_pass",
    "inline",
    "lower",
    "simplify",
]
