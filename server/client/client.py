"""A client of the service: typed, patient, and safe to repeat.

    with Client("http://127.0.0.1:8000") as client:
        job = client.submit("matmul", (512, 512, 512), trials=64)
        for event in client.follow(job.id):
            print(event.kind, event.data)

What a busy server (429, 503) or a lost connection keeps from being answered is asked again, after
the time that the server names or a growing one, until `patience` seconds have passed. A submission
carries a key, so that repeating it makes no second job; a stream of events goes on after the last
event that was seen.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, Literal

import httpx

from autosched.closing import Closing
from server import schemas
from server.client.address import address_of, path_part
from server.client.answers import (
    Later,
    M,
    Retry,
    ServiceError,
    ServiceUnreachable,
    check_stream,
    checked,
    is_untrusted,
    raise_for,
    reason,
    sse,
)

PATIENCE_S = 60.0
"""How long what fails for the moment is asked again."""
_SILENCE_S = 45.0
"""A stream that says nothing for so long is lost: the server comments every 15 seconds."""
_IMPORT_S = 3600.0
"""What taking in a log may take once it was sent: a gigabyte of lines is minutes of work."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors after which the server has not seen the request."""

Form = Literal["schedule", "script", "source", "asm"]


class Client(Closing):
    """The service at `url`, with or without the /v1 of its API. May be shared by threads; to be
    closed.

    `token` is sent as the bearer token. `timeout`: seconds for one answer. `patience`: seconds for
    which a call is repeated that a busy server or a lost connection has kept from being answered;
    `on_wait` is told, once a call, why that takes more than a moment.
    Every method raises RequestRefused or ServiceUnreachable.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        patience: float = PATIENCE_S,
        on_wait: Callable[[str], None] = lambda why: None,
    ) -> None:
        headers = {"Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        address = address_of(url)
        self.url = str(address).rstrip("/")
        try:
            self._http = httpx.Client(base_url=address, headers=headers, timeout=timeout)
        except UnicodeEncodeError as e:
            raise ServiceError(f"the token for {self.url} cannot be used: {e.reason}") from e
        self._patience, self._on_wait = patience, on_wait

    def close(self) -> None:
        """End the connections."""
        self._http.close()

    # Jobs

    def submit(
        self,
        name: str | None = None,
        args: Sequence[int | float | str | bool] = (),
        *,
        script: str | None = None,
        model: bytes | None = None,
        target: str = "llvm",
        trials: int | None = None,
        seed: int = 0,
        priority: int = 0,
        options: Mapping[str, Any] | None = None,
        key: str | None = None,
        job_name: str | None = None,
        tags: Sequence[str] = (),
    ) -> schemas.Job:
        """A new job: of an operator of the library by `name` and `args`, of a `script`, or of a
        `model`, a skeleton (`autosched.graph.skeleton`); of that it is the first of its jobs
        (`tasks` has them all). `trials`: 64 if left out, for each task of a model.

        `options`: the others of `schemas.JobOptions`; `job_name` and `tags` are what the job is
        called and found by. `key` names the submission: repeated, it
        gives the same job; without one, a key is made that serves the repetitions of this call.
        """
        if sum(x is not None for x in (name, script, model)) != 1:
            raise ServiceError("expected the name of an operator, a script, or a model")
        workload = {"script": script} if name is None else {"name": name, "args": list(args)}
        spent = {} if trials is None else {"num_measure_trials": trials}
        what: dict[str, Any] = {"workload": workload}
        if model is not None:
            what = {"model": {"skeleton": base64.b64encode(model).decode()}}
        body = {
            **what,
            "target": target,
            "priority": priority,
            "options": {**spent, "seed": seed, **(options or {})},
            "name": job_name,
            "tags": list(tags),
        }
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return self._model(schemas.Job, "POST", "/v1/jobs", json=body, headers=headers)

    def submit_batch(self, request: Mapping[str, Any], key: str | None = None) -> schemas.Batch:
        """Several workloads on one budget; `request` is a `schemas.BatchRequest` as JSON data."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        path = "/v1/batches"
        return self._model(schemas.Batch, "POST", path, json=dict(request), headers=headers)

    def batch(self, batch_id: str) -> schemas.Batch:
        """One batch with its jobs."""
        return self._model(schemas.Batch, "GET", f"/v1/batches/{path_part(batch_id)}")

    def jobs(
        self, state: str | None = None, workload_key: str | None = None, **filters: str | None
    ) -> Iterator[schemas.Job]:
        """Jobs, newest first, page by page as they are taken. `filters`: name, client, tag, device,
        created_after, created_before (times with their zones)."""
        asked = {"state": state, "workload_key": workload_key, **filters}
        return self._pages(schemas.Job, "/v1/jobs", **asked)

    def probe(self) -> None:
        """Returns if a service answers there now, and does not wait until one does. Raises
        ServiceUnreachable, ServiceError for what is no service."""
        try:
            response = self._http.get("/healthz")
        except httpx.RequestError as e:
            raise ServiceUnreachable(
                f"{self.url} does not answer: {reason(e)}; is the server running?"
            ) from e
        try:
            raise_for(response)
            checked(schemas.Health, response)
        except Later:
            pass  # it is there, and busy
        except ServiceError as e:
            raise ServiceError(f"there is no autosched service at {self.url}: {e}") from e

    def job(self, job_id: str) -> schemas.Job:
        """One job."""
        return self._model(schemas.Job, "GET", f"/v1/jobs/{path_part(job_id)}")

    def tasks(self, job_id: str) -> schemas.JobTasks:
        """What is tuned together with a job: the tasks of its model with their weights."""
        return self._model(schemas.JobTasks, "GET", f"/v1/jobs/{path_part(job_id)}/tasks")

    def cancel(self, job_id: str) -> schemas.Job:
        """The job, cancelled or about to be; one that has ended stays as it is."""
        return self._model(schemas.Job, "POST", f"/v1/jobs/{path_part(job_id)}/cancel")

    def pause(self, job_id: str) -> schemas.Job:
        """The job, paused or about to be; `resume` lets it go on."""
        return self._model(schemas.Job, "POST", f"/v1/jobs/{path_part(job_id)}/pause")

    def cancel_many(self, ids: Sequence[str]) -> schemas.CancelReport:
        """Cancels many jobs, at most 500."""
        body = {"ids": list(ids)}
        return self._model(schemas.CancelReport, "POST", "/v1/jobs/cancel", json=body)

    def clone(
        self, job_id: str, seed: int | None = None, *, priority: int = 0, key: str | None = None
    ) -> schemas.Job:
        """A new job like another one, with another seed (None: one more than that one's)."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        body = {"seed": seed, "priority": priority}
        path = f"/v1/jobs/{path_part(job_id)}/clone"
        return self._model(schemas.Job, "POST", path, json=body, headers=headers)

    def delete(self, job_id: str) -> None:
        """Removes a job that has ended, with all that was measured in it."""
        self._request("DELETE", f"/v1/jobs/{path_part(job_id)}", repeatable=False)

    def resume(self, job_id: str, additional_trials: int = 0) -> schemas.Job:
        """A job that was paused or had ended, queued again with more trials.

        Not repeated if the connection is lost on the way: the trials might be added twice.
        """
        body = {"additional_trials": additional_trials}
        return self._model(
            schemas.Job, "POST", f"/v1/jobs/{path_part(job_id)}/resume", json=body, repeatable=False
        )

    def curve(self, job_id: str, points: int = 500) -> schemas.Curve:
        """How a job got faster, in at most `points` points."""
        return self._model(
            schemas.Curve, "GET", f"/v1/jobs/{path_part(job_id)}/curve", params={"points": points}
        )

    def events(self, job_id: str, after: int = 0, limit: int = 100) -> schemas.EventPage:
        """The events of a job that are there now, those after the id `after`."""
        params = {"after": after, "limit": limit}
        return self._model(
            schemas.EventPage, "GET", f"/v1/jobs/{path_part(job_id)}/events", params=params
        )

    def follow(self, job_id: str, after: int = 0) -> Iterator[schemas.Event]:
        """The events of a job after that of id `after`, as they happen, each once, to the job's
        end. A lost connection, or a server that is started anew, only makes a pause."""
        retry = self._retry()
        last = after
        while True:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
            try:
                with self._stream(f"/v1/jobs/{path_part(job_id)}/events", headers) as response:
                    if response.status_code == 204:
                        return
                    check_stream(response)
                    for event in sse(retry.leaving_out(response.iter_lines())):
                        if event.id > last:
                            last = event.id
                            yield event
                            retry.begin()
                # It ends with the job, which the next answer says, or with the server.
                retry.pause(f"{self.url} ended the stream of events", None)
            except (httpx.RequestError, Later) as e:
                retry.pause(f"the events of job {job_id} of {self.url} cannot be read: {e}", e)

    @contextmanager
    def _stream(
        self, path: str, headers: Mapping[str, str], params: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        timeout = httpx.Timeout(self._http.timeout.connect, read=_SILENCE_S)
        with self._http.stream(
            "GET", path, headers=dict(headers), params=params, timeout=timeout
        ) as response:
            if not response.is_success:
                response.read()
                raise_for(response)
            yield response

    # Records

    def best(
        self,
        workload_key: str | None = None,
        target: str | None = None,
        device: str | None = None,
        *,
        name: str | None = None,
        args: Sequence[int | float | str] = (),
        exclude: Sequence[int] = (),
    ) -> schemas.Record:
        """The fastest valid record of a workload: by its key, or by the name of an operator of the
        library and its arguments; `exclude`: ids of records to pass over. RequestRefused (404) says
        why there is none."""
        params = {"workload_key": workload_key, "target": target, "device": device, "name": name}
        given = {**params, "arg": [str(arg) for arg in args] or None, "exclude": list(exclude)}
        return self._model(schemas.Record, "GET", "/v1/best", params=given)

    def record(self, record_id: int) -> schemas.RecordDetail:
        """One record with its trace and its repeated timings."""
        return self._model(schemas.RecordDetail, "GET", f"/v1/records/{record_id}")

    def records(self, **filters: str | None) -> Iterator[schemas.Record]:
        """Records in the order in which they were stored; `filters`: workload_key, target, device,
        status, job_id, kind."""
        return self._pages(schemas.Record, "/v1/records", **filters)

    def text(self, record_id: int, form: Form) -> str:
        """The program of a record: the schedule, a module that runs as it is; the script; what the
        code generator makes of it (`source`) or the assembly made of that (`asm`)."""
        path = f"/v1/records/{record_id}/{'source' if form == 'asm' else form}"
        params = {"form": "asm" if form == "asm" else None}
        return self._request("GET", path, headers={"Accept": "*/*"}, params=params).text

    def file(self, record_id: int, kind: str) -> bytes:
        """The program of a record as a file: py, ll, s, o or h; of a GPU py, and cu or cl."""
        path = f"/v1/records/{record_id}/files/{kind}"
        return self._request("GET", path, headers={"Accept": "*/*"}).content

    def export_records(self, **filters: str | None) -> Iterator[bytes]:
        """Records that `filters` select, with their workloads and measurements, as the bytes of a
        log in parts. What breaks off raises ServiceUnreachable, and is to be begun anew."""
        params = {name: value for name, value in filters.items() if value is not None}
        headers = {"Accept": "*/*"}
        try:
            with self._stream("/v1/records/export", headers, params) as response:
                yield from response.iter_bytes()
        except Later as e:
            raise e.refusal from e
        except httpx.RequestError as e:
            raise ServiceUnreachable(f"the export of {self.url} broke off: {reason(e)}") from e

    def import_records(self, log: IO[bytes]) -> schemas.ImportReport:
        """Sends a log (a file that can be read again) to be taken in; doing it again changes
        nothing."""

        def parts() -> Iterator[bytes]:
            log.seek(0)
            while part := log.read(1 << 16):
                yield part

        retry = self._retry()
        while True:
            try:
                timeout = httpx.Timeout(self._http.timeout.connect, read=_IMPORT_S)
                response = self._http.post("/v1/records/import", content=parts(), timeout=timeout)
                raise_for(response)
                return checked(schemas.ImportReport, response)
            except (httpx.RequestError, Later) as e:
                retry.pause(f"{self.url} did not take the log in: {e}", e)

    def workloads(self) -> Iterator[schemas.Workload]:
        """Everything that jobs and records are of."""
        return self._pages(schemas.Workload, "/v1/workloads")

    def workload(self, key: str) -> schemas.WorkloadDetail:
        """One workload with its script."""
        return self._model(schemas.WorkloadDetail, "GET", f"/v1/workloads/{path_part(key)}")

    # Workers

    def workers(self) -> list[schemas.Worker]:
        """The workers of the server's pools."""
        return list(self._pages(schemas.Worker, "/v1/workers"))

    def drain(self, names: Sequence[str]) -> list[schemas.Worker]:
        """Has workers finish their trials and take no more; those, as they are then."""
        return self._change_workers("drain", names)

    def admit(self, names: Sequence[str]) -> list[schemas.Worker]:
        """Lets drained workers work again; those, as they are then."""
        return self._change_workers("admit", names)

    def _change_workers(self, how: str, names: Sequence[str]) -> list[schemas.Worker]:
        response = self._request("POST", f"/v1/workers/{how}", json={"names": list(names)})
        page = checked(schemas.Page, response)
        return [checked(schemas.Worker, response, item) for item in page.items]

    # Tokens

    def token(self) -> schemas.Token:
        """The token that this client sends, with its quotas and what is used of them."""
        return self._model(schemas.Token, "GET", "/v1/tokens/self")

    def tokens(self) -> list[schemas.Token]:
        """All tokens, those that are over, too. For admins, as what follows."""
        return list(self._pages(schemas.Token, "/v1/tokens"))

    def create_token(
        self, name: str, scope: str = "read", **more: float | None
    ) -> schemas.MadeToken:
        """A new token, whose text is told this once; `more`: the others of
        `schemas.TokenRequest`. Not repeated if the connection is lost on the way."""
        body = {"name": name, "scope": scope, **more}
        return self._model(schemas.MadeToken, "POST", "/v1/tokens", json=body, repeatable=False)

    def rotate_token(self, token_id: str, grace_seconds: float = 3600.0) -> schemas.MadeToken:
        """The token with a new secret, told this once; the old one is taken for the grace."""
        path, body = f"/v1/tokens/{path_part(token_id)}/rotate", {"grace_seconds": grace_seconds}
        return self._model(schemas.MadeToken, "POST", path, json=body, repeatable=False)

    def limit_token(self, token_id: str, **quota: float | None) -> schemas.Token:
        """The token with other quotas (`schemas.QuotaRequest`); those left out are lifted."""
        return self._model(
            schemas.Token, "POST", f"/v1/tokens/{path_part(token_id)}/limit", json=quota
        )

    def revoke_token(self, token_id: str) -> schemas.Token:
        """The token, invalid from now on."""
        return self._model(schemas.Token, "POST", f"/v1/tokens/{path_part(token_id)}/revoke")

    # Webhooks

    def webhooks(self) -> list[schemas.Webhook]:
        """One's own webhooks, of admins all."""
        return list(self._pages(schemas.Webhook, "/v1/webhooks"))

    def create_webhook(self, url: str, secret: str) -> schemas.Webhook:
        """Has `url` told when one's jobs end, signed with `secret`. Not repeated if the connection
        is lost on the way."""
        body = {"url": url, "secret": secret}
        return self._model(schemas.Webhook, "POST", "/v1/webhooks", json=body, repeatable=False)

    def delete_webhook(self, webhook_id: str) -> None:
        """Removes a webhook, with what it was still to be told."""
        self._request("DELETE", f"/v1/webhooks/{path_part(webhook_id)}", repeatable=False)

    # Asking

    def _retry(self) -> Retry:
        return Retry(self._patience, self._on_wait)

    def _model(self, model: type[M], method: str, path: str, **request: Any) -> M:
        return checked(model, self._request(method, path, **request))

    def _pages(self, model: type[M], path: str, **filters: str | None) -> Iterator[M]:
        cursor: str | None = None
        while True:
            response = self._request("GET", path, params={**filters, "cursor": cursor})
            page = checked(schemas.Page, response)
            for item in page.items:
                yield checked(model, response, item)
            cursor = page.next_cursor
            if cursor is None:
                return

    def _request(
        self, method: str, path: str, *, repeatable: bool = True, **request: Any
    ) -> httpx.Response:
        """The answer. What is not `repeatable` is asked again only if nothing was done."""
        if (params := request.get("params")) is not None:
            request["params"] = {k: v for k, v in params.items() if v is not None}
        retry = self._retry()
        while True:
            try:
                response = self._http.request(method, path, **request)
                raise_for(response)
                return response
            except UnicodeEncodeError as e:
                raise ServiceError(f"expected text in {e.encoding}, found {e.object[:80]!r}") from e
            except httpx.RequestError as e:
                if not repeatable and not isinstance(e, _NOT_SENT):
                    raise ServiceUnreachable(
                        f"the connection to {self.url} was lost, and nobody knows whether the "
                        f"request arrived ({reason(e)}); look at the job before asking again"
                    ) from e
                if is_untrusted(e):
                    raise ServiceUnreachable(f"{self.url} cannot be trusted: {reason(e)}") from e
                retry.pause(f"{self.url} does not answer: {reason(e)}", e)
            except Later as e:
                retry.pause(str(e), e)
