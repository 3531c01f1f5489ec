"""The extension that Jupyter Server loads.

c.IpyagentLab.store = "/data/ipyagent"     # in jupyter_server_config.py; default: IPYAGENT_STORE, or Jupyter's data folder
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from traitlets import Bool, Unicode

from ipyagent_lab.routes.base import SETTING
from ipyagent_lab.routes.branches import AftermathHandler, CompareHandler
from ipyagent_lab.routes.control import ControlHandler, ForkHandler
from ipyagent_lab.routes.history import BlobHandler, EventsHandler, StateHandler
from ipyagent_lab.routes.sessions import SessionHandler, SessionsHandler, StatusHandler
from ipyagent_lab.service import Service
from ipyagent_lab.stream import LiveSocket
from ipyagent_sessions._version import __version__

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
    (rf"{_SESSION}/aftermath", AftermathHandler),
    (rf"{_SESSION}/compare", CompareHandler),
    (rf"{_SESSION}/blobs/(?P<name>[^/]+)", BlobHandler),
    (rf"{_API}/live", LiveSocket),
]
"""What a page may ask for; `docs/server-api.md` describes it, and the tests walk it."""


class IpyagentLab(ExtensionApp):
    """Sessions of ipyagent for the pages of this server, and a watchdog for tasks that lost their kernel."""

    name = "ipyagent_lab"
    version = __version__
    extension_url = "/ipyagent/api/status"

    store = Unicode(
        "", config=True, help="The folder of the store; empty for IPYAGENT_STORE or the default in Jupyter's data folder."
    )
    watch = Bool(
        True, config=True, help="Let the operating system tell what changes; False looks at the files five times a second."
    )

    def initialize_settings(self) -> None:
        self.service = Service(Path(self.store).expanduser() if self.store else None, self.log, notify=self.watch)
        self.settings[SETTING] = self.service

    def initialize_handlers(self) -> None:
        self.handlers.extend(ROUTES)

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        await self.service.start()

    async def stop_extension(self) -> None:
        await self.service.stop()
