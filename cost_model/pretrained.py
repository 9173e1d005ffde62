"""The trees that the package ships: what the roofline gets wrong on CPUs.

`benchmarks/pretrain.py` grew them on candidates that `benchmarks/collect.py` and
`benchmarks/search_space.py` measured. They say nothing of stores in GPU kernels.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from autosched.errors import AutoschedError
from cost_model.features import NAMES

if TYPE_CHECKING:
    import xgboost

FILE = Path(__file__).with_name("pretrained.ubj")
_GPU = NAMES.index("is_gpu")


def said(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """What the trees say of stores with features `rows`, float32 (R, WIDTH): logarithms of a share
    of the bound, shape (R,). Raises AutoschedError if the file that is installed is damaged."""
    found: npt.NDArray[np.float32] = _trees().inplace_predict(
        rows, predict_type="margin", validate_features=False
    )
    return np.where(rows[:, _GPU] > 0.0, np.float32(0.0), found)


@cache
def digest() -> str:
    """SHA-256 of the trees, in hexadecimal digits: scores depend on it."""
    return hashlib.sha256(FILE.read_bytes()).hexdigest()


def signature() -> str:
    """Of the features that trees were grown on; kept in the file."""
    return hashlib.sha256("\n".join(NAMES).encode()).hexdigest()


@cache
def _trees() -> xgboost.Booster:
    import xgboost

    found = xgboost.Booster({"nthread": 1})
    try:
        found.load_model(bytearray(FILE.read_bytes()))
    except (OSError, xgboost.core.XGBoostError) as e:
        raise AutoschedError(f"{FILE} cannot be read ({e}); install the package again") from e
    if found.attr("features") != signature():
        raise AutoschedError(
            f"{FILE} was grown on other features than this version has; run "
            "benchmarks/pretrain.py, or install the package again"
        )
    return found
