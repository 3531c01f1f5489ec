"""From journals to segments: what happens to the tail of a log when it has grown, or when the session rests.

Sealing reads no state and keeps none: the folder says how far it has come, so it is safe to repeat after a crash at any point.
While a session is written to, a journal is removed one seal after its events were sealed, so that a reader who has just listed
it still finds it.  When the session rests it is removed at once: that is one moment, after which a reader lists again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from ipyagent_sessions.events import Event
from ipyagent_sessions.log import segment_reader, segments
from ipyagent_sessions.log.files import Disk
from ipyagent_sessions.log.format import Damage, scan_file
from ipyagent_sessions.log.layout import Layout, SegmentFile
from ipyagent_sessions.log.reader import Reader, journal_end

SEGMENT_EVENTS: Final = 65_536
SEGMENT_BYTES: Final = 4 * 2**20
"""A segment is closed when it holds so many events, or so many bytes of payload."""
SMALL: Final = 4096
SMALL_BYTES: Final = 4 * 2**20
"""Segments of fewer events and bytes are merged with their neighbours when the session rests, up to so many bytes."""


def sealed_until(layout: Layout) -> int:
    """The last seq that a segment holds, 0 when there is none."""
    return max((s.last for s in layout.segments()), default=0)


def seal(layout: Layout, until: int, epoch: int, first: int, disk: Disk) -> int:
    """Seal the durable events up to `until` that are not sealed yet; returns how many.  Raises OSError, DamageError.

    `first` is the session's first own seq.  Where events are missing the segments leave them out, so their names stay true.
    """
    done = max(sealed_until(layout), first - 1)
    remove_sealed_journals(layout, done)
    if until <= done:
        return 0
    return _seal(layout, Reader(layout, first).events(after=done, until=until), epoch, _open_after(layout, done), disk)


def seal_whole(
    layout: Layout, events: Iterable[Event], disk: Disk, *, session_id: str | None = None, opened: Iterable[str] = ()
) -> int:
    """Seal a log that comes from another session or from elsewhere; returns how many events.  Raises OSError.

    `session_id` is needed where the folder has another name yet, `opened` (the activities that are open before the first
    event) where the log goes on.  Epoch 0 is nobody's: a holder has a later one.
    """
    return _seal(layout, events, 0, set(opened), disk, session_id)


def _seal(
    layout: Layout, events: Iterable[Event], epoch: int, opened: set[str], disk: Disk, session_id: str | None = None
) -> int:
    count = 0
    for _, some in itertools.groupby(events, key=_Segments()):
        made = segments.seal(layout, some, epoch, opened, disk, session_id=session_id)
        count += made.last - made.first + 1
    return count


class _Segments:
    """Called with event after event: the number of the segment that each belongs to."""

    def __init__(self) -> None:
        self._number = self._events = self._bytes = self._last = 0

    def __call__(self, event: Event) -> int:
        full = self._events == SEGMENT_EVENTS or self._bytes >= SEGMENT_BYTES
        if full or event.seq != self._last + 1:
            self._number += 1
            self._events = self._bytes = 0
        self._events += 1
        self._bytes += len(memoryview(event.payload))
        self._last = event.seq
        return self._number


def merge_small(layout: Layout, epoch: int, disk: Disk) -> int:
    """Merge runs of small adjoining segments; returns how many files fewer there are.  Raises OSError, DamageError."""
    _remove_merged(layout)
    runs: list[list[SegmentFile]] = [[]]
    size = 0
    for segment in layout.segments():
        count, length = segment.last - segment.first + 1, segment.path.stat().st_size
        small = count < SMALL and length < SMALL_BYTES
        run = runs[-1]
        if not small or size + length > SMALL_BYTES or (run and run[-1].last + 1 != segment.first):
            runs.append([])
            size = 0
        if small:
            runs[-1].append(segment)
            size += length
    runs = [run for run in runs if len(run) > 1]
    for parts in runs:
        segments.merge(layout, parts, epoch, disk)
    return sum(len(parts) - 1 for parts in runs)


def _remove_merged(layout: Layout) -> None:
    """Remove the parts that a crash left beside the segment they were merged into, so that no other program counts twice."""
    found = layout.segments()
    for whole in found:
        inside = [
            s
            for s in found
            if s != whole
            and whole.first <= s.first
            and s.last <= whole.last
            and (s.first, s.last) != (whole.first, whole.last)
        ]
        if inside and len(list(segment_reader.read(whole.path, damage=[]))) == whole.last - whole.first + 1:
            for part in inside:
                part.path.unlink(missing_ok=True)


def _open_after(layout: Layout, seq: int) -> set[str]:
    """The activities that are open after `seq`, the end of a segment or the very beginning."""
    for segment in layout.segments():
        if segment.last == seq:
            return segment_reader.opened_after(segment, seq)
    return set()


def remove_sealed_journals(layout: Layout, done: int) -> None:
    """Remove journals whose events are all sealed, up to `done`; one with damage is kept aside, since what it lost is nowhere
    else.  Raises OSError, as where a file that somebody reads cannot be removed: the next seal tries again."""
    journals = layout.journals()
    for journal in journals:
        end = journal_end(journal, journals)
        if end is not None and end <= done:
            if any(isinstance(item, Damage) for item in scan_file(journal.path)):
                layout.damaged.mkdir(exist_ok=True)
                journal.path.replace(layout.damaged / journal.path.name)
            else:
                journal.path.unlink(missing_ok=True)
