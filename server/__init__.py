"""The tuning service: HTTP, events, web pages. Raises MissingPackage without `autosched[service]`."""

from __future__ import annotations

from autosched.extras import require

require("the service and its client", "pydantic", "httpx", "fastapi", "uvicorn", "sqlalchemy")
