"""A wheel from the sdist installs in a fresh environment and works from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("autosched", "measure", "cost_model", "records", "server")
LLVM = "llvmlite/binding/libllvmlite.so"
LIMIT = 150e6
"""Bytes: of what is downloaded, and of what lies on the disk without LLVM's library."""

USE = """
import numpy as np
import autosched as at
task = at.SearchTask("matmul", (8, 4, 6))
a, b, c = (np.ones(s, "float32") for s in ((8, 4), (4, 6), (8, 6)))
at.build(at.Schedule(task.prim_func))(a, b, c)
print("right" if (c == 4).all() else c)
"""

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that is built from the sdist, as `python -m build` does.

    Of a copy: setuptools works in the folder of the sources, and another process of the tests may
    build at the same time.
    """
    out = tmp_path_factory.mktemp("dist")
    tree = tmp_path_factory.mktemp("sources") / "autosched"
    left = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
    shutil.copytree(ROOT, tree, ignore=left)
    run(sys.executable, "-m", "build", "--outdir", out, tree, cwd=out)
    (found,) = out.glob("*.whl")
    return found


def run(*command: object, cwd: Path) -> str:
    """Standard output of a command that must succeed, without our sources on its path."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=env, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_a_wheel_has_all_sources_types_and_pages(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                assert str(file.relative_to(ROOT)) in packed
    assert not {p for p in packed if p.startswith(("tests", "docs", "benchmarks"))}
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert any(n.endswith("/server/web/templates/base.html") for n in names)


def test_a_plain_install_compiles_and_is_small(wheel: Path, tmp_path: Path) -> None:
    """The bar is on what is downloaded. On the disk LLVM's library alone is larger than it."""
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    got = tmp_path / "wheels"
    run(python, "-m", "pip", "wheel", "--quiet", "--wheel-dir", got, wheel, cwd=tmp_path)
    assert {f.name.split("-")[0] for f in got.iterdir()} == {"autosched", "numpy", "llvmlite"}
    downloaded = sum(f.stat().st_size for f in got.iterdir())
    assert downloaded < LIMIT
    run(python, "-m", "pip", "install", "--quiet", "--no-index", *got.iterdir(), cwd=tmp_path)
    names = ("autosched", "measure", "cost_model", "records", "server", "numpy", "llvmlite")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    files = [f for n in names for f in site.glob(f"{n}*/**/*") if f.is_file()]
    on_disk = sum(f.stat().st_size for f in files) - (site / LLVM).stat().st_size
    print(f"downloaded {downloaded / 1e6:.0f} MB, without LLVM {on_disk / 1e6:.0f} MB on the disk")
    assert on_disk < LIMIT
    assert run(python, "-c", USE, cwd=tmp_path) == "right\n"
    command = python.with_name("autosched")
    assert run(command, "completion", "bash", cwd=tmp_path).startswith("_autosched()")
    refused = subprocess.run(
        [command, "tune", "matmul", "8", "4", "6"], capture_output=True, text=True, cwd=tmp_path
    )
    assert "pip install 'autosched[tune]'" in refused.stderr
