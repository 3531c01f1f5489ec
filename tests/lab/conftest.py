"""A Jupyter Server with the extension, over a store that the test owns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jupyter_server.serverapp import ServerApp
from pytest_jupyter.jupyter_server import *  # noqa: F403  # its fixtures, for this folder only
from tornado.httpclient import HTTPClientError, HTTPResponse

from ipyagent_lab.service import Service
from ipyagent_sessions.log.lease import Holder, this_process
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

Fetch = Callable[..., Awaitable[HTTPResponse]]


@pytest.fixture
def real(tmp_path: Path) -> Store:
    """A store with real time and real ids."""
    return Store(tmp_path / "agent store")


@pytest.fixture
def me() -> Holder:
    return this_process(by="tests")


@pytest.fixture
def jp_server_config(real: Store) -> dict[str, Any]:
    return {"ServerApp": {"jpserver_extensions": {"ipyagent_lab": True}}, "IpyagentLab": {"store": str(real.root)}}


@pytest.fixture
def service(jp_serverapp: ServerApp, jp_asyncio_loop: asyncio.AbstractEventLoop) -> Iterator[Service]:
    """The running service of the extension."""
    found: Service = jp_serverapp.web_app.settings["ipyagent_service"]
    jp_asyncio_loop.run_until_complete(jp_serverapp.extension_manager.start_all_extensions())
    yield found
    jp_asyncio_loop.run_until_complete(found.stop())


class Api:
    """Calls the API as a page with a token does."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def get(self, *path: str, **params: Any) -> Any:
        return msgspec.json.decode((await self._fetch("ipyagent", "api", *path, params=params)).body)

    async def post(self, *path: str, **body: Any) -> Any:
        answer = await self._fetch("ipyagent", "api", *path, method="POST", body=msgspec.json.encode(body))
        return {"status": answer.code, **msgspec.json.decode(answer.body)}

    async def problem(self, answer: Awaitable[Any]) -> Any:
        """The body of an answer that has to be an error."""
        with pytest.raises(HTTPClientError) as caught:
            await answer
        response = caught.value.response
        assert response is not None
        found = msgspec.json.decode(response.body)
        assert set(found) == {"error", "message", "hint", "status"}
        assert found["status"] == caught.value.code
        return found


@pytest.fixture
def api(service: Service, jp_fetch: Fetch) -> Api:
    return Api(jp_fetch)


async def until(condition: Callable[[], Any], what: str, within: float = 20.0) -> Any:
    """What `condition` gives once it is true; the loop goes on meanwhile."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}")
        await asyncio.sleep(0.02)


def ended(session: Session) -> bool:
    return session.summary().state in ("completed", "failed", "cancelled")
