"""Which tools a model is offered here and now, and why it is not offered the others (R241, R242).

Nothing is remembered: asking again looks again, so what was put right works in the next turn.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from ipyagent_sessions.agent.tools.declare import Tool, to_pydantic
from ipyagent_sessions.agent.tools.edit_file import edit_file
from ipyagent_sessions.agent.tools.list_files import list_files
from ipyagent_sessions.agent.tools.query import query
from ipyagent_sessions.agent.tools.read_file import read_file
from ipyagent_sessions.agent.tools.recall import recall
from ipyagent_sessions.agent.tools.remember import remember
from ipyagent_sessions.agent.tools.run_python import run_python
from ipyagent_sessions.agent.tools.run_shell import run_shell
from ipyagent_sessions.agent.tools.search_files import search_files
from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.agent.tools.write_file import write_file
from ipyagent_sessions.errors import UsageError

BUILT_IN: Final[tuple[Callable[[Workbench], Tool], ...]] = (
    list_files,
    read_file,
    search_files,
    write_file,
    edit_file,
    query,
    recall,
    remember,
    run_python,
    run_shell,
)


@dataclass
class Offer:
    """`tools` are for the model; `unusable` are names with the reason why not."""

    tools: list[Tool] = field(default_factory=list[Tool])
    unusable: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def offered(bench: Workbench, extra: Sequence[Tool] = (), left_out: Collection[str] = ()) -> Offer:
    """The built-in tools and those of the user (`extra`), without the names `left_out`.

    A tool of the user's takes the place of a built-in one of the same name.  Raises UsageError when two of the user's have
    one name, when one of them has a parameter that no model can give, or when a name that is left out is none.
    """
    known = [make.__name__ for make in BUILT_IN] + [tool.name for tool in extra]
    if strange := sorted(set(left_out) - set(known)):
        close = difflib.get_close_matches(strange[0], known, 1)
        meant = f"did you mean {close[0]}?" if close else f"the built-in ones are {', '.join(known[: len(BUILT_IN)])}"
        raise UsageError(f"tools.without: there is no tool {strange[0]}", hint=meant)
    own: dict[str, Tool] = {}
    for tool in extra:
        if own.setdefault(tool.name, tool) is not tool:
            raise UsageError(f"two tools are named {tool.name}", hint='give one of them another name: @tool(name="...")')
        to_pydantic(tool)  # a mistake in its declaration is told now, not in the middle of a turn
    offer = Offer()
    for tool in (*(make(bench) for make in BUILT_IN), *own.values()):
        why = _why_not(tool, own, left_out)
        if why is None:
            offer.tools.append(tool)
        else:
            offer.unusable.append((tool.name, why))
    return offer


def _why_not(tool: Tool, own: dict[str, Tool], left_out: Collection[str]) -> str | None:
    if tool.name in left_out:
        return "left out by the config"
    if own.get(tool.name, tool) is not tool:
        return "your own tool of that name is used"
    return tool.unusable()
