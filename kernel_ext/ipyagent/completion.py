"""What the Tab key offers behind `%agent`: commands, then ids and options of the command."""

from __future__ import annotations

from typing import Any


def complete(shell: Any, event: Any) -> list[str]:
    """The words that may stand at the cursor.  `event` is IPython's: `line` up to the cursor, `symbol` the word begun."""
    from ipyagent_sessions.commands import parser

    words = event.line.split()
    if not event.line.endswith(event.symbol) or (event.symbol and words and words[-1] == event.symbol):
        words = words[:-1]
    if len(words) < 2:
        return list(parser.COMMANDS)
    command = words[1]
    if command == "help":
        return [*parser.COMMANDS, "states"]
    _, commands = parser.build("%agent")
    if command not in commands:
        return []
    offered = sorted(option for option in commands[command]._option_string_actions if option.startswith("--"))
    if command == "run" and len(words) == 2:
        return [*_workflows(shell), *offered]
    named = [action.dest for action in commands[command]._actions if not action.option_strings]
    return ["@last", *_ids(), *offered] if named[len(words) - 2 : len(words) - 1] == ["id"] else offered


def _workflows(shell: Any) -> list[str]:
    """The workflows that the notebook defines."""
    from ipyagent_sessions.run.definitions import Workflow

    return [name for name, value in shell.user_ns.items() if isinstance(value, Workflow) and not name.startswith("_")]


def _ids() -> list[str]:
    """The ids of the newest sessions."""
    from ipyagent_sessions.store import Store

    return [listed.session_id for listed in Store().sessions()[:20]]
