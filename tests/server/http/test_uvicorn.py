"""The contract with uvicorn's private protocol, on which `server.http.connections` builds.

Where one of these fails after an upgrade: read what uvicorn changed, adapt
`server/http/connections.py` and `server/http/serving.py`, then raise the ceiling in pyproject.toml.
"""

from __future__ import annotations

import asyncio
import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from server.http.connections import Connection
from server.http.serving import Server

OVERRIDDEN = {
    "connection_made": ["transport"], "data_received": ["data"], "connection_lost": ["exc"],
    "pause_writing": [], "resume_writing": [], "on_response_complete": [], "shutdown": [],
    "timeout_keep_alive_handler": [], "_start_asgi_task": ["cycle", "app"],
    "send_400_response": ["msg"], "on_message_begin": [], "on_header": ["name", "value"],
    "on_headers_complete": [], "on_body": ["body"], "on_message_complete": [],
}  # fmt: skip
"""Methods of the protocol and their parameters."""
CALLED = {"_unset_keepalive_if_required": []}
OF_PROTOCOL = (
    "transport", "loop", "parser", "cycle", "headers", "pipeline", "connections", "flow",
)  # fmt: skip
OF_CYCLE = ("disconnected", "message_event", "response_started", "response_complete", "keep_alive")


def parameters(owner: type, name: str) -> list[str]:
    return list(inspect.signature(getattr(owner, name)).parameters)[1:]


@pytest.mark.parametrize(("name", "expected"), [*OVERRIDDEN.items(), *CALLED.items()])
def test_methods_are_there(name: str, expected: list[str]) -> None:
    assert parameters(HttpToolsProtocol, name) == expected


def test_no_other_method_is_overridden() -> None:
    own = {n for n, f in vars(Connection).items() if inspect.isfunction(f)}
    shared = own & {n for n in dir(HttpToolsProtocol) if not n.startswith("__")}
    assert shared == set(OVERRIDDEN)


def test_methods_are_called_by_uvicorn() -> None:
    """An override that nobody calls any more would bound nothing."""
    source = inspect.getsource(httptools_impl) + inspect.getsource(uvicorn.server)
    assert "on_response=self.on_response_complete" in source
    assert "self._start_asgi_task(" in source
    assert "connection.shutdown()" in source
    assert "self.timeout_keep_alive_handler" in source


def test_attributes_are_there() -> None:
    async def app(scope: object, receive: object, send: object) -> None: ...

    config = uvicorn.Config(app, log_config=None)  # type: ignore[arg-type]
    made = parameters(HttpToolsProtocol, "__init__")
    assert made == ["config", "server_state", "app_state", "_loop"]
    loop = asyncio.new_event_loop()
    try:
        protocol = HttpToolsProtocol(config, uvicorn.server.ServerState(), {}, loop)
    finally:
        loop.close()
    assert [name for name in OF_PROTOCOL if not hasattr(protocol, name)] == []
    assert "self.url = " in inspect.getsource(HttpToolsProtocol.on_message_begin)
    source = inspect.getsource(RequestResponseCycle.__init__)
    assert [name for name in OF_CYCLE if f"self.{name} =" not in source] == []


def test_a_server_starts_and_ends_as_ours_does() -> None:
    source = inspect.getsource(uvicorn.Server)
    for part in ("await self.startup(sockets=", "await self.shutdown(sockets=",
                 "for server in self.servers", "server.close()", "server.wait_closed()",
                 "self.lifespan.startup()"):  # fmt: skip
        assert part in source, part
    assert parameters(uvicorn.Server, "startup") == parameters(Server, "startup") == ["sockets"]


def test_the_version_is_one_that_was_looked_at() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    service = project["project"]["optional-dependencies"]["service"]
    (needed,) = (d for d in service if d.startswith("uvicorn"))
    low, high = (part.strip("uvicorn<>=") for part in needed.split(","))
    found = tuple(map(int, version("uvicorn").split(".")[:2]))
    assert tuple(map(int, low.split("."))) <= found < tuple(map(int, high.split(".")))
