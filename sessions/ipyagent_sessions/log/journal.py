"""The writer of a journal: append, flush, rotate.

`append` takes a line into memory.  `flush` makes everything appended so far durable: blobs first, then one write and one sync,
then a look whether a newer epoch fences this one.  Only after that is anything acknowledged.

When a write or a sync fails, the file is cut back to its last durable byte and the lines stay in memory: the next flush writes
them again, in order.  A failed sync is never simply repeated, since the kernel may have dropped the pages.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from ipyagent_sessions.errors import LeaseLost, PersistenceError
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.log.files import Disk, sync_folder
from ipyagent_sessions.log.layout import JournalFile, Layout
from ipyagent_sessions.log.lease import Lease

SEAL_EVENTS: Final = 8192
SEAL_BYTES: Final = 8 * 2**20
BACKLOG_EVENTS: Final = 20_000
BACKLOG_BYTES: Final = 32 * 2**20
"""A journal is sealed at the first of the two SEAL bounds; what is not yet durable never exceeds the two BACKLOG bounds."""


class Journal:
    """The open journal of one holder.  Safe to use from several threads."""

    def __init__(self, layout: Layout, lease: Lease, first: int, blobs: Blobs, disk: Disk,
                 on_rotate: Callable[[JournalFile], None]) -> None:
        self.durable_seq = first - 1
        self.pending = 0
        self.pending_bytes = 0
        self._layout = layout
        self._lease = lease
        self._blobs = blobs
        self._disk = disk
        self._on_rotate = on_rotate
        self._mutex = threading.Lock()
        self._io = threading.Lock()
        self._lines: list[bytes] = []
        self._new_blobs: dict[str, bytes] = {}
        self._unsynced: list[bytes] = []
        self._unsynced_blobs: dict[str, bytes] = {}
        self._last_seq = first - 1
        self._open(first)

    def _open(self, first: int) -> None:
        """Create the journal that begins at `first`; that it must not exist makes an epoch exclusive."""
        path = self._layout.journal(self._lease.epoch, first)
        self._disk.seam("before epoch created")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        sync_folder(self._layout.root)
        self._disk.seam("after epoch created")
        self.file = JournalFile(self._lease.epoch, first, path)
        self._durable_bytes = 0
        self._torn = False

    def append(self, seq: int, line: bytes, blobs: dict[str, bytes] | None = None) -> None:
        """Take the line of event `seq`, the next one, and the blobs it names."""
        with self._mutex:
            self._lines.append(line)
            self._last_seq = seq
            self.pending += 1
            self.pending_bytes += len(line)
            if blobs:
                self._new_blobs.update(blobs)
                self.pending_bytes += sum(map(len, blobs.values()))

    @property
    def backlog_full(self) -> bool:
        """Whether no more may be appended before a flush succeeds."""
        return self.pending >= BACKLOG_EVENTS or self.pending_bytes >= BACKLOG_BYTES

    def flush(self) -> None:
        """Make everything appended so far durable.

        Raises PersistenceError when the disk refuses (nothing is lost, and a later flush tries again), LeaseLost when a newer
        epoch exists (what was flushed now is not acknowledged).
        """
        with self._io:
            with self._mutex:
                lines, self._lines = self._lines, []
                if self._new_blobs:
                    self._unsynced_blobs.update(self._new_blobs)
                    self._new_blobs = {}
                last = self._last_seq
            self._unsynced += lines
            if self._unsynced:
                self._write_out()
                with self._mutex:
                    self.pending, self.pending_bytes = len(self._lines), sum(map(len, self._lines))
                self.durable_seq = last
            if self._lease.fenced():
                raise LeaseLost(f"session {self._layout.root.name} was taken over by a newer holder",
                                hint="this task goes on there; nothing more is written from here")
            full = last - self.file.first + 1 >= SEAL_EVENTS or self._durable_bytes >= SEAL_BYTES
            if full:
                self._rotate(last + 1)

    def _write_out(self) -> None:
        data = b"".join(self._unsynced) if len(self._unsynced) > 1 else self._unsynced[0]
        try:
            while self._unsynced_blobs:
                name, body = next(iter(self._unsynced_blobs.items()))
                self._blobs.write(name, body, self._disk)
                del self._unsynced_blobs[name]
            if self._torn:
                os.ftruncate(self._fd, self._durable_bytes)
            self._torn = True
            self._disk.append(self._fd, data)
            self._disk.sync(self._fd)
        except OSError as error:
            raise PersistenceError(f"the log of session {self._layout.root.name} could not be written: {error.strerror or error}",
                                   hint="free some space or mend the disk; nothing recorded so far is lost") from error
        self._torn = False
        self._durable_bytes += len(data)
        self._unsynced = []

    def rotate(self) -> JournalFile | None:
        """Start a new journal and hand out the full one to be sealed; None when it is empty.  Call after a flush."""
        with self._io:
            if self.durable_seq < self.file.first:
                return None
            return self._rotate(self.durable_seq + 1)

    def _rotate(self, first: int) -> JournalFile:
        full, fd = self.file, self._fd
        self._open(first)
        os.close(fd)
        self._on_rotate(full)
        return full

    def close(self) -> None:
        """Close the file.  What was not flushed is dropped."""
        with self._io:
            os.close(self._fd)
