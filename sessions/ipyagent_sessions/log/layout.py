"""Which file is where in a session's folder, and what its name says.

session.json                         written once
journal-<epoch>-<first_seq>.jsonl    the tail of the log
events/<first>-<last>-<epoch>.parquet
checkpoints/<seq>.json.zst
blobs/<sha256>
inbox/<id>.json
lease-<epoch>.lock, holder.json
live.json, summary.json
damaged/                             torn tails and fenced lines that were set aside
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final, NamedTuple

from ipyagent_sessions.log.files import sync_file

FORMAT: Final = 1
"""The format of a session's files, which its header carries.  A version that changes it, or that writes events which an older
one must not fold, raises the number in the header of a session before it first does so there: whoever reads looks at it first.
"""
_JOURNAL: Final = re.compile(r"journal-(\d+)-(\d+)\.jsonl")
LEASE: Final = re.compile(r"lease-(\d+)\.lock")
_SEGMENT: Final = re.compile(r"(\d+)-(\d+)-(\d+)\.parquet")


class JournalFile(NamedTuple):
    """A journal: written by the holder of `epoch`, its first event is `first`."""

    epoch: int
    first: int
    path: Path


class SegmentFile(NamedTuple):
    """A sealed segment of the events `first` to `last`, sealed by the holder of `epoch`."""

    first: int
    last: int
    epoch: int
    path: Path


class _Below:
    """A path below a session's folder, made when it is asked for: who looks at ten thousand sessions needs few of each."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __set_name__(self, owner: type[Layout], attribute: str) -> None:
        self._attribute = attribute

    def __get__(self, layout: Layout, owner: type[Layout]) -> Path:
        found = layout.__dict__[self._attribute] = layout.root / self._name
        return found


class Layout:
    """The paths of one session."""

    header = _Below("session.json")
    events = _Below("events")
    checkpoints = _Below("checkpoints")
    blobs = _Below("blobs")
    inbox = _Below("inbox")
    holder = _Below("holder.json")
    live = _Below("live.json")
    summary = _Below("summary.json")
    damaged = _Below("damaged")

    def __init__(self, root: Path) -> None:
        self.root = root

    def lease(self, epoch: int) -> Path:
        """The lock file of the holder of `epoch`.  That it exists for a newer epoch is what fences an older holder."""
        return self.root / f"lease-{epoch}.lock"

    def journal(self, epoch: int, first: int) -> Path:
        return self.root / f"journal-{epoch}-{first}.jsonl"

    def segment(self, first: int, last: int, epoch: int) -> Path:
        return self.events / f"{first:010d}-{last:010d}-{epoch}.parquet"

    def journals(self) -> list[JournalFile]:
        """The journals that exist, by epoch and first seq."""
        names = [m for name in os.listdir(self.root) if (m := _JOURNAL.fullmatch(name))]
        return sorted(JournalFile(int(m[1]), int(m[2]), self.root / m[0]) for m in names)

    def segments(self) -> list[SegmentFile]:
        """The sealed segments that exist, by first seq; of two with the same first the longer comes first."""
        try:
            names = [m for name in os.listdir(self.events) if (m := _SEGMENT.fullmatch(name))]
        except (FileNotFoundError, NotADirectoryError):
            return []
        found = [SegmentFile(int(m[1]), int(m[2]), int(m[3]), self.events / m[0]) for m in names]
        return sorted(found, key=lambda s: (s.first, -s.last, -s.epoch))

    def sync_tail(self) -> None:
        """Make the newest journal durable: whoever builds on its lines must not lose them again in a crash of the machine."""
        for journal in self.journals()[-1:]:
            with contextlib.suppress(FileNotFoundError), open(journal.path, "rb+") as file:
                sync_file(file.fileno())

    def epoch(self) -> int:
        """The newest epoch, 0 when nobody has held the lease yet.  The newest journal is never removed, so its name says."""
        return max((j.epoch for j in self.journals()), default=0)
