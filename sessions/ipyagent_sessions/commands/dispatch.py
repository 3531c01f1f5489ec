"""From the words of a line to the function that does it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Final

from ipyagent_sessions import events
from ipyagent_sessions.commands import ask, carry, check, health, look, outside, parser, shared, start
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.commands.follow import Screen
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.views import programs
from ipyagent_sessions.views.shown import Shown


def perform(door: Door, screen: Screen, options: argparse.Namespace) -> Any:
    """Do a parsed command.

    Returns a Shown, the Result of `sql`, or a TaskHandle or Ended for commands that run something.  Raises IpyagentError.
    """
    if options.command in STARTING:
        check.refuse_wrong(door)
    if options.command not in _WITHOUT_STORE and not door.store.exists():
        raise NotFound(
            f"there is no store at {door.store.root}",
            hint=f"IPYAGENT_STORE names another one; it is made by the first task: {door.prefix} run TARGET",
        )
    for name, said in vars(options).items():
        if name not in _AS_GIVEN:
            setattr(options, name, events.cleaned(said)[0])
    for name in _SAID:
        if said := getattr(options, name, None):
            setattr(options, name, door.without_secrets(said))
    return _COMMANDS[options.command](door, screen, options)


STARTING: Final = frozenset({"run", "ask", "resume", "rerun"})
"""Commands that start work."""

_SAID: Final = ("title", "session", "say", "reason", "arguments", "result", "label", "direction")
"""Options whose texts are stored."""

_AS_GIVEN: Final = frozenset({"file", "files", "check", "model", "target", "arguments"})
"""Options that may name files, whose names need not be text, and a workflow's values; of all others the words are cleaned."""

_WITHOUT_STORE: Final = frozenset(
    {"run", "ask", "import", "memory", "models", "tools", "gc", "ls", "doctor", "config", "help"}
)
"""What can be asked before there is a store."""


def _help(door: Door, screen: Screen, options: argparse.Namespace) -> Shown:
    return look.states() if options.topic == "states" else Shown(parser.help_of(door.prefix, options.topic))


def _sql(door: Door, screen: Screen, options: argparse.Namespace) -> Any:
    query = options.query.strip()
    if not query:
        raise UsageError("sql needs a query", hint=f'{door.prefix} sql "select event_type, count(*) from events group by 1"')
    result = door.store.sql(query)
    if options.format == "table":
        return result
    rows = result.rows()
    if result.problems:
        screen.final(Shown("\n".join(f"Not complete: {problem}" for problem in result.problems)))
    text = programs.as_json(rows) if options.format == "json" else programs.as_csv(result.columns, rows)
    return Shown(text, None, rows)


def _ask(door: Door, screen: Screen, options: argparse.Namespace) -> Any:
    from ipyagent_sessions.commands import converse  # the loop's library is slow to import

    return converse.ask(door, screen, options)


def _rollback(door: Door, screen: Screen, options: argparse.Namespace) -> Shown:
    from ipyagent_sessions.commands import back

    return back.roll_back(door, options)


def _models(door: Door, screen: Screen, options: argparse.Namespace) -> Shown:
    from ipyagent_sessions.commands import equipment

    return equipment.models(door)


def _tools(door: Door, screen: Screen, options: argparse.Namespace) -> Shown:
    from ipyagent_sessions.commands import equipment

    return equipment.tools(door)


_COMMANDS: Final[dict[str, Callable[[Door, Screen, argparse.Namespace], Any]]] = {
    "run": start.run,
    "ask": _ask,
    "resume": start.resume,
    "rerun": start.run_again,
    "fork": lambda door, screen, o: start.fork(door, o),
    "pause": lambda door, screen, o: ask.pause(door, door.session(o.id, current=True)),
    "cancel": lambda door, screen, o: ask.cancel(door, door.session(o.id, current=True), reason=o.reason),
    "approve": lambda door, screen, o: ask.answer(
        door,
        door.asked(o.id),
        approval=o.approval,
        approve=True,
        choice=o.choice,
        reason=o.reason,
        arguments=o.arguments,
        always=o.always,
        activity=o.activity,
        result=o.result,
    ),
    "deny": lambda door, screen, o: ask.answer(
        door, door.asked(o.id), approval=o.approval, approve=False, choice=None, reason=o.reason
    ),
    "checkpoint": lambda door, screen, o: ask.checkpoint(door, door.session(o.id), label=o.label),
    "rename": lambda door, screen, o: ask.rename(door, door.session(o.id), title=o.title),
    "ls": lambda door, screen, o: look.ls(door, everything=o.all),
    "status": lambda door, screen, o: look.status(door, door.session(o.id, current=True)),
    "log": lambda door, screen, o: look.log(door.session(o.id), last=o.last, event_type=o.type),
    "state": lambda door, screen, o: look.state(door.session(o.id), at=o.at),
    "checkpoints": lambda door, screen, o: look.checkpoints(door.session(o.id)),
    "effects": lambda door, screen, o: outside.effects(door, door.session(o.id), after=o.after),
    "rollback": _rollback,
    "replay": lambda door, screen, o: look.replay(door, door.session(o.id), to=o.to, last=o.last),
    "sql": _sql,
    "models": _models,
    "tools": _tools,
    "export": lambda door, screen, o: carry.export(door, o),
    "import": lambda door, screen, o: carry.bring_in(door, o),
    "memory": lambda door, screen, o: shared.memory(door, namespace=o.namespace, text=o.search, forget=o.forget),
    "gc": lambda door, screen, o: health.gc(door, yes=o.yes),
    "delete": lambda door, screen, o: health.delete(door, door.session(o.id, current=True), yes=o.yes),
    "verify": lambda door, screen, o: health.verify(door, o.id, repair=o.repair),
    "upgrade": lambda door, screen, o: health.upgrade(door, o.id, yes=o.yes),
    "doctor": lambda door, screen, o: check.doctor(door),
    "config": lambda door, screen, o: check.show_config(door, o.file),
    "help": _help,
}
