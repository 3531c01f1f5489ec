"""`models` and `tools`: what an agent has here, what it has not, and why.  Looked at afresh each time."""

from __future__ import annotations

import asyncio
import threading

from ipyagent_sessions.agent import surroundings
from ipyagent_sessions.agent.assistant import declared_tools, rules_of
from ipyagent_sessions.agent.models import listed
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.mcp import Connected, Served, connected
from ipyagent_sessions.agent.tools.offered import offered
from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.memory.notes import Notes
from ipyagent_sessions.views.shown import Table


def models(door: Door) -> Table:
    """The models by name, whether they can be used here, and how."""
    rows = [
        [found.name, "usable" if found.usable else "not usable", found.why, found.how]
        for found in listed(Settings.load(door.folder))
    ]
    return Table(["model", "state", "why", "how"], rows, width=90)


def tools(door: Door) -> Table:
    """The tools that a turn started here would have, with their effects and what happens to a call; and those it would not
    have, with the reason."""
    place = surroundings.here()
    settings = Settings.load(place.folder)
    bench = Workbench((place.folder / settings.tools.workspace).resolve(), place.namespace, place.in_main, place.run_cell)
    bench.notes = Notes(door.store.memory, by=door.actor, scrub=settings.known_secrets().scrub)
    offer = offered(bench, declared_tools(place.namespace), set(settings.tools.without))
    served = _served(bench, settings)
    rules = rules_of(settings, "ask")
    found: list[Tool | Served] = [*offer.tools, *served.tools]
    rows = [[t.name, t.effect, _HAPPENS[rules.decide(t.name, t.effect, t.approval, ())], _first(t.description)] for t in found]
    rows += [[name, "", "not offered", why] for name, why in (*offer.unusable, *served.unusable)]
    return Table(["tool", "effect", "a call", "what it does, or why it is not offered"], rows, width=90)


_HAPPENS = {"auto": "runs", "ask": "asks a person", "never": "is refused"}


def _served(bench: Workbench, settings: Settings) -> Connected:
    """What MCP servers offer now; they are started, asked and ended.  On a thread of its own: a notebook's has a loop
    already."""
    got: list[Connected | IpyagentError] = []

    async def look() -> None:
        async with connected(bench, settings.document.get("mcp", {})) as found:
            got.append(found)

    def run() -> None:
        try:
            asyncio.run(look())
        except IpyagentError as error:
            got.append(error)

    thread = threading.Thread(target=run, name="ipyagent-tools")
    thread.start()
    thread.join()
    if isinstance(got[-1], IpyagentError):
        raise got[-1]
    return got[-1]


def _first(text: str) -> str:
    return text.strip().partition("\n")[0]
