"""The benchmark of the records by their name: see `store.py`.

    python benchmarks/records.py [--records 10000000] [--only sqlite | postgresql] [--folder DIR]

Python puts the folder of a program before all others, so for whatever runs in this folder the
package `records` would be this file: it moves its folder to the end and hands over the package.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)
sys.path[:] = [p for p in sys.path if Path(p).resolve() != Path(_HERE)] + [_HERE]

if __name__ == "__main__":
    importlib.import_module("store").main()
else:
    del sys.modules[__name__]
    importlib.import_module(__name__)
