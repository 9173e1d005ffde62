"""Sketches: rules that derive a workload's search space from the program itself."""
