"""What a person answers: whether it fits what was asked, and what is logged of it.

The answer to "did it happen?" may be about one call of several, and say what it returned."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Raw

from ipyagent_sessions import codec, folding
from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.state import Approval, State

ANSWERS: Final = ("approved", "denied")


def judge(state: State, control: Control) -> str:
    """Why an answer is refused in this state; empty when it fits."""
    approval_id = str(control.args.get("approval_id", ""))
    asked = state.execution_state.approvals.get(approval_id)
    if asked is None:
        return f"there is no approval {approval_id!r} in this session"
    if asked.answer is not None:
        return f"it was {asked.answer} by {asked.by} at {asked.answered_at}"
    if state.system_state.status in ENDED:
        return f"the task is {state.system_state.status}"
    if _too_late(control.at, asked.expires_at):
        return f"its time was over at {asked.expires_at}, so it counts as denied"
    if control.args["digest"] != asked.digest:
        return "what was shown is not what is asked now; look again"
    answer, choice = control.args.get("answer"), control.args.get("choice")
    if answer not in ANSWERS:
        return f"an answer is one of {', '.join(ANSWERS)}"
    needs_choice = answer == "approved" or asked.kind == "outcome"
    if asked.choices and needs_choice and choice not in asked.choices:
        return f"this request needs a choice: {' or '.join(asked.choices)}"
    if not asked.choices and choice:
        return "this request has no choices"
    changed = control.args.get("arguments") is not None or control.args.get("always")
    if changed and asked.kind != "tool":
        return "only the request of a tool has arguments to change, or can be allowed always"
    if changed and answer == "denied":
        return "a denied call has no arguments to change and is not allowed always"
    return _judge_one_call(state, asked, control.args)


def _judge_one_call(state: State, asked: Approval, args: dict[str, Any]) -> str:
    """What is wrong with naming one call of the request, or with giving its result."""
    opened = folding.meant(state, asked)
    one = args.get("activity")
    if one is not None and one not in opened:
        return f"the request is not about an open call {one!r}; it is about {', '.join(opened) or 'none'}"
    if "result" not in args:
        return ""
    if asked.kind != "outcome" or args.get("choice") != p.HAPPENED:
        return f"a result belongs to a call that {p.HAPPENED}"
    if one is None and len(opened) > 1:
        return f"a result is that of one call; say of which: {', '.join(opened)}"
    return ""


def _too_late(at: str, expires_at: str | None) -> bool:
    """Whether an answer came after the end of its request; what counts is when it was given, not when it is read."""
    if expires_at is None:
        return False
    try:
        return ev.seconds_of(at) >= ev.seconds_of(expires_at)
    except ValueError:  # a request that is not ours and says no time
        return True


def resolve(appender: Appender, control: Control, parent: int | None = None) -> ev.Event:
    """Log the answer that an accepted request gives."""
    approval_id = str(control.args["approval_id"])
    asked = appender.state.execution_state.approvals[approval_id]
    opened = folding.meant(appender.state, asked)
    one = control.args.get("activity")
    about = opened if one is None else [str(one)]
    answered = appender.emit(
        "ApprovalResolved",
        p.ApprovalResolved(
            approval_id,
            str(control.args["answer"]),
            control.args.get("choice"),
            control.args.get("reason") or "",
            asked.digest,
            control.actor,
            Raw(codec.canonical(control.args.get("arguments"))),
            bool(control.args.get("always")),
            [] if one is None else about,
            one is not None and opened != about,
        ),
        task_id=appender.state.system_state.task_id,
        activity_id=asked.activity_id,
        actor=control.actor,
        parent=parent,
    )
    for activity_id in about if control.args.get("choice") == p.HAPPENED else []:
        _completed(appender, control, activity_id, answered.seq)
    return answered


def _completed(appender: Appender, control: Control, activity_id: str, parent: int) -> None:
    """Log that a call of unknown outcome happened, with its result if the person gave one."""
    active = appender.state.execution_state.active_activities[activity_id]
    body = p.ActivityCompleted(active.name, active.kind, active.digest, verified="person")
    blobs: dict[str, bytes] = {}
    if "result" in control.args:
        given = control.args["result"]
        kept = {"return": given} if active.kind == "tool" else given  # a tool's call is kept as an outcome, see agent.outcome
        body.result, body.result_blob = appender.put(codec.dumps(kept), blobs)
    else:
        body.result_lost = f"{control.actor} said that it happened; what it returned is not known"
    appender.emit(
        "ActivityCompleted",
        body,
        task_id=appender.state.system_state.task_id,
        activity_id=activity_id,
        attempt=active.attempt,
        actor=control.actor,
        parent=parent,
        blobs=blobs or None,
    )
