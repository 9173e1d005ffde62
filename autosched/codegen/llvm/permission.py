"""Asking the system for tile registers before a kernel uses them, once a process.

The kernel asks itself, so that it runs wherever it is linked: in a measuring process, from a saved
model, in a C program.
"""

from __future__ import annotations

from autosched.target.amx import ARCH_PRCTL, REQUEST, TILE_DATA

SYMBOL = "autosched_tiles"
DEFINITIONS = {
    "syscall": "declare i64 @syscall(i64, ...)",
    "autosched_tiles_asked": "@autosched_tiles_asked = internal global i8 0",
    SYMBOL: f"""define internal void @{SYMBOL}() {{
  %asked = load atomic i8, ptr @autosched_tiles_asked monotonic, align 1
  %known = icmp ne i8 %asked, 0
  br i1 %known, label %done, label %ask
ask:
  %status = call i64 (i64, ...) @syscall(i64 {ARCH_PRCTL}, i64 {REQUEST}, i64 {TILE_DATA})
  store atomic i8 1, ptr @autosched_tiles_asked monotonic, align 1
  br label %done
done:
  ret void
}}""",
}
"""Of a module with tiles; `SYMBOL` is the function to call at the kernel's entry."""
