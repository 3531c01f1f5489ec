"""The one WebSocket of a page: it says what it wants to see, and is told when that changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from msgspec import UNSET
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from ipyagent_lab.audience import encode
from ipyagent_lab.pace import Outbox
from ipyagent_lab.routes.base import RESOURCE, SETTING, socket_route
from ipyagent_lab.service import Service
from ipyagent_lab.shapes import SUBSCRIPTIONS
from ipyagent_sessions._version import __version__
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.serving import problems
from ipyagent_sessions.serving.finding import checked_id, parse
from ipyagent_sessions.serving.shapes import API, Hello, ProblemMessage, Wanted

MAX_MESSAGE: Final = 16 * 1024
_TOO_BIG: Final = 1009


class LiveSocket(WebSocketMixin, WebSocketHandler, JupyterHandler):  # pyright: ignore[reportIncompatibleMethodOverride]  # theirs
    """live"""

    auth_resource = RESOURCE

    @property
    def service(self) -> Service:
        found: Service = self.settings[SETTING]
        return found

    @socket_route
    async def get(self, *args: Any, **kwargs: Any) -> None:
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        super().open(*args, **kwargs)  # pyright: ignore[reportUnknownMemberType]  # it is marked no_type_check
        self._outbox = Outbox(self._send)
        self._outbox.put("hello", lambda: encode(Hello(API, __version__)))

    async def _send(self, body: bytes) -> None:
        try:
            await self.write_message(body)
        except WebSocketClosedError:
            self._outbox.stop()

    def tell(self, key: str, message: Callable[[], bytes]) -> None:
        self._outbox.put(key, message)

    async def on_message(self, message: str | bytes) -> None:
        if len(message) > MAX_MESSAGE:
            self.close(_TOO_BIG, "message too big")
            return
        try:
            await self._obey(parse(message, Wanted, "the message"))
        except Exception as error:  # the edge: a page is told, and the socket stays open
            if not problems.is_known(error):
                self.log.exception("ipyagent: a message of a page failed")
            problem = problems.problem_of(error, self.service.root)
            self.tell("problem", lambda: encode(ProblemMessage(None, problem)))

    async def _obey(self, wanted: Wanted) -> None:
        service = self.service
        await service.store()
        if wanted.subscribe is not UNSET:
            if len(wanted.subscribe) > SUBSCRIPTIONS:
                raise UsageError(f"a page may watch {SUBSCRIPTIONS} sessions, not {len(wanted.subscribe)}")
            service.subscribe(self, {checked_id(i) for i in wanted.subscribe})
        if wanted.rows is not UNSET:
            service.audience.follow_list(self, wanted.rows)

    def on_close(self) -> None:
        super().on_close()
        self.service.leave(self)
        self._outbox.stop()
