"""What sessions share, as plain functions for an agent's tools: texts in, JSON-like data out, one namespace."""

from __future__ import annotations

from typing import Any, Final

from ipyagent_sessions.memory.memory import Memory

_SHOWN: Final = 20


class Notes:
    """An agent's notes in one namespace.  `by` is recorded with each.  Reading has no effect; writing is idempotent."""

    def __init__(self, memory: Memory, namespace: str, *, by: str = "agent") -> None:
        self._memory = memory
        self._namespace = namespace
        self._by = by

    def remember(self, key: str, text: str) -> str:
        """Keep a note for later conversations under a short name; one of the same name is replaced."""
        self._memory.put(self._namespace, key, text, by=self._by)
        return f"kept under {key!r}"

    def recall(self, about: str = "") -> list[dict[str, Any]]:
        """The newest notes whose name or text holds `about`; all without it."""
        found = self._memory.search(self._namespace, text=about, limit=_SHOWN)
        return [{"name": item.key, "note": item.value, "kept_at": item.at} for item in found]

    def forget(self, key: str) -> str:
        """Remove a note."""
        return "removed" if self._memory.delete(self._namespace, key, by=self._by) else f"there is no note {key!r}"
