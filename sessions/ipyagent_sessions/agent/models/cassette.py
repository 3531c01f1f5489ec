"""A model that answers from a recorded session, and refuses a request that differs from the recorded one.

A request is compared by what a model would see: its messages without times and ids of runs, calls numbered instead of named
by their ids, and the names of the tools.  Which exchanges are meant is read off the request: those recorded after as many
answers as it holds.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import CompletedStreamedResponse, ModelRequestParameters, StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import RunContext

from ipyagent_sessions.agent.models import history
from ipyagent_sessions.agent.models.played import PlayedModel
from ipyagent_sessions.agent.notice import BEGINS
from ipyagent_sessions.errors import UsageError

SYSTEM: Final = "cassette"
# What differs between two runs of the same conversation and is not shown to a model, or names who answered.
_MESSAGE: Final = frozenset(("kind", "parts", "instructions"))
_NOT_IN_A_PART: Final = frozenset(("timestamp", "id", "provider_name", "provider_details", "metadata", "dynamic_ref"))


@dataclass(frozen=True)
class Exchange:
    """One recorded request and its answer; `tools` are the names of the tools that were offered, output tools among them."""

    request_messages: list[ModelMessage]
    response: ModelResponse
    tools: list[str]


class CassetteModel(PlayedModel):
    """Answers from the exchanges of a session.  `system` is "cassette"; what it answers costs nothing."""

    def __init__(self, session: str, exchanges: Iterable[Exchange], *, scrub: Callable[[str], str] = str) -> None:
        """`scrub` takes secrets out of a request before it is compared and shown: they are out of the recorded one.

        Raises UsageError when the session holds no exchange with a model.
        """
        super().__init__(SYSTEM, session)
        self._exchanges = tuple(exchanges)
        self._scrub = scrub
        if not self._exchanges:
            raise UsageError(
                f"{self._name}: the session holds no answer of a model", hint="record one with a real model first"
            )

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        return self._answer(messages, parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse, None]:
        _, parameters = self.prepare_request(model_settings, model_request_parameters)
        response = self._answer(messages, parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=parameters, replay_events=True)

    def _answer(self, messages: list[ModelMessage], parameters: ModelRequestParameters) -> ModelResponse:
        place = history.answered(messages)
        asked = self._scrub(normal(messages, parameters.tool_defs))
        recorded = [one for one in self._exchanges if history.answered(one.request_messages) == place]
        if not recorded:
            last = max(history.answered(one.request_messages) for one in self._exchanges) + 1
            raise UsageError(
                f"{self._name} holds {last} answers of this conversation, and request {place + 1} was made",
                hint="the conversation is longer than the recorded one; record it again",
            )
        forms = [self._recorded(one, parameters) for one in recorded]
        if asked in forms:
            # the last of equal ones: an earlier answer may have been cut off and asked for again
            response = recorded[len(forms) - 1 - forms[::-1].index(asked)].response
            usage = replace(response.usage, cost=Decimal(0))
            return replace(
                response, model_name=self._name, model_id=self._name, provider_name=SYSTEM, provider_url=None, usage=usage
            )
        nearest = max(forms, key=lambda form: difflib.SequenceMatcher(None, form, asked).quick_ratio())
        raise UsageError(
            f"{self._name}: request {place + 1} differs from the recorded one:\n{_difference(nearest, asked)}",
            hint="make the notebook ask as it did, or record it again with a real model",
        )

    def _recorded(self, exchange: Exchange, parameters: ModelRequestParameters) -> str:
        """The recorded request as this model would be sent it: pydantic-ai prepares messages for the model that gets them."""
        return self._scrub(normal(self.prepare_messages(exchange.request_messages, parameters), exchange.tools))


def normal(messages: Sequence[ModelMessage], tools: Iterable[str]) -> str:
    """A request as text, one JSON value a line, without what differs between two runs of the same conversation."""
    numbers: dict[str, str] = {}
    kept: list[dict[str, Any]] = []
    for message in ModelMessagesTypeAdapter.dump_python(list(messages), mode="json"):
        shown = {key: value for key, value in message.items() if key in _MESSAGE and value is not None}
        shown["parts"] = [_part(part, numbers) for part in message["parts"] if not _is_notice(part)]
        if shown["parts"] or not message["parts"]:
            kept.append(shown)
    return json.dumps({"messages": kept, "tools": sorted(tools)}, indent=1, sort_keys=True, ensure_ascii=False)


def _is_notice(part: dict[str, Any]) -> bool:
    """Whether a part tells of a stop and a resume: when the recording is played nothing was stopped."""
    content = part.get("content")
    return part.get("part_kind") == "user-prompt" and isinstance(content, str) and content.startswith(BEGINS)


def _part(part: dict[str, Any], numbers: dict[str, str]) -> dict[str, Any]:
    shown = {key: value for key, value in part.items() if key not in _NOT_IN_A_PART and value is not None}
    if "tool_call_id" in shown:
        shown["tool_call_id"] = numbers.setdefault(shown["tool_call_id"], f"call {len(numbers) + 1}")
    if isinstance(shown.get("args"), str):  # the same arguments, as text or parsed
        try:
            shown["args"] = json.loads(shown["args"])
        except ValueError:
            return shown
    return shown


def _difference(recorded: str, asked: str, most: int = 60) -> str:
    lines = list(difflib.unified_diff(recorded.splitlines(), asked.splitlines(), "recorded", "asked now", n=2, lineterm=""))
    return "\n".join(lines if len(lines) <= most else [*lines[:most], f"... {len(lines) - most} more lines"])
