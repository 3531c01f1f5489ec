"""The messages of a conversation, in the log: one `MessageAdded` each, and what they are made into when it goes on.

The log holds each message once.  A checkpoint holds none: it grows with what is new, and a conversation is read from its
events.  A library that rewrites its history (compaction) is followed: a message at a place that was taken replaces it and
everything after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.agent.models.cassette import Exchange
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.session import Session

_LONGEST_TEXT: Final = 20_000
"""Characters of a message that are kept as plain text, for reading and searching; the whole is in `message`."""


class Found(NamedTuple):
    """A message of a session's log, with the seq and the task of its event."""

    message: ModelMessage
    seq: int
    task_id: str | None


def read(session: Session) -> list[Found]:
    """The conversation of `session` as it stands, with what it inherits from the session it was forked from."""
    kept: list[tuple[bytes, int, str | None]] = []
    for event in session.events():
        if event.event_type != "MessageAdded":
            continue
        body = msgspec.json.decode(event.payload, type=p.MessageAdded)
        if body.partial:
            continue
        del kept[body.index :]
        kept.append((_packed(session, body), event.seq, event.task_id))
    messages = ModelMessagesTypeAdapter.validate_json(b"[" + b",".join(m for m, _, _ in kept) + b"]")
    return [Found(message, seq, task_id) for message, (_, seq, task_id) in zip(messages, kept, strict=True)]


def exchanges(session: Session) -> list[Exchange]:
    """What a model was sent and answered in `session`, to be played again (`cassette:`)."""
    messages: list[ModelMessage] = []
    found: list[Exchange] = []
    open_ones: dict[str | None, tuple[list[ModelMessage], ModelResponse]] = {}
    for event in session.events():
        if event.event_type == "MessageAdded":
            body = msgspec.json.decode(event.payload, type=p.MessageAdded)
            if body.partial:
                continue
            message = _message(session, body)
            del messages[body.index :]
            if isinstance(message, ModelResponse) and event.activity_id is not None:
                open_ones[event.activity_id] = (list(messages), message)
            messages.append(message)
        elif event.event_type == "ActivityCompleted" and event.activity_id in open_ones:
            sent, response = open_ones.pop(event.activity_id)
            result = session.payload(event).get("result") or {}
            found.append(Exchange(sent, response, list(result.get("offered", []))))
    return found


def _message(session: Session, body: p.MessageAdded) -> ModelMessage:
    return ModelMessagesTypeAdapter.validate_json(b"[" + _packed(session, body) + b"]")[0]


def _packed(session: Session, body: p.MessageAdded) -> bytes:
    return session.blobs.read(body.message_blob) if body.message_blob else bytes(memoryview(body.message))


class Conversation:
    """The conversation of a running task.  `begun` says that the task had added to it before this execution."""

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        found = read(run.session)
        queued = run.state.system_state.queued_seq
        self._messages = [f.message for f in found]
        self._own = sum(f.seq < queued for f in found)
        self.begun = len(found) > self._own
        self._recalled: ModelResponse | None = None
        if self.begun and isinstance(newest := self._messages[-1], ModelResponse):
            self._recalled = newest
            self._messages.pop()

    @property
    def history(self) -> list[ModelMessage]:
        """What the loop starts from.  A response that nothing followed yet is left out: `request` gives it back."""
        return list(self._messages)

    @property
    def waiting(self) -> bool:
        """Whether the next model request has its response recorded already."""
        return self._recalled is not None

    def number(self) -> int:
        """Which model request of this task comes next, from 1."""
        return 1 + sum(isinstance(m, ModelResponse) for m in self._messages[self._own :])

    def newest_calls(self) -> tuple[int, list[str]]:
        """The number of the newest response, and the ids of the tool calls in it."""
        for message in reversed(self._messages):
            if isinstance(message, ModelResponse):
                return self.number() - 1, [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
        return 0, []

    def recall(self) -> ModelResponse | None:
        """The recorded response of the next model request, once."""
        response, self._recalled = self._recalled, None
        return response

    def record(self, messages: Sequence[ModelMessage]) -> None:
        """Log what `messages` has that the log has not; nothing is made durable here."""
        known = self._messages
        same = 0
        for mine, given in zip(known, messages, strict=False):
            if mine is not given and not _same(mine, given):
                break
            same += 1
        for i, message in enumerate(messages[same:], same):
            self._log(_ordered(message), i, text_of(message))
        self._messages = list(messages)

    def answered(self, response: ModelResponse, activity_id: str, cost_usd: float | None) -> None:
        """Log a model's response, with what it used."""
        self._log(
            response,
            len(self._messages),
            text_of(response),
            activity_id=activity_id,
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            cost_usd=cost_usd,
        )

    def cut_short(self, text: str, activity_id: str, model: str) -> None:
        """Log what had come of a response when it was stopped."""
        body = p.MessageAdded("assistant", ev.clean(text)[0], len(self._messages), model=model, partial=True)
        self._run.emit("MessageAdded", body, activity_id=activity_id)

    def keep(self, response: ModelResponse) -> None:
        """Take note that `response` is the next message, which `answered` has logged."""
        self._messages = [*self._messages, response]

    def _log(self, message: ModelMessage, index: int, text: str, *, activity_id: str | None = None, **used: Any) -> None:
        packed = ModelMessagesTypeAdapter.dump_json([message])[1:-1]
        blobs: dict[str, bytes] = {}
        inline, blob = self._run.appender.put(packed, blobs)
        body = p.MessageAdded(role_of(message), ev.clean(text)[0], index, Raw(inline), blob)
        if isinstance(message, ModelResponse):
            body.model = message.model_name or "unknown"
            body.finish_reason = message.finish_reason or ""
            body.tools = [part.tool_name for part in message.parts if isinstance(part, ToolCallPart)]
        self._run.emit("MessageAdded", body, activity_id=activity_id, blobs=blobs or None, **used)


def _same(mine: ModelMessage, given: ModelMessage) -> bool:
    """Whether two objects are one message: the loop copies them to add ids of the run."""
    return type(mine) is type(given) and list(_ordered(mine).parts) == list(_ordered(given).parts)


def _ordered(message: ModelMessage) -> ModelMessage:
    """A request with what tools returned before what people say, as the loop orders it when it reads it again."""
    if isinstance(message, ModelResponse):
        return message
    return replace(message, parts=sorted(message.parts, key=lambda part: not isinstance(part, ToolReturnPart)))


def role_of(message: ModelMessage) -> str:
    """user, assistant, or tool: who a message is from."""
    if isinstance(message, ModelResponse):
        return "assistant"
    returned = any(isinstance(part, ToolReturnPart | RetryFeedbackPart) for part in message.parts)
    return "tool" if returned else "user"


def text_of(message: ModelMessage) -> str:
    """What a person reads of a message, at most 20,000 characters."""
    if isinstance(message, ModelResponse):
        return (message.text or "")[:_LONGEST_TEXT]
    return "\n".join(_texts(message))[:_LONGEST_TEXT]


def _texts(message: ModelRequest) -> Iterator[str]:
    for part in message.parts:
        if isinstance(part, UserPromptPart):
            yield part.content if isinstance(part.content, str) else " ".join(x for x in part.content if isinstance(x, str))
        elif isinstance(part, ToolReturnPart):
            yield f"{part.tool_name}: {part.model_response_str()}"
        elif isinstance(part, RetryFeedbackPart):
            yield str(part.content)


def unanswered(messages: Sequence[ModelMessage]) -> list[ToolCallPart]:
    """The tool calls at the end of a conversation that nothing has answered."""
    if not messages or not isinstance(messages[-1], ModelResponse):
        return []
    return [part for part in messages[-1].parts if isinstance(part, ToolCallPart)]
