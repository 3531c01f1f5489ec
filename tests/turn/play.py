"""A model that plays what a test wrote down, and records what it was sent."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from ipyagent_sessions import workflow
from ipyagent_sessions.agent import turn
from ipyagent_sessions.agent.permission import Rules
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, FakeIds

Call = tuple[str, dict[str, Any]]
Step = str | list[Call]
"""What the model says at one request: a text, or calls of tools."""


class Play:
    """`steps` are said one after the other, counted by the responses that a request holds; after the last one again from the
    first, for another turn.  `sent` is every request's messages as short texts."""

    def __init__(self, *steps: Step, before: Callable[[int], Any] | None = None) -> None:
        self.steps = steps
        self.sent: list[list[str]] = []
        self.faults: list[str] = []
        self.model = FunctionModel(self._whole, stream_function=self._stream, model_name="played")
        self._before = before

    async def _whole(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """The same without streaming, for an agent that runs inside a tool."""
        pieces = [piece async for piece in self._stream(messages, info)]
        texts = [TextPart("".join(pieces))] if isinstance(pieces[0], str) else []
        called = [call for piece in pieces if isinstance(piece, dict) for call in piece.values()]
        return ModelResponse(parts=[*texts, *(ToolCallPart(c.name, c.json_args, c.tool_call_id) for c in called)])

    def number(self, messages: list[ModelMessage]) -> int:
        """Which step comes next, from 0."""
        return sum(isinstance(m, ModelResponse) for m in messages)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        number = self.number(messages)
        self.sent.append([short(part) for message in messages for part in message.parts])
        self.faults += faults_of(messages)
        if self._before is not None:
            waits = self._before(number)
            if waits is not None:
                await waits
        step = self.steps[number % len(self.steps)]
        if isinstance(step, str):
            for word in step.split(" "):
                yield word if word == step.split(" ")[0] else f" {word}"
            return
        yield {i: DeltaToolCall(name, json.dumps(args), tool_call_id=f"call{i}") for i, (name, args) in enumerate(step)}


def short(part: Any) -> str:
    content, tool = getattr(part, "content", None), getattr(part, "tool_name", "")
    return f"{part.part_kind}:{tool}" + ("" if content is None else f"={shown(content)}")


def shown(content: Any) -> str:
    """A part's content as a text; bytes by their size and the beginning of their sha256."""
    if isinstance(content, BinaryContent):
        return f"<{content.media_type}, {len(content.data)} bytes, {hashlib.sha256(content.data).hexdigest()[:8]}>"
    return "[" + ", ".join(map(shown, content)) + "]" if isinstance(content, list) else str(content)


def talking(agent: Agent[Any, Any], rules: Rules | None = None, **options: Any) -> Workflow:
    """A workflow that is one turn of `agent`."""

    @workflow
    async def talk(ctx: Context, prompt: str) -> Any:
        return await turn.take(ctx, agent, prompt, rules or Rules(mode="auto"), **options)

    return talk


def agent_of(play: Play, tools: Sequence[Any] = (), **options: Any) -> Agent[Any, Any]:
    return Agent(play.model, tools=list(tools), **options)


def faults_of(messages: Sequence[ModelMessage]) -> list[str]:
    """Why a provider would refuse these messages: a call without exactly one answer in the request that follows it."""
    found: list[str] = []
    for i, message in enumerate(messages):
        if isinstance(message, ModelRequest):
            answered = [part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)]
            before = messages[i - 1] if i else None
            called = [part.tool_call_id for part in before.tool_calls] if isinstance(before, ModelResponse) else []
            if sorted(answered) != sorted(called):
                found.append(f"message {i} answers {answered}, called were {called}")
        elif i + 1 == len(messages):
            found.append("a request ends with a response")
        elif isinstance(messages[i + 1], ModelResponse):
            found.append(f"response {i} is followed by another")
    return found


def cut(session: Session, root: Path, events: int, extra: int = 0) -> Session:
    """A copy of `session` in a store of its own under `root`, as a crash left it after its first `events` events and `extra`
    bytes of the next one."""
    root.mkdir(parents=True, exist_ok=True)
    shutil.copy(session.place.root / "store.json", root / "store.json")  # in the store that it was made in
    store = Store(root, clock=FakeClock(session.place.clock.now()), ids=FakeIds())
    copy = store.session(session.id)
    copy.layout.root.mkdir(parents=True)
    shutil.copy(session.layout.header, copy.layout.header)
    if session.layout.blobs.is_dir():
        shutil.copytree(session.layout.blobs, copy.layout.blobs)
    lines = [line_of(event) for event in session.events()]
    torn = lines[events][:extra] if events < len(lines) else b""
    copy.layout.journal(1, 1).write_bytes(b"".join(lines[:events]) + torn)
    return copy
