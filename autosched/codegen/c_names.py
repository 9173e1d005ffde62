"""Names that headers of C define as macros: no function and no variable may bear one."""

from __future__ import annotations

import re

MACRO = re.compile(
    r"(U?INT(_FAST|_LEAST)?\d*|U?INT(MAX|PTR)|PTRDIFF|SIG_ATOMIC|SIZE|WCHAR|WINT)_(MIN|MAX|WIDTH|C)"
    r"|(FP|M|MATH)_\w+|HUGE_VALF?L?|NAN|NULL|INFINITY|EOF|linux|unix|math_errhandling"
)
"""Those of math.h, stdint.h and stdbool.h, and of compilers."""
