"""What schemathesis is told of this API beyond its document (named by SCHEMATHESIS_HOOKS)."""

from __future__ import annotations

from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def lines(ctx: Any, value: Any) -> bytes:
    """JSON lines are sent as the text that was generated."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.check
def refused_for_what_it_means(ctx: Any, response: Any, case: Any) -> None:
    """What fits the schema may be refused as a workload or cursor that is none, not as misfit."""
    if ctx is not None and response.status_code == 422 and case.meta is not None:
        positive = case.meta.generation.mode.is_positive
        kind = response.json()["type"].rpartition(":")[2]
        assert not positive or kind != "invalid-request", response.json()["detail"]
