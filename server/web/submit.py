"""The form that submits a job, made from the operator library and the schema of the API."""

from __future__ import annotations

import inspect
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ValidationError

from autosched.ops import OPERATORS
from autosched.tir.dtypes import DTYPES
from server.http.auth import ClientOf
from server.http.problems import ProblemError
from server.jobs import submission
from server.schemas import JobOptions, JobRequest
from server.state import ServiceOf
from server.web.forms import FormOf
from server.web.render import page

router = APIRouter(include_in_schema=False)

FIRST_OPERATOR = "matmul"
By = Literal["operator", "script"]


@dataclass(frozen=True)
class Field:
    """A field of the form. `at` is where its value stands in the request of the API."""

    name: str
    label: str
    at: str
    read: Callable[[str], Any]
    value: str = ""
    hint: str = ""
    problem: str = ""
    choices: Sequence[str] = ()
    lines: int = 0
    number: str = ""
    required: bool = True

    @property
    def wide(self) -> bool:
        return self.lines > 0 or self.name == "target"


@dataclass(frozen=True)
class Problem:
    """What is wrong; `field` is the name of the field that it is about, "" for none."""

    field: str
    label: str
    message: str


def _int(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise ValueError(f"{text[:40]!r} is not an integer")
    return int(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError as e:
        raise ValueError(f"{text[:40]!r} is not a number") from e


def _bool(text: str) -> bool:
    return text == "true"


_READERS: Mapping[str, Callable[[str], Any]] = {"int": _int, "float": _float, "bool": _bool}
_KEYBOARDS = {"int": "numeric", "float": "decimal"}
_OPTIONS: Mapping[str, tuple[str, str, str]] = {
    "num_measure_trials": ("int", "Trials", "programs to build and time"),
    "early_stopping": ("int", "Stop early after", "trials without a faster one"),
    "time_budget_s": ("float", "Seconds at most", "the round that runs then is finished"),
    "seed": ("int", "Seed", "the same seed proposes the same programs"),
}
"""Option of a job -> how it is read, its label and what it means."""


def argument_fields(operator: str) -> list[Field]:
    """The fields for the arguments of an operator of the library, in their order."""
    found = []
    for i, p in enumerate(inspect.signature(OPERATORS[operator]).parameters.values()):
        kind = str(getattr(p.annotation, "__name__", p.annotation))
        given = "" if p.default is p.empty else str(p.default)
        choices = DTYPES if p.name == "dtype" else ("true", "false") if kind == "bool" else ()
        hint = {"int": "an integer", "float": "a number"}.get(kind, "")
        found.append(
            Field(
                name=f"arg.{p.name}",
                label=p.name,
                at=f"workload/args/{i}",
                read=_READERS.get(kind, str),
                value=given,
                hint=f"{hint}, {given} if left out" if hint and given else hint,
                choices=choices,
                number=_KEYBOARDS.get(kind, ""),
                required=p.default is p.empty,
            )
        )
    return found


def script_fields() -> list[Field]:
    """The field for a program as text."""
    hint = "as .script() prints it; it is parsed and checked, never run as Python"
    return [Field("script", "Script", "workload/script", str, hint=hint, lines=18)]


def option_fields() -> list[Field]:
    """The fields for how to search, with the defaults of the API's schema."""
    found = []
    for name, (kind, label, hint) in _OPTIONS.items():
        default = JobOptions.model_fields[name].default
        found.append(
            Field(
                name=f"option.{name}",
                label=label,
                at=f"options/{name}",
                read=_READERS[kind],
                value="" if default is None else str(default),
                hint=hint if default is not None else f"{hint}; empty: no limit",
                number=_KEYBOARDS[kind],
                required=default is not None,
            )
        )
    target = JobRequest.model_fields["target"].default
    hint = "llvm is a device of this server's pool; or in full, such as llvm -mcpu=znver5"
    found.append(Field("target", "Target", "target", str, value=target, hint=hint))
    return found


@router.get("/submit")
def submit_page(
    request: Request,
    by: By = "operator",
    operator: Annotated[str, Query(max_length=200)] = FIRST_OPERATOR,
    arg: Annotated[list[str], Query(max_length=32)] = [],  # noqa: B006 (FastAPI copies it)
) -> HTMLResponse:
    """The form; `arg`: values of the operator's arguments, in their order."""
    arguments = _fields_of(by, operator)
    filled = [_with(f, value=v[:200]) for f, v in zip(arguments, arg, strict=False)]
    return _form(request, by, operator, [*filled, *arguments[len(filled) :]], option_fields())


@router.post("/submit")
async def submit(
    request: Request, service: ServiceOf, client: ClientOf, fields: FormOf
) -> Response:
    """Submits the job, or shows the form again with what is wrong."""
    operator = fields.get("operator", "")
    by: By = "operator" if operator else "script"
    arguments = [_with(f, value=fields.get(f.name, "")) for f in _fields_of(by, operator)]
    options = [_with(f, value=fields.get(f.name, "")) for f in option_fields()]
    values, problems = _read([*arguments, *options])
    if not problems:
        try:
            body = JobRequest.model_validate(_body(by, operator, arguments, values))
            job = await submission.submit(service, client, body, fields.get("key") or None)
            return RedirectResponse(f"/jobs/{job.id}", 303)
        except ValidationError as e:
            problems = _of_schema(e, [*arguments, *options])
        except ProblemError as e:
            if e.status not in (409, 413, 422, 429):
                raise
            problems = [_of_refusal(e.detail, arguments)]
    told = {problem.field: problem.message for problem in problems}
    arguments, options = (
        [_with(f, problem=told.get(f.name, "")) for f in group] for group in (arguments, options)
    )
    return _form(request, by, operator, arguments, options, problems)


def _fields_of(by: By, operator: str) -> list[Field]:
    """Raises ProblemError (404) for an operator that the library does not have."""
    if by == "script":
        return script_fields()
    if operator not in OPERATORS:
        raise ProblemError(404, f"no operator named {operator[:80]!r} in the library")
    return argument_fields(operator)


def _read(fields: Sequence[Field]) -> tuple[dict[str, Any], list[Problem]]:
    """The values of the fields by `at`, those left empty left out; what cannot be read."""
    values: dict[str, Any] = {}
    problems = []
    for f in fields:
        text = f.value if f.lines else f.value.strip()
        if not text.strip():
            if f.required:
                problems.append(Problem(f.name, f.label, "this is missing"))
            continue
        try:
            values[f.at] = f.read(text)
        except ValueError as e:
            problems.append(Problem(f.name, f.label, str(e)))
    return values, problems


def _body(
    by: By, operator: str, arguments: Sequence[Field], values: Mapping[str, Any]
) -> dict[str, Any]:
    """The request of the API, as JSON data."""
    workload: dict[str, Any]
    if by == "script":
        workload = {"script": values["workload/script"].replace("\r\n", "\n")}
    else:
        defaults = [p.default for p in inspect.signature(OPERATORS[operator]).parameters.values()]
        args = [values.get(f.at, d) for f, d in zip(arguments, defaults, strict=True)]
        workload = {"name": operator, "args": args}
    options = {
        at.removeprefix("options/"): v for at, v in values.items() if at.startswith("options/")
    }
    return {"workload": workload, "target": values["target"], "options": options}


def _of_schema(error: ValidationError, fields: Sequence[Field]) -> list[Problem]:
    """What the schema refuses, at the fields that it is about."""
    problems = []
    for e in error.errors():
        at = "/".join(str(part) for part in e["loc"] if part not in _UNION)
        field = next((f for f in fields if f.at == at), None)
        name, label = (field.name, field.label) if field else ("", "")
        problems.append(Problem(name, label, str(e["msg"])))
    return problems


_UNION = ("NamedWorkload", "ScriptWorkload")
"""Parts of the place of an error that say which of the two forms of a workload was tried."""


def _of_refusal(detail: str, arguments: Sequence[Field]) -> Problem:
    """What an operator, or the parser, refuses: at the argument whose name it begins with."""
    found = re.match(r"(?:argument )?(\w+) of ", detail)
    field = next((f for f in arguments if found and f.label == found[1]), None)
    if field is None and len(arguments) == 1:
        field = arguments[0]
    return Problem(field.name if field else "", field.label if field else "", detail)


def _with(field: Field, **changes: Any) -> Field:
    return Field(**(vars(field) | changes))


def _form(
    request: Request,
    by: By,
    operator: str,
    arguments: Sequence[Field],
    options: Sequence[Field],
    problems: Sequence[Problem] = (),
) -> HTMLResponse:
    text = inspect.getdoc(OPERATORS[operator]) if by == "operator" else None
    return page(
        request,
        "submit.html",
        422 if problems else 200,
        by=by,
        operator=operator,
        operators=sorted(OPERATORS),
        description=" ".join((text or "").partition("\n\n")[0].split()),
        arguments=arguments,
        options=options,
        problems=problems,
        key=uuid.uuid4().hex,
    )
