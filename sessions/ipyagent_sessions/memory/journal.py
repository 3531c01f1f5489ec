"""The file of the cross-session Store (R034-R037).

    <store>/memory/journal-<n>.jsonl     {"c":"<crc32>","n":17,"op":"put","ns":"facts","key":"pi","value":...,"at":...}
    <store>/memory/lock                  one writer at a time; dies with its process
    <store>/memory/damaged/              torn tails, and journals with damage that were compacted away

Writing takes the lock, reads what others added, appends a line and syncs it.  Reading takes no lock: a line counts once its
line feed is there and its checksum fits.  Compaction writes what is alive into `journal-<n+1>.jsonl`, which appears complete;
the older file goes then.  A line that does not verify is named in `problems`, with its place, and the others are read.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Raw, Struct

from ipyagent_sessions.errors import UPDATE, NewerFormat, PersistenceError
from ipyagent_sessions.events import NULL
from ipyagent_sessions.log import checksum
from ipyagent_sessions.log.exclusive import exclusive
from ipyagent_sessions.log.files import Disk, make_folder, sync_folder, temporary_beside

FORMAT: Final = 1
SEEN: Final = 10_000
"""So many ids of writes are remembered: a repeated write that is older than that is done again."""
_NAME: Final = re.compile(r"journal-(\d+)\.jsonl")
_SLACK: Final = 1000
_WAIT_S: Final = 10.0
_TRIES: Final = 20


class Record(Struct, frozen=True, omit_defaults=True, gc=False):
    """A line: `op` is format, put, delete or seen.  `n` counts the lines ever written, `expires` is in seconds since the
    epoch, `id` names the write: one of the same id is done once."""

    n: int
    op: str
    ns: str = ""
    key: str = ""
    value: Raw = NULL
    at: str = ""
    expires: float | None = None
    by: str = ""
    id: str = ""
    ids: list[str] = []


_decoder: Final = msgspec.json.Decoder(Record)

Slot = tuple[str, str]
"""A namespace and a key."""


class Journal:
    """The entries by (namespace, key), as they are on disk.  Safe for threads and processes."""

    def __init__(self, folder: Path, disk: Disk, make_store: Callable[[], None] | None = None) -> None:
        """`make_store` sees to it, before the first write, that there is a store around `folder`.

        `problems` are the lines that do not verify, `torn` the bytes behind the last line feed, as of the last look.
        """
        self._make_store = make_store
        self.folder = folder
        self.problems: list[str] = []
        self.torn = 0
        self._disk = disk
        self._entries: dict[Slot, Record] = {}
        self._seen: dict[str, None] = {}
        self._number = 0
        self._at = 0
        self._n = 0
        self._lines = 0
        self._lock = threading.RLock()

    def entries(self) -> dict[Slot, Record]:
        """Everything that was put and not deleted, whether it has expired or not.  Raises NewerFormat, OSError."""
        with self._lock:
            self._refresh()
            return dict(self._entries)

    def write(self, op: str, slot: Slot, value: Raw, *, at: str, expires: float | None, by: str, write_id: str) -> bool:
        """Append a line durably; False when a write of that id was done before.  Raises PersistenceError, LeaseHeld."""
        with self._lock, self._writing():
            self._refresh()
            if write_id and write_id in self._seen:
                return False
            record = Record(self._n + 1, op, *slot, value, at, expires, by, write_id)
            self._append(record)
            if self._lines > 2 * len(self._entries) + _SLACK:
                self._compact(frozenset())
            return True

    def compact(self, drop: frozenset[Slot]) -> None:
        """Write what is alive, without `drop`, into a new file.  Raises OSError, LeaseHeld."""
        with self._lock, self._writing():
            self._refresh()
            self._compact(drop)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        with contextlib.suppress(OSError):
            return self._path(self._number).stat().st_size
        return 0

    @property
    def position(self) -> str:
        """The newest file, and the byte up to which it was read."""
        return f"{self._path(self._number).name}, byte {self._at}"

    # Reading

    def _path(self, number: int) -> Path:
        return self.folder / f"journal-{number}.jsonl"

    def _numbers(self) -> list[int]:
        with contextlib.suppress(FileNotFoundError):
            return sorted(int(m[1]) for name in os.listdir(self.folder) if (m := _NAME.fullmatch(name)))
        return []

    def _refresh(self) -> None:
        """Read what was added since the last time."""
        for attempt in range(_TRIES):
            number = max(self._numbers(), default=0)
            if number == 0:
                return
            try:
                with open(self._path(number), "rb") as file:
                    if number != self._number:
                        self._begin(number)
                    file.seek(self._at)
                    self._take(file.read())
                return
            except FileNotFoundError:  # compacted away since it was listed
                if attempt == _TRIES - 1:
                    raise

    def _begin(self, number: int) -> None:
        self._number, self._at, self._lines = number, 0, 0
        self._entries, self._seen, self.problems = {}, {}, []

    def _take(self, data: bytes) -> None:
        whole = data[: data.rfind(b"\n") + 1]
        self.torn = len(data) - len(whole)
        for line in whole.split(b"\n")[:-1]:
            record = checksum.read(line, _decoder.decode)
            if record is None:
                self.problems.append(
                    f"{self._path(self._number).name}: a line at byte {self._at} ({len(line)} bytes) is damaged"
                )
            else:
                self._apply(record)
            self._at += len(line) + 1
            self._lines += 1

    def _apply(self, record: Record) -> None:
        self._n = max(self._n, record.n)
        if record.op == "format":
            found = msgspec.json.decode(record.value)
            if not isinstance(found, int) or found > FORMAT:
                raise NewerFormat(
                    f"{self.folder} has format {found}, this version reads up to {FORMAT}",
                    hint=UPDATE,
                )
        elif record.op == "put":
            self._entries[record.ns, record.key] = record
        elif record.op == "delete":
            self._entries.pop((record.ns, record.key), None)
        for write_id in (*record.ids, *([record.id] if record.id else ())):
            self._seen[write_id] = None
        while len(self._seen) > SEEN:
            del self._seen[next(iter(self._seen))]

    # Writing, with the lock

    @contextlib.contextmanager
    def _writing(self) -> Generator[None]:
        if self._make_store is not None:
            self._make_store()
        make_folder(self.folder)
        with exclusive(self.folder / "lock", what="a change of what sessions share", wait_s=_WAIT_S):
            yield

    def _append(self, record: Record) -> None:
        if self._number == 0:
            self._publish(1, [Record(1, "format", value=Raw(str(FORMAT).encode()))])
            self._refresh()
            record = msgspec.structs.replace(record, n=self._n + 1)
        path = self._path(self._number)
        try:
            self._mend(path)
            line = line_of(record)
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
            try:
                self._disk.append(fd, line)
                self._disk.sync(fd)
            except OSError:
                os.ftruncate(fd, self._at)
                raise
            finally:
                os.close(fd)
        except OSError as error:
            raise PersistenceError(
                f"{path}: {error.strerror or error}; nothing was put or deleted", hint="free some space or mend the disk"
            ) from error
        self._apply(record)
        self._at += len(line)
        self._lines += 1

    def _mend(self, path: Path) -> None:
        """Set the beginning of a line aside that a crash left at the end, and cut it."""
        with open(path, "rb+") as file:
            file.seek(self._at)
            torn = file.read()
            if torn:
                self._aside().joinpath(f"{path.name}.{self._at}").write_bytes(torn)
                file.truncate(self._at)

    def _compact(self, drop: frozenset[Slot]) -> None:
        if self._number == 0:
            return
        old, damaged = self._number, bool(self.problems)
        kept = [r for slot, r in self._entries.items() if slot not in drop]
        head = [Record(self._n, "format", value=Raw(str(FORMAT).encode())), Record(self._n, "seen", ids=list(self._seen))]
        self._publish(old + 1, [*head, *kept])
        if damaged:
            self._path(old).replace(self._aside() / self._path(old).name)
        for number in self._numbers():
            if number <= old:
                with contextlib.suppress(OSError):  # a reader may have it open; the newest number counts
                    self._path(number).unlink()
        self._refresh()

    def _publish(self, number: int, records: list[Record]) -> None:
        path = self._path(number)
        temporary = temporary_beside(path)
        try:
            with open(temporary, "wb") as file:
                file.writelines(map(line_of, records))
                file.flush()
                self._disk.sync(file.fileno())
            self._disk.publish(temporary, path, what="memory")
        finally:
            temporary.unlink(missing_ok=True)

    def _aside(self) -> Path:
        folder = self.folder / "damaged"
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(self.folder)
        return folder


def line_of(record: Record) -> bytes:
    """The line of a record, with its checksum and its line feed."""
    return checksum.seal(msgspec.json.encode(record))
