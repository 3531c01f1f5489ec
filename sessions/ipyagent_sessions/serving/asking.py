"""What a person asks of a task from a page, and forks: checked, then the same request as at every other door."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.agent import abandoned
from ipyagent_sessions.effects import isolation, rollback
from ipyagent_sessions.errors import ControlPending, NotFound, UsageError
from ipyagent_sessions.lifecycle import LOST, TaskState
from ipyagent_sessions.run import control
from ipyagent_sessions.serving.finding import MAX_SEQ, parse
from ipyagent_sessions.serving.shapes import ARGS, AnswerArgs, ControlBody, ForkBody, Forked, Outcome
from ipyagent_sessions.session import Session

_STATES: Final = frozenset({*(s.value for s in TaskState), LOST})


class Wish(Struct):
    """A request that was checked.  `expects` are states of the log."""

    action: str
    task_id: str | None
    expects: list[str]
    args: dict[str, Any]

    @classmethod
    def of(cls, asked: ControlBody) -> Wish:
        """The request of a page.  Raises UsageError saying what does not fit."""
        args = parse(asked.args, ARGS[asked.action], "args")
        if asked.task_id is None and asked.action != "rename":
            raise UsageError(f"{asked.action} needs the task_id of the task that was shown")
        if isinstance(args, AnswerArgs) and not args.digest:
            raise UsageError("an answer needs the digest of the question that was shown")
        if isinstance(args, AnswerArgs) and args.answer == "denied" and (args.arguments is not None or args.always):
            raise UsageError("what is denied takes no arguments, and is not denied always", hint="leave both out")
        given = {k: v for k, v in msgspec.to_builtins(args).items() if v is not None or k == "result"}
        return cls(asked.action, asked.task_id, expected(asked.expects), given)

    def put_to(self, session: Session, actor: str) -> Outcome:
        """Ask it in the name of `actor`; may wait for the holder of the lease.  Raises ControlRefused."""
        _ = session.header
        try:
            done = control.request(session, self.action, actor=actor, task_id=self.task_id, expects=self.expects, **self.args)
        except ControlPending:
            return Outcome("pending", self.action)
        if self.action == "cancel" and not session.held():
            abandoned.end(session, by=actor)
        return Outcome("accepted", self.action, done.control_id)


def fork(session: Session, asked: ForkBody) -> Forked:
    """Make the fork that a page asks for.  Raises NotFound, and UsageError inside an open activity."""
    if asked.at is not None and not 1 <= asked.at <= MAX_SEQ:
        raise NotFound("there is no such event")
    if asked.isolate:
        child, _ = isolation.fork(session, asked.at, _folder(session), direction=asked.direction, title=asked.title)
    else:
        child = session.fork(asked.at, direction=asked.direction, title=asked.title)
    parent = child.header.parent
    assert parent is not None
    return Forked(child.id, parent.session, parent.seq)


def _folder(session: Session) -> Path:
    """The folder that a workspace of a fork is made from.  Raises UsageError when nobody knows it."""
    notebook = session.header.notebook
    beside = Path(notebook).parent if notebook is not None and session.native else None
    folder = rollback.folder_of(session, beside or Path())
    if folder == Path() or not folder.is_dir():
        raise UsageError(
            f"the folder that session {session.id} works in is not known here",
            hint=f"in that folder: ipyagent fork {session.id} --isolate",
        )
    return folder


def expected(states: list[str]) -> list[str]:
    """The states in the log that a person may have meant by those that were shown.

    A lost task is `running` in the log until somebody notices, and `suspended` from then on.  Raises UsageError.
    """
    unknown = [s for s in states if s not in _STATES]
    if unknown:
        raise UsageError(f"expects: there is no state {unknown[0]!r}", hint=f"one of {', '.join(sorted(_STATES))}")
    logged = [s for s in states if s != LOST]
    return [*logged, TaskState.RUNNING.value, TaskState.SUSPENDED.value] if LOST in states else logged
