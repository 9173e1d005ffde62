"""Optional packages: which extra of the distribution installs each, and the error without one.

A plain `pip install autosched` compiles and runs programs and models (NumPy, llvmlite). Tuning, the
service, ONNX, clusters and GPUs need more, which extras install. `pyproject.toml` has the versions.
"""

from __future__ import annotations

from importlib.util import find_spec

from autosched.errors import MissingPackage

EXTRA_OF = {
    "alembic": "tune",
    "rich": "tune",
    "sqlalchemy": "tune",
    "xgboost": "tune",
    "anyio": "service",
    "fastapi": "service",
    "httptools": "service",
    "httpx": "service",
    "jinja2": "service",
    "markupsafe": "service",
    "plotly": "service",
    "prometheus_client": "service",
    "pydantic": "service",
    "pygments": "service",
    "starlette": "service",
    "uvicorn": "service",
    "uvloop": "service",
    "cryptography": "cluster",
    "dask": "cluster",
    "distributed": "cluster",
    "google": "onnx",
    "onnx": "onnx",
    "psycopg": "postgresql",
    "pyopencl": "opencl",
    "cuda": "cuda",
}
"""Imported name -> the extra of autosched that installs it."""


def require(what: str, *packages: str) -> None:
    """Raise MissingPackage for the first of `packages` that is not installed; `what` needs it."""
    for package in packages:
        if find_spec(package) is None:
            raise missing(what, package)


def missing(what: str, package: str) -> MissingPackage:
    """The error that says how to install `package`, which is in `EXTRA_OF`."""
    return MissingPackage(
        f"{what} needs the package {package}: pip install 'autosched[{EXTRA_OF[package]}]'"
    )
