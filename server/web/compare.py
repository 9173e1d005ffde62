"""Two records side by side, with what differs between their schedules."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from server.http.auth import ClientOf
from server.http.problems import ProblemError
from server.routes import records as api
from server.schemas import RecordDetail
from server.state import ServiceOf
from server.web.records import apply_of, final_seconds
from server.web.render import NOTHING, page, seconds, words

router = APIRouter(include_in_schema=False)

CONTEXT = 4
"""Equal lines shown before and after each difference."""

ALIKE = 0.6
"""The part of two lines' words that is to be the same for the others to be marked."""
_WORD = re.compile(r"\w+|\W")

RecordNumber = Annotated[int, Query(ge=1, lt=1 << 63)]
Kind = Literal["equal", "replace", "delete", "insert"]


@dataclass(frozen=True)
class Line:
    """A line of one side, counted from 1; number 0: there is none beside the other side's."""

    number: int
    text: Markup


@dataclass(frozen=True)
class Row:
    """A row of the comparison, or the place of `gap` equal lines that are left out."""

    kind: Kind
    left: Line
    right: Line
    gap: int = 0


@router.get("/compare")
async def compare_page(
    request: Request, service: ServiceOf, client: ClientOf, a: RecordNumber, b: RecordNumber
) -> HTMLResponse:
    """Record `a` against record `b`."""
    left = await run_sync(api.get_record, service, a)
    right = await run_sync(api.get_record, service, b)
    problem = ""
    rows: list[Row] = []
    try:
        texts = [apply_of(await service.texts.text(n, "schedule", client.key)) for n in (a, b)]
        rows = await run_sync(lambda: list(side_by_side(*texts)))
    except ProblemError as e:
        problem = e.detail
    changed = sum(row.kind != "equal" for row in rows)
    return page(
        request,
        "compare.html",
        a=left,
        b=right,
        verdict=_verdict(left, right),
        notes=_notes(left, right),
        rows=_figures(left, right),
        problem=problem,
        changed=changed,
        diff=folded(rows) if changed else [],
    )


def side_by_side(left: Sequence[str], right: Sequence[str]) -> Iterator[Row]:
    """The lines of two texts, those beside each other that belong together."""
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        for k in range(max(i_end - i, j_end - j)):
            old = left[i + k] if i + k < i_end else None
            new = right[j + k] if j + k < j_end else None
            marked = _marked(old, new) if kind == "replace" else (old, new)
            yield Row(kind, _line(i + k, marked[0]), _line(j + k, marked[1]))


def _line(index: int, text: str | Markup | None) -> Line:
    return Line(0, Markup()) if text is None else Line(index + 1, Markup.escape(text))


def _marked(old: str | None, new: str | None) -> tuple[str | Markup | None, str | Markup | None]:
    """Both lines with the words marked that differ, unless hardly any is the same."""
    if old is None or new is None:
        return old, new
    left, right = _WORD.findall(old), _WORD.findall(new)
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    if matcher.ratio() < ALIKE:
        return old, new
    out_old, out_new = Markup(), Markup()
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        form = Markup("{}" if kind == "equal" else "<mark>{}</mark>")
        out_old += form.format("".join(left[i:i_end])) if i_end > i else ""
        out_new += form.format("".join(right[j:j_end])) if j_end > j else ""
    return out_old, out_new


def folded(rows: Sequence[Row]) -> list[Row]:
    """The rows without the long runs of equal ones."""
    near = [
        any(r.kind != "equal" for r in rows[max(0, i - CONTEXT) : i + CONTEXT + 1])
        for i in range(len(rows))
    ]
    out: list[Row] = []
    gap = 0
    for row, keep in zip(rows, near, strict=True):
        if keep:
            if gap:
                out.append(Row("equal", _line(0, None), _line(0, None), gap))
            out.append(row)
        gap = 0 if keep else gap + 1
    if gap:
        out.append(Row("equal", _line(0, None), _line(0, None), gap))
    return out


def _verdict(a: RecordDetail, b: RecordDetail) -> str:
    """Which one is faster, in a sentence."""
    one, two = final_seconds(a), final_seconds(b)
    if one is None or two is None:
        untimed = [str(r.id) for r, time in ((a, one), (b, two)) if time is None]
        return f"Not timed: {' and '.join(untimed)}."
    fast, slow = sorted(((one, a.id), (two, b.id)))
    times = f"{seconds(fast[0])} against {seconds(slow[0])}"
    return f"Record {fast[1]} is {slow[0] / fast[0]:.3g} times as fast: {times} a call."


def _notes(a: RecordDetail, b: RecordDetail) -> list[str]:
    """What makes the two hard to compare."""
    notes = []
    if a.workload_key != b.workload_key:
        notes.append("The records are of different workloads.")
    if (a.target, a.device) != (b.target, b.device):
        notes.append("They were measured for different targets, or on different devices.")
    return notes


def _figures(a: RecordDetail, b: RecordDetail) -> list[tuple[str, str, str]]:
    """Rows of the table: what, and its value in both."""

    def of(r: RecordDetail) -> dict[str, str]:
        place = "baseline" if r.kind == "baseline" else f"round {r.round}, slot {r.slot}"
        noise = NOTHING if r.noise is None else f"{100 * r.noise:.2g} %"
        return {
            "Status": words(r.status),
            "Time a call": seconds(final_seconds(r)),
            "Between quartiles": seconds(r.spread),
            "Noise, estimated": noise,
            "Later measurements": str(len(r.measurements)),
            "Proposed in": place,
            "Workload": r.workload_key,
            "Target": r.target,
            "Device": r.device,
            "Toolchain": r.toolchain or "unknown",
        }

    first, second = of(a), of(b)
    return [(what, first[what], second[what]) for what in first]
