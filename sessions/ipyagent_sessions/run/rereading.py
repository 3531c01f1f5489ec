"""Events of the log one by one by their seq, for a body that runs again and asks for result after result.

Looking one up reads a row group of thousands of events.  Results are asked for about in the order in which they were recorded,
so the log is read once, in that order, and the last few megabytes of results are kept for those that come a little late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ipyagent_sessions.events import Event
from ipyagent_sessions.log.segments import GROUP
from ipyagent_sessions.session import Session

_KEPT_BYTES: Final = 4 * 2**20
_BEFORE: Final = 200
"""So many events before the first one are read as well: of calls that ran side by side the first asked for need not be it."""
_RESULTS: Final = frozenset({"ActivityCompleted", "ActivityFailed"})


class Rereader:
    """Reads the log of `session`.  For one thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._events: Iterator[Event] = iter(())
        self._at = -GROUP
        self._kept: dict[int, Event] = {}
        self._bytes = 0

    def event(self, seq: int) -> Event:
        """The event of that seq.  Raises NotFound."""
        found = self._kept.get(seq)
        if found is not None:
            return found
        if not self._at < seq <= self._at + GROUP:
            if seq <= self._at:  # long gone by: reading on from there would lose the place
                return self._session.event(seq)
            self._events = self._session.events(max(0, seq - 1 - _BEFORE))
        for event in self._events:
            self._at = event.seq
            if event.event_type in _RESULTS:
                self._keep(event)
            if event.seq == seq:
                return event
            if event.seq > seq:
                break
        return self._session.event(seq)

    def _keep(self, event: Event) -> None:
        self._kept[event.seq] = event
        self._bytes += len(memoryview(event.payload))
        while self._bytes > _KEPT_BYTES:
            oldest = next(iter(self._kept))
            self._bytes -= len(memoryview(self._kept.pop(oldest).payload))
