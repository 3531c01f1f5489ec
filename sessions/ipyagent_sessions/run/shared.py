"""`ctx.store`: what sessions share, for the body of a workflow.

A read is an activity without an effect: its value is recorded, so a body that runs again sees what it saw.  A write is an
idempotent activity: its id goes with it, so that one that was done before a crash is not done over what others wrote since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ipyagent_sessions.memory.memory import Memory
from ipyagent_sessions.run.calls import Call
from ipyagent_sessions.run.inside import current


class Shared:
    """The same calls as `Memory` has; await each.  `call` tells apart what is open at once, as `key` does in `ctx.run`."""

    def __init__(self, run: Callable[..., Call], memory: Memory) -> None:
        self._run = run
        self._memory = memory

    def get(self, namespace: str, key: str, default: Any = None, *, call: Any = None) -> Call:
        """The value under `key`, or `default`, as it was when this was first asked."""
        return self._run(self._get, namespace, key, default, key=call, effect="none", name="store.get")

    def search(
        self, namespace: str = "", *, text: str = "", fields: dict[str, Any] | None = None, limit: int = 100, call: Any = None
    ) -> Call:
        """What fits, newest first, as objects with namespace, key, value, at, expires and by."""
        return self._run(self._search, namespace, text, fields or {}, limit, key=call, effect="none", name="store.search")

    def put(self, namespace: str, key: str, value: Any, *, ttl: str | float | None = None, call: Any = None) -> Call:
        """Keep `value` under `key`."""
        return self._run(self._put, namespace, key, value, ttl, key=call, effect="idempotent", name="store.put")

    def delete(self, namespace: str, key: str, *, call: Any = None) -> Call:
        """Remove an entry, if there is one."""
        return self._run(self._delete, namespace, key, key=call, effect="idempotent", name="store.delete")

    def _get(self, namespace: str, entry: str, default: Any) -> Any:
        return self._memory.get(namespace, entry, default)

    def _search(self, namespace: str, text: str, fields: dict[str, Any], limit: int) -> list[dict[str, Any]]:
        found = self._memory.search(namespace, text=text, fields=fields, limit=limit)
        return [{name: getattr(item, name) for name in item.__struct_fields__} for item in found]

    def _put(self, namespace: str, entry: str, value: Any, ttl: str | float | None) -> None:
        by, write_id = self._who()
        self._memory.put(namespace, entry, value, ttl=ttl, by=by, write_id=write_id)

    def _delete(self, namespace: str, entry: str) -> None:
        by, write_id = self._who()
        self._memory.delete(namespace, entry, by=by, write_id=write_id)

    def _who(self) -> tuple[str, str]:
        """Who writes, and the id of the write: of the activity that this runs in."""
        here = current()
        assert here is not None
        return here.run.task_id, f"{here.run.task_id}/{here.plan.id}"
