"""The log of one session as a sequence of events, read while others write.

Sources are sealed segments and journals of several epochs.  They are ordered and de-duplicated by `seq` only, never by a clock.
For each seq the source of the newest epoch counts; a journal's lines count up to where a newer epoch begins.  What was read must
be contiguous; if it is not, or a file has just been sealed away, the folder is listed again.  A gap that stays is damage: it is
reported with its place and the rest is read all the same.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.events import Event
from ipyagent_sessions.log import segments
from ipyagent_sessions.log.format import Damage, scan
from ipyagent_sessions.log.layout import JournalFile, Layout, SegmentFile

_TRIES: Final = 5


class Tail(NamedTuple):
    """The end of the newest journal: its verified bytes, and what follows them."""

    journal: JournalFile
    good_bytes: int
    torn: Damage | None


class Reader:
    """Reads a session's own events (not those of its ancestors).  `damage` fills while reading."""

    def __init__(self, layout: Layout, first: int = 1) -> None:
        self.layout = layout
        self.first = first
        self.damage: list[Damage | str] = []
        self.missing: list[tuple[int, int]] = []

    def events(self, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """The events with `after` < seq <= `until`, in order.  Raises DamageError when no reading of the folder succeeds."""
        next_seq = max(after + 1, self.first)
        for attempt in range(_TRIES):
            self.damage.clear()
            self.missing.clear()
            last_try = attempt == _TRIES - 1
            try:
                for event in self._pass(next_seq, until, tolerate=last_try):
                    yield event
                    next_seq = event.seq + 1
            except (FileNotFoundError, _Gap):
                continue
            return
        raise DamageError(f"the files of session {self.layout.root.name} vanish while they are read",
                          hint="read again; if it stays, restore the folder from a copy")

    def _pass(self, next_seq: int, until: int | None, *, tolerate: bool) -> Iterator[Event]:
        """One reading of the folder.  Raises _Gap where events are missing, unless `tolerate`, which skips and reports them."""
        sealed = self.layout.segments()
        journals = self.layout.journals()
        for segment in _best(sealed, journals):
            if segment.last < next_seq:
                continue
            if until is not None and segment.first > until:
                return
            cut = _cut(segment.epoch, journals)
            stop = min(x for x in (segment.last, until, cut - 1 if cut else None) if x is not None)
            if stop < next_seq:
                continue
            for event in segments.read(segment.path, after=next_seq - 1, until=stop, damage=self.damage):
                next_seq = yield from self._next(event, next_seq, tolerate)
        for journal in journals:
            if until is not None and journal.first > until:
                continue
            cut = _cut(journal.epoch, journals)
            for item in scan(journal.path.read_bytes(), journal.path.name):
                if isinstance(item, Damage):
                    self.damage.append(item)
                    continue
                event = item[1]
                if event.seq < next_seq or (cut and event.seq >= cut) or (until is not None and event.seq > until):
                    continue
                next_seq = yield from self._next(event, next_seq, tolerate)
        end = _end(sealed, journals)
        end = end if until is None else min(end, until)
        if next_seq <= end:
            if not tolerate:
                raise _Gap
            self.missing.append((next_seq, end))

    def _next(self, event: Event, next_seq: int, tolerate: bool) -> Generator[Event, None, int]:
        """Yield `event` if it is new; returns the seq after it."""
        if event.seq > next_seq:
            if not tolerate:
                raise _Gap
            self.missing.append((next_seq, event.seq - 1))
        if event.seq >= next_seq:
            yield event
            return event.seq + 1
        return next_seq

    def last_seq(self) -> int:
        """The newest seq, `first - 1` when there is none."""
        journals = self.layout.journals()
        ends = [min(s.last, (_cut(s.epoch, journals) or s.last + 1) - 1) for s in self.layout.segments()]
        last = max([self.first - 1, *ends])
        for event in self.events(after=last):
            last = event.seq
        return last

    def tail(self) -> Tail | None:
        """The end of the newest journal, None when there is no journal."""
        journals = self.layout.journals()
        if not journals:
            return None
        journal = journals[-1]
        data = journal.path.read_bytes()
        good, kind = 0, ""
        for item in scan(data, journal.path.name):
            if isinstance(item, Damage):
                kind = kind or item.kind
            else:
                good, kind = item[0], ""
        return Tail(journal, good, Damage(journal.path.name, good, len(data) - good, kind) if kind else None)


class _Gap(Exception):
    """The files that were listed do not hold the next event (any more, or yet)."""


def _cut(epoch: int, journals: list[JournalFile]) -> int | None:
    """The seq from which on lines of `epoch` are ignored, since a newer epoch begins there."""
    return min((j.first for j in journals if j.epoch > epoch), default=None)


def _end(sealed: list[SegmentFile], journals: list[JournalFile]) -> int:
    """The last seq that must exist, by the names of the files: the newest journal begins behind it."""
    ends = [min(s.last, (_cut(s.epoch, journals) or s.last + 1) - 1) for s in sealed]
    return max([0, *ends, *(j.first - 1 for j in journals[-1:])])


def _best(sealed: list[SegmentFile], journals: list[JournalFile]) -> list[SegmentFile]:
    """The segments to read, in order: of overlapping ones the newest epoch first, then the longest."""
    chosen: list[SegmentFile] = []
    for segment in sorted(sealed, key=lambda s: (-s.epoch, s.first, -s.last)):
        if not any(c.first <= segment.first and segment.last <= c.last for c in chosen):
            chosen.append(segment)
    return sorted(chosen, key=lambda s: s.first)
