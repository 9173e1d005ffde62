"""What code is made for: targets by their text, their names, and the limits of machines."""

from autosched.target.target import CPUS, Target, available_cores, initialize_llvm

__all__ = ["CPUS", "Target", "available_cores", "initialize_llvm"]
