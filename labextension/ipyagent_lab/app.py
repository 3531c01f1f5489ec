"""The extension that Jupyter Server loads.

c.IpyagentLab.store = "/data/ipyagent"     # in jupyter_server_config.py; default: IPYAGENT_STORE, or Jupyter's data folder
c.IpyagentLab.notify_command = ["notify-send", "{title}", "{text}"]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from traitlets import Bool, Enum, List, Unicode

from ipyagent_lab.herald import KINDS, Channels, unusable
from ipyagent_lab.routes.base import SETTING
from ipyagent_lab.routes.branches import AftermathHandler, CompareHandler
from ipyagent_lab.routes.control import ControlHandler, ForkHandler
from ipyagent_lab.routes.history import BlobHandler, EventsHandler, StateHandler
from ipyagent_lab.routes.keeping import DeleteHandler, ExportHandler, LossHandler
from ipyagent_lab.routes.sessions import SessionHandler, SessionsHandler, StatusHandler
from ipyagent_lab.service import Service
from ipyagent_lab.stream import LiveSocket
from ipyagent_sessions._version import __version__
from ipyagent_sessions.errors import ConfigError

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
    (rf"{_SESSION}/loss", LossHandler),
    (rf"{_SESSION}/export", ExportHandler),
    (rf"{_API}/live", LiveSocket),
    (rf"{_SESSION}/delete", DeleteHandler),
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

    notify_command = List(
        Unicode(),
        config=True,
        help='A program and its arguments, run for each notice: ["notify-send", "{title}", "{text}"].  Replaced are {title}, '
        "{text}, {kind}, {session_id}, {notebook}; the notice comes as JSON on standard input too.  No shell is involved.",
    )
    notify_webhook = Unicode("", config=True, help="An http(s) address that each notice is posted to as JSON.")
    notify_urls = List(
        Unicode(),
        config=True,
        help='Services that each notice is sent to, in the words of apprise: ["ntfy://topic", "mailto://..."].  Needs '
        "ipyagent[notify].",
    )
    notify_kinds = List(
        Enum(KINDS),
        default_value=list(KINDS),
        config=True,
        help="Which notices go to command, webhook and services.",
    )

    def initialize_settings(self) -> None:
        if self.notify_webhook and not self.notify_webhook.startswith(("https://", "http://")):
            raise ConfigError(
                f"IpyagentLab.notify_webhook is no web address: {self.notify_webhook!r}",
                hint="https://host/path, or leave it empty",
            )
        for number, url in enumerate(self.notify_urls):
            why = unusable(url)
            if why:
                raise ConfigError(
                    f"IpyagentLab.notify_urls[{number}]: {why}", hint="pip install 'ipyagent[notify]', or correct it"
                )
        channels = Channels(list(self.notify_command), self.notify_webhook, list(self.notify_urls), tuple(self.notify_kinds))
        root = Path(self.store).expanduser() if self.store else None
        self.service = Service(root, self.log, notify=self.watch, channels=channels)
        self.settings[SETTING] = self.service

    def initialize_handlers(self) -> None:
        self.handlers.extend(ROUTES)

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        await self.service.start()

    async def stop_extension(self) -> None:
        await self.service.stop()
