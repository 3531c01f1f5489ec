"""What people are asked and say."""

from __future__ import annotations

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import NULL, Event
from ipyagent_sessions.folding.activities import UNCOUNTED
from ipyagent_sessions.folding.reading import parsed
from ipyagent_sessions.state import Approval, State


def approval_requested(state: State, event: Event) -> None:
    body: p.ApprovalRequested = parsed(event)
    state.asked += 1
    state.execution_state.approvals[body.approval_id] = Approval(
        event.seq,
        body.question,
        body.digest,
        body.details,
        body.kind,
        event.activity_id,
        body.choices,
        event.timestamp,
        body.expires_at,
        body.if_ignored,
        body.about,
        tool=body.tool,
        details_blob=body.details_blob,
        preview=body.preview,
    )


def meant(state: State, asked: Approval) -> list[str]:
    """The open activities that an answer is about: those whose attempt began before the question."""
    opened = state.execution_state.active_activities
    return [i for i in asked.about if i in opened and opened[i].seq < asked.seq]


def approval_resolved(state: State, event: Event) -> None:
    body: p.ApprovalResolved = parsed(event)
    asked = state.execution_state.approvals.get(body.approval_id)
    if asked is None or asked.answer is not None:
        return
    said_of = [i for i in meant(state, asked) if not body.about or i in body.about]
    if body.partial:
        asked.about = [i for i in asked.about if i not in body.about]
    else:
        asked.answer, asked.choice, asked.reason, asked.by = body.answer, body.choice, body.reason, body.by
        asked.answered_at, asked.arguments = event.timestamp, body.arguments
        asked.details, asked.details_blob, asked.preview = NULL, None, ""
    if body.always and asked.tool and asked.tool not in state.allowed_tools:
        state.allowed_tools = [*state.allowed_tools, asked.tool]
    if asked.kind == "outcome" and body.choice == p.RUN_AGAIN:  # what happened is logged as the completion that it was
        for activity_id in said_of:
            del state.execution_state.active_activities[activity_id]


def control_requested(state: State, event: Event) -> None:
    body: p.ControlRequested = parsed(event)
    state.controls = [*state.controls[-49:], body.control_id]
    if body.outcome != "accepted":
        return
    if body.action == "pause":
        state.system_state.pausing = True
    elif body.action == "redo":
        for activity_id in body.args.get("activities", ()):
            dropped = state.business_state.results.pop(str(activity_id), None)
            state.system_state.retry_counts.pop(str(activity_id), None)
            if dropped is not None and not dropped.ok:
                state.execution_state.failed -= 1
            elif dropped is not None and dropped.kind not in UNCOUNTED:
                state.execution_state.done -= 1
    elif body.action == "extend":
        extended = state.system_state.extended
        for what, more in body.args.get("budget", {}).items():
            extended[str(what)] = extended.get(str(what), 0.0) + float(more)
    elif body.action == "rename":
        state.title = str(body.args.get("title", state.title))
        if state.system_state.title:  # the card of the task that it is at has the new one too
            state.system_state.title = state.title
