"""From a name to the workflow it means, and from text to the workflow's arguments."""

from __future__ import annotations

import inspect
import json
import sys
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipyagent_sessions.agent.own import AgentWorkflow, is_agent
from ipyagent_sessions.commands import code
from ipyagent_sessions.commands.door import VARIABLE, Door
from ipyagent_sessions.commands.parser import RUN_OPTIONS
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.payloads import IMPORTED
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import SystemState


def find(door: Door, name: str) -> Workflow:
    """The workflow of a name in the notebook, or of `module:name`.  Raises UsageError saying what there is instead."""
    if ":" in name:
        found = code.imported(name)
    else:
        if door.namespace is None:
            raise UsageError(f"{name!r} is not importable", hint="in a terminal write module:name")
        if name not in door.namespace:
            known = sorted(k for k, v in door.namespace.items() if isinstance(v, Workflow) and not k.startswith("_"))
            raise UsageError(
                f"there is no {name!r} here",
                hint=f"workflows here: {', '.join(known)}"
                if known
                else "run the cell that defines it, decorated with @workflow",
            )
        found = door.namespace[name]
    if is_agent(found):
        return AgentWorkflow(found, name)
    if not isinstance(found, Workflow):
        raise UsageError(
            f"{name} is of type {type(found).__name__}, not a workflow", hint="decorate the async function with @workflow"
        )
    return found


def recorded(door: Door, session: Session, *, setup_cells: bool = False) -> Workflow:
    """The workflow that the session's task was started with.

    With `setup_cells` a terminal first runs the tagged cells of the notebook that the session names.  That is somebody's code:
    it needs a person who says so, and a session that was made in this store.  Raises UsageError saying what to do when it is
    not defined here.
    """
    system = session.state().system_state
    if is_foreign(system):
        raise UsageError(
            f"the turns of session {session.id} were {system.target}'s: nothing here can run them",
            hint=f"go on with {going_on(door, session)}",
        )
    module, _, name = system.target.partition(":")
    if module != "__main__":
        return find(door, system.target)
    if door.namespace is not None and name in door.namespace:
        return find(door, name)
    notebook = session.header.notebook
    ours = session.native
    if setup_cells and not ours:
        raise UsageError(
            f"session {session.id} was not made in this store: cells of the notebook it names are not run",
            hint="look at that notebook, and resume the task there",
        )
    terminal = door.namespace is None
    if setup_cells and terminal and notebook and Path(notebook).is_file() and code.run_setup_cells(Path(notebook)):
        found = getattr(sys.modules["__main__"], name, None)
        if isinstance(found, Workflow):
            return found
    where = code.defining_cell(Path(notebook), name) if notebook and ours else ""
    hint = f"run the cell that defines it{where and f' ({where})'}, then the same again"
    if terminal:
        hint = "resume it in its notebook" + (f" {notebook}" if notebook else "")
        if notebook and ours:
            tagged = f", or tag the cells there that define it {code.SETUP_TAG!r} and add --setup-cells"
            hint += f": of those tagged {code.SETUP_TAG!r} none does" if setup_cells else tagged
    raise UsageError(f"{name!r}, the workflow of session {session.id}, is not defined here", hint=hint)


def is_foreign(system: SystemState) -> bool:
    """Whether the task was another program's, of which a transcript tells."""
    return system.durability == IMPORTED


def going_on(door: Door, session: Session) -> str:
    """The commands by which a conversation goes on whose turns were another program's."""
    if session.in_replay:
        return f"a fork of it: {door.prefix} fork {session.id}"
    ended = session.state().system_state.status in ENDED
    return asking(door, session.id) if ended else f"{door.prefix} cancel {session.id}, then {asking(door, session.id)}"


def asking(door: Door, session: str) -> str:
    """The command that puts another prompt to the conversation of a session."""
    return f"{door.prefix} ask --session {session} ..." if door.prefix == "ipyagent" else f"%%agent --session {session}"


def arguments(
    workflow: Workflow, words: list[str], namespace: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """`--name value` pairs and positional values as the workflow's arguments, by the types it declares.

    `{name}` alone is the variable itself.  Raises UsageError naming the argument.
    """
    parameters = list(inspect.signature(workflow.function).parameters.values())[1:]
    types_of = _annotations(workflow)
    by_name = {p.name: p for p in parameters}
    free = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    rest = [w for i, w in enumerate(words) if not (w == "--" and i == 0)]
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            if len(args) >= len(free):
                raise UsageError(
                    f"{workflow.name} has no place for {word!r}", hint=f"its parameters are {workflow.parameters_text()}"
                )
            args.append(_value(word, types_of.get(free[len(args)]), free[len(args)], namespace))
            continue
        name, given, text = word[2:].partition("=")
        name = name.replace("-", "_")
        if name not in by_name and not takes_any:
            raise UsageError(
                f"{workflow.name} has no parameter {name!r}", hint=f"its parameters are {workflow.parameters_text()}"
            )
        if not given:
            if types_of.get(name) is bool and (not rest or rest[0].startswith("--")):
                text = "true"
            elif not rest:
                raise UsageError(f"--{name} needs a value")
            else:
                text = rest.pop(0)
        kwargs[name] = _value(text, types_of.get(name), name, namespace)
    for parameter in parameters[len(args) :]:
        if parameter.default is parameter.empty and parameter.name not in kwargs and parameter.name in RUN_OPTIONS:
            raise UsageError(
                f"{workflow.name} needs {parameter.name}",
                hint=f"--{parameter.name} is an option of this command: give the workflow's own behind --",
            )
    return tuple(args), kwargs


def _annotations(workflow: Workflow) -> dict[str, Any]:
    try:
        return typing.get_type_hints(workflow.function)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return {}


def _value(text: str, kind: Any, name: str, namespace: Mapping[str, Any] | None) -> Any:
    variable = VARIABLE.fullmatch(text)
    if variable is not None:
        if namespace is None or variable[1] not in namespace:
            raise UsageError(
                f"--{name}: there is no variable {variable[1]!r}", hint="write a value, or define the variable first"
            )
        return namespace[variable[1]]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        inner = [k for k in typing.get_args(kind) if k is not type(None)]
        if text.lower() in ("none", "null") and len(inner) < len(typing.get_args(kind)):
            return None
        kind = inner[0] if len(inner) == 1 else None
    try:
        if kind is str:
            return text
        if kind is bool:
            return {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}[text.lower()]
        if kind in (int, float):
            return kind(text)
        if kind is Path:
            return Path(text)
        if kind is None:
            return _literal(text)
        return json.loads(text)
    except (ValueError, KeyError, RecursionError) as error:
        wanted = getattr(kind, "__name__", str(kind))
        raise UsageError(f"--{name}: {text[:80]!r} is no {wanted}") from error


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
