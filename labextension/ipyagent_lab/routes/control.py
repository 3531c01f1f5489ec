"""What a person asks of a task, and forks.  The same requests as from a magic or a terminal, through the session's inbox."""

from __future__ import annotations

import getpass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from ipyagent_lab.routes.base import MAX_SEQ, Handler, checked_id, parse, route
from ipyagent_lab.shapes import ARGS, AnswerArgs, ControlBody, ForkBody, Forked, Outcome
from ipyagent_sessions import textsafe
from ipyagent_sessions.errors import ControlPending, NotFound, UsageError
from ipyagent_sessions.lifecycle import LOST, TaskState
from ipyagent_sessions.run import control

_STATES: Final = frozenset({*(s.value for s in TaskState), LOST})


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
        args = parse(asked.args, ARGS[asked.action], "args")
        if asked.task_id is None and asked.action != "rename":
            raise UsageError(f"{asked.action} needs the task_id of the task that was shown")
        if isinstance(args, AnswerArgs) and not args.digest:
            raise UsageError("an answer needs the digest of the question that was shown")
        if isinstance(args, AnswerArgs) and args.answer == "denied" and (args.arguments is not None or args.always):
            raise UsageError("what is denied takes no arguments, and is not denied always", hint="leave both out")
        session = await self.service.session(checked_id(session_id))
        expects, actor = expected(asked.expects), self.actor

        def ask() -> Outcome:
            _ = session.header
            given: dict[str, Any] = {k: v for k, v in msgspec.to_builtins(args).items() if v is not None or k == "result"}
            try:
                done = control.request(session, asked.action, actor=actor, task_id=asked.task_id, expects=expects, **given)
            except ControlPending:
                return Outcome("pending", asked.action)
            return Outcome("accepted", asked.action, done.control_id)

        try:
            outcome = await self.service.ask(ask)
        finally:
            await self.service.settled(session.id)
        await self.reply(outcome, HTTPStatus.ACCEPTED if outcome.outcome == "pending" else HTTPStatus.OK)


class ForkHandler(_Acting):
    """POST sessions/{id}/fork"""

    @route("write")
    async def post(self, session_id: str) -> None:
        asked = self.body(ForkBody)
        if asked.at is not None and not 1 <= asked.at <= MAX_SEQ:
            raise NotFound("there is no such event")
        session = await self.service.session(checked_id(session_id))

        def fork() -> Forked:
            child = session.fork(asked.at, direction=asked.direction, title=asked.title)
            parent = child.header.parent
            assert parent is not None
            return Forked(child.id, parent.session, parent.seq)

        forked = await self.service.ask(fork)
        await self.service.settled(forked.session_id)
        await self.reply(forked, HTTPStatus.CREATED)


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such account, as in some containers
        return "somebody"


def expected(states: list[str]) -> list[str]:
    """The states in the log that a person may have meant by those that were shown.

    A lost task is `running` in the log until somebody notices, and `suspended` from then on.  Raises UsageError.
    """
    unknown = [s for s in states if s not in _STATES]
    if unknown:
        raise UsageError(f"expects: there is no state {unknown[0]!r}", hint=f"one of {', '.join(sorted(_STATES))}")
    logged = [s for s in states if s != LOST]
    return [*logged, TaskState.RUNNING.value, TaskState.SUSPENDED.value] if LOST in states else logged
