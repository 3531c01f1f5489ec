"""Forks: what one would mean, and two sessions side by side.  Only reads; `control` makes the fork."""

from __future__ import annotations

from ipyagent_lab.routes.base import Handler, route
from ipyagent_sessions.serving.arguments import moment
from ipyagent_sessions.serving.branches import aftermath, compared
from ipyagent_sessions.serving.finding import checked_id


class AftermathHandler(Handler):
    """GET sessions/{id}/aftermath"""

    @route("read")
    async def get(self, session_id: str) -> None:
        at = moment(self.arguments)
        session = await self.service.session(checked_id(session_id))
        await self.reply(await self.service.read(lambda: aftermath(session, at)))


class CompareHandler(Handler):
    """GET sessions/{id}/compare"""

    @route("read")
    async def get(self, session_id: str) -> None:
        left = await self.service.followed(checked_id(session_id))
        right = await self.service.followed(checked_id(self.arguments.text("with") or ""))
        await self.reply(await self.service.read(lambda: compared(left, right)))
