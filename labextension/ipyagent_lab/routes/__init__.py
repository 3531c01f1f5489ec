"""All routes of the extension, relative to the server's base URL."""

from __future__ import annotations

from typing import Any

from ipyagent_lab.routes.control import ControlHandler, ForkHandler
from ipyagent_lab.routes.history import BlobHandler, EventsHandler, StateHandler
from ipyagent_lab.routes.sessions import SessionHandler, SessionsHandler, StatusHandler
from ipyagent_lab.stream import LiveSocket

_API = r"/ipyagent/api"
_SESSION = rf"{_API}/sessions/(?P<session_id>[^/]+)"

ROUTES: list[tuple[str, type[Any]]] = [
    (rf"{_API}/status", StatusHandler),
    (rf"{_API}/sessions", SessionsHandler),
    (_SESSION, SessionHandler),
    (rf"{_SESSION}/events", EventsHandler),
    (rf"{_SESSION}/state", StateHandler),
    (rf"{_SESSION}/control", ControlHandler),
    (rf"{_SESSION}/fork", ForkHandler),
    (rf"{_SESSION}/blobs/(?P<name>[^/]+)", BlobHandler),
    (rf"{_API}/live", LiveSocket),
]
"""What a page may ask for; `docs/server-api.md` describes it, and the tests walk it."""
