"""The web pages: HTML made on the server from what the routes of the API answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI


def add_pages(app: FastAPI) -> None:
    """Gives an application its pages and the files that they load.

    `server.web.problems.ProblemPages` is to stand around whatever guards its routes.
    """
    from server.web import (
        batches,
        compare,
        docs,
        jobs,
        login,
        overview,
        plotly,
        records,
        roofline,
        submit,
        tokens,
        trials,
        workers,
        workloads,
    )
    from server.web.static_files import static_files
    from server.web.summaries import Summaries

    shown = (
        *(
            overview,
            docs,
            jobs,
            batches,
            trials,
            submit,
            records,
            compare,
            roofline,
            workloads,
            workers,
        ),
        *(tokens, login, plotly),
    )
    for module in shown:
        app.router.routes.extend(module.router.routes)
    app.state.summaries = Summaries()
    app.mount("/static", static_files(), "static")
