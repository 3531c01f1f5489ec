"""A session's story as a trajectory: ATIF, the Agent Trajectory Interchange Format of Harbor, version 1.4.

An agent's messages are `MessageAdded` events: `role`, `text`, and `message`, the message as pydantic-ai writes it.  A request
gives a step for each system prompt and user prompt, and the results of tools go to the step that called them; a response gives
one step of the agent.  A task without messages is a workflow: what it was asked is the user's step, each activity a tool call.
"""

from __future__ import annotations

import json
from typing import Any, Final

from ipyagent_sessions._version import __version__
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.events import Event
from ipyagent_sessions.exchange.lines import payload, told
from ipyagent_sessions.session import Session

VERSION: Final = "ATIF-v1.4"
_ROLES: Final = {"assistant": "agent", "agent": "agent", "model": "agent", "system": "system"}
_CALLS: Final = frozenset({"step", "tool"})


def trajectory(session: Session) -> dict[str, Any]:
    """The trajectory of a session with what it inherited, as JSON-like data.  Raises UsageError without a task."""
    story = _Story(session)
    for _, event in told(session):
        story.take(event)
    if not story.steps:
        raise UsageError(f"session {session.id} has no task yet: there is no trajectory to write")
    state = session.state()
    agent = {"name": "ipyagent", "version": __version__, "model_name": story.model}
    totals = {
        "total_prompt_tokens": state.input_tokens or None,
        "total_completion_tokens": state.output_tokens or None,
        "total_cost_usd": state.cost_usd or None,
        "total_steps": len(story.steps),
    }
    status = state.system_state.status
    return {
        "schema_version": VERSION,
        "session_id": session.id,
        "agent": _present(agent),
        "steps": [_present(step) for step in story.steps],
        "final_metrics": _present(totals),
        "extra": {"title": state.title, "target": state.system_state.target, "state": status.value if status else None},
    }


class _Story:
    """The steps so far."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.steps: list[dict[str, Any]] = []
        self.model: str | None = None
        self._speaks = {e.task_id for _, e in told(session) if e.event_type == "MessageAdded"}
        self._calls: dict[str, dict[str, Any]] = {}

    def take(self, event: Event) -> None:
        """The next event."""
        if event.event_type == "MessageAdded":
            self._message(event, payload(self.session, event))
        elif event.task_id in self._speaks:
            return
        elif event.event_type == "TaskQueued":
            body = payload(self.session, event)
            self._step(event, "user", f"run {body.get('target')} with {_text(body.get('args'))}")
        elif event.event_type == "ActivityStarted":
            self._called(event, payload(self.session, event))
        elif event.event_type in ("ActivityCompleted", "ActivityFailed"):
            self._ended(event, payload(self.session, event))

    def _step(self, event: Event, source: str, message: str, **more: Any) -> dict[str, Any]:
        step = {"step_id": len(self.steps) + 1, "timestamp": event.timestamp, "source": source, "message": message, **more}
        self.steps.append(step)
        return step

    # A workflow

    def _called(self, event: Event, body: dict[str, Any]) -> None:
        call_id = f"{event.task_id}/{event.activity_id}"
        if body.get("kind", "step") not in _CALLS or call_id in self._calls:
            return
        arguments = body.get("args")
        call = {
            "tool_call_id": call_id,
            "function_name": body.get("name", ""),
            "arguments": arguments if isinstance(arguments, dict) else {"args": arguments},
        }
        self._calls[call_id] = self._step(event, "agent", "", tool_calls=[call])

    def _ended(self, event: Event, body: dict[str, Any]) -> None:
        failed = f"{body.get('error_type')}: {body.get('error')}" if event.event_type == "ActivityFailed" else None
        self._observe(f"{event.task_id}/{event.activity_id}", failed or _text(body.get("result")))

    # An agent

    def _message(self, event: Event, body: dict[str, Any]) -> None:
        if body.get("partial"):  # what had come of an answer that was asked for again
            return
        message = body.get("message")
        if not isinstance(message, dict):
            self._step(event, _ROLES.get(str(body.get("role")), "user"), str(body.get("text", "")))
        elif message.get("kind") == "response":
            self._response(event, message)
        else:
            if message.get("instructions"):
                self._instructions(event, str(message["instructions"]))
            for part in _parts(message):
                self._asked(event, part)

    def _instructions(self, event: Event, text: str) -> None:
        """A request repeats the instructions each time; they are told when they change."""
        told_last = next((s["message"] for s in reversed(self.steps) if s["source"] == "system"), None)
        if told_last != text:
            self._step(event, "system", text)

    def _asked(self, event: Event, part: dict[str, Any]) -> None:
        kind, content = part.get("part_kind"), _text(part.get("content"))
        if part.get("tool_call_id") and kind in ("tool-return", "builtin-tool-return", "retry-prompt"):
            self._observe(str(part["tool_call_id"]), content)
        else:
            self._step(event, "system" if kind == "system-prompt" else "user", content)

    def _response(self, event: Event, message: dict[str, Any]) -> None:
        parts = _parts(message)
        calls = [_call(p) for p in parts if str(p.get("part_kind", "")).endswith("tool-call")]
        found = message.get("usage")
        usage: dict[str, Any] = found if isinstance(found, dict) else {}
        metrics = _present(
            {
                "prompt_tokens": event.input_tokens or usage.get("input_tokens") or None,
                "completion_tokens": event.output_tokens or usage.get("output_tokens") or None,
                "cached_tokens": usage.get("cache_read_tokens") or None,
                "cost_usd": event.cost_usd,
            }
        )
        model = message.get("model_name")
        self.model = model or self.model
        step = self._step(
            event,
            "agent",
            "".join(_text(p.get("content")) for p in parts if p.get("part_kind") == "text"),
            model_name=model,
            reasoning_content="\n".join(_text(p.get("content")) for p in parts if p.get("part_kind") == "thinking") or None,
            tool_calls=calls or None,
            metrics=metrics or None,
        )
        self._calls |= {call["tool_call_id"]: step for call in calls}
        for part in parts:
            if part.get("part_kind") == "builtin-tool-return":
                self._asked(event, part)

    def _observe(self, call_id: str, content: str) -> None:
        """Give a result to the step that called; one that no step called goes to the last one, without a call."""
        step = self._calls.get(call_id)
        result = {"source_call_id": call_id, "content": content} if step is not None else {"content": content}
        step = step or (self.steps[-1] if self.steps and self.steps[-1]["source"] == "agent" else None)
        if step is not None:
            step.setdefault("observation", {"results": []})["results"].append(result)


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    found = message.get("parts")
    return [part for part in found if isinstance(part, dict)] if isinstance(found, list) else []


def _call(part: dict[str, Any]) -> dict[str, Any]:
    arguments = part.get("args")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            arguments = {"text": arguments}  # a model may write what is no JSON
    return {
        "tool_call_id": str(part.get("tool_call_id")),
        "function_name": str(part.get("tool_name")),
        "arguments": arguments if isinstance(arguments, dict) else {} if arguments is None else {"args": arguments},
    }


def _text(content: Any) -> str:
    """A content as text: of several parts the texts, other data as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and any(isinstance(item, str) for item in content):
        return "\n".join(item if isinstance(item, str) else f"[{_kind(item)}]" for item in content)
    return "" if content is None else json.dumps(content, ensure_ascii=False)


def _kind(item: Any) -> str:
    return str(item.get("kind", "data")) if isinstance(item, dict) else type(item).__name__


def _present(fields: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that are None: unknown is left out, never 0."""
    return {key: value for key, value in fields.items() if value is not None}
