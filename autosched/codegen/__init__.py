"""Code generators: lowered programs to machine code."""
