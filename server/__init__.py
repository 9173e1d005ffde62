"""The tuning service: HTTP, events, web pages.

Importing it raises MissingPackage where `autosched[service]` is not installed.
"""

from __future__ import annotations

from autosched.extras import require

require("the service", "pydantic", "httpx", "fastapi", "uvicorn", "sqlalchemy")
