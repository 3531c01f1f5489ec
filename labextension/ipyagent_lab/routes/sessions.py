"""Who answers, the list of sessions, and all about one of them."""

from __future__ import annotations

import platform

import jupyter_server

from ipyagent_lab.index import Query
from ipyagent_lab.routes.base import Handler, route
from ipyagent_lab.shapes import Status
from ipyagent_sessions._version import __version__
from ipyagent_sessions.log.layout import FORMAT
from ipyagent_sessions.serving.finding import checked_id
from ipyagent_sessions.serving.problems import short_path
from ipyagent_sessions.serving.shapes import API


class StatusHandler(Handler):
    """GET status"""

    @route("read")
    async def get(self) -> None:
        service = self.service
        store = await service.store()
        differences: list[str] = []
        asked = self.arguments
        theirs, version = asked.text("store", most=64), asked.text("version", most=64)
        if theirs is not None and theirs != store.id:
            differences.append(
                f"you use another store than this server, which uses {short_path(store.root)}: "
                "set IPYAGENT_STORE alike in both environments, or IpyagentLab.store in this server's"
            )
        if version is not None and version != __version__:
            differences.append(
                f"you run ipyagent {version}, this server {__version__}: install the same version in both environments"
            )
        await self.reply(
            Status(
                API,
                __version__,
                platform.python_version(),
                jupyter_server.__version__,
                store.id,
                short_path(store.root),
                FORMAT,
                len(service.index),
                service.index.filling,
                service.watcher.mode if service.watcher else "",
                differences,
            )
        )


class SessionsHandler(Handler):
    """GET sessions"""

    @route("read")
    async def get(self) -> None:
        asked = self.arguments
        states = (asked.text("state") or "").split(",")
        query = Query(
            asked.integer("limit", 100, 1, 1000),
            asked.text("cursor", most=4000) or "",
            asked.text("q") or "",
            tuple(s for s in states if s),
            asked.text("notebook", most=2000),
            asked.text("model"),
            asked.text("sort") or "-updated",
        )
        await self.service.first_page()
        await self.reply(self.service.index.page(query))


class SessionHandler(Handler):
    """GET sessions/{id}"""

    @route("read")
    async def get(self, session_id: str) -> None:
        service = self.service
        followed = await service.followed(checked_id(session_id))
        children = service.index.children(session_id)
        await self.reply(await service.read(lambda: followed.detail(children)))
