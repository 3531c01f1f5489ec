"""The agents that a person speaks to: the one behind `%%agent`, and one of the user's own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic_ai import Agent
from pydantic_ai.models import Model

from ipyagent_sessions import payloads as p
from ipyagent_sessions.agent import turn
from ipyagent_sessions.agent.checking import Check, checked
from ipyagent_sessions.agent.conversation import exchanges
from ipyagent_sessions.agent.models import resolve
from ipyagent_sessions.agent.models.cassette import Exchange
from ipyagent_sessions.agent.permission import Permission, Rules
from ipyagent_sessions.agent.records import Records
from ipyagent_sessions.agent.sections import DEFAULT_RETRIES, Allowance
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.agent.surroundings import Surroundings, here
from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.mcp import connected
from ipyagent_sessions.agent.tools.offered import offered
from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.place import Place
from ipyagent_sessions.run.checked import ATTEMPTS
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import workflow
from ipyagent_sessions.store import Store

_SEEING: Final = frozenset({"openai", "anthropic"})
"""Providers whose models take pictures."""
MISTAKES: Final = 5
"""How often in a row a model may call one tool wrongly, or give an answer that does not fit, before the turn fails."""
INSTRUCTIONS: Final = """\
You work in a person's Jupyter notebook. Use the tools to look before you answer, and do what is asked, no more.
Say plainly what you did, what you could not do, and what you are not sure of. Answer in Markdown."""


@workflow(name="ask")
async def converse(
    ctx: Context,
    prompt: str,
    model: str | None = None,
    approve: Permission = "ask",
    schema: str | None = None,
    check: str = "",
    attempts: int = ATTEMPTS,
    files: Sequence[str] = (),
) -> Any:
    """One turn with the built-in agent: its tools are those of the notebook and the workspace, the user's own and MCP's."""
    place = here()
    settings = Settings.load(place.folder)
    records = Records(ctx.task, place, settings)
    for told in await asyncio.to_thread(records.end_leftovers):
        ctx.task.emit("AlarmRaised", p.AlarmRaised("leftover", told))
    offer = offered(records.bench, declared_tools(place.namespace), set(settings.tools.without))
    chosen = _model(model, settings, place, ctx.task.session.place)
    records.bench.sees_pictures = chosen.system in _SEEING
    agent: Agent[None, Any] = Agent(
        chosen,
        name="ipyagent",
        instructions=INSTRUCTIONS,
        tools=[tool.pydantic for tool in offer.tools],
        output_type=str if schema is None else place.variable(schema, "--schema"),
        retries=MISTAKES,
    )
    async with connected(records.bench, settings.document.get("mcp", {})) as served:
        for name, why in served.unusable:
            ctx.task.emit("AlarmRaised", p.AlarmRaised("mcp", f"{name} is not offered: {why}"))
        verifiers = {tool.name: tool.verify for tool in offer.tools if tool.verify is not None}
        rules = rules_of(settings, approve, model=model)

        async def take(said: str) -> Any:
            return await turn.take(ctx, agent, said, rules, records, verifiers, toolsets=served.toolsets)

        return await checked(ctx, Check(check, attempts, files), prompt, records, take)


converse.kind = "agent"


async def turn_of(
    ctx: Context, agent: Agent[Any, Any], prompt: str, *, model: str | None, approve: Permission, deps: str, check: Check
) -> Any:
    """One turn with an agent of the user's own: its tools, its output type.  What its author gave it without declaring an
    effect may be called without asking, and counts as irreversible."""
    place = here()
    settings = Settings.load(place.folder)
    options: dict[str, Any] = {}
    if model is not None:
        options["model"] = _model(model, settings, place, ctx.task.session.place)
    if deps:
        options["deps"] = place.variable(deps, "--deps")
    rules = rules_of(settings, approve, unknown="auto", model=model)
    records = Records(ctx.task, place, settings)

    async def take(said: str) -> Any:
        return await turn.take(ctx, agent, said, rules, records, **options)

    return await checked(ctx, check, prompt, records, take)


def check(place: Surroundings, model: str, schema: str, store: Place, *, before: str = "") -> str:
    """The name of the model that a turn will use: `model`, else that of the settings, else `before`.

    Raises UsageError or ConfigError when it cannot be used here, when there is no such type, or when the tools are declared
    wrongly: what cannot run is refused before anything starts."""
    settings = Settings.load(place.folder)
    chosen = model or settings.model or before
    _model(chosen or None, settings, place, store)
    offered(Workbench(place.folder), declared_tools(place.namespace), set(settings.tools.without))
    if schema:
        _check_type(schema, place.variable(schema, "--schema"))
    return chosen


def _check_type(name: str, found: Any) -> None:
    try:
        TypeAdapter(found)
    except PydanticUserError as error:
        raise UsageError(
            f"--schema {name}: not a type that an answer can have",
            hint="a pydantic model, a dataclass, or a name for list[int]",
        ) from error


def limits(folder: Path) -> dict[str, float]:
    """The budget of a task that the settings give."""
    return _amounts(Settings.load(folder).budget.task)


def declared_tools(namespace: Mapping[str, Any] | None) -> list[Tool]:
    """The tools that the notebook's cells declare."""
    return [found for name, found in (namespace or {}).items() if isinstance(found, Tool) and not name.startswith("_")]


def _model(name: str | None, settings: Settings, place: Surroundings, store: Place) -> Model:
    """The model of a name; a recorded session is one of `store`."""

    def recording(wanted: str) -> list[Exchange]:
        return exchanges(Store(store.root).find(wanted))

    return resolve(name, settings, folder=place.folder, recording=recording)


def rules_of(settings: Settings, approve: Permission, unknown: Permission = "ask", model: str | None = None) -> Rules:
    """What the settings permit in a turn whose own mode is `approve`; `unknown` is for tools that declare no effect."""
    entry = settings.models.get(model or settings.model or "")
    attempts = 1 + (entry.max_retries if entry is not None else DEFAULT_RETRIES)
    permissions = settings.permissions
    return Rules(
        approve,
        permissions.tools,
        permissions.effects,
        unknown,
        _amounts(settings.budget.session),
        permissions.expires_s,
        attempts,
    )


def _amounts(allowance: Allowance) -> dict[str, float]:
    """An allowance as `budget` counts: usd, tokens, steps, time."""
    given = {"usd": allowance.usd, "tokens": allowance.tokens, "steps": allowance.steps, "time": allowance.time_s}
    return {what: float(limit) for what, limit in given.items() if limit is not None}
