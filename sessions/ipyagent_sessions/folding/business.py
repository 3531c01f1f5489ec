"""What the work is about: values, files."""

from __future__ import annotations

from typing import Any

import msgspec

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Event, payload_of
from ipyagent_sessions.folding.activities import emitted
from ipyagent_sessions.folding.reading import parsed
from ipyagent_sessions.state import State


def state_changed(state: State, event: Event) -> None:
    body: p.StateChanged = parsed(event)
    value: Any = msgspec.json.decode(body.value) if body.value_blob is None else {"$": "blob", "v": body.value_blob}
    state.business_state.large = state.business_state.large or body.value_blob is not None
    if event.activity_id is not None:
        emitted(state, event)
    if body.path == "current_goal":
        plain = value is None or isinstance(value, str)
        state.business_state.current_goal = value if plain else str(memoryview(body.value), "utf-8")
        return
    *parents, last = body.path.split(".")
    place = state.business_state.values
    for part in parents:
        child = place.setdefault(part, {})
        if not isinstance(child, dict):
            child = place[part] = {}
        place = child
    if body.op == "append":
        items = place.setdefault(last, [])
        if isinstance(items, list):
            items.append(value)
    else:
        place[last] = value


def file_written(state: State, event: Event) -> None:
    body: p.FileWritten = parsed(event)
    _holds(state, event, body)
    if event.activity_id is not None:
        emitted(state, event)


def file_rolled_back(state: State, event: Event) -> None:
    body: p.FileRolledBack = parsed(event)
    _holds(state, event, body)


def _holds(state: State, event: Event, body: p.FileWritten | p.FileRolledBack) -> None:
    if body.checksum is None:
        state.business_state.files.pop(body.path, None)
    else:
        state.business_state.files[body.path] = {"checksum": body.checksum, "size": body.size, "seq": event.seq}


def code_generated(state: State, event: Event) -> None:
    body = payload_of(event)
    listed = body.get("files_generated") if isinstance(body, dict) else None
    for file in (f for f in listed if isinstance(f, dict)) if isinstance(listed, list) else ():
        state.business_state.files[str(file.get("path"))] = {
            "checksum": file.get("checksum"),
            "lines": file.get("lines"),
            "seq": event.seq,
        }
    if event.activity_id is not None:
        emitted(state, event)
