"""What sessions share, looked at and forgotten by a person."""

from __future__ import annotations

from typing import Any, Final

from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.exchange.values import as_text
from ipyagent_sessions.views.shown import Shown, Table

WIDE: Final = 120


def memory(door: Door, *, namespace: str, text: str, forget: str | None) -> Shown:
    """The entries of a namespace and those below it, newest first; with `forget` one of them is removed."""
    shared = door.store.memory
    if forget is not None:
        if not namespace:
            raise UsageError("--forget KEY needs its namespace", hint=f"{door.prefix} memory NAMESPACE --forget KEY")
        if not shared.delete(namespace, forget, by=door.actor):
            raise NotFound(f"there is no {forget!r} in {namespace}", hint=f"{door.prefix} memory lists what there is")
        return Shown(f"{namespace} {forget}: removed")
    problems = shared.problems()
    rows: list[list[Any]] = [
        [e.namespace, e.key, as_text(e.value), e.at, e.expires or "", e.by] for e in shared.entries(namespace, text=text)
    ]
    columns = ["namespace", "key", "value", "put", "until", "by"]
    empty = "sessions share nothing here yet"
    if problems or shared.keys():
        empty = f"of what sessions share, nothing {'here can be read' if problems else 'fits'}"
    return Table(columns, rows, empty="\n".join([empty, *problems]), note="\n".join(problems), width=WIDE)
