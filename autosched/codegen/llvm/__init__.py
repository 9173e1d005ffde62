"""LLVM: textual IR with explicit vectors, assembled through llvmlite."""
