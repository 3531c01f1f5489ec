"""What happened: events, the state at a point, and large payloads."""

from __future__ import annotations

from http import HTTPStatus

from ipyagent_lab.routes.base import Handler, route
from ipyagent_sessions.serving.arguments import moments, portion
from ipyagent_sessions.serving.finding import checked_id
from ipyagent_sessions.serving.pages import blob_of, cards_at, page_of
from ipyagent_sessions.serving.shapes import States


class EventsHandler(Handler):
    """GET sessions/{id}/events"""

    @route("read")
    async def get(self, session_id: str) -> None:
        asked = portion(self.arguments)
        session = await self.service.session(checked_id(session_id))
        await self.reply(await self.service.read(lambda: page_of(session, asked)))


class StateHandler(Handler):
    """GET sessions/{id}/state"""

    @route("read")
    async def get(self, session_id: str) -> None:
        at = moments(self.arguments)
        session = await self.service.session(checked_id(session_id))
        await self.reply(States(await self.service.read(lambda: cards_at(session, at))))


class BlobHandler(Handler):
    """GET sessions/{id}/blobs/{name}"""

    @route("read")
    async def get(self, session_id: str, name: str) -> None:
        session = await self.service.session(checked_id(session_id))
        body = await self.service.read(lambda: blob_of(session, name))
        # whatever it holds, a browser shows it as text or saves it, and runs nothing of it
        self.set_status(HTTPStatus.OK)
        self.set_attachment_header(f"{name[:12]}.txt")
        self.set_header("Content-Security-Policy", "default-src 'none'; sandbox")
        await self.finish(body, set_content_type="text/plain; charset=utf-8")
