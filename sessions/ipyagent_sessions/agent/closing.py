"""What an earlier turn, which was cut short, left open in the conversation: each call gets the answer that the log has for it.

A prompt beside open calls is refused by the loop and by providers, and a call that did happen must not be called again because
nobody told the model (R151)."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from ipyagent_sessions import codec
from ipyagent_sessions import payloads as p
from ipyagent_sessions.agent import outcome
from ipyagent_sessions.agent.conversation import Conversation, calls_of
from ipyagent_sessions.events import Event
from ipyagent_sessions.session import Session

_NOT_RUN: Final = "not run: the turn ended before this call"
_UNKNOWN: Final = "the turn was stopped while this call was under way: whether it had an effect is not known"


def closed(session: Session, talk: Conversation) -> list[ModelMessage]:
    """The conversation with an answer to every call of its newest response that has none."""
    history = talk.history
    opened = calls_of(history[-1]) if history and isinstance(history[-1], ModelResponse) else []
    if not opened:
        return history
    known = _last_of_each(session, talk)
    parts: list[ModelRequestPart] = []
    for number, call in enumerate(opened, 1):
        parts += _answer(session, call, known.get(f"{talk.earlier}.{number}"))
    return [*history, ModelRequest(parts=parts)]


def _last_of_each(session: Session, talk: Conversation) -> dict[str, Event]:
    """What the log says last of each call of the earlier turn, by its key."""
    found: dict[str, Event] = {}
    for event in session.events(*talk.earlier_seqs):
        if event.event_type in ("ActivityStarted", "ActivityCompleted", "ActivityFailed") and event.activity_id:
            found[event.activity_id.rpartition(":")[2].removesuffix(outcome.APPROVED)] = event
    return found


def _result(session: Session, event: Event) -> Any:
    body = msgspec.json.decode(event.payload, type=p.ActivityCompleted)
    return codec.loads(session.blobs.read(body.result_blob) if body.result_blob else body.result)


def _answer(session: Session, call: ToolCallPart, event: Event | None) -> list[ModelRequestPart]:
    body = session.payload(event) if event is not None else {}
    result = _result(session, event) if event is not None and event.event_type == "ActivityCompleted" else None
    text = _NOT_RUN
    if event is None or body.get("error_type") == p.NOT_RUN or result == outcome.WAITS:
        pass
    elif event.event_type == "ActivityCompleted" and result and "return" in result:
        parts: list[ModelRequestPart] = [ToolReturnPart(call.tool_name, result["return"], tool_call_id=call.tool_call_id)]
        return [*parts, UserPromptPart(outcome.given(result).content)] if "content" in result else parts
    elif event.event_type == "ActivityCompleted":
        text = (result or {}).get("failed") or (result or {}).get("retry") or outcome.lost(call.tool_name)
    elif event.event_type == "ActivityFailed" and not body.get("aborted"):
        text = f"it failed with {body['error_type']}: {body['error']}"
    else:
        text = _UNKNOWN
    return [ToolReturnPart(call.tool_name, text, tool_call_id=call.tool_call_id, outcome="failed")]
