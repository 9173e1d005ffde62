"""The application: routes over one store.

Routes that ask the database are plain functions, which FastAPI runs in threads; nothing blocks the
event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from autosched.version import __version__
from records.operations.tokens import Tokens
from server.http import openapi, problems
from server.http.auth import Authenticator
from server.http.compression import Compression
from server.http.gate import Gate
from server.http.head_requests import HeadRequests
from server.http.metrics import Metrics
from server.http.prepared import PreparedReads
from server.routes import (
    batches,
    events,
    exchange,
    files,
    health,
    jobs,
    records,
    roofline,
    texts,
    tokens,
    trials,
    webhooks,
    workers,
    workloads,
)
from server.settings import Settings
from server.state import running
from server.web import add_pages
from server.web.problems import ProblemPages

ROUTES = (
    *(jobs, batches, trials, events, exchange, records, texts, files, workloads, workers),
    *(roofline, tokens, webhooks, health),
)
"""Modules with a router, in the order in which their routes are tried."""


def create_app(settings: Settings) -> FastAPI:
    """The application of a server; its store is opened when it starts.

    Starting raises RecordError or SchemaVersionError for a database that cannot be used.
    """
    app = FastAPI(
        title="autosched",
        version=__version__,
        lifespan=_lifespan,
        openapi_url="/v1/openapi.json",
        docs_url=None,  # these pages load scripts from another site
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.metrics = Metrics()
    problems.install(app)
    openapi.install(app)
    # The last one added is the outermost: what the gate refuses is shown to browsers as a page.
    app.add_middleware(PreparedReads)
    app.add_middleware(Gate, settings, app.state.metrics)
    app.add_middleware(ProblemPages)
    # Others wait while a long answer is compressed: the highest level takes several times as long
    # for a few percent.
    app.add_middleware(Compression, minimum_size=1000, compresslevel=4)
    app.add_middleware(HeadRequests)
    for module in ROUTES:
        # The routes themselves: including a router makes each of them anew for each application.
        app.router.routes.extend(module.router.routes)
    add_pages(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    async with running(settings) as service:
        app.state.service = service
        app.state.authenticator = Authenticator(Tokens(service.store), settings.tokens_required)
        yield
