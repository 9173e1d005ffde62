"""GPU kernels from lowered programs: threads, memory, barriers; printed by `codegen.c_source`."""
