"""Commands that ask something of a task.  Its holder logs them, or this process does when the lease is free."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from ipyagent_sessions import events
from ipyagent_sessions.agent import abandoned
from ipyagent_sessions.agent.tools import processes
from ipyagent_sessions.commands import outside
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.run import control
from ipyagent_sessions.run.inside import current
from ipyagent_sessions.session import Session
from ipyagent_sessions.textsafe import plain
from ipyagent_sessions.views.shown import Shown

_LARGEST_RESULT: Final = 500_000
"""A request is one small file in the inbox."""


def pause(door: Door, session: Session) -> Shown:
    """Let open activities finish and stop there; a second pause stops them."""
    system = session.state().system_state
    control.request(session, "pause", actor=door.actor, task_id=system.task_id)
    again = (
        "stopping the open activities" if system.pausing else "pausing: open activities finish first; pause again to stop them"
    )
    return Shown(f"{system.task_id}: {again}")


def cancel(door: Door, session: Session, *, reason: str) -> Shown:
    """End the task for good."""
    system = session.state().system_state
    control.request(session, "cancel", actor=door.actor, task_id=system.task_id, reason=reason)
    told = [f"{system.task_id}: cancelled by {door.actor}"]
    if session.state().system_state.status is TaskState.CANCELLED:
        if not session.held():
            told += abandoned.end(session, by=door.actor)
        told += outside.rest_of_task(door, session)
    else:
        told.append(f"what it leaves is told once it has ended: {door.prefix} effects {session.id}")
    return Shown("\n".join(told))


def answer(
    door: Door,
    session: Session,
    *,
    approval: str | None,
    approve: bool,
    choice: str | None,
    reason: str,
    arguments: str | None = None,
    always: bool = False,
    activity: str | None = None,
    result: str | None = None,
) -> Shown:
    """Answer a request.  What is confirmed is the digest of the question and details as they stand in the log now.

    `arguments` is a JSON object that a tool is called with instead of what it asked for.  Of a request whether calls happened,
    `activity` names one call, and `result` is what it returned, as JSON.
    """
    if current() is not None or os.environ.get(processes.MARK):
        raise UsageError("a tool of an agent cannot answer a request", hint="a person answers, in a notebook or a terminal")
    state = session.state()
    approval_id = control.find_approval(state, approval)
    asked = state.execution_state.approvals[approval_id]
    given: dict[str, Any] = {"always": True} if always else {}
    if arguments is not None:
        given["arguments"] = _object(arguments)
    if activity is not None:
        given["activity"] = activity
    if result is not None:
        given["result"] = _result(result)
    control.request(
        session,
        "answer",
        actor=door.actor,
        task_id=state.system_state.task_id,
        approval_id=approval_id,
        answer="approved" if approve else "denied",
        choice=choice,
        reason=reason,
        digest=asked.digest,
        **given,
    )
    said = choice or ("approved" if approve else "denied")
    after = session.state().system_state
    waits = not session.held() and after.status is TaskState.SUSPENDED
    then = f"\ncontinue with: {door.prefix} resume {session.id}" if waits else ""
    of = f" for {plain(activity, 160)}" if activity else ""
    return Shown(f"{approval_id} {said}{of}: {plain(asked.question, 160)}{then}")


def _result(text: str) -> Any:
    """The value of `--result`.  Raises UsageError."""
    if len(text) > _LARGEST_RESULT:
        raise UsageError(
            f"--result has {len(text):,} characters", hint=f"at most {_LARGEST_RESULT:,}; name a file that holds it"
        )
    try:
        return events.cleaned(json.loads(text))[0]
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--result is not JSON: {error}", hint="""a text is written --result '"like this"'""") from error


def _object(text: str) -> dict[str, Any]:
    """The JSON object of `--arguments`.  Raises UsageError."""
    try:
        found = events.cleaned(json.loads(text))[0]
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--arguments: {error}", hint='a JSON object, such as \'{"path": "a.txt"}\'') from error
    if not isinstance(found, dict):
        raise UsageError("--arguments: not an object", hint='a JSON object, such as \'{"path": "a.txt"}\'')
    return found


def checkpoint(door: Door, session: Session, *, label: str) -> Shown:
    """Take a named checkpoint now."""
    control.request(session, "checkpoint", actor=door.actor, label=label)
    return Shown(f"checkpoint {label!r} of {session.id} taken")


def rename(door: Door, session: Session, *, title: str) -> Shown:
    """Give a session another title.  Raises UsageError for none."""
    if not title.strip():
        raise UsageError("a session needs a title", hint=f"{door.prefix} rename {session.id} TITLE")
    control.request(session, "rename", actor=door.actor, title=title)
    named = session.state().title
    return Shown(f"{session.id} is called {plain(named)!r} now", None, {"session_id": session.id, "title": named})
