"""The rows of all sessions in memory: filtered, sorted and cut into pages without touching a file.

It belongs to the event loop: only there it is read and changed, so it needs no lock.  Its memory is bounded by the number of
entries (the sessions that changed last are kept) and by the length of their texts (`reading`).
"""

from __future__ import annotations

import base64
import binascii
import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_lab.reading import Entry
from ipyagent_lab.shapes import SORTS, Counts, Page, Row
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.serving.following import EMPTY

LIMIT: Final = 50_000
NEEDS_YOU: Final = "needs_you"
_STARTING: Final = 16

_KEYS: Final[dict[str, Callable[[Row], Any]]] = {
    "updated": lambda row: row.updated_at,
    "created": lambda row: row.created_at,
    "title": lambda row: row.title.casefold(),
    "cost": lambda row: row.cost_usd,
}


class Query(Struct):
    """What a page of the list is asked for.  `state` are effective states, or `needs_you`; empty means any."""

    limit: int = 100
    cursor: str = ""
    q: str = ""
    state: tuple[str, ...] = ()
    notebook: str | None = None
    model: str | None = None
    sort: str = "-updated"


class Index:
    """`revision` grows with every change."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.revision = 0
        self.filling = True
        self.left_out = 0
        self._limit = limit
        self._entries: dict[str, Entry] = {}
        self._by_state: dict[str, set[str]] = {}
        self._children: dict[str, set[str]] = {}
        self._sorted: dict[str, tuple[int, list[str]]] = {}
        self._counts: tuple[int, Counts] | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._entries

    def get(self, session_id: str) -> Entry | None:
        return self._entries.get(session_id)

    # Changes

    def put(self, entry: Entry) -> bool:
        """Take an entry; whether its row is new or differs.  In a full index the one that changed longest ago goes."""
        session_id = entry.row.session_id
        known = self._entries.get(session_id)
        if known is None and len(self._entries) >= self._limit:
            oldest = min(self._entries.values(), key=lambda e: e.stamp)
            self.left_out += 1
            if oldest.stamp >= entry.stamp:
                return False
            self.drop(oldest.row.session_id)
        if known is not None:
            self._by_state[known.logged].discard(session_id)
            self._leave_parent(known)
        self._by_state.setdefault(entry.logged, set()).add(session_id)
        self._entries[session_id] = entry
        if entry.row.parent is not None:
            self._children.setdefault(entry.row.parent, set()).add(session_id)
        if known is not None and known.row == entry.row:
            return False
        self.revision += 1
        return True

    def amend(self, session_id: str, state: str, silent_since: float | None, problem: str) -> bool:
        """Take over what somebody saw of a session that its files do not say; whether its row differs now."""
        entry = self._entries.get(session_id)
        if entry is None or (entry.row.state, entry.row.silent_since, entry.row.problem) == (state, silent_since, problem):
            return False
        entry.row.state, entry.row.silent_since, entry.row.problem = state, silent_since, problem
        self.revision += 1
        return True

    def drop(self, session_id: str) -> bool:
        """Forget a session that is gone; whether it was known."""
        gone = self._entries.pop(session_id, None)
        if gone is None:
            return False
        self._by_state[gone.logged].discard(session_id)
        self._leave_parent(gone)
        self.revision += 1
        return True

    def _leave_parent(self, entry: Entry) -> None:
        if entry.row.parent is not None:
            siblings = self._children.get(entry.row.parent, set())
            siblings.discard(entry.row.session_id)
            if not siblings:
                self._children.pop(entry.row.parent, None)

    # Questions

    def children(self, session_id: str) -> list[str]:
        """The ids of the sessions forked from this one."""
        return sorted(self._children.get(session_id, ()))

    def running(self) -> list[str]:
        """The sessions whose log says that a task runs."""
        return sorted(self._by_state.get(TaskState.RUNNING.value, ()))

    def starting(self) -> list[str]:
        """The sessions without a task, or with one that has not begun; the few that changed last, newest first."""
        made = self._by_state.get("", set()) | self._by_state.get(TaskState.QUEUED.value, set())
        found = [(self._entries[i].stamp, i) for i in made if self._entries[i].row.state in (EMPTY, TaskState.QUEUED)]
        return [i for _, i in heapq.nlargest(_STARTING, found)]

    def waiting(self) -> list[str]:
        """The sessions with an unfinished task that the log does not call running, or with a question to a person."""
        unfinished = (TaskState.QUEUED, TaskState.SUSPENDED, TaskState.INTERRUPTED)
        return sorted(i for state in unfinished for i in self._by_state.get(state.value, ()))

    def ids(self) -> Iterable[str]:
        return self._entries.keys()

    def counts(self) -> Counts:
        if self._counts is None or self._counts[0] != self.revision:
            states = Counter(e.row.state for e in self._entries.values())
            needs = sum(e.row.needs_you > 0 for e in self._entries.values())
            self._counts = self.revision, Counts(len(self._entries), needs, dict(states))
        return self._counts[1]

    def page(self, query: Query) -> Page:
        """A page of the rows that fit.  Raises UsageError for a cursor or an order that this server did not give."""
        if query.sort not in SORTS:
            raise UsageError(f"there is no order {query.sort!r}", hint=f"one of {', '.join(SORTS)}")
        key, descending = _KEYS[query.sort.lstrip("-")], query.sort.startswith("-")
        rows = [row for row in self._in_order(query.sort) if _fits(row, query)]
        start = 0
        if query.cursor:
            after = _place(query.cursor, query.sort)
            places = enumerate((key(row), row.session_id) for row in rows)
            start = next((n for n, place in places if (place < after if descending else place > after)), len(rows))
        shown = rows[start : start + query.limit]
        more = start + query.limit < len(rows)
        cursor = _cursor(query.sort, key(shown[-1]), shown[-1].session_id) if more else None
        return Page(shown, cursor, len(rows), self.counts(), self.revision, self.filling, self.left_out)

    def _in_order(self, sort: str) -> list[Row]:
        known = self._sorted.get(sort)
        if known is None or known[0] != self.revision:
            key = _KEYS[sort.lstrip("-")]
            order = sorted(self._entries, key=lambda i: (key(self._entries[i].row), i), reverse=sort.startswith("-"))
            self._sorted[sort] = known = self.revision, order
        return [self._entries[i].row for i in known[1]]


def _fits(row: Row, query: Query) -> bool:
    if query.state and row.state not in query.state and not (NEEDS_YOU in query.state and row.needs_you):
        return False
    if query.notebook is not None and row.notebook != query.notebook:
        return False
    if query.model is not None and row.model != query.model:
        return False
    words = query.q.casefold().split()
    if not words:
        return True
    text = f"{row.title}\n{row.session_id}\n{row.target}\n{row.notebook or ''}\n{row.detail}\n{row.problem}".casefold()
    return all(word in text for word in words)


def _cursor(sort: str, key: Any, session_id: str) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([sort, key, session_id])).decode()


def _place(cursor: str, sort: str) -> tuple[Any, str]:
    kind = tuple[str, float, str] if sort.lstrip("-") == "cost" else tuple[str, str, str]
    try:
        made_for, key, session_id = from_json(base64.urlsafe_b64decode(cursor), kind)
    except (ValueError, binascii.Error, msgspec.DecodeError) as error:
        raise UsageError("the cursor is not one that this server gave", hint="start with the first page again") from error
    if made_for != sort:
        raise UsageError(f"the cursor belongs to the order {made_for!r}", hint="start with the first page again")
    return key, session_id
