"""A Jupyter Server with the extension, over a store that the test owns."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp
from pytest_jupyter.jupyter_server import *  # noqa: F403  # pyright: ignore[reportWildcardImportFromLibrary]  # fixtures, here only
from traitlets.config import Config

from ipyagent_lab.service import Service
from ipyagent_lab.testing import Api, Fetch
from ipyagent_sessions.store import Store


@pytest.fixture
def real(tmp_path: Path) -> Store:
    """A store with real time and real ids, in a folder with a space."""
    store = Store(tmp_path / "agent store")
    _ = store.id  # made
    return store


@pytest.fixture  # type: ignore[no-redef]  # takes the place of theirs
def jp_server_config(real: Store) -> Config:
    return Config(
        {
            "ServerApp": {"jpserver_extensions": {"ipyagent_lab": True}, "allow_unauthenticated_access": False},
            "IpyagentLab": {"store": str(real.root)},
        }
    )


@pytest.fixture
def idle(jp_serverapp: ServerApp) -> Service:
    """The service of the extension, loaded and not started: what it does of itself has not begun."""
    found: Service = jp_serverapp.web_app.settings["ipyagent_service"]
    return found


@pytest.fixture
def service(idle: Service, jp_serverapp: ServerApp, jp_asyncio_loop: asyncio.AbstractEventLoop) -> Service:
    """The service as it is in a running server; pytest-jupyter stops it with the server."""
    manager: Any = jp_serverapp.extension_manager
    jp_asyncio_loop.run_until_complete(manager.start_all_extensions())
    return idle


@pytest.fixture
def api(service: Service, jp_fetch: Fetch) -> Api:
    return Api(jp_fetch)
