"""The writer of a journal: append, flush, rotate.

`append` takes a line into memory.  `flush` makes everything appended so far durable: blobs first, then one write and one sync,
then a look whether a newer epoch fences this one.  Only after that is anything acknowledged.

When a write or a sync fails, the file is cut back to its last durable byte and the lines stay in memory: the next flush writes
them again, in order.  A failed sync is never simply repeated, since the kernel may have dropped the pages.  Lines leave the
memory last of all, so an interrupt at any point can make the next flush write some of them twice, and never lose one; readers
count a seq once.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Final

from ipyagent_sessions.errors import LeaseLost, PersistenceError
from ipyagent_sessions.log import lease
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
    """The open journal of one holder.  Safe to use from several threads.

    `refused` says whether the disk did not take what was to be written last.
    """

    def __init__(
        self, layout: Layout, lease: Lease, first: int, blobs: Blobs, disk: Disk, on_rotate: Callable[[JournalFile], None]
    ) -> None:
        self.durable_seq = first - 1
        self._bytes = 0
        self._layout = layout
        self._lease = lease
        self._blobs = blobs
        self._disk = disk
        self._on_rotate = on_rotate
        self._mutex = threading.Lock()
        self._io = threading.Lock()
        self._lines: list[bytes] = []
        self._new_blobs: dict[str, bytes] = {}
        self._last_seq = first - 1
        self._fd = self._folder = -1
        self._closed = False
        self.refused = False
        self._open(first)

    def _open(self, first: int) -> None:
        """Create the journal that begins at `first`; that it must not exist makes an epoch exclusive.

        Raises OSError; the journal that was open stays so, and no file of the new name is left behind.
        """
        path = self._layout.journal(self._lease.epoch, first)
        self._disk.seam("before epoch created")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            sync_folder(self._layout.root)
            self._disk.seam("after epoch created")
        except BaseException:
            os.close(fd)
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self._fd = fd
        self._enter()
        self.file = JournalFile(self._lease.epoch, first, path)
        self._durable_bytes = 0
        self._torn = False

    def append(self, seq: int, line: bytes, blobs: dict[str, bytes] | None = None) -> None:
        """Take the line of event `seq`, the next one, and the blobs it names."""
        with self._mutex:
            self._lines.append(line)
            self._last_seq = seq
            self._bytes += len(line)
            if blobs:
                self._new_blobs.update(blobs)
                self._bytes += sum(map(len, blobs.values()))

    @property
    def pending(self) -> int:
        """How many events are not durable yet."""
        return len(self._lines)

    @property
    def backlog_full(self) -> bool:
        """Whether no more may be appended before a flush succeeds."""
        return len(self._lines) >= BACKLOG_EVENTS or self._bytes >= BACKLOG_BYTES

    def flush(self) -> None:
        """Make everything appended so far durable.

        Raises PersistenceError when the disk refuses (nothing is lost, and a later flush tries again), LeaseLost when a newer
        epoch exists (what was flushed now is not acknowledged).
        """
        with self._io:
            with self._mutex:
                lines, blobs, last = self._lines.copy(), self._new_blobs.copy(), self._last_seq
            if lines:
                self._write_out(lines, blobs)
            if self._lease.fenced(self._folder):
                newer = lease.read_holder(self._layout)
                raise LeaseLost(
                    f"session {self._layout.root.name} was taken over by {newer.describe() if newer else 'a newer holder'}",
                    hint=f"it goes on there, nothing is written from here: ipyagent status {self._layout.root.name}",
                )
            if lines:
                with self._mutex:
                    self.durable_seq = last
                    del self._lines[: len(lines)]
                    for name in blobs:
                        del self._new_blobs[name]
                    self._bytes = sum(map(len, self._lines)) + sum(map(len, self._new_blobs.values()))
            if last - self.file.first + 1 >= SEAL_EVENTS or self._durable_bytes >= SEAL_BYTES:
                with contextlib.suppress(OSError):  # what was flushed is durable; the next flush tries again
                    self._rotate(last + 1)

    def _write_out(self, lines: list[bytes], blobs: dict[str, bytes]) -> None:
        data = b"".join(lines) if len(lines) > 1 else lines[0]
        try:
            for name, body in blobs.items():
                self._blobs.write(name, body, self._disk)
            if self._fd < 0 and not self._closed:
                self._fd = os.open(self.file.path, os.O_WRONLY | os.O_APPEND)
                self._enter()
            if self._torn:
                os.ftruncate(self._fd, self._durable_bytes)
            self._torn = True
            self._disk.append(self._fd, data)
            self._disk.sync(self._fd)
        except OSError as error:
            self.refused = True
            raise PersistenceError(
                f"the log of session {self._layout.root.name} could not be written: {error.strerror or error}",
                hint="free some space or mend the disk; nothing recorded so far is lost",
            ) from error
        self._durable_bytes += len(data)
        self._torn = self.refused = False

    def rotate(self) -> JournalFile | None:
        """Start a new journal and hand out the full one to be sealed; None when it is empty.  Call after a flush."""
        with self._io:
            if self.durable_seq < self.file.first:
                return None
            return self._rotate(self.durable_seq + 1)

    def _rotate(self, first: int) -> JournalFile:
        full, fd = self.file, self._fd
        self._open(first)
        if fd >= 0:
            os.close(fd)
        self._on_rotate(full)
        return full

    def rest(self) -> None:
        """Give the file back while there is nothing to write; the next flush opens it again.  Never waits for a disk."""
        if self._io.acquire(blocking=False):
            try:
                if not self._lines and not self._torn:
                    self._let_go()
            finally:
                self._io.release()

    def close(self) -> None:
        """Close the file.  What was not flushed is dropped, and what is flushed from now on fails."""
        with self._io:
            self._closed = True
            self._let_go()

    def _enter(self) -> None:
        """Open the session's folder, where names can be found from there; without it whole paths are used."""
        if self._folder < 0 and os.access in os.supports_dir_fd:
            with contextlib.suppress(OSError):
                self._folder = os.open(self._layout.root, os.O_RDONLY)

    def _let_go(self) -> None:
        (fd, folder), self._fd, self._folder = (self._fd, self._folder), -1, -1
        for opened in (fd, folder):
            if opened >= 0:
                os.close(opened)
