"""Processes that compile LLVM IR give what this process gives, and end with the build."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import wait

import pytest

from autosched import te
from autosched.codegen import compilers
from autosched.codegen.artifact import KernelInfo
from autosched.codegen.build import Sources, build_artifact, generate_sources
from autosched.codegen.llvm.generate import Generated
from autosched.errors import BuildError
from autosched.sketch.default import default_schedule
from autosched.target import Target

HOST = Target("llvm")
TINY = "define void @f() {\n  ret void\n}\n"
WRONG = "define void @f() {\n  ret i32 0\n}\n"


def sources(ir: str, *prepare: Sources) -> Sources:
    return Sources(Generated(ir, KernelInfo("f", ())), tuple(enumerate(prepare)))


def doubled(n: int):
    a = te.placeholder((n, 24), name="A")
    return te.create_prim_func([a, te.compute((n, 24), lambda i, j: a[i, j] * 2.0, name="B")])


def children(pool: compilers.Compilers) -> list[int]:
    return [c._process.pid for c in pool._children]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("level", ["search", "full"])
def test_processes_compile_what_this_one_does(level):
    funcs = [default_schedule(doubled(n), HOST).func for n in (16, 17, 18)]
    with compilers.Compilers(2) as pool:
        made = [pool.submit(generate_sources(f, HOST), HOST, level) for f in funcs]
        assert [m.result() for m in made] == [build_artifact(f, HOST, level) for f in funcs]
        pids = children(pool)
        assert 1 <= len(pids) <= 2
    assert not any(map(is_alive, pids))


def test_transform_stages_are_compiled_too():
    with compilers.Compilers(2) as pool:
        artifact = pool.submit(sources(TINY, sources(TINY)), HOST, "full").result()
    ((number, stage),) = artifact.prepare
    assert number == 0
    assert stage.code == artifact.code


@pytest.mark.parametrize("count", [1, 2])
def test_llvm_errors_come_back_and_the_next_module_compiles(count):
    with compilers.Compilers(count) as pool:
        with pytest.raises(BuildError, match="LLVM refuses the generated code") as caught:
            pool.submit(sources(WRONG), HOST, "full").result()
        assert "line 2 of the IR" in str(caught.value)
        assert pool.submit(sources(TINY), HOST, "full").result().code


def test_no_process_is_started_where_there_is_no_work_or_no_other_core():
    with compilers.Compilers(2) as pool:
        assert not children(pool)
    with compilers.Compilers(1) as pool:
        assert pool.submit(sources(TINY), HOST, "full").done()
        assert not children(pool)


def test_a_process_that_dies_is_an_error_that_says_how():
    with compilers.Compilers(2) as pool:
        pool.submit(sources(TINY), HOST, "full").result()
        for pid in children(pool):
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(BuildError, match="ended with SIGKILL"):
            pool.submit(sources(TINY), HOST, "full").result()


def test_a_system_that_starts_no_process_is_an_error_of_the_build(monkeypatch):
    def refused(*args, **kwargs):
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(compilers.subprocess, "Popen", refused)
    with (
        compilers.Compilers(2) as pool,
        pytest.raises(BuildError, match=r"cannot start a process that compiles: .*unavailable"),
    ):
        pool.submit(sources(TINY), HOST, "full").result()


def test_a_build_that_is_given_up_leaves_no_process_and_does_not_wait():
    slow = sources(TINY + "; a comment that LLVM reads\n" * 500_000)
    pids: list[int] = []
    futures = []

    def give_up():
        with compilers.Compilers(2) as pool:
            futures.extend(pool.submit(slow, HOST, "full") for _ in range(20))
            wait(futures[:1])
            pids.extend(children(pool))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        give_up()
    assert pids
    assert not any(map(is_alive, pids))
    assert any(f.cancelled() or f.exception() is not None for f in futures)
    assert not [t for t in threading.enumerate() if t.name.startswith("compiler")]


@pytest.mark.parametrize("count", [1, 2])
def test_code_is_kept_when_it_is_made_not_when_it_is_asked_for(count):
    kept = []

    def give_up(pool):
        pool.submit(sources(TINY), HOST, "full", kept.append)
        pool.submit(sources(TINY), HOST, "full", kept.append)
        wait([pool.submit(sources(TINY), HOST, "full")])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), compilers.Compilers(count) as pool:
        give_up(pool)
    assert len(kept) >= 1
    assert kept[0].code


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_raised_by_the_one_that_keeps_code_is_raised(count):
    def full(artifact):
        raise OSError(28, "No space left on device")

    with compilers.Compilers(count) as pool, pytest.raises(OSError, match="No space left"):
        pool.submit(sources(TINY), HOST, "full", full).result()


def test_a_process_whose_asker_was_killed_ends_without_a_word():
    command = [sys.executable, "-P", "-m", compilers.__name__]
    pipe = subprocess.PIPE
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=env) as child:
        child.stdout.close()
        head = {"target": str(HOST), "level": "full"}
        compilers._send(child.stdin, head, TINY.encode())
        assert child.stderr.read() == b""
        assert child.wait() == 0
