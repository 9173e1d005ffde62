"""What `import autosched` costs in a fresh process, and what it must not load."""

from __future__ import annotations

import subprocess
import sys

import common

BAR_S = 0.3
RUNS = 11
HEAVY = ("llvmlite", "xgboost", "sqlalchemy", "torch")
_CODE = """
import time
start = time.perf_counter()
import autosched
took = time.perf_counter() - start
import sys
print(took, *(name for name in {heavy!r} if name in sys.modules))
"""


def import_once() -> tuple[float, list[str]]:
    """Seconds of the import statement in a fresh process, and which heavy packages it loaded."""
    command = [sys.executable, "-c", _CODE.format(heavy=HEAVY)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, *loaded = done.stdout.split()
    return float(seconds), loaded


def main() -> None:
    """Print and end with one JSON line."""
    import_once()  # writes the byte code where it is not there yet
    runs = [import_once() for _ in range(RUNS)]
    seconds = sorted(took for took, _ in runs)
    median = seconds[RUNS // 2]
    loaded = sorted({name for _, names in runs for name in names})
    print(f"import autosched: {median * 1e3:.1f} ms (median of {RUNS})")
    print(f"loads of {', '.join(HEAVY)}: {', '.join(loaded) or 'none'}")
    bars = [
        common.bar("import autosched, median", f"<= {BAR_S} s", f"{median:.3f} s", median <= BAR_S),
        common.bar("LLVM and XGBoost", "not loaded", ", ".join(loaded) or "not loaded", not loaded),
    ]
    common.finish("import_time", {"median_s": median, "loaded": loaded, "bars": bars})


if __name__ == "__main__":
    main()
