"""What sessions share, as an agent's tools need it: texts in, JSON-like data out, and a corner of its own to write to.

An agent may read what anybody put down; what it puts down itself lies below `notes/`, where it is in no workflow's way.
Values are read as they are stored, so no class is made of what somebody else wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ipyagent_sessions import events as ev
from ipyagent_sessions.memory.memory import Item, Memory

CORNER: Final = "notes"
_SHOWN: Final = 20
_LONGEST: Final = 2_000
"""Characters of one value that are given back."""


class Notes:
    """What an agent may do with the Store.  `by` is recorded with what it writes; `scrub` takes secrets out of it."""

    def __init__(self, memory: Memory, *, by: str, scrub: Callable[[str], str]) -> None:
        self._memory = memory
        self._by = by
        self._scrub = scrub

    def remember(self, namespace: str, key: str, value: str, *, call: str) -> str:
        """Keep a text; gives where it lies.  The same `call` again changes nothing.  Raises what `Memory.put` raises."""
        place = namespace if namespace.split("/")[0] == CORNER else f"{CORNER}/{namespace}"
        place, key, text = self._scrub(place), self._scrub(key), self._scrub(ev.clean(value)[0])
        self._memory.put(place, key, text, by=self._by, write_id=f"{self._by}/{call}")
        return f"{place} {key}"

    def recall(self, query: str = "", namespace: str = "") -> list[dict[str, Any]]:
        """The newest entries that hold every word of `query` in key or value.  Raises UsageError for a bad namespace."""
        found = self._memory.entries(namespace)
        for word in query.split():
            fitting = {(item.namespace, item.key) for item in self._memory.entries(namespace, text=word)}
            found = [item for item in found if (item.namespace, item.key) in fitting]
        return [_shown(item) for item in found[:_SHOWN]]


def _shown(item: Item) -> dict[str, Any]:
    value = item.value
    if not isinstance(value, bool | int | float | None):
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        value = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} [cut: {len(text):,} characters]"
    return {"namespace": item.namespace, "key": item.key, "value": value, "kept_at": item.at, "by": item.by}
