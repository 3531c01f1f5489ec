"""The log of one session as a sequence of events, read while others write.

Sources are sealed segments and journals of several epochs.  They are ordered and de-duplicated by `seq` only, never by a
clock. For each seq the source of the newest epoch counts; a journal's lines count up to where a newer epoch begins.  What was
read must be contiguous; if it is not, or a file has just been sealed away, the folder is listed again.  A gap that stays is
damage: it is reported with its place and the rest is read all the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.events import Event
from ipyagent_sessions.log import segment_reader
from ipyagent_sessions.log.format import Damage, event_of, scan, scan_file
from ipyagent_sessions.log.layout import JournalFile, Layout, SegmentFile

_TRIES: Final = 5
_END: Final = 16 * 2**10


class Tail(NamedTuple):
    """The end of the newest journal: its verified bytes, and what follows them."""

    journal: JournalFile
    good_bytes: int
    torn: Damage | None


class Reader:
    """Reads a session's own events (not those of its ancestors), one reading at a time.  `damage` fills while reading."""

    def __init__(self, layout: Layout, first: int = 1) -> None:
        self.layout = layout
        self.first = first
        self.damage: list[Damage | str] = []
        self.missing: list[tuple[int, int]] = []
        self._next = first

    def events(self, after: int = 0, until: int | None = None) -> Iterator[Event]:
        """The events with `after` < seq <= `until`, in order.  Raises DamageError when no reading of the folder succeeds."""
        self._next = max(after + 1, self.first)
        for attempt in range(_TRIES):
            self.damage.clear()
            self.missing.clear()
            try:
                yield from self._pass(until, tolerate=attempt == _TRIES - 1)
            except (FileNotFoundError, _Gap):
                continue
            return
        raise DamageError(
            f"the files of session {self.layout.root.name} vanish while they are read",
            hint="read again; if it stays, restore the folder from a copy",
        )

    def _pass(self, until: int | None, *, tolerate: bool) -> Iterator[Event]:
        """One reading of the folder.  Raises _Gap where events are missing; with `tolerate` it skips and reports them."""
        sealed = self.layout.segments()
        journals = self.layout.journals()
        for segment in _best(sealed, journals):
            if segment.last < self._next:
                continue
            if until is not None and segment.first > until:
                return
            end = segment_end(segment, journals)
            stop = end if until is None else min(end, until)
            if stop < self._next:
                continue
            yield from self._counting(
                segment_reader.read(segment.path, after=self._next - 1, until=stop, damage=self.damage), stop, tolerate
            )
        for journal in journals:
            last = journal_end(journal, journals)
            if (until is not None and journal.first > until) or (last is not None and last < self._next):
                continue
            cut = cut_of(journal.epoch, journals)
            stop = min(segment_reader.LAST if cut is None else cut - 1, segment_reader.LAST if until is None else until)
            for found in scan_file(journal.path):
                if isinstance(found, Damage):
                    self.damage.append(found)
                elif self._all_count(found, stop):
                    yield from found
                else:
                    yield from self._counting(found, stop, tolerate)
        end = _end(sealed, journals)
        end = end if until is None else min(end, until)
        if self._next <= end:
            if not tolerate:
                raise _Gap
            self.missing.append((self._next, end))

    def _all_count(self, events: list[Event], stop: int) -> bool:
        """Whether `events` are just the next ones; they then count as yielded."""
        end = self._next + len(events)
        if end - 1 > stop or [event.seq for event in events] != list(range(self._next, end)):
            return False
        self._next = end
        return True

    def _counting(self, events: Iterable[Event], stop: int, tolerate: bool) -> Iterator[Event]:
        """Those up to `stop` that were not yielded yet.  Notes what is missing before each, or raises _Gap."""
        for event in events:
            if not self._next <= event.seq <= stop:
                continue
            if event.seq > self._next:
                if not tolerate:
                    raise _Gap
                self.missing.append((self._next, event.seq - 1))
            self._next = event.seq + 1
            yield event

    def last_seq(self) -> int:
        """The newest seq, `first - 1` when there is none."""
        journals = self.layout.journals()
        ends = [segment_end(segment, journals) for segment in self.layout.segments()]
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
        if (size := _whole_bytes(journal.path)) is not None:
            return Tail(journal, size, None)
        data = journal.path.read_bytes()
        good, kind = 0, ""
        for item in scan(data, journal.path.name):
            if isinstance(item, Damage):
                kind = kind or item.kind
            else:
                good, kind = item[0], ""
        return Tail(journal, good, Damage(journal.path.name, good, len(data) - good, kind) if kind else None)


def _whole_bytes(path: Path) -> int | None:
    """The size of a journal whose last line verifies, by a look at its end; None when that does not show it."""
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _END))
        end = file.read()
        size = file.tell()
    line = end[end.rfind(b"\n", 0, -1) + 1 : -1]
    return size if end.endswith(b"\n") and event_of(line) is not None else None


def seqs(first: int, last: int) -> str:
    """The events `first` to `last`, in words."""
    return f"event {first}" if first == last else f"events {first} to {last}"


class _Gap(Exception):
    """The files that were listed do not hold the next event (any more, or yet)."""


def cut_of(epoch: int, journals: list[JournalFile]) -> int | None:
    """The seq from which on lines of `epoch` are ignored, since a newer epoch begins there."""
    return min((j.first for j in journals if j.epoch > epoch), default=None)


def segment_end(segment: SegmentFile, journals: list[JournalFile]) -> int:
    """The last seq of `segment` that counts."""
    cut = cut_of(segment.epoch, journals)
    return segment.last if cut is None else min(segment.last, cut - 1)


def journal_end(journal: JournalFile, journals: list[JournalFile]) -> int | None:
    """The last seq that counts in `journal`, by the names of those that follow it; None for the newest one."""
    ends = [j.first for j in journals if j.epoch > journal.epoch or (j.epoch == journal.epoch and j.first > journal.first)]
    return min(ends) - 1 if ends else None


def _end(sealed: list[SegmentFile], journals: list[JournalFile]) -> int:
    """The last seq that must exist, by the names of the files: the newest journal begins behind it."""
    ends = [segment_end(segment, journals) for segment in sealed]
    return max([0, *ends, *(j.first - 1 for j in journals[-1:])])


def _best(sealed: list[SegmentFile], journals: list[JournalFile]) -> list[SegmentFile]:
    """The segments to read, in order: of overlapping ones the newest epoch first, then the longest."""
    chosen: list[SegmentFile] = []
    for segment in sorted(sealed, key=lambda s: (-s.epoch, s.first, -s.last)):
        if not any(c.first <= segment.first and segment.last <= c.last for c in chosen):
            chosen.append(segment)
    return sorted(chosen, key=lambda s: s.first)


class Piece(NamedTuple):
    """A file of a session's log and which of its events count: `first` to `last`, or to its end when `last` is None.

    `sealed` says whether it is a segment; `whole` that all events of the segment count.
    """

    path: Path
    first: int
    last: int | None
    sealed: bool
    whole: bool


def pieces(layout: Layout, first: int = 1) -> list[Piece]:
    """What a session's log consists of now, in order and without overlap between segments: for readers of whole files.

    A journal can repeat what a segment holds and go on behind it; whoever reads it takes the events from where the piece
    before ended.  Journals that hold nothing more are left out.
    """
    sealed, journals = layout.segments(), layout.journals()
    found: list[Piece] = []
    next_seq = first
    for segment in _best(sealed, journals):
        start, stop = max(segment.first, next_seq), segment_end(segment, journals)
        if start <= stop:
            found.append(Piece(segment.path, start, stop, True, (start, stop) == (segment.first, segment.last)))
            next_seq = stop + 1
    for journal in journals:
        last = journal_end(journal, journals)
        if last is None or last >= max(next_seq, journal.first):
            found.append(Piece(journal.path, max(next_seq, journal.first), last, False, False))
    return found
