"""One turn of an agent as a durable task: its model requests and tool calls are activities, its messages are in the log.

The loop is pydantic-ai's.  It starts from the recorded messages, not from its own beginning: the newest response is given
back to it instead of a request, and it calls the tools of that response again.  Each of these calls is an activity, so one
that has a result is recalled, one that waits for a person waits for the same answer, and one that was cut short is settled
by its effect (R151).  The model gets every result, and a notice of what happened (DESIGN 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext, ToolDefinition, UsageLimits
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.agent import notice
from ipyagent_sessions.agent.calling import Calls, Verify
from ipyagent_sessions.agent.closing import closed
from ipyagent_sessions.agent.conversation import Conversation
from ipyagent_sessions.agent.permission import Rules
from ipyagent_sessions.agent.records import Records
from ipyagent_sessions.agent.requesting import DurableModel, Requests
from ipyagent_sessions.agent.secrets import nothing_secret
from ipyagent_sessions.run.context import Context

_LISTED: Final = 5


async def take(
    ctx: Context,
    agent: Agent[Any, Any],
    prompt: str,
    rules: Rules,
    records: Records | None = None,
    verifiers: Mapping[str, Verify] | None = None,
    **options: Any,
) -> Any:
    """The output of `agent` for `prompt`, going on where the task stopped; `options` go to `Agent.run`.

    `records` is the workbench of its tools; `verifiers` say by a tool's name whether a call that left no result happened.

    Raises what the loop raises, and TaskStop when the task is asked to stop, a limit is reached or the model cannot be had.
    """
    talk = Conversation(ctx.task)
    begun = talk.begun
    scrub = records.scrub if records is not None else nothing_secret
    requests = Requests(ctx, talk, rules, scrub)
    stale = _stale(ctx, records) if begun else []
    told = _told(ctx, records) if begun else ""
    turn = _Turn(talk, requests, Calls(ctx, talk, rules, verifiers or {}, scrub), told, stale)
    history = talk.history if begun else closed(ctx.task.session, talk)
    result = await agent.run(
        None if begun else ev.clean(prompt)[0],
        message_history=history or None,
        capabilities=[turn],
        usage_limits=UsageLimits(request_limit=None),  # a budget of steps suspends; this one would end the task
        **options,
    )
    talk.record(result.all_messages(), closing=True)
    return scrub(result.output) if isinstance(result.output, str) else result.output


@dataclass
class _Turn(AbstractCapability[Any]):
    """What the loop calls at each of its steps."""

    talk: Conversation
    requests: Requests
    calls: Calls
    notice: str
    stale: list[str]
    """What others have changed since the model read it; counts until it has had the notice."""

    def get_wrapper_model(self, model: Model) -> Model:
        return DurableModel(model, self.requests)

    async def before_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        if self.notice and not self.talk.waiting:
            ctx.enqueue(self.notice)  # beside what the model gets next: at the end of a turn it would ask it once more
            self.notice = ""
        return request_context

    async def prepare_model_request(self, ctx: RunContext[Any], request_context: ModelRequestContext) -> ModelRequestContext:
        self.talk.record(ctx.messages)
        return request_context

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any], handler: Any
    ) -> Any:
        if not self.talk.ends_with(ctx.messages[-1]):  # a capability of the user's own gave this response
            self.talk.record(ctx.messages)
        return await self.calls.call(ctx, call, tool_def, args, handler, stale=self.stale if self.notice else [])

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        return await self.calls.deferred(ctx, requests) if requests.approvals else None


def _stale(ctx: Context, records: Records | None) -> list[str]:
    """The files that others have changed since the model read them; the person is told before any request or effect (R108)."""
    found = records.stale() if records is not None else []
    if found:
        more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
        ctx.task.emit("AlarmRaised", p.AlarmRaised("changed_since", "; ".join(found[:_LISTED]) + more))
    return found


def _told(ctx: Context, records: Records | None) -> str:
    """What the model is told of the newest stop and resume."""
    run = ctx.task
    resumed = p.TaskResumed()
    for event in run.session.events(after=run.state.system_state.queued_seq):
        if event.event_type == "TaskResumed":
            resumed = msgspec.json.decode(event.payload, type=p.TaskResumed)
    changed = records.changed() if records is not None else []
    return notice.of_resume(run.state, resumed, changed, ctx.instruction)
