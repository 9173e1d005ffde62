"""Elementary functions on vectors, written out as LLVM IR."""
