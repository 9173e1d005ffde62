"""The page of one record: its program in all forms, its timing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup

from records import OK
from server.http.auth import Client, ClientOf
from server.http.problems import ProblemError
from server.programs.cache import Form
from server.routes import records as api
from server.routes.common import RecordId
from server.routes.files import kinds_of, listing_of
from server.schemas import RecordDetail
from server.state import Service, ServiceOf
from server.web.course import baselines_of
from server.web.highlight import highlighted
from server.web.render import page, seconds
from server.web.summaries import Summaries, SummariesOf

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class ShownForm:
    """A form of a record's program: `path` is that of its raw text under the record's own."""

    id: Form
    title: str
    hint: str
    path: str
    language: str


FORMS: dict[Form, ShownForm] = {
    form.id: form
    for form in (
        ShownForm("schedule", "Schedule", "Python that runs as it is", "schedule", "python"),
        ShownForm("script", "Loop IR", "the scheduled program as script", "script", "python"),
        ShownForm("source", "LLVM IR", "what the code generator emits", "source", "llvm"),
        ShownForm("asm", "Assembly", "what the machine runs", "source?form=asm", "gas"),
    )
}
_LANGUAGES = {"cuda": "CUDA C++", "opencl": "OpenCL C"}


def forms_of(target: str) -> dict[Form, ShownForm]:
    """The forms that a program for `target` has: for a GPU source of its language, and no
    assembly, which is made by its driver."""
    language = _LANGUAGES.get(target.partition(" ")[0])
    if language is None:
        return FORMS
    source = replace(FORMS["source"], title=language, language="c")
    return {"schedule": FORMS["schedule"], "script": FORMS["script"], "source": source}


@router.get("/records/{record_id}")
async def record_page(
    request: Request,
    service: ServiceOf,
    client: ClientOf,
    summaries: SummariesOf,
    record_id: RecordId,
) -> HTMLResponse:
    """One record."""
    found = await run_sync(_found, service, summaries, record_id)
    forms = await _forms(service, client, found["record"])
    return await run_sync(lambda: page(request, "record.html", **found, forms=forms))


def _found(service: Service, summaries: Summaries, record_id: int) -> dict[str, Any]:
    """What the store has of a record."""
    record = api.get_record(service, record_id)
    baselines = baselines_of(service.store, record.job_id)
    best = summaries.of(service.store, record.job_id).tallied.best_id
    final = final_seconds(record)
    return {
        "record": record,
        "workload": service.store.workload(record.workload_key),
        "baselines": baselines,
        "name": next((line.name for line in baselines if line.id == record.id), None),
        "other": best if best != record.id else None,
        "final": final,
        "drawing": _drawing(record) if final is not None else None,
        "files": kinds_of(record.target),
    }


@router.get("/records/{record_id}/text/{form}")
async def text_page(
    request: Request, service: ServiceOf, client: ClientOf, record_id: RecordId, form: Form
) -> HTMLResponse:
    """A record's program in one form."""
    record = await run_sync(service.store.get, record_id)
    text = await service.texts.text(record_id, form, client.key)
    shown = forms_of(record.target).get(form, FORMS[form])
    marked = await run_sync(highlighted, text, shown.language)
    return page(
        request,
        "text.html",
        record_id=record_id,
        form=_shown(shown, record_id, None),
        text=marked,
    )


@router.get("/records/{record_id}/listing")
async def listing_page(
    request: Request, service: ServiceOf, client: ClientOf, record_id: RecordId
) -> HTMLResponse:
    """Loop IR beside the assembly made of it, line by line."""
    found = await listing_of(service, record_id, client.key)
    script = await run_sync(highlighted, found.script, "python")
    made = Counter(line.source for line in found.assembly if line.source is not None)
    firsts = {line.source: n for n, line in reversed(list(enumerate(found.assembly, start=1)))}
    return page(
        request,
        "listing.html",
        record_id=record_id,
        # A mark of the highlighter spans no line: the grammar of Python has strings of several
        # lines, and what is printed here has none.
        script=[Markup(line) for line in script.splitlines()],
        assembly=found.assembly,
        linked=found.linked,
        made=made,
        firsts=firsts,
        instructions=sum(not line.text.endswith(":") for line in found.assembly),
    )


async def _forms(service: Service, client: Client, record: RecordDetail) -> list[dict[str, Any]]:
    """The forms for the template: the schedule with its text, the others to be fetched.

    Where there is no schedule, the reason stands in its place, and there are no others.
    """
    try:
        schedule = await service.texts.text(record.id, "schedule", client.key)
    except ProblemError as e:
        return [_shown(FORMS["schedule"], record.id, Markup.escape(e.detail))]
    first = await run_sync(highlighted, schedule, FORMS["schedule"].language)
    alone = await run_sync(highlighted, "\n".join(apply_of(schedule)), "python")
    head = {**_shown(FORMS["schedule"], record.id, alone), "id": "apply", "title": "apply(sch)"}
    head |= {"hint": "the schedule alone", "whole": True}
    forms = forms_of(record.target).values()
    return [
        head,
        *(_shown(f, record.id, first if f.id == "schedule" else None) for f in forms),
    ]


def apply_of(module: str) -> list[str]:
    """The lines of a schedule's `apply`, which is what two records of a workload differ in."""
    lines = module.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("def apply(")]
    begin = starts[0] if starts else 0
    ends = (i for i in range(begin + 1, len(lines)) if lines[i][:1] not in ("", " "))
    return "\n".join(lines[begin : next(ends, len(lines))]).rstrip().splitlines()


def _shown(form: ShownForm, record_id: int, text: Markup | None) -> dict[str, Any]:
    return {
        "id": form.id,
        "title": form.title,
        "hint": form.hint,
        "raw": f"/v1/records/{record_id}/{form.path}",
        "page": f"/records/{record_id}/text/{form.id}",
        "text": text,
        "whole": False,
    }


def final_seconds(record: RecordDetail) -> float | None:
    """The time to compare by, of a record that may be compared."""
    if record.status != OK:
        return None
    return record.seconds if record.remeasured_seconds is None else record.remeasured_seconds


@dataclass(frozen=True)
class Drawing:
    """A drawing of a record's times, in pixels: the band between quartiles, the median, a dot a
    later measurement; `least` and `most` are the times of the dots, in seconds."""

    width: int
    height: int
    axis: int
    box: tuple[float, float]
    median: float
    dots: Sequence[tuple[float, str]]
    labels: Sequence[tuple[float, str, str]]
    least: float | None
    most: float | None


def _drawing(record: RecordDetail, width: int = 480, margin: int = 12) -> Drawing | None:
    """The drawing of a record that was timed."""
    if record.seconds is None:
        return None
    half = (record.spread or 0.0) / 2
    times = [m.seconds for m in record.measurements]
    edges = [record.seconds - half, record.seconds + half, *times]
    low, high = min(edges), max(edges)
    room = (high - low) * 0.08 or low * 0.01
    low, high = max(0.0, low - room), high + room

    def place(value: float) -> float:
        return round(margin + (value - low) / (high - low) * (width - 2 * margin), 1)

    left, right = place(record.seconds - half), place(record.seconds + half)
    return Drawing(
        width=width,
        height=76,
        axis=54,
        box=(left, max(1.0, round(right - left, 1))),
        median=place(record.seconds),
        dots=[(place(m.seconds), m.origin) for m in record.measurements],
        labels=_labels(low, high, width, margin),
        least=min(times, default=None),
        most=max(times, default=None),
    )


def _labels(low: float, high: float, width: int, margin: int) -> list[tuple[float, str, str]]:
    return [(margin, seconds(low), "start"), (width - margin, seconds(high), "end")]
