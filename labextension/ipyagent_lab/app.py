"""The extension that Jupyter Server loads.

    c.IpyagentLab.store = "/data/ipyagent"     # in jupyter_server_config.py; default: IPYAGENT_STORE, or Jupyter's data folder
"""

from __future__ import annotations

from pathlib import Path

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp
from traitlets import Bool, Unicode

from ipyagent_lab.routes import ROUTES
from ipyagent_lab.routes.base import SETTING
from ipyagent_lab.service import Service
from ipyagent_sessions._version import __version__


class IpyagentLab(ExtensionApp):
    """Sessions of ipyagent for the pages of this server, and a watchdog for tasks that lost their kernel."""

    name = "ipyagent_lab"
    version = __version__
    extension_url = "/ipyagent/api/status"

    store = Unicode("", config=True,
                    help="The folder of the store; empty for IPYAGENT_STORE or the default in Jupyter's data folder.")
    watch = Bool(True, config=True,
                 help="Let the operating system tell what changes; False looks at the files five times a second.")

    def initialize_settings(self) -> None:
        self.service = Service(Path(self.store).expanduser() if self.store else None, self.log, notify=self.watch)
        self.settings[SETTING] = self.service

    def initialize_handlers(self) -> None:
        self.handlers.extend(ROUTES)

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        await self.service.start()

    async def stop_extension(self) -> None:
        await self.service.stop()
