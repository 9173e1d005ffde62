"""Names that C source and its headers define: no function and no variable may have one."""

from __future__ import annotations

import re

MACRO = re.compile(
    r"(U?INT(_FAST|_LEAST)?\d*|U?INT(MAX|PTR)|PTRDIFF|SIG_ATOMIC|SIZE|WCHAR|WINT)_(MIN|MAX|WIDTH|C)"
    r"|(FP|M|MATH)_\w+|HUGE_VALF?L?|NAN|NULL|INFINITY|EOF|linux|unix|math_errhandling"
)
"""Those of math.h, stdint.h and stdbool.h, and of compilers."""

HELPERS = frozenset(
    ["bits_of", "f16_load", "f16_round", "f16_store", "float_of"]
    + ["inverse_sqrt", "inverse_sqrtf", "multiply_add", "multiply_addf"]
)
"""Functions that stand before a kernel in C source."""
