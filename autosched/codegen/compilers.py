"""Processes that compile LLVM IR side by side. LLVM compiles one module at a time in a process, and
of a model's build that is two thirds.

A process reads requests from its standard input until that ends, and answers each in turn: a line
of JSON, then as many bytes as the line says.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any

from autosched.codegen.artifact import Artifact
from autosched.codegen.build import Level, Sources, compile_sources
from autosched.errors import BuildError
from autosched.target import Target

MOST = 8
"""Processes at most: generating the IR is a third of a build and is done in one."""


class Compilers:
    """Compiles IR in up to `count` processes, each started when there is work for it; with a count
    below 2, at once and in this process. At the end of the `with` block the processes end."""

    def __init__(self, count: int) -> None:
        # A program that was frozen into one file has no interpreter to start.
        alone = count < 2 or not sys.executable or getattr(sys, "frozen", False)
        self._threads = None if alone else ThreadPoolExecutor(min(count, MOST), "compiler")
        self._own = threading.local()
        self._lock = threading.Lock()
        self._children: list[_Child] = []
        self._ended = False

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *error: object) -> None:
        if self._threads is None:
            return
        with self._lock:
            self._ended = True
        for child in self._children:
            child.kill()
        self._threads.shutdown(cancel_futures=True)
        for child in self._children:
            child.close()

    def submit(
        self,
        sources: Sources,
        target: Target,
        level: Level,
        keep: Callable[[Artifact], None] | None = None,
    ) -> Future[Artifact]:
        """The object code to come, which `keep` is given first, in whatever thread made it. Its
        `result()` raises BuildError and what `keep` raises; without processes the call does."""
        if self._threads is not None:
            return self._threads.submit(self._compile, sources, target, level, keep)
        made: Future[Artifact] = Future()
        artifact = compile_sources(sources, target, level)
        if keep is not None:
            keep(artifact)
        made.set_result(artifact)
        return made

    def _compile(
        self,
        sources: Sources,
        target: Target,
        level: Level,
        keep: Callable[[Artifact], None] | None,
    ) -> Artifact:
        child: _Child | None = getattr(self._own, "child", None)
        if child is None:
            with self._lock:
                if self._ended:
                    raise BuildError("the build was given up")
                child = self._own.child = _Child()
                self._children.append(child)
        artifact = compile_sources(sources, target, level, child.compile_ir)
        if keep is not None:
            keep(artifact)
        return artifact


class _Child:
    """One process, used by one thread."""

    def __init__(self) -> None:
        path = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # a Ctrl-C is this process's to handle
            )
        except OSError as e:
            raise BuildError(
                f"cannot start a process that compiles: {e}; taskset -c 0 builds without"
            ) from e

    def compile_ir(self, ir_text: str, target: Target, level: Level) -> bytes:
        """As `assemble.compile_ir`. Raises BuildError where the process ends instead."""
        head = {"target": str(target), "level": level}
        try:
            _send(self._process.stdin, head, ir_text.encode())
            answer = _receive(self._process.stdout)
        except OSError:
            answer = None
        if answer is None:
            raise BuildError(f"the process that compiles it ended {self._end()}")
        if "error" in answer[0]:
            raise BuildError(answer[0]["error"])
        return answer[1]

    def _end(self) -> str:
        code = self._process.wait()
        return f"with {signal.Signals(-code).name}" if code < 0 else f"with status {code}"

    def kill(self) -> None:
        """End the process, whatever it does; it holds nothing."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Close its pipes, which no thread uses any more."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # bytes of a request that it did not read
                pipe.close()


def _send(pipe: IO[bytes] | None, head: dict[str, Any], data: bytes = b"") -> None:
    assert pipe is not None
    pipe.write(json.dumps({**head, "bytes": len(data)}).encode() + b"\n" + data)
    pipe.flush()


def _receive(pipe: IO[bytes] | None) -> tuple[dict[str, Any], bytes] | None:
    """A message; None where the other side ended before its last byte."""
    assert pipe is not None
    line = pipe.readline()
    if not line.endswith(b"\n"):
        return None
    head = json.loads(line)
    data = pipe.read(head["bytes"])
    return (head, data) if len(data) == head["bytes"] else None


def main() -> None:
    """Answer requests until the other side ends."""
    from autosched.codegen.llvm.assemble import compile_ir

    # Who asked may be killed: what is not yet written then fails again where `answers` is closed.
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what LLVM may print must not come between answers
        while (request := _receive(sys.stdin.buffer)) is not None:
            head, text = request
            try:
                _send(answers, {}, compile_ir(text.decode(), Target(head["target"]), head["level"]))
            except BuildError as e:
                _send(answers, {"error": str(e)})


if __name__ == "__main__":
    main()
