"""Each file of a session's log by itself, compared with the log as a whole.

What a file has lost matters only if no other file holds it: a journal is kept for one seal after its events were sealed.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.events import Event, encode
from ipyagent_sessions.log import segment_reader
from ipyagent_sessions.log.format import Damage, scan
from ipyagent_sessions.log.layout import JournalFile, Layout, SegmentFile
from ipyagent_sessions.log.reader import cut_of, segment_end, seqs
from ipyagent_sessions.verify.finding import COPY, Finding

_KINDS: Final = {
    "torn": "an unfinished event",
    "nul": "a run of zero bytes",
    "glued": "two records without a line feed between them",
    "checksum": "an event that does not match its checksum",
    "malformed": "bytes that are no event",
}


class Sums:
    """The checksum of each event of a log, by seq: 4 bytes an event."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._sums = array("q")

    def add(self, event: Event, body: bytes) -> None:
        """Note the event that the log holds under its seq; seqs come in order."""
        self._sums.extend([-1] * (event.seq - self.first - len(self._sums)))
        self._sums.append(zlib.crc32(body))

    @property
    def last(self) -> int:
        return self.first + len(self._sums) - 1

    def get(self, seq: int) -> int | None:
        """The checksum, None when the log has no such event."""
        at = seq - self.first
        return self._sums[at] if 0 <= at < len(self._sums) and self._sums[at] >= 0 else None

    def whole(self, first: int, last: int) -> bool:
        """Whether the log has all events `first` to `last`."""
        return all(self.get(seq) is not None for seq in range(first, last + 1))


def check(layout: Layout, sums: Sums, *, held: bool) -> list[Finding]:
    """What is wrong with the segments and journals of a session whose log, read as a whole, is `sums`."""
    journals = layout.journals()
    found: list[Finding] = []
    for segment in layout.segments():
        found += _segment(layout, segment, journals, sums)
    for journal in journals:
        found += _journal(layout, journal, journals, sums, held=held)
    return found + list(_leftovers(layout, held=held))


def _segment(layout: Layout, segment: SegmentFile, journals: list[JournalFile], sums: Sums) -> Iterator[Finding]:
    name, session = f"events/{segment.path.name}", layout.root.name
    damage: list[Damage | str] = []
    end = segment_end(segment, journals)
    try:
        owner = segment_reader.owners(segment.path)
        events = list(_compared(segment_reader.read(segment.path, damage=damage), end, sums))
    except FileNotFoundError:  # merged into another one since it was listed
        return
    except DamageError as error:
        events, owner = [], [session]
        damage.append(error.message)
    if owner != [session]:
        yield _damage(session, name, "column session_id", f"it says {', '.join(owner)[:80]}", "a query counts it elsewhere")
    for text in dict.fromkeys(str(d).removeprefix(f"{segment.path.name}: ") for d in damage):
        lost = not sums.whole(segment.first, end)
        yield Finding(
            session,
            name,
            seqs(segment.first, segment.last),
            text,
            "events of it are lost" if lost else "nothing is lost: another file holds the same events",
            COPY if lost else "nothing; it goes when the session rests next",
            "damage" if lost else "note",
        )
    yield from (_disagrees(session, name, f"event {seq}") for seq in events if seq > 0)


def _journal(
    layout: Layout, journal: JournalFile, journals: list[JournalFile], sums: Sums, *, held: bool
) -> Iterator[Finding]:
    name, session = journal.path.name, layout.root.name
    try:
        data = journal.path.read_bytes()
    except FileNotFoundError:  # sealed away
        return
    cut = cut_of(journal.epoch, journals)
    newest = journal == journals[-1]
    before, pending, fenced, again = journal.first - 1, list[Damage](), 0, list[int]()
    for item in scan(data, name):
        if isinstance(item, Damage):
            pending.append(item)
            continue
        event = item[1]
        if event.seq > sums.last:  # written since the log was read as a whole
            break
        if cut is not None and event.seq >= cut:
            fenced += 1
            continue
        yield from (_stretch(session, data, d, before, event.seq, sums) for d in pending)
        pending = []
        if event.seq != before + 1 and not sums.whole(before + 1, event.seq - 1):
            yield _damage(session, name, f"event {event.seq}", f"it follows event {before}", "the events between are missing")
        if sums.get(event.seq) != zlib.crc32(encode(event)):
            yield _disagrees(session, name, f"line {_line(data, item[0] - 1)}, event {event.seq}")
        if event.seq <= before:
            again.append(event.seq)
        before = max(before, event.seq)
    for damage in pending:
        if newest and damage.kind in ("torn", "nul"):
            if not held:
                yield _tail(session, data, damage, before)
        else:
            yield _stretch(session, data, damage, before, cut if cut is not None else before + 2, sums)
    if again:
        what = "they stand here again" if len(again) > 1 else "it stands here again"
        yield Finding(session, name, seqs(min(again), max(again)), what, "each counts once", "nothing", "note")
    if fenced:
        what = f"{fenced} events written after epoch {journal.epoch} had ended"
        yield Finding(session, name, f"from event {cut}", what, "a fenced holder's; they do not count", "nothing", "note")


def _compared(events: Iterator[Event], end: int, sums: Sums) -> Iterator[int]:
    """The seqs of the events that count and differ from the log's, 0 for each other one."""
    for event in events:
        counts = event.seq <= end and sums.get(event.seq) is not None
        yield event.seq if counts and sums.get(event.seq) != zlib.crc32(encode(event)) else 0


def _stretch(session: str, data: bytes, damage: Damage, before: int, after: int, sums: Sums) -> Finding:
    """Damage between the events `before` and `after` of a journal."""
    lost = after > before + 1 and not sums.whole(before + 1, after - 1)
    place = f"byte {damage.offset} ({damage.length} bytes), line {_line(data, damage.offset)}, after event {before}"
    return Finding(
        session,
        damage.file,
        place,
        _KINDS[damage.kind],
        f"{seqs(before + 1, after - 1)} lost" if lost else "nothing is lost: no event that counts was there",
        COPY if lost else "nothing",
        "damage" if lost else "note",
    )


def _tail(session: str, data: bytes, damage: Damage, before: int) -> Finding:
    return Finding(
        session,
        damage.file,
        f"byte {damage.offset} ({damage.length} bytes), line {_line(data, damage.offset)}, after event {before}",
        f"{_KINDS[damage.kind]} at the end",
        "normal after a crash: it was never acknowledged",
        "nothing; whoever takes the lease next sets it aside and says so",
        "note",
    )


def _leftovers(layout: Layout, *, held: bool) -> Iterator[Finding]:
    folders = (layout.root, layout.events, layout.checkpoints, layout.blobs)
    for path in [p for folder in folders if folder.is_dir() and not held for p in folder.glob("*.tmp")]:
        yield _note(layout, path, "a file that was not finished", "a crash left it; it goes when a task runs next")
    if layout.damaged.is_dir():
        for path in sorted(layout.damaged.iterdir()):
            yield _note(
                layout, path, f"{path.stat().st_size} bytes set aside", "cut from a damaged file, kept for you to look at"
            )


def _note(layout: Layout, path: Path, what: str, means: str) -> Finding:
    return Finding(layout.root.name, path.relative_to(layout.root).as_posix(), "", what, means, "nothing", "note")


def _damage(session: str, name: str, place: str, what: str, means: str) -> Finding:
    return Finding(session, name, place, what, means, COPY)


def _disagrees(session: str, name: str, place: str) -> Finding:
    return _damage(
        session, name, place, "it differs from the event of the same seq in another file", "one of them was changed"
    )


def _line(data: bytes, offset: int) -> int:
    return data.count(b"\n", 0, offset) + 1
