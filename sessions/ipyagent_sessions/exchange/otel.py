"""A session as spans of OpenTelemetry: OTLP in JSON, for any program that shows traces.  Nothing is sent anywhere.

Each line is an `ExportTraceServiceRequest`, as the file format of OTLP wants it.  A task is a trace, since a session may
live for weeks; `gen_ai.conversation.id` is the session.  In it the task is a span `invoke_agent` or `invoke_workflow`, a
model request `chat`, a call of a tool `execute_tool`, each attempt on its own; stages and steps have spans under their
names.  Attributes are those of the GenAI semantic conventions 0.1.0, what they do not know begins with `ipyagent.`.
Prompts, answers, arguments and results are left out: the conventions make them a choice, since they may hold anything.

Ids are digests of ids of the log, so the same session gives the same spans, and a fork shares those that it inherited.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions._version import __version__
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.events import Event, payload_of, seconds_of
from ipyagent_sessions.exchange.lines import told
from ipyagent_sessions.session import Session

_INTERNAL: Final = 1
_CLIENT: Final = 3
_ERROR: Final = 2
_BATCH: Final = 500
"""Spans of one line."""
_ENDS: Final = {
    "TaskCompleted": "completed",
    "TaskFailed": "failed",
    "TaskCancelled": "cancelled",
}
_TOLD: Final = frozenset(
    {
        "TaskSuspended",
        "TaskInterrupted",
        "TaskResumed",
        "ApprovalRequested",
        "ApprovalResolved",
        "BudgetExceeded",
        "AlarmRaised",
        "FileWritten",
        "RecoveryCompleted",
    }
)
"""Events that are told with the span of their task."""
_SAID: Final = ("cause", "answer", "what", "kind", "path")
"""Their parts that are words of the engine or names of files."""


class Span(Struct):
    """A span of which the end is not known yet.  Times are in nanoseconds."""

    trace: str
    id: str
    name: str
    begun: int
    ended: int
    parent: str = ""
    kind: int = _INTERNAL
    error: str | None = None
    attributes: dict[str, Any] = {}
    events: list[tuple[int, str, dict[str, Any]]] = []


def lines(session: Session) -> Iterator[bytes]:
    """The spans, some hundreds a line.  Raises UsageError for a session without a task."""
    trace = _Trace(session.id)
    for _, event in told(session):
        trace.take(event)
    if not trace.spans:
        raise UsageError(f"session {session.id} has no task yet: there are no spans to write")
    for start in range(0, len(trace.spans), _BATCH):
        yield msgspec.json.encode(_request(trace.spans[start : start + _BATCH])) + b"\n"


class _Trace:
    """The spans so far."""

    def __init__(self, session_id: str) -> None:
        self.spans: list[Span] = []
        self._session = session_id
        self._tasks: dict[str, Span] = {}
        self._models: dict[str, str] = {}
        self._open: dict[tuple[str, str], Span] = {}

    def take(self, event: Event) -> None:
        """The next event."""
        task_id = event.task_id
        if task_id is None:
            return
        body, at = payload_of(event), _nanoseconds(event)
        task = self._tasks.get(task_id) or self._begin_task(task_id, at, body if event.event_type == "TaskQueued" else {})
        task.ended = max(task.ended, at)
        if event.event_type in _ENDS:
            self._end_task(task_id, task, _ENDS[event.event_type], body)
        elif event.event_type in _TOLD:
            said = {f"ipyagent.{name}": body[name] for name in _SAID if isinstance(body.get(name), str)}
            task.events.append((at, event.event_type, said))
        elif event.event_type == "MessageAdded" and body.get("role") == "assistant":
            self._answered(event, task_id, task, body, at)
        elif event.activity_id is not None:
            self._activity(event, task_id, task, body, at)

    def _begin_task(self, task_id: str, at: int, body: dict[str, Any]) -> Span:
        operation = "invoke_agent" if body.get("kind") == "agent" else "invoke_workflow"
        name = str(body.get("target") or task_id).rpartition(":")[2]
        span = self._span(task_id, "", f"{operation} {name}", at)
        self._models[task_id] = str(body.get("model") or "")
        span.attributes |= {
            "gen_ai.operation.name": operation,
            "gen_ai.agent.name": name,
            "gen_ai.conversation.id": self._session,
            "ipyagent.task.id": task_id,
        }
        self._tasks[task_id] = span
        return span

    def _end_task(self, task_id: str, task: Span, state: str, body: dict[str, Any]) -> None:
        task.attributes["ipyagent.task.state"] = state
        if state == "failed":
            _fail(task, body)
        for key in [key for key in self._open if key[0] == task_id]:
            self._open.pop(key).ended = task.ended

    def _activity(self, event: Event, task_id: str, task: Span, body: dict[str, Any], at: int) -> None:
        key = (task_id, str(event.activity_id))
        span = self._open.get(key)
        if event.event_type == "ActivityStarted":
            if span is not None:  # a crash came, and nobody wrote how it ended
                _fail(span, {"error_type": "NoResult"})
            self._open[key] = self._begin(event, task_id, task, body, at)
        elif span is not None and event.event_type in ("ActivityCompleted", "ActivityFailed", "ActivityRetried"):
            span.ended = max(span.begun, at)
            if event.event_type != "ActivityCompleted":
                _fail(span, body)
            del self._open[key]

    def _begin(self, event: Event, task_id: str, task: Span, body: dict[str, Any], at: int) -> Span:
        activity_id, name, kind = str(event.activity_id), str(body.get("name")), body.get("kind", "step")
        span = self._span(task_id, f"event {event.seq}", name, at)
        stage = self._open.get((task_id, activity_id.rpartition("/" if "/" in activity_id else ".")[0]))
        span.parent = (stage or task).id
        span.attributes |= {
            "ipyagent.activity.id": activity_id,
            "ipyagent.activity.kind": kind,
            "ipyagent.activity.attempt": event.attempt or 1,
            "ipyagent.activity.effect": body.get("effect", "none"),
        }
        if kind == "model":
            self._chat(span, task_id, self._models[task_id])
        elif kind == "tool":
            span.name = f"execute_tool {name}"
            span.attributes |= {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.type": "function",
            }
        return span

    def _chat(self, span: Span, task_id: str, model: str) -> None:
        provider, _, asked = (self._models[task_id] or model).partition(":")
        span.kind = _CLIENT
        span.name = f"chat {asked or model}".rstrip()
        span.attributes |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider if asked else "_OTHER",
            "gen_ai.request.model": asked or model,
            "gen_ai.conversation.id": self._session,
        }

    def _answered(self, event: Event, task_id: str, task: Span, body: dict[str, Any], at: int) -> None:
        """What a model request gave.  A transcript of another agent tells answers and no requests: a span without a length."""
        span = self._open.get((task_id, event.activity_id or ""))
        model = str(body.get("model") or "")
        if span is None:
            span = self._span(task_id, f"event {event.seq}", "chat", at)
            span.parent = task.id
            self._chat(span, task_id, model)
        found = {
            "gen_ai.response.model": model or None,
            "gen_ai.response.finish_reasons": [body["finish_reason"]] if body.get("finish_reason") else None,
            "gen_ai.usage.input_tokens": event.input_tokens,
            "gen_ai.usage.output_tokens": event.output_tokens,
            "ipyagent.cost_usd": event.cost_usd,
        }
        span.attributes |= {name: value for name, value in found.items() if value is not None}

    def _span(self, task_id: str, what: str, name: str, at: int) -> Span:
        span = Span(_id(task_id, 16), _id(f"{task_id}/{what}", 8), name, at, at)
        self.spans.append(span)
        return span


def _fail(span: Span, body: dict[str, Any]) -> None:
    """What went wrong; the text of an error may hold anything and stays out."""
    span.error = str(body.get("error_type") or "_OTHER")
    span.attributes["error.type"] = span.error


def _request(spans: list[Span]) -> dict[str, Any]:
    scope = {"name": "ipyagent_sessions", "version": __version__}
    resource = {"attributes": _pairs({"service.name": "ipyagent", "service.version": __version__})}
    written = [_written(span) for span in spans]
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": scope, "spans": written}]}]}


def _written(span: Span) -> dict[str, Any]:
    out: dict[str, Any] = {"traceId": span.trace, "spanId": span.id}
    if span.parent:
        out["parentSpanId"] = span.parent
    out |= {
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.begun),
        "endTimeUnixNano": str(span.ended),
        "attributes": _pairs(span.attributes),
    }
    if span.events:
        out["events"] = [{"timeUnixNano": str(at), "name": name, "attributes": _pairs(said)} for at, name, said in span.events]
    out["status"] = {} if span.error is None else {"code": _ERROR, "message": span.error}
    return out


def _pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    """A value as OTLP writes it in JSON: integers as texts, since they have 64 bits."""
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}


def _id(text: str, size: int) -> str:
    return hashlib.sha256(text.encode()).digest()[:size].hex()


def _nanoseconds(event: Event) -> int:
    return round(seconds_of(event.timestamp) * 1000) * 1_000_000
