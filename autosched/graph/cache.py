"""Compiled kernels on disk: one JSON file each, written whole, so that several processes may share
a folder."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache as once
from hashlib import sha256
from pathlib import Path
from typing import Any

from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.graph.stored import seal, unseal, write_whole
from autosched.target import Target


@dataclass(frozen=True)
class KernelCache:
    """A folder of compiled kernels. The name of a file is made of the workload's key, and of the
    scheduled program, the target and the version of what compiled it: a file of another version is
    never read."""

    folder: Path

    def get(self, key: str, program: str, target: Target) -> Artifact | None:
        """The kernel of a scheduled program; None where there is none, or the file is damaged."""
        try:
            return artifact_from_json(unseal(self._path(key, program, str(target)).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, program: str, artifact: Artifact) -> None:
        """Store a kernel, but not in a folder that is there to be read only. Raises OSError."""
        if self.folder.is_dir() and not os.access(self.folder, os.W_OK):
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(key, program, artifact.target)
        write_whole(path, [seal(artifact_to_json(artifact))])

    def _path(self, key: str, program: str, target: str) -> Path:
        mark = sha256(f"{program} {target} {_version()}".encode()).hexdigest()[:16]
        return self.folder / f"{key}-{mark}.json"


@once
def _version() -> str:
    """Versions of the tools, and the state of the sources that make code of programs."""
    from autosched.codegen.build import toolchain

    return _sources(toolchain(), "codegen", "tir", "lowering")


@once
def scheduler_version() -> str:
    """What stands for a default schedule in place of the program that it makes: the state of the
    sources that make schedules."""
    return _sources("default schedule", "sketch", "schedule", "dag.py")


def _sources(what: str, *names: str) -> str:
    root = Path(__file__).parent.parent
    seen = sha256(what.encode())
    for name in names:
        found = root / name
        for path in sorted(found.rglob("*.py")) if found.is_dir() else [found]:
            seen.update(path.read_bytes())
    return seen.hexdigest()


def artifact_to_json(a: Artifact) -> dict[str, Any]:
    """Object code and what is needed to call it, as JSON data."""
    info = a.info
    return {
        "target": a.target,
        "entry": info.entry,
        "params": [[p.name, list(p.shape), p.dtype, p.written] for p in info.params],
        "workspace_bytes": info.workspace_bytes,
        "thread_bytes": info.thread_bytes,
        "parallel": info.parallel,
        "messages": list(info.messages),
        "code": base64.b64encode(a.code).decode(),
        "prepare": [[n, artifact_to_json(p)] for n, p in a.prepare],
    }


def artifact_from_json(data: Mapping[str, Any]) -> Artifact:
    """The inverse of `artifact_to_json`."""
    params = tuple(Param(n, tuple(s), d, w) for n, s, d, w in data["params"])
    info = KernelInfo(
        data["entry"],
        params,
        data["workspace_bytes"],
        data["thread_bytes"],
        data["parallel"],
        messages=tuple(data.get("messages", ())),
    )
    prepare = tuple((n, artifact_from_json(p)) for n, p in data["prepare"])
    return Artifact(base64.b64decode(data["code"]), info, data["target"], prepare)
