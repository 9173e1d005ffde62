"""Where a pool works from, and what its processes may use and leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from calls import calling
from measure_doubles import BUILD_FUNC, Double, vector_add

from measure.local.build import LocalBuilder
from measure.local.pool import LocalPool
from measure.local.slot import LocalRunner
from measure.process import folders
from measure.process.child import Child
from measure.process.template_client import Limits, Template
from measure.status import Status

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    made = Template(preload=["measure_doubles"])
    yield made
    made.close()


def test_child_may_start_so_many_processes(template: Template) -> None:
    child = Child(template, Limits(processes=50))
    # The limit is 50 above what this user has: far below this.
    outcome = child.call(calling("measure_doubles:fork_until_refused", 20_000), timeout=250)
    child.kill()
    assert outcome.value == "Resource temporarily unavailable", outcome
    process = template._process
    assert process is not None
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    assert listing.read_text().split() == []


def test_child_may_start_no_process_but_threads(template: Template) -> None:
    child = Child(template, Limits(processes=0))
    outcome = child.call(calling("subprocess:getoutput", "echo started"), timeout=60)
    assert outcome.kind == "error"
    assert "Resource temporarily unavailable" in outcome.text
    assert child.call(calling("measure_doubles:add_in_a_thread", 1, 2), timeout=60).value == 3
    child.kill()


def test_child_may_write_so_much(template: Template) -> None:
    child = Child(template, Limits(file_bytes=4 << 20))
    assert child.call(calling("measure_doubles:write_file", 3 << 20), timeout=60).value == "written"
    assert (
        child.call(calling("measure_doubles:write_file", 8 << 20), timeout=60).value
        == "File too large"
    )
    child.kill()


def test_folder_goes_when_the_child_is_killed(template: Template) -> None:
    child = Child(template, Limits())
    folder = Path(child.call(calling("os:getcwd"), timeout=60).value)
    assert child.call(calling("measure_doubles:write_file", 1 << 20), timeout=60).value == "written"
    assert child.pid is not None
    assert (folder / "big").exists()
    os.kill(child.pid, signal.SIGKILL)
    assert child.call(calling("os:getcwd"), timeout=60).kind == "lost"
    assert not folder.exists()
    child.kill()


OWNER = """
import sys, time
from measure.process.template_client import Template
template = Template()
template.start()
print(template.pid, template._folder, flush=True)
time.sleep(1000)
"""


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}


def test_folder_goes_when_everybody_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the template nor its parent is there to clean up: whoever comes next does."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(folders.tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().split()
        os.kill(int(pid), signal.SIGSTOP)
        process.kill()
        os.kill(int(pid), signal.SIGKILL)
    end = time.monotonic() + 60
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert Path(folder).exists()
    mine, fd = folders.own_folder()
    folders.sweep()
    assert not Path(folder).exists()
    assert mine.exists()
    os.close(fd)
    folders.sweep()
    assert not mine.exists()


# A program without `if __name__ == "__main__"`: whoever imports it again runs it again.
PROGRAM = """
import sys
sys.path.insert(0, {here!r})
print("the program runs", flush=True)
from pathlib import Path
from measure_doubles import BUILD_FUNC, Double, vector_add
from measure.local.build import LocalBuilder
from measure.local.pool import LocalPool
from measure.local.slot import LocalRunner
runner = LocalRunner(budget_ms=2, lock_folder=Path({lock!r}))
builder = LocalBuilder(build_func=BUILD_FUNC, n_parallel=1)
with LocalPool(builder=builder, runner=runner) as pool:
    job = pool.open_job(vector_add())
    print([str(r.status) for r in pool.measure(job, [Double("segfault"), Double("right")])])
"""
SPAWN = """
import multiprocessing, sys
sys.path.insert(0, {folder!r})
if __name__ == "__main__":
    import program_of_a_user
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=program_of_a_user.main, daemon=True)
    process.start()
    process.join(100)
    sys.exit(process.exitcode)
"""


@pytest.mark.parametrize("way", ["script", "module", "stdin", "notebook", "spawn"])
def test_pool_works_however_the_program_was_started(tmp_path: Path, way: str) -> None:
    text = PROGRAM.format(here=str(HERE), lock=str(tmp_path))
    script = tmp_path / "program_of_a_user.py"
    command, given = [sys.executable, str(script)], None
    if way == "spawn":
        text = "def main():\n" + textwrap.indent(text, "    ")
        starter = tmp_path / "starter.py"
        starter.write_text(SPAWN.format(folder=str(tmp_path)))
        command = [sys.executable, str(starter)]
    elif way == "module":
        command = [sys.executable, "-m", "program_of_a_user"]
    elif way == "stdin":
        command, given = [sys.executable, "-"], text
    elif way == "notebook":
        # As a kernel runs a cell: in a namespace named __main__ that has no file.
        run = "exec(compile(sys.stdin.read(), '<cell>', 'exec'), {'__name__': '__main__'})"
        command, given = [sys.executable, "-c", f"import sys; {run}"], text
    script.write_text(text)
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=250,
    )
    assert done.stdout.splitlines() == ["the program runs", "['runtime_error', 'ok']"], done.stderr
    assert done.returncode == 0
    assert done.stderr == ""


def test_pool_outlives_the_thread_that_opened_it(tmp_path: Path) -> None:
    pool = LocalPool(
        builder=LocalBuilder(build_func=BUILD_FUNC, n_parallel=1),
        runner=LocalRunner(budget_ms=2, lock_folder=tmp_path),
    )
    with pool:
        jobs = []
        thread = threading.Thread(target=lambda: jobs.append(pool.open_job(vector_add())))
        thread.start()
        thread.join()
        before = pool.processes
        assert pool.measure(jobs[0], [Double("right")])[0].status is Status.OK
        assert set(before) <= set(pool.processes)
