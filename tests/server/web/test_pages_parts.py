"""How values are written on pages, and how two schedules are laid side by side."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from server.web.compare import CONTEXT, folded, side_by_side
from server.web.highlight import LONGEST, highlighted
from server.web.records import forms_of
from server.web.render import count, flop, gflops, seconds, span, times, url, when


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (seconds, None, "–"),
        (seconds, 5.03e-3, "5.03 ms"),
        (seconds, 0.0, "0 s"),
        (span, None, "–"),
        (span, 0.165, "0.165 s"),
        (span, 99.0, "99 s"),
        (span, 200.0, "3 min 20 s"),
        (span, 7500.0, "2 h 5 min"),
        (times, None, "–"),
        (times, 1.4, "1.40×"),
        (times, 116.04, "116×"),
        (count, 100_000, "100,000"),
        (flop, 2148532224.0, "2.15 GFLOP"),
        (flop, 12.0, "12 FLOP"),
    ],
)
def test_values(write, value, text):
    assert write(value) == text


def test_speed():
    assert gflops(1e-3, 2e9) == "2000 GFLOP/s"


def test_urls_leave_out_what_is_not_given():
    assert url("/", state=None, cursor="") == "/"
    assert url("/", state="failed", q="a&b") == "/?state=failed&q=a%26b"


@pytest.mark.parametrize(
    ("past", "text"),
    [(0, "just now"), (25, "20 s ago"), (130, "2 min ago"), (7300, "2 h ago"), (90_000, "1 d ago")],
)
def test_times_are_said_as_they_are_read(past, text):
    time = datetime.now(UTC) - timedelta(seconds=past)
    shown = when(time)
    assert f">{text}</time>" in shown
    assert time.isoformat(timespec="seconds") in shown


def test_lines_that_belong_together_stand_beside_each_other():
    left = ["a", "split(x, 4)", "b", "gone", "c"]
    right = ["a", "split(x, 16)", "b", "c", "new"]
    rows = [(r.kind, r.left.number, r.right.number) for r in side_by_side(left, right)]
    assert rows == [
        ("equal", 1, 1), ("replace", 2, 2), ("equal", 3, 3), ("delete", 4, 0), ("equal", 5, 4),
        ("insert", 0, 5),
    ]  # fmt: skip
    changed = next(r for r in side_by_side(left, right) if r.kind == "replace")
    assert changed.left.text == "split(x, <mark>4</mark>)"
    assert changed.right.text == "split(x, <mark>16</mark>)"


def test_lines_are_escaped():
    (row,) = side_by_side(["<b>"], ["<i>"])
    assert row.left.text == "&lt;<mark>b</mark>&gt;"
    (other,) = side_by_side(["<b>"], ["nothing of the kind"])
    assert other.left.text == "&lt;b&gt;"


def test_long_runs_of_equal_lines_are_left_out():
    left = [str(n) for n in range(40)]
    right = [*left[:20], "new", *left[20:]]
    rows = folded(list(side_by_side(left, right)))
    assert [r.gap for r in rows if r.gap] == [20 - CONTEXT, 20 - CONTEXT]
    assert len(rows) == 2 * CONTEXT + 3
    assert [r.gap for r in folded(list(side_by_side(left, left)))] == [40]


def test_programs_are_marked_and_escaped():
    marked = highlighted('for i in range(3): print("<b>")\n', "python")
    assert '<span class="k">for</span>' in marked
    assert "<b>" not in marked
    assert "style=" not in marked


def test_a_long_program_is_plain():
    text = "x = 1 < 2\n" * (LONGEST // 10 + 1)
    assert highlighted(text, "python") == text.replace("<", "&lt;")


def test_forms_are_named_by_what_the_target_has() -> None:
    named = {t: [f.title for f in forms_of(t).values()] for t in ("llvm -mcpu=x", "cuda", "opencl")}
    assert named == {
        "llvm -mcpu=x": ["Schedule", "Loop IR", "LLVM IR", "Assembly"],
        "cuda": ["Schedule", "Loop IR", "CUDA C++"],
        "opencl": ["Schedule", "Loop IR", "OpenCL C"],
    }
    for target in named:
        for form in forms_of(target).values():
            highlighted("x = 1", form.language)  # a language that is known
