"""Contained children: whatever happens in one becomes an outcome, and nothing is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from select import select

import pytest
from calls import calling
from measure_doubles import SLOW_IMPORT

from autosched.errors import MeasureError
from measure.process.child import MOST_PAUSES, Child, wait_any
from measure.process.template_client import START_SECONDS, Limits, NotStarted, Template


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    made = Template(preload=["numpy", "measure_doubles"])
    yield made
    made.close()


@pytest.fixture
def child(template: Template) -> Iterator[Child]:
    made = Child(template, Limits(memory_bytes=4 << 30))
    yield made
    made.kill()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while alive(pid):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def works(child: Child) -> bool:
    return child.call(calling("measure_doubles:add", 1, 2), timeout=60).value == 3


def test_child_answers_and_is_used_again(child: Child) -> None:
    assert works(child)
    pid = child.pid
    assert works(child)
    assert child.pid == pid


def test_child_crash_keeps_signal_stack_and_last_words(child: Child) -> None:
    outcome = child.call(calling("measure_doubles:crash"), timeout=60)
    assert outcome.kind == "crash"
    assert outcome.text.startswith("killed by SIGSEGV")
    assert "in crash" in outcome.text
    assert "last words" in outcome.text
    assert works(child)


def test_child_deadline_kills_it(child: Child) -> None:
    works(child)
    pid = child.pid
    assert pid is not None
    outcome = child.call(calling("measure_doubles:sleep"), timeout=0.1)
    assert outcome.kind == "timeout"
    assert "0.1 s" in outcome.text
    assert not alive(pid)
    assert works(child)


def test_child_that_computes_on_ends_though_nobody_looks(child: Child) -> None:
    """Its priority may leave its parent no time to look."""
    assert works(child)
    assert child.pid is not None
    child.send(calling("measure_doubles:compute"), timeout=0.1)
    for _ in range(600):
        if not alive(child.pid):
            break
        time.sleep(0.1)
    assert not alive(child.pid)
    outcome = wait_any([child])[0][1]
    assert outcome.kind == "timeout"
    assert "not done within 0.1 s of processor time of each core" in outcome.text
    assert works(child)


def test_child_that_computes_on_ends_though_who_started_it_ignores_the_timer() -> None:
    before = signal.signal(signal.SIGPROF, signal.SIG_IGN)
    try:
        template = Template(preload=["measure_doubles"])
        template.start()
    finally:
        signal.signal(signal.SIGPROF, before)
    with closing(template):
        child = Child(template, Limits(memory_bytes=4 << 30))
        assert works(child)
        pid = child.pid
        assert pid is not None
        child.send(calling("measure_doubles:compute"), timeout=0.1)
        ended = gone(pid, 20.0)
        child.kill()
        assert ended


def test_child_has_time_again_after_its_parent_stood_still(child: Child) -> None:
    """Nobody looked at the deadline, so the machine may have done nothing at all."""
    assert works(child)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGSTOP)
    child.send(calling("measure_doubles:add", 1, 2), timeout=60)
    child._deadline -= 100
    assert child._advance(False, False) is None
    assert child._deadline > time.monotonic()
    os.kill(child.pid, signal.SIGCONT)
    assert wait_any([child])[0][1].value == 3


def test_child_that_always_finds_its_parent_late_is_ended(child: Child) -> None:
    assert works(child)
    child.send(calling("measure_doubles:sleep"), timeout=60)
    outcomes = []
    while not any(outcomes):
        child._deadline -= 100
        outcomes.append(child._advance(False, False))
    assert [o and o.kind for o in outcomes] == [None] * MOST_PAUSES + ["timeout"]


def test_child_has_its_time_from_when_it_is_ready(child: Child) -> None:
    """However long the machine needs to start it."""
    child.send(calling("measure_doubles:sleep"), timeout=0.1)
    assert child._deadline > time.monotonic() + START_SECONDS / 2
    assert wait_any([child])[0][1].kind == "timeout"
    assert works(child)
    child.send(calling("measure_doubles:sleep"), timeout=0.1)
    assert child._deadline <= time.monotonic() + 0.1
    assert wait_any([child])[0][1].kind == "timeout"


def test_child_that_never_got_ready_is_lost(child: Child) -> None:
    """Nothing that it was asked can be at fault."""
    child.send(calling("measure_doubles:sleep"), timeout=0.1)
    child._deadline, child._pauses = time.monotonic(), MOST_PAUSES
    outcome = child._advance(False, False)
    assert outcome is not None
    assert (outcome.kind, outcome.text) == ("lost", "its process was not ready in time")
    assert works(child)


@pytest.mark.parametrize("double", ["leave_grandchild_and_die", "leave_grandchild"])
def test_child_takes_grandchildren_along(child: Child, template: Template, double: str) -> None:
    works(child)
    process = template._process
    assert process is not None
    child.call(calling(f"measure_doubles:{double}"), timeout=60)
    child.kill()
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    assert listing.split() == []


def test_child_that_closes_its_connection(child: Child) -> None:
    outcome = child.call(calling("measure_doubles:close_everything"), timeout=60)
    assert outcome.kind == "crash"
    assert "closed its connection" in outcome.text
    assert works(child)


def test_child_raising_something_unpicklable(child: Child) -> None:
    outcome = child.call(calling("measure_doubles:raise_unpicklable"), timeout=60)
    assert outcome.kind == "error"
    assert "from the builder" in outcome.text


def test_child_reply_may_not_run_anything(child: Child) -> None:
    outcome = child.call(calling("measure_doubles:fake_reply"), timeout=60)
    assert outcome.kind == "crash"
    assert "may not contain os.system" in outcome.text
    assert works(child)


def test_child_returning_what_it_may_not(child: Child) -> None:
    outcome = child.call(calling("measure_doubles:echo", Path("/tmp")), timeout=60)
    assert outcome.kind == "crash"
    assert "may not contain pathlib" in outcome.text


def test_child_function_that_is_not_there(child: Child) -> None:
    assert (
        "no attribute 'nothing'" in child.call(calling("measure_doubles:nothing"), timeout=60).text
    )
    assert '"module:function"' in child.call(calling("measure_doubles"), timeout=60).text


def test_child_that_grows_is_replaced(template: Template) -> None:
    child = Child(template, Limits(memory_bytes=4 << 30), grow_bytes=100 << 20)
    assert works(child)
    assert [child.call(calling("measure_doubles:grow"), timeout=60).value for _ in range(3)] == [
        1,
        2,
        1,
    ]
    assert child.starts == 2
    child.kill()


def test_child_killed_from_outside_is_lost(child: Child) -> None:
    child.start()
    assert child.pid is not None
    timer = threading.Timer(0.1, os.kill, (child.pid, signal.SIGKILL))
    timer.start()
    outcome = child.call(calling("measure_doubles:sleep"), timeout=60)
    timer.join()
    assert outcome.kind == "lost"
    assert works(child)


def test_child_killed_between_calls(child: Child) -> None:
    assert works(child)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    assert child.call(calling("measure_doubles:add", 1, 2), timeout=60).kind == "lost"
    assert works(child)


def test_child_surroundings(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET_TOKEN", "x")
    fresh = Template(pass_env=["A_WANTED_NAME"])
    monkeypatch.setenv("A_WANTED_NAME", "y")
    one = Child(fresh, Limits(memory_bytes=1 << 30))
    found = one.call(calling("measure_doubles:surroundings"), timeout=60).value
    assert "A_SECRET_TOKEN" not in found["environ"]
    assert found["environ"]["A_WANTED_NAME"] == "y"
    assert found["core"] == 0
    assert 1 << 30 < found["memory"] < 8 << 30
    assert found["group"]
    assert found["first_for_memory"] == "1000"
    assert found["folder"] == found["temp"]
    assert Path(found["folder"]).is_dir()
    # Standard streams, the connection, the fault file, and the listing itself.
    assert len(found["fds"]) == 6
    one.kill()
    assert not Path(found["folder"]).exists()
    session = fresh._folder
    assert session is not None
    fresh.close()
    assert not session.exists()


def test_child_imports_before_its_time_begins(template: Template) -> None:
    child = Child(template, Limits(imports=("measure_slow_builder", "nobody_has_this")))
    outcome = child.call(calling("measure_slow_builder:add", 1, 2), timeout=60)
    assert outcome.value == 3
    assert outcome.wall_seconds < SLOW_IMPORT
    assert "No module named" in child.call(calling("nobody_has_this:add"), timeout=60).text
    child.kill()


def test_child_at_rest_does_nothing_and_answers_when_asked(child: Child) -> None:
    child.rest()  # there is none yet
    assert works(child)
    assert child.pid is not None
    child.rest()
    end = time.monotonic() + 60
    while Path(f"/proc/{child.pid}/stat").read_text().split()[2] != "T":
        assert time.monotonic() < end
    pid = child.pid
    assert works(child)
    assert child.pid == pid
    child.rest()
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    child.rest()
    assert child.call(calling("measure_doubles:add", 1, 2), timeout=60).kind == "lost"


def test_child_several_at_once(template: Template) -> None:
    children = [Child(template, Limits()) for _ in range(3)]
    children[0].send(calling("measure_doubles:sleep"), timeout=0.2)
    children[1].send(calling("measure_doubles:add", 1, 1), timeout=60)
    children[2].send(calling("measure_doubles:crash"), timeout=60)
    kinds = {}
    while any(c.busy for c in children):
        for child, outcome in wait_any(children):
            kinds[children.index(child)] = outcome.kind
    assert kinds == {0: "timeout", 1: "value", 2: "crash"}
    for child in children:
        child.kill()


def test_child_large_messages(child: Child) -> None:
    data = os.urandom(8 << 20)
    assert child.call(calling("measure_doubles:echo", data), timeout=60).value == data


def test_child_refuses_a_second_call(child: Child) -> None:
    child.send(calling("measure_doubles:sleep"), timeout=60)
    with pytest.raises(MeasureError, match="at work already"):
        child.send(calling("measure_doubles:add", 1, 2), timeout=60)
    child.kill()


def test_template_lost_and_restarted() -> None:
    template = Template(preload=["measure_doubles"])
    child = Child(template, Limits())
    assert works(child)
    assert template._process is not None
    template._process.kill()
    assert child.call(calling("measure_doubles:sleep"), timeout=60).kind == "lost"
    assert works(child)
    child.kill()
    template.close()


@pytest.mark.parametrize("lost", [False, True])
def test_template_begun_forks_and_is_started_again_if_it_was_lost(lost: bool) -> None:
    template = Template(preload=["measure_doubles"])
    template.begin()
    begun = template._process
    assert begun is not None
    if lost:
        begun.kill()
        begun.wait()
    child = Child(template, Limits())
    assert works(child)
    assert (template._process is begun) is not lost
    child.kill()
    template.close()


def test_child_that_was_not_started_and_is_given_up_may_be_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after an interrupt."""
    child = Child(Template(), Limits())

    def refused(*_: object) -> int:
        raise NotStarted("no room")

    monkeypatch.setattr(child.template, "fork", refused)
    for _ in range(2):
        child.send(calling("measure_doubles:add", 1, 2), timeout=60)
        assert child.busy
        child.kill()
        assert not child.busy
    assert child.call(calling("measure_doubles:add", 1, 2), timeout=60).text == "no room"


def test_template_ended_from_outside_as_it_starts_is_started_again() -> None:
    template = Template(preload=["measure_slow_builder", "measure_doubles"])
    child = Child(template, Limits())

    def end() -> None:
        while template._process is None:
            time.sleep(0.01)
        template._process.terminate()

    for call, kind in ((child.call, "lost"), (child.ask, "value")):
        thread = threading.Thread(target=end)
        thread.start()
        outcome = call(calling("measure_doubles:add", 1, 2), timeout=60)
        thread.join()
        assert outcome.kind == kind, outcome.text
        template.close()
    child.kill()


SCRIPT = """
import sys, time
from measure.process.child import Child
from measure.process.template_client import START_SECONDS, Limits, Template
template = Template(preload=["measure_doubles"])
children = [Child(template, Limits()) for _ in range(2)]
for c in children:
    c.start()
print(template._process.pid, *(c.pid for c in children), template._folder, flush=True)
{end}
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_children_die_with_their_parent(sent: signal.Signals) -> None:
    code = SCRIPT.format(end="children[0].call(calling('measure_doubles:sleep'), timeout=250)")
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdout is not None
    *pids, folder = process.stdout.readline().split()
    time.sleep(0.1)
    process.send_signal(sent)
    process.wait(60)
    process.stdout.close()
    assert all(gone(int(pid)) for pid in pids)
    end = time.monotonic() + 60
    while Path(folder).exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert not Path(folder).exists()


def test_the_template_ends_silently_where_its_owner_left_a_reply_unread() -> None:
    template = Template()
    template.start()
    process, control = template._process, template._control
    assert process is not None
    assert control is not None
    control.send(b'{"op": "reap", "pid": 0}')
    select([control], [], [], 60)
    control.close()
    assert process.wait(60) == 0
    template.close()
