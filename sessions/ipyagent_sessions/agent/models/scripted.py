"""A model that plays the turns of a YAML file: no key, no network, the same every time.

Which turn is next is read off the messages of the request and from nowhere else, so a resumed process goes on where the
conversation is.  Only an `error` that passes after some requests is counted in memory: after a restart it may come again.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    FinishReason,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    ModelResponseStreamEvent,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext
from pydantic_ai.usage import RequestUsage

from ipyagent_sessions.agent.models import history, script
from ipyagent_sessions.agent.models.played import PlayedModel
from ipyagent_sessions.errors import UsageError

SYSTEM: Final = "scripted"
_WORD: Final = re.compile(r"\s*\S+|\s+$")

Sleep = Callable[[float], Awaitable[None]]


class ScriptedModel(PlayedModel):
    """Plays the conversations of a script.  `system` is "scripted", so that nobody takes it for a model that thinks."""

    def __init__(self, name: str, conversations: tuple[script.Conversation, ...], *, sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(SYSTEM, name)
        self._conversations = conversations
        self._sleep = sleep
        self._failed: dict[str, int] = {}

    @classmethod
    def from_file(cls, path: Path, *, sleep: Sleep = asyncio.sleep) -> ScriptedModel:
        """The model of a script.  Raises UsageError for a missing file, ConfigError for a wrong one."""
        return cls(path.stem, script.load(path), sleep=sleep)

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        self.prepare_request(model_settings, model_request_parameters)
        turn, response = self._next(messages)
        words = sum(1 for part in response.parts for _ in pieces(part))
        wait = turn.delay_s + (words / turn.tokens_per_s if turn.tokens_per_s else 0.0)
        if wait:
            await self._sleep(wait)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse, None]:
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        turn, response = self._next(messages)
        yield ScriptedStream(parameters, _turn=turn, _response=response, _sleep=self._sleep)

    def _next(self, messages: list[ModelMessage]) -> tuple[script.Turn, ModelResponse]:
        opening = history.opening(messages, self._name)
        conversation = next((one for one in self._conversations if one.when in opening), None)
        if conversation is None:
            whens = ", ".join(repr(one.when) for one in self._conversations)
            raise UsageError(f"{self._name}: no conversation begins with {_short(opening)}", hint=f"the script has {whens}")
        done, last = history.answered(messages, self._name), history.last_message(messages)
        if done >= len(conversation.turns):
            raise UsageError(
                f"{self._name} has {len(conversation.turns)} turns here, and one more was asked for after {_short(last)}",
                hint="add a turn to the script, or start a new conversation with --session new",
            )
        turn, place = conversation.turns[done], f"{self._name}, turn {done + 1}"
        if turn.expect is not None and not turn.expect.search(last):
            raise UsageError(f"{place}: the last message should contain {turn.expected}, but it is {_short(last)}")
        self._fail(turn, f"{opening}\0{done}", place)
        return turn, self._response(turn, messages, opening)

    def _fail(self, turn: script.Turn, key: str, place: str) -> None:
        failure = turn.failure
        if failure is None:
            return
        seen = self._failed.get(key, 0)
        if failure.times is not None and seen >= failure.times:
            return
        self._failed[key] = seen + 1
        body = {"error": {"message": f"{failure.message} ({place})"}}
        raise ModelHTTPError(failure.status, self._name, body, retry_after=failure.retry_after_s)

    def _response(self, turn: script.Turn, messages: list[ModelMessage], opening: str) -> ModelResponse:
        # the same at each resume, and another one in each conversation and turn
        prefix = f"{self._name.partition(':')[2]}-{hashlib.sha256(opening.encode()).hexdigest()[:6]}"
        number = sum(isinstance(message, ModelResponse) for message in messages)
        parts: list[ModelResponsePart] = []
        if turn.think:
            parts.append(ThinkingPart(turn.think))
        if turn.say:
            parts.append(TextPart(turn.say))
        for i, call in enumerate(turn.calls):
            parts.append(ToolCallPart(call.tool, call.args, tool_call_id=f"{prefix}-{number + 1}-{i + 1}"))
        read, written = turn.tokens or (_estimate(messages), sum(1 for part in parts for _ in pieces(part)))
        usage = RequestUsage(input_tokens=read, output_tokens=written)
        if turn.cost is not None:
            usage.cost = Decimal(str(turn.cost))
        finish: FinishReason = "tool_call" if turn.calls else "stop"
        return ModelResponse(parts, usage=usage, model_name=self._name, provider_name=SYSTEM, finish_reason=finish)


@dataclass
class ScriptedStream(StreamedResponse):
    """One turn, word by word; the arguments of a call come as one piece each."""

    _turn: script.Turn
    _response: ModelResponse
    _sleep: Sleep
    _timestamp: datetime = field(default_factory=lambda: datetime.now(UTC))
    _closed: bool = False

    async def _get_event_iterator(self) -> AsyncIterator[ModelResponseStreamEvent]:
        if self._turn.delay_s:
            await self._sleep(self._turn.delay_s)
        now = asyncio.get_running_loop().time
        start, played = now(), 0
        self._usage = RequestUsage(input_tokens=self._response.usage.input_tokens)
        for index, part in enumerate(self._response.parts):
            for piece in pieces(part):
                ahead = 0.0
                if self._turn.tokens_per_s:
                    ahead = start + played / self._turn.tokens_per_s - now()
                await self._sleep(max(0.0, ahead))  # also with nothing to wait for: a place to be stopped at
                if self._closed:
                    return
                played += 1
                self._usage.output_tokens = played
                for event in self._events(index, part, piece):
                    yield event
        self._usage = self._response.usage
        self.finish_reason = self._response.finish_reason

    def _events(self, index: int, part: ModelResponsePart, piece: str) -> Iterator[ModelResponseStreamEvent]:
        manager = self._parts_manager
        if isinstance(part, ThinkingPart):
            yield from manager.handle_thinking_delta(vendor_part_id=index, content=piece)
        elif isinstance(part, ToolCallPart):
            yield manager.handle_tool_call_part(
                vendor_part_id=index, tool_name=part.tool_name, args=part.args_as_dict(), tool_call_id=part.tool_call_id
            )
        else:
            yield from manager.handle_text_delta(vendor_part_id=index, content=piece)

    async def close_stream(self) -> None:
        """Nothing is open; the stream ends before its next word."""
        self._closed = True

    @property
    def model_name(self) -> str:
        return self._response.model_name or ""

    @property
    def provider_name(self) -> str:
        return SYSTEM

    @property
    def provider_url(self) -> None:
        return None

    @property
    def timestamp(self) -> datetime:
        return self._timestamp


def pieces(part: ModelResponsePart) -> list[str]:
    """A part as it is streamed: word by word, or the arguments of a call at once."""
    if isinstance(part, TextPart | ThinkingPart):
        return _WORD.findall(part.content)
    return [part.args_as_json_str()] if isinstance(part, ToolCallPart) else []


def _estimate(messages: list[ModelMessage]) -> int:
    """Tokens of a request whose turn gives no `usage`: a quarter of its characters."""
    texts = (str(getattr(part, "content", "")) for message in messages for part in message.parts)
    return -(-sum(map(len, texts)) // 4)


def _short(text: str, most: int = 400) -> str:
    return repr(text) if len(text) <= most else f"{text[:most]!r} ... ({len(text)} characters)"
