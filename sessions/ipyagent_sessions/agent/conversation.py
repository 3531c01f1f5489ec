"""The messages of a conversation, in the log: one `MessageAdded` each, and what they are made into when it goes on.

The log holds each message once.  A checkpoint holds none: it grows with what is new, and a conversation is read from its
events.  A library that rewrites its history (compaction) is followed: a message at a place that was taken replaces it and
everything after it.  Messages that were logged together count together or, when a crash came between them, not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple, cast

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
    repair_messages,
)
from pydantic_core import PydanticSerializationError

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.agent.models.cassette import Exchange
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import State

_LONGEST_TEXT: Final = 20_000
"""Characters of a message that are kept as plain text, for reading and searching; the whole is in `message`."""


class Kept(NamedTuple):
    """A message of a session's log: what `_packed` makes its JSON of, its event, and whether it was asked of a model."""

    body: p.MessageAdded
    event: ev.Event


class Thread:
    """A conversation as the events of a log build it up.

    `answers` counts the responses that came in the newest task, `earlier` those of the task before it; `queued` are the seqs
    at which the tasks begin."""

    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.answers = 0
        self.earlier = 0
        self.queued: list[int] = []
        self._group: list[Kept] = []

    def take(self, event: ev.Event) -> Kept | None:
        """Take the next event of the session; gives the message that it adds, if it is one."""
        if event.event_type.startswith("Task"):
            self._group = []  # a crash came before the rest of it
        if event.event_type == "TaskQueued":
            self.earlier, self.answers = self.answers, 0
            self.queued.append(event.seq)
        if event.event_type != "MessageAdded":
            return None
        found = Kept(msgspec.json.decode(event.payload, type=p.MessageAdded), event)
        if found.body.partial:
            return None
        self._group.append(found)
        if not found.body.left:
            first = self._group[0].body.index
            new = first == len(self.kept)
            self.answers += sum(k.body.role == "assistant" and (new or k.event.activity_id is not None) for k in self._group)
            self.kept[first:] = self._group
            self._group = []
        return found


def thread(session: Session) -> Thread:
    """The conversation of `session` as it stands, with what it inherits from the session it was forked from."""
    built = Thread()
    for event in session.events():
        built.take(event)
    return built


def messages_of(session: Session, kept: Sequence[Kept]) -> list[ModelMessage]:
    """The messages that the log holds, as pydantic-ai's."""
    return ModelMessagesTypeAdapter.validate_json(b"[" + b",".join(_packed(session, k.body) for k in kept) + b"]")


def exchanges(session: Session) -> list[Exchange]:
    """What a model was sent and answered in `session`, to be played again (`cassette:`)."""
    built, found, read = Thread(), list[Exchange](), dict[int, ModelMessage]()
    open_ones: dict[str | None, list[Kept]] = {}
    for event in session.events():
        sent = list(built.kept) if event.event_type == "MessageAdded" else []
        message = built.take(event)
        if message is not None and message.body.role == "assistant" and event.activity_id is not None:
            open_ones[event.activity_id] = [*sent[: message.body.index], message]
        elif event.event_type == "ActivityCompleted" and event.activity_id in open_ones:
            kept = open_ones.pop(event.activity_id)
            new = [k for k in kept if k.event.seq not in read]  # of most requests all but the end was sent before
            read |= zip((k.event.seq for k in new), messages_of(session, new), strict=True)
            *request, response = (read[k.event.seq] for k in kept)
            assert isinstance(response, ModelResponse)
            result = session.payload(event).get("result") or {}
            found.append(Exchange(request, response, list(result.get("offered", []))))
    return found


def _packed(session: Session, body: p.MessageAdded) -> bytes:
    return session.blobs.read(body.message_blob) if body.message_blob else bytes(memoryview(body.message))


class Conversation:
    """The conversation of a running task.

    `begun` says that the turn (the present attempt of it, when it is checked) had added to it before this execution.
    `earlier` is how many responses the task before it got, `earlier_seqs` where its events are."""

    def __init__(self, run: TaskRun) -> None:
        self._run = run
        built = thread(run.session)
        kept = built.kept
        self._answers = built.answers
        self.begun = bool(kept) and kept[-1].event.seq > _began_at(run.state)
        if self.begun and kept[-1].body.closing:  # the turn had its output, and a crash came before the log said so
            kept.pop()
        self._messages = messages_of(run.session, kept)
        self.earlier = built.earlier
        self.earlier_seqs = (built.queued[-2], built.queued[-1]) if len(built.queued) > 1 else (0, 0)
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
        return self._answers + (not self.waiting)

    def newest_calls(self) -> tuple[int, list[str]]:
        """The number of the newest response, and the ids of the tool calls in it."""
        for message in reversed(self._messages):
            if isinstance(message, ModelResponse):
                return self._answers, [call.tool_call_id for call in calls_of(message)]
        return 0, []

    def recall(self) -> ModelResponse | None:
        """The recorded response of the next model request, once."""
        response, self._recalled = self._recalled, None
        if response is not None:
            self._messages.append(response)
        return response

    def ends_with(self, message: ModelMessage) -> bool:
        """Whether the log's newest message is `message`."""
        return bool(self._messages) and _same(self._messages[-1], message)

    def record(self, messages: Sequence[ModelMessage], *, closing: bool = False) -> None:
        """Log what `messages` has that the log has not; nothing is made durable here.  `closing`: the turn has its output."""
        known, given = self._messages, list(messages)
        same = _agree(known, given, 0, lambda mine, theirs: mine is theirs)
        given = _as_read_again(given, after=same)
        if self._recalled is not None:  # it stays in the log, whatever comes before it
            known = [*known, self._recalled]
            given = [*given, self._recalled] if len(given) < len(known) else given
        same = _agree(known, given, same, _same)
        new = given[same:]
        for i, message in enumerate(new, 1):
            self._log(_ordered(message), same + i - 1, closing=closing, left=len(new) - i)
        if same == len(known):
            self._answers += sum(isinstance(message, ModelResponse) for message in new)
        if self._recalled is None or given[-1] is not self._recalled:
            self._recalled = None
            self._messages = given
        else:
            self._messages = given[:-1]

    def answered(self, response: ModelResponse, activity_id: str, cost_usd: float | None) -> ModelResponse:
        """Log a model's response, with what it used as far as the provider says; gives it as it was logged."""
        response = cast("ModelResponse", clean(response))
        used, told = response.usage, not response.usage.unmeasured_requests
        self._log(
            response,
            len(self._messages),
            activity_id=activity_id,
            input_tokens=used.input_tokens if told else None,
            output_tokens=used.output_tokens if told else None,
            cost_usd=cost_usd,
        )
        self._messages.append(response)
        self._answers += 1
        return response

    def cut_short(self, text: str, activity_id: str, model: str) -> None:
        """Log what had come of a response when it was stopped."""
        body = p.MessageAdded("assistant", ev.clean(text)[0], len(self._messages), model=model, partial=True)
        self._run.emit("MessageAdded", body, activity_id=activity_id)

    def _log(
        self,
        message: ModelMessage,
        index: int,
        *,
        activity_id: str | None = None,
        closing: bool = False,
        left: int = 0,
        **used: Any,
    ) -> None:
        packed = _json_of(message)
        blobs: dict[str, bytes] = {}
        inline, blob = self._run.appender.put(packed, blobs)
        text = ev.clean(text_of(message))[0]
        body = p.MessageAdded(role_of(message), text, index, Raw(inline), blob, closing=closing, left=left)
        if isinstance(message, ModelResponse):
            body.model = message.model_name or "unknown"
            body.finish_reason = message.finish_reason or ""
            body.tools = [call.tool_name for call in calls_of(message)]
        self._run.emit("MessageAdded", body, activity_id=activity_id, blobs=blobs or None, **used)


def _began_at(state: State) -> int:
    """The event after which the messages of the present turn come."""
    attempts = [section.since for section in state.execution_state.sections.values()]
    return max([state.system_state.queued_seq, *attempts])


def clean(message: ModelMessage) -> ModelMessage:
    """`message` without text that no provider takes: a model may write lone surrogates, and is sent what it wrote."""
    try:
        ModelMessagesTypeAdapter.dump_json([message])
    except PydanticSerializationError:
        return ModelMessagesTypeAdapter.validate_json(b"[" + _json_of(message) + b"]")[0]
    return message


def _json_of(message: ModelMessage) -> bytes:
    try:
        return ModelMessagesTypeAdapter.dump_json([message])[1:-1]
    except PydanticSerializationError:
        return msgspec.json.encode(ev.cleaned(ModelMessagesTypeAdapter.dump_python([message], mode="json")[0])[0])


def _agree(known: Sequence[ModelMessage], given: Sequence[ModelMessage], start: int, alike: Callable[..., bool]) -> int:
    """How many messages at the beginning of both are alike; the first `start` are known to be."""
    for i in range(start, min(len(known), len(given))):
        if not alike(known[i], given[i]):
            return i
    return min(len(known), len(given))


def _as_read_again(messages: list[ModelMessage], *, after: int) -> list[ModelMessage]:
    """`messages` in the form that the loop gives them when it reads them again: it makes one of requests that follow each
    other.  The first `after` have that form."""
    pairs = pairwise(messages[max(0, after - 1) :])
    beside = any(isinstance(a, ModelRequest) and isinstance(b, ModelRequest) for a, b in pairs)
    return repair_messages(messages, repair_last_response=False) if beside else messages


def _same(mine: ModelMessage, given: ModelMessage) -> bool:
    """Whether two objects are one message: the loop copies them to add ids of the run."""
    if mine is given:
        return True
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


def calls_of(response: ModelResponse) -> list[ToolCallPart]:
    """The tool calls of a response, in its order."""
    return [part for part in response.parts if isinstance(part, ToolCallPart)]
