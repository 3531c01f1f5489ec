"""What a transcript says, as events: a prompt begins a task, an answer and a call are activities of it.

A model request begins, as far as a transcript tells, with what came before its answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Raw

from ipyagent_sessions import codec, textsafe
from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Event
from ipyagent_sessions.exchange.spoken import Answer, Call, Item, Outcome, Problem, Prompt, Spoken
from ipyagent_sessions.log.blobs import THRESHOLD, Blobs
from ipyagent_sessions.place import VERSION

_LONGEST_TEXT: Final = 20_000
_MOST_ALARMS: Final = 100
_TITLE: Final = 80


class Retelling:
    """The events of a transcript, and the blobs that they name."""

    def __init__(self, spoken: Spoken, kind: str, session_id: str, name: str, recorded_at: str) -> None:
        self.kind = kind
        self.events: list[Event] = []
        self.blobs: dict[str, bytes] = {}
        self._session_id = session_id
        self._recorded_at = recorded_at
        self._tasks = self._answers = self._messages = self._alarms = 0
        self._answered = False
        self._open: dict[str, tuple[Call, str, Event]] = {}
        self._returns: list[tuple[Call, Any]] = []
        self._model = ""
        self._at = self._before = next((item.at for item in spoken.items if not isinstance(item, Problem)), recorded_at)
        prompts = [item.text for item in spoken.items if isinstance(item, Prompt) and not item.system]
        self._emit("SessionCreated", p.SessionCreated(_title(spoken.title or next(iter(prompts), "")) or name))
        for item, self._model in zip(spoken.items, _models(spoken.items), strict=True):
            self._take(item)
        if self._tasks:
            self._end_task()
        if self._alarms > _MOST_ALARMS:
            self._emit("AlarmRaised", p.AlarmRaised("import", f"and {self._alarms - _MOST_ALARMS} more lines were left out"))

    def _take(self, item: Prompt | Answer | Outcome | Problem) -> None:
        if not isinstance(item, Problem):
            self._before, self._at = self._at, item.at
        if isinstance(item, Prompt):
            self._prompt(item)
        elif isinstance(item, Answer):
            self._answer(item)
        elif isinstance(item, Outcome):
            self._outcome(item)
        else:
            self._alarm(item)

    def _emit(self, event_type: str, body: p.Payload, *, at: str = "", **more: Any) -> Event:
        at = at or self._at
        event = Event(
            len(self.events) + 1,
            event_type,
            at,
            None if self._recorded_at == at else self._recorded_at,
            task_id=f"{self._session_id}.{self._tasks}" if self._tasks else None,
            payload=ev.as_raw(body),
            agent_version=VERSION,
            **more,
        )
        self.events.append(event)
        return event

    def _alarm(self, problem: Problem) -> None:
        self._alarms += 1
        if self._alarms <= _MOST_ALARMS:
            told = textsafe.plain(f"line {problem.line} was left out: {problem.what}", 300)
            self._emit("AlarmRaised", p.AlarmRaised("import", told))

    def _prompt(self, prompt: Prompt) -> None:
        from pydantic_ai.messages import ModelRequest, SystemPromptPart, UserPromptPart

        self._flush()
        if not prompt.system and (not self._tasks or self._answered):
            self._begin_task(prompt)
        text, at = ev.clean(prompt.text)[0], datetime.fromisoformat(self._at)
        part = SystemPromptPart(text, timestamp=at) if prompt.system else UserPromptPart(text, timestamp=at)
        self._message("system" if prompt.system else "user", text, ModelRequest([part]))

    def _begin_task(self, prompt: Prompt | Answer) -> None:
        if self._tasks:
            self._end_task(min(self._before, self._at))
        self._tasks += 1
        self._answered = False
        title, model = _title(prompt.text), ev.clean(self._model)[0]
        self._emit("TaskQueued", p.TaskQueued(self.kind, "agent", title, model=model, durability=p.IMPORTED))
        self._emit("TaskStarted", p.TaskStarted())

    def _end_task(self, at: str = "") -> None:
        """End the task, now or at `at`."""
        self._flush(at)
        for call, activity_id, _ in self._open.values():
            body = p.ActivityFailed(call.name, "NoResult", "the transcript holds no result of it", "tool")
            self._emit("ActivityFailed", body, at=at, activity_id=activity_id, attempt=1)
        self._open = {}
        self._emit("TaskCompleted", p.TaskCompleted(), at=at)

    def _answer(self, answer: Answer) -> None:
        from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

        begun = min(self._before, self._at)
        self._flush(begun)
        if not self._tasks:
            self._begin_task(answer)
        self._answers += 1
        self._answered = True
        calls = [self._named(call, i) for i, call in enumerate(answer.calls, 1)]
        text, thinking, model = (ev.clean(t)[0] for t in (answer.text, answer.thinking, answer.model))
        parts: list[Any] = [ThinkingPart(thinking)] if thinking else []
        parts += [TextPart(text)] if text else []
        parts += [ToolCallPart(call.name, call.arguments, call.id) for call in calls]
        used = {
            "input_tokens": answer.input_tokens,
            "output_tokens": answer.output_tokens,
            "cost_usd": answer.cost_usd,
        }
        response = ModelResponse(parts, model_name=model or None, timestamp=datetime.fromisoformat(self._at))
        request = f"main/model:{self._answers}" if answer.asked else None
        if request is not None:
            body = p.ActivityStarted("model", "model", str(self._answers), effect="idempotent")
            self._emit("ActivityStarted", body, at=begun, activity_id=request, attempt=1)
        tools = [call.name for call in calls]
        self._message("assistant", text, response, model=model or "unknown", tools=tools, activity_id=request, **used)
        if request is not None:
            self._emit("ActivityCompleted", p.ActivityCompleted("model", "model"), **self._took(request, begun))
        for i, call in enumerate(calls, 1):
            activity_id = f"main/{call.name.replace('/', '_')}:{self._answers}.{i}"
            body = p.ActivityStarted(call.name, "tool", f"{self._answers}.{i}", effect="irreversible")
            body.args, body.args_blob = self._put(codec.dumps([[], call.arguments]))
            self._open[call.id] = (call, activity_id, self._emit("ActivityStarted", body, activity_id=activity_id, attempt=1))

    def _named(self, call: Call, number: int) -> Call:
        """The call with clean texts and an id that no open call has."""
        name, given = ev.clean(call.name)[0][:200], ev.clean(call.id)[0]
        call_id = given if given and given not in self._open else f"{self._answers}.{number}"
        arguments = ev.cleaned(call.arguments)[0]
        return Call(call_id, name, arguments if isinstance(arguments, dict) else {"input": arguments})

    def _outcome(self, outcome: Outcome) -> None:
        found = self._open.pop(ev.clean(outcome.call)[0], None)
        if found is None:
            self._alarm(Problem(outcome.line, "the result of a call that was not made"))
            return
        call, activity_id, begun = found
        result = ev.cleaned(outcome.result)[0]
        more = self._took(activity_id, begun.timestamp)
        if outcome.failed:
            shown = result if isinstance(result, str) else msgspec.json.encode(result).decode()
            self._emit("ActivityFailed", p.ActivityFailed(call.name, "ToolError", shown[:_LONGEST_TEXT], "tool"), **more)
        else:
            body = p.ActivityCompleted(call.name, "tool")
            body.result, body.result_blob = self._put(codec.dumps({"return": result}))
            self._emit("ActivityCompleted", body, **more)
        self._returns.append((call, result))

    def _took(self, activity_id: str, begun: str) -> dict[str, Any]:
        """The columns of the event that ends an activity now."""
        took = (ev.seconds_of(self._at) - ev.seconds_of(begun)) * 1000
        return {"activity_id": activity_id, "attempt": 1, "execution_time_ms": took if took >= 0 else None}

    def _flush(self, at: str = "") -> None:
        """The results that came since the last answer, as the one message that a model is sent, now or at `at`."""
        from pydantic_ai.messages import ModelRequest, ToolReturnPart

        if not self._returns:
            return
        sent = datetime.fromisoformat(at or self._at)
        parts = [ToolReturnPart(call.name, result, call.id, timestamp=sent) for call, result in self._returns]
        text = "\n".join(f"{part.tool_name}: {part.model_response_str()}" for part in parts)
        self._returns = []
        self._message("tool", text, ModelRequest(parts), at=at)

    def _message(
        self, role: str, text: str, message: Any, *, model: str = "", tools: Sequence[str] = (), **columns: Any
    ) -> None:
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        body = p.MessageAdded(role, text[:_LONGEST_TEXT], self._messages, model=model, tools=list(tools))
        body.message, body.message_blob = self._put(ModelMessagesTypeAdapter.dump_json([message])[1:-1])
        self._messages += 1
        self._emit("MessageAdded", body, **columns)

    def _put(self, body: bytes) -> tuple[Raw, str | None]:
        if len(body) <= THRESHOLD:
            return Raw(body), None
        name = Blobs.name(body)
        self.blobs[name] = body
        return ev.NULL, name


def _models(items: Sequence[Item]) -> list[str]:
    """For each item the model that answers first in the task that it would begin, empty when none does."""
    found, model, prompted = list[str](), "", False
    for item in reversed(items):
        if isinstance(item, Answer):
            model = item.model or ("" if prompted else model)
            prompted = False
        prompted = prompted or (isinstance(item, Prompt) and not item.system)
        found.append(model)
    return found[::-1]


def _title(text: str) -> str:
    """The first line of a text, cut."""
    first = text.strip().partition("\n")[0]
    return ev.title(first if len(first) <= _TITLE else f"{first[: _TITLE - 1]}…")
