"""What a person asks of a task, and forks.  The same requests as from a magic or a terminal, through the session's inbox."""

from __future__ import annotations

import getpass
from http import HTTPStatus

from ipyagent_lab.routes.base import Handler, route
from ipyagent_sessions import textsafe
from ipyagent_sessions.serving.asking import Wish, fork
from ipyagent_sessions.serving.finding import checked_id
from ipyagent_sessions.serving.shapes import ControlBody, ForkBody


class _Acting(Handler):
    """A handler that writes down who did it."""

    @property
    def actor(self) -> str:
        """`user:<name>@server`: the name that the identity provider gives, in one harmless line.

        A token says nothing about who holds it and gets a made-up name at each request; then it is the name of the account
        that the server runs in, as at the other doors.
        """
        user = self.current_user
        name = str(user.name or user.username)
        if name.startswith("Anonymous "):
            name = _account()
        return f"user:{textsafe.plain(name, 64).replace('@', ' at ')}@server"


class ControlHandler(_Acting):
    """POST sessions/{id}/control"""

    @route("write")
    async def post(self, session_id: str) -> None:
        asked = self.body(ControlBody)
        session = await self.service.session(checked_id(session_id))
        wish, actor = Wish.of(asked), self.actor
        try:
            outcome = await self.service.ask(lambda: wish.put_to(session, actor))
        finally:
            await self.service.settled(session.id)
        await self.reply(outcome, HTTPStatus.ACCEPTED if outcome.outcome == "pending" else HTTPStatus.OK)


class ForkHandler(_Acting):
    """POST sessions/{id}/fork"""

    @route("write")
    async def post(self, session_id: str) -> None:
        asked = self.body(ForkBody)
        session = await self.service.session(checked_id(session_id))
        forked = await self.service.ask(lambda: fork(session, asked))
        await self.service.settled(forked.session_id)
        await self.reply(forked, HTTPStatus.CREATED)


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such account, as in some containers
        return "somebody"
