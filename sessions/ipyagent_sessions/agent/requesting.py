"""A model request as an activity: recorded, retried, bounded by the budget, streamed into `live.json` while it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, PartDeltaEvent, PartStartEvent, TextPart, TextPartDelta
from pydantic_ai.models import CompletedStreamedResponse, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings

from ipyagent_sessions import payloads as p
from ipyagent_sessions.agent import budget
from ipyagent_sessions.agent.conversation import Conversation, calls_of
from ipyagent_sessions.agent.models.faults import Fault, classify
from ipyagent_sessions.agent.models.prices import cost_usd
from ipyagent_sessions.agent.permission import Rules
from ipyagent_sessions.agent.secrets import Scrub
from ipyagent_sessions.errors import ActivityError, IpyagentError
from ipyagent_sessions.run import outage
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Retry
from ipyagent_sessions.run.task import TaskRun

_LONGEST_PARTIAL: Final = 20_000
_WAITS: Final = {"rate_limited": "resources", "server": "network", "network": "network", "auth": "resources"}
"""What a task waits for when a model cannot be had: the reason of its suspension, by the kind of fault."""


class ModelFault(Exception):
    """A model request failed.  `retry_after_s` is how long the server asks to wait, None when it does not say."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.retry_after_s = fault.retry_after_s


class PassingFault(ModelFault):
    """One that may be over when it is tried again."""


class ModelFailed(IpyagentError):
    """A model request failed for good, and neither time nor a person can mend it."""


class DurableModel(WrapperModel):
    """The model of a turn, each of whose requests goes through `Requests`."""

    def __init__(self, wrapped: Model, requests: Requests) -> None:
        super().__init__(wrapped)
        self._requests = requests

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return await self._requests.answer(self.wrapped, messages, model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """For an agent that follows its own events: they come when the response is durable."""
        response = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(response, model_request_parameters=model_request_parameters, replay_events=True)


class Requests:
    """The model requests of a turn."""

    def __init__(self, ctx: Context, talk: Conversation, rules: Rules, scrub: Scrub) -> None:
        self._ctx = ctx
        self._run = ctx.task
        self._talk = talk
        self._session_budget = rules.session_budget
        self._retry = Retry(attempts=rules.attempts, initial_s=1.0, max_s=60.0, on=(PassingFault,))
        self._scrub = scrub

    async def answer(
        self, model: Model, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """The next response: recorded, or asked for now.  Raises TaskStop when a limit is reached, the model cannot be had, or
        a recorded response calls a tool that is gone."""
        talk = self._talk
        number = talk.number()
        offered = [t.name for t in (*parameters.function_tools, *parameters.output_tools)]
        answer = talk.recall()
        if answer is None:
            self._within_budget()

        async def work() -> dict[str, Any]:
            nonlocal answer
            if answer is None:  # else it had come, and a crash came before the log said that the request had ended
                answer = await self._asked(model, messages, settings, parameters, call.id)
            return {"offered": offered}

        call = self._ctx.perform(
            "model", work, kind="model", key=self._key(number), arguments={}, effect="idempotent", retry=self._retry
        )
        try:
            recorded = await call
        except ActivityError as error:
            if await self._outlasted(error.__cause__):
                return await self.answer(model, messages, settings, parameters)
            raise ModelFailed(f"the model {model.model_name} gave no answer: {error.error}") from error
        assert answer is not None
        outage.over(self._run, "model")
        self._tools_are_here(answer, set(recorded["offered"]) - set(offered))
        return answer

    async def _asked(
        self, model: Model, messages: list[ModelMessage], settings: Any, parameters: Any, activity_id: str
    ) -> ModelResponse:
        try:
            answer = await _streamed(model, messages, settings, parameters, self._run, self._scrub)
        except asyncio.CancelledError:
            if self._run.partial:
                self._talk.cut_short(self._run.partial, activity_id, model.model_name)
            raise
        except Exception as error:  # whatever a client raises, it is told by its class of fault
            fault = classify(error, scrub=self._scrub)
            raise (PassingFault if fault.retryable else ModelFault)(fault) from error
        finally:
            self._run.partial = ""
        if answer.usage.unmeasured_requests:
            self._uncounted(model)
        return self._talk.answered(answer, activity_id, cost_usd(answer))

    def _uncounted(self, model: Model) -> None:
        """Say, once, that what a provider does not tell cannot be counted."""
        text = (
            f"{model.model_name} does not say how many tokens it uses: they are not counted, and bound by no limit of tokens"
        )
        if f"tokens: {text}" not in self._run.state.alarms:
            self._run.emit("AlarmRaised", p.AlarmRaised("tokens", text))

    def _key(self, number: int) -> str:
        """The key of a request: its number, and how often it failed for good before."""
        results = self._run.state.business_state.results
        key, again = str(number), 1
        while (found := results.get(self._ctx.id_of("model", key))) is not None and not found.ok:
            again += 1
            key = f"{number}.{again}"
        return key

    def _within_budget(self) -> None:
        """Raise TaskStop, before anything is asked of the model, when a limit is reached."""
        run = self._run
        over = budget.over(run.state, self._session_budget, run.clock.now())
        if over is not None:
            run.emit("BudgetExceeded", p.BudgetExceeded(over.what, over.scope, over.limit, over.spent))
            run.stop("suspend", reason="step_cap" if over.what == "steps" else "budget", detail=str(over))
            run.check()

    def _tools_are_here(self, answer: ModelResponse, gone: set[str]) -> None:
        """Raise TaskStop when a recorded response calls a tool that was offered then and is `gone`: the loop would tell the
        model that there is no such tool, whatever the call has done (R151)."""
        called = sorted(gone & {call.tool_name for call in calls_of(answer)})
        if called:
            where = "resume it in its notebook, with its own tools defined and its servers running"
            self._run.stop(
                "suspend", reason="definition", detail=f"it has called {', '.join(called)}, not offered here: {where}"
            )
            self._run.check()

    async def _outlasted(self, cause: BaseException | None) -> bool:
        """Wait for a fault that somebody or some time can mend; whether the model may be asked again now.  The conversation is
        kept meanwhile.  Raises TaskStop when the task does not wait by itself (any more): a resume asks again."""
        reason = _WAITS.get(cause.fault.kind) if isinstance(cause, ModelFault) else None
        if reason is None or not isinstance(cause, ModelFault):
            return False
        told = f"the model cannot be had: {cause}"
        if cause.fault.kind == "auth":  # only a person mends that
            self._run.stop("suspend", reason=reason, detail=told)
            self._run.check()
        await outage.outlast(self._run, "model", reason, told, at_least_s=outage.asked_wait(cause, self._run.clock.now()))
        return True


async def _streamed(
    model: Model, messages: list[ModelMessage], settings: Any, parameters: Any, run: TaskRun, scrub: Scrub
) -> ModelResponse:
    """The model's response; what has come of its text stands in `run.partial` meanwhile, without secrets."""
    if getattr(model, "stream_function", True) is None:  # a FunctionModel that answers as a whole
        return await model.request(messages, settings, parameters)
    text = ""
    async with model.request_stream(messages, settings, parameters, None) as stream:
        async for event in stream:
            new = _text_of(event)
            if new:
                text = (text + new)[-2 * _LONGEST_PARTIAL :]  # what is cut through at its beginning is not shown
                run.partial = scrub(text, more=True)[-_LONGEST_PARTIAL:]
        return stream.get()


def _text_of(event: Any) -> str:
    if isinstance(event, PartDeltaEvent):
        return event.delta.content_delta if isinstance(event.delta, TextPartDelta) else ""
    return event.part.content if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart) else ""
