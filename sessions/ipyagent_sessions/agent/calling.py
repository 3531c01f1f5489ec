"""A tool call as an activity: permitted, executed once, its outcome recorded in the form that the model gets."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

from pydantic import ValidationError
from pydantic_ai import DeferredToolRequests, DeferredToolResults, RunContext, ToolApproved, ToolDefinition, ToolDenied
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ToolCallPart

from ipyagent_sessions.agent import outcome
from ipyagent_sessions.agent.conversation import Conversation
from ipyagent_sessions.agent.permission import PERMISSIONS, Permission, Rules
from ipyagent_sessions.agent.secrets import Scrub
from ipyagent_sessions.agent.tools.workbench import calling
from ipyagent_sessions.errors import ActivityError, ActivityTimeout, ResultLost
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import EFFECTS, Done, Effect
from ipyagent_sessions.run.task import TaskStop
from ipyagent_sessions.run.waiting import Answer

Verify = Callable[..., Any]
_TOLD: Final = (ToolRetryError, ToolFailedError, ModelRetry, ToolFailed)


class Calls:
    """The tool calls of a turn."""

    def __init__(self, ctx: Context, talk: Conversation, rules: Rules, verifiers: Mapping[str, Verify], scrub: Scrub) -> None:
        self._ctx = ctx
        self._run = ctx.task
        self._talk = talk
        self._rules = rules
        self._verifiers = verifiers
        self._scrub = scrub
        self._busy: set[asyncio.Future[None]] = set()
        self._answers: dict[str, Answer] = {}

    async def call(
        self,
        ctx: RunContext[Any],
        call: ToolCallPart,
        definition: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
        *,
        stale: list[str],
    ) -> Any:
        """What the tool returned, now or before.  Raises ModelRetry or ToolFailed for what the model is to be told.

        `stale` is what has changed since the model read it, unless it knows by now: an effect is not begun on that ground.
        """
        effect = _effect_of(definition)
        key, raw = self._key(call), self._without_secrets(call.args_as_dict())  # as a resume reads them
        try:
            with self._beside_others():
                if stale and effect != "none" and not self._known(call.tool_name, key):
                    raise ToolFailed(_stale(stale))
                if not ctx.tool_call_approved:
                    edited = await self._permitted(call.tool_name, raw, key, effect, _declared(definition))
                    if edited is not None:
                        raw, args = edited, _validated(ctx, call.tool_name, edited)
                else:
                    edited = self._answers[key].arguments if key in self._answers else None
                    raw = raw if edited is None else edited
                    key += outcome.APPROVED
                execute = functools.partial(handler, args)
                if edited is None:
                    return await self._executed(call.tool_name, raw, key, effect, definition, execute)
                note = f"[A person changed the arguments of this call of {call.tool_name} to {_json(edited)}.]"
                return await outcome.noted(self._executed(call.tool_name, raw, key, effect, definition, execute), note)
        except TaskStop:
            await self._others_finish()
            raise

    async def deferred(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        """What people say of the calls that their tools want approved."""
        results = DeferredToolResults()
        asked = [self._approved(call, ctx) for call in requests.approvals]
        for call, said in zip(requests.approvals, await asyncio.gather(*asked), strict=True):
            results.approvals[call.tool_call_id] = said
        return results

    async def _approved(self, call: ToolCallPart, ctx: RunContext[Any]) -> ToolApproved | ToolDenied:
        definition = ctx.tool_manager.get_tool_def(call.tool_name) if ctx.tool_manager is not None else None
        key, arguments = self._key(call), self._without_secrets(call.args_as_dict())
        try:
            edited = await self._permitted(call.tool_name, arguments, key, _effect_of(definition), "ask")
        except ToolFailed as refused:
            return ToolDenied(refused.message)
        except TaskStop:
            await self._others_finish()
            raise
        return ToolApproved(override_args=edited)

    async def _permitted(
        self, tool: str, arguments: dict[str, Any], key: str, effect: Effect | None, declared: Permission | None
    ) -> dict[str, Any] | None:
        """The arguments as a person changed them, None when they stay.  Raises ToolFailed when the call is not permitted."""
        if self._began(tool, key) and not self._asked_before(tool, key):
            return None
        chosen = self._rules.decide(tool, effect, declared, self._run.state.allowed_tools)
        if chosen == "never":
            raise ToolFailed(f"{tool} may not be called here: it is not permitted")
        if chosen == "auto" and not self._asked_before(tool, key):
            return None
        answer = self._answers.get(key)
        if answer is None:  # else its tool wants the approval that a person has just given
            expires = self._rules.expires_s
            asked = self._ctx.approve_tool(tool, arguments, key=key, effect=effect or "irreversible", expires_s=expires)
            answer = self._answers[key] = await asked
        if not answer:
            raise ToolFailed(_denied(answer))
        return cast("dict[str, Any] | None", answer.arguments)

    def _began(self, tool: str, key: str) -> bool:
        """Whether this very call was permitted before: the rules of a later execution do not undo that it began."""
        made, state = self._ctx.id_of(tool, key), self._run.state
        return made in state.business_state.results or made in state.execution_state.active_activities

    def _known(self, tool: str, key: str) -> bool:
        """Whether this very call has begun, or was put to a person."""
        return self._began(tool, key) or self._asked_before(tool, key)

    def _asked_before(self, tool: str, key: str) -> bool:
        """Whether this very call was put to a person: then that answer counts, whatever is allowed by now."""
        return self._ctx.id_of("approve", f"{tool} {key}") in self._run.approvals

    async def _executed(
        self,
        tool: str,
        arguments: dict[str, Any],
        key: str,
        effect: Effect | None,
        definition: ToolDefinition,
        execute: Callable[[], Awaitable[Any]],
    ) -> Any:
        live: list[Any] = []

        async def work() -> outcome.Outcome:
            try:
                with calling(call.id):
                    value = await execute()
            except ApprovalRequired:
                return outcome.WAITS
            except _TOLD as told:
                return self._without_secrets(outcome.raised(told))
            kept = self._without_secrets(outcome.returned(value))
            live.append(outcome.live(value, kept))
            return kept

        verify = self._verifiers.get(tool)

        async def verified() -> Any:
            """What the tool's own function says of a call that left no result, in the form of an outcome."""
            assert verify is not None
            with calling(call.id):
                said = verify(**arguments)
                if inspect.isawaitable(said):
                    said = await said
            return Done(outcome.returned(said.result)) if isinstance(said, Done) else said

        call = self._ctx.perform(
            tool,
            work,
            kind="tool",
            key=key,
            arguments=arguments,
            effect=effect or "irreversible",
            timeout_s=(definition.metadata or {}).get("timeout_s"),
            verify=None if verify is None else verified,
        )
        try:
            recorded = await call
        except ResultLost:  # a person, or its verify function, said that it happened
            return outcome.lost(tool)
        except ActivityTimeout as late:
            unknown = "" if effect == "none" else " Whether it had an effect is not known."
            raise ToolFailed(f"{tool} {late.error}.{unknown}") from late
        except ActivityError as failed:
            raise ActivityError(failed.name, failed.error_type, self._scrub(failed.error)) from failed
        if recorded == outcome.WAITS:
            raise ApprovalRequired
        return live[0] if live else outcome.given(recorded)

    def _without_secrets(self, kept: dict[str, Any]) -> dict[str, Any]:
        """An outcome or arguments without secret values, which the model must not see either; the same object when there are
        none."""
        text = _json(kept)
        clean = self._scrub(text)
        return kept if clean == text else cast("dict[str, Any]", json.loads(clean))

    def _key(self, call: ToolCallPart) -> str:
        """Which call of which response this is, as 3.1: providers give the same call id again in another response."""
        number, ids = self._talk.newest_calls()
        return f"{number}.{ids.index(call.tool_call_id) + 1}" if call.tool_call_id in ids else call.tool_call_id

    @contextmanager
    def _beside_others(self) -> Generator[None, None, None]:
        here: asyncio.Future[None] = self._run.loop.create_future()
        self._busy.add(here)
        try:
            yield
        finally:
            self._busy.discard(here)
            here.set_result(None)

    async def _others_finish(self) -> None:
        """Wait for the calls beside a stopped one: the loop would cancel them, and what they did would be unknown (R239)."""
        if self._busy and self._run.stopping is not None and self._run.stopping.why in ("pause", "suspend"):
            await asyncio.wait(self._busy)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _stale(changed: list[str]) -> str:
    listed = "; ".join(changed[:5])
    return f"not called, since what you know is no longer so: {listed}. Look again, and call it again if it is still right."


def _denied(answer: Answer) -> str:
    who = "this call was denied" if answer.by == "expiry" else "a person denied this call"
    return f"{who}{': ' + answer.reason if answer.reason else ''}"


def _effect_of(definition: ToolDefinition | None) -> Effect | None:
    """The effect that a tool declares in its metadata, None when it does not."""
    found = ((definition.metadata if definition else None) or {}).get("effect")
    return found if found in EFFECTS else None


def _declared(definition: ToolDefinition) -> Permission | None:
    found = (definition.metadata or {}).get("approval")
    return found if found in PERMISSIONS else None


def _validated(ctx: RunContext[Any], tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments that a person changed, checked as the model's are.  Raises ToolFailed when they do not fit."""
    assert ctx.tool_manager is not None
    assert ctx.tool_manager.tools is not None
    try:
        return cast("dict[str, Any]", ctx.tool_manager.tools[tool].args_validator.validate_python(arguments))
    except ValidationError as error:
        raise ToolFailed(f"the arguments that a person gave to {tool} do not fit: {error}") from error
