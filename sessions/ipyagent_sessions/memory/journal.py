"""The file of the cross-session Store (R034-R037).

    <store>/memory/journal-<n>.jsonl     {"c":"<crc32>","n":17,"op":"put","ns":"facts","key":"pi","value":...,"at":...}
    <store>/memory/lock                  one writer at a time; dies with its process
    <store>/memory/damaged/              torn tails, and journals with damage that were compacted away

Writing takes the lock, reads what others added, appends a line and syncs it.  Reading takes no lock: a line counts once its
line feed is there and its checksum fits.  Compaction writes what is alive into `journal-<n+1>.jsonl`, which appears complete;
the older file goes then.  What does not verify is named in `problems`, with its place, and the others are read: a line, lines
that are missing by their numbers, a file without the line of its format.  What holds nothing hides no older file that does.
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

from ipyagent_sessions.decoding import from_json
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
    epoch, `id` names the write: one of the same id is done once.  In the line of the format `lines` is how many follow
    that were written with it, with numbers that do not follow each other."""

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
    lines: int = 0


_decoder: Final = msgspec.json.Decoder(Record)

Slot = tuple[str, str]
"""A namespace and a key."""


class Journal:
    """The entries by (namespace, key), as they are on disk.  Safe for threads and processes."""

    def __init__(self, folder: Path, disk: Disk, make_store: Callable[[], None] | None = None) -> None:
        """`make_store` sees to it, before the first write, that there is a store around `folder`."""
        self._make_store = make_store
        self.folder = folder
        self._rest = 0
        self._disk = disk
        self._entries: dict[Slot, Record] = {}
        self._seen: dict[str, None] = {}
        self._number = 0
        self._at = 0
        self._n = 0
        self._lines = 0
        self._due = 0
        self._wrong: list[str] = []
        self._strays: list[int] = []
        self._lock = threading.RLock()

    def entries(self) -> dict[Slot, Record]:
        """Everything that was put and not deleted, whether it has expired or not.  Raises NewerFormat, OSError."""
        with self._lock:
            self._refresh()
            return dict(self._entries)

    def problems(self) -> list[str]:
        """What does not verify, by file and byte, read anew: it may have changed since.  Raises as `entries`."""
        with self._lock:
            self._begin(0)
            self._refresh()
            return self._problems()

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

    def compact(self, drop: frozenset[int]) -> None:
        """Write what is alive, without the lines of the numbers `drop`, into a new file.  Raises OSError, LeaseHeld."""
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
    def torn(self) -> int:
        """The bytes behind the last line feed, as of the last look: what a crash left of a line."""
        return self._rest if self._at else 0

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
            numbers = self._numbers()
            if not numbers:
                return
            try:
                number = self._newest(numbers)
                with open(self._path(number), "rb") as file:
                    if number != self._number or os.fstat(file.fileno()).st_size < self._at:
                        self._begin(number)
                    file.seek(self._at)
                    self._take(file.read())
                return
            except FileNotFoundError:  # compacted away since it was listed
                if attempt == _TRIES - 1:
                    raise

    def _begin(self, number: int) -> None:
        self._number, self._at, self._lines, self._n, self._due, self._rest = number, 0, 0, 0, 0, 0
        self._entries, self._seen, self._wrong = {}, {}, []

    def _newest(self, numbers: list[int]) -> int:
        """The newest file that holds something.  A newer one without any line that verifies is a stray."""
        self._strays = []
        for number in reversed(numbers[1:]):
            if number == self._number or any(map(_record, self._path(number).read_bytes().split(b"\n"))):
                return number
            self._strays.append(number)
        return numbers[0]

    def _take(self, data: bytes) -> None:
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.split(b"\n")[:-1]:
            record = _record(line)
            if record is None:
                self._complain(f"a line at byte {self._at} ({len(line)} bytes) is damaged")
                self._n += self._n > 0  # most likely it had the next number
            else:
                self._compare(record)
                self._apply(record)
            self._due = max(self._due - 1, 0) if self._at else self._due
            self._at += len(line) + 1
            self._lines += 1
        self._rest = len(data) - len(whole)

    def _compare(self, record: Record) -> None:
        """A line with what came before it: the line of the format is the first, and the numbers follow each other."""
        if self._at == 0:
            if record.op != "format":
                self._complain("its beginning, the line of the format, is missing at byte 0")
            self._due = record.lines
        elif 0 < self._n < record.n:
            missing = self._due + record.n - self._n - 1
            if missing:
                self._complain(f"{missing} {'line is' if missing == 1 else 'lines are'} missing before byte {self._at}")
            self._due = 0

    def _complain(self, what: str) -> None:
        self._wrong.append(f"{self._path(self._number).name}: {what}")

    def _problems(self) -> list[str]:
        found = [f"{self._path(number).name}: nothing in it verifies, an older file is read" for number in self._strays]
        found += self._wrong
        name = self._path(self._number).name
        if self._number and self._at == 0:  # it was published with the line of its format
            found.append(f"{name}: nothing in it verifies ({self._rest} bytes at byte 0)")
        elif self._due:
            found.append(f"{name}: {self._due} {'line is' if self._due == 1 else 'lines are'} missing at byte {self._at}")
        return found

    def _apply(self, record: Record) -> None:
        self._n = max(self._n, record.n)
        if record.op == "format":
            found = from_json(record.value)
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

    def _compact(self, drop: frozenset[int]) -> None:
        if self._number == 0:
            return
        damaged, new = bool(self._problems()), max(self._numbers(), default=0) + 1
        kept = [r for r in self._entries.values() if r.n not in drop]
        head = Record(self._n, "format", value=Raw(str(FORMAT).encode()), lines=len(kept) + 1)
        self._publish(new, [head, Record(self._n, "seen", ids=list(self._seen)), *kept])
        for number in self._numbers():
            if number < new:
                with contextlib.suppress(OSError):  # a reader may have it open; the newest number counts
                    if damaged:
                        self._put_away(self._path(number))
                    else:
                        self._path(number).unlink()
        self._refresh()

    def _put_away(self, path: Path) -> None:
        """Keep a file of which not everything could be read."""
        at, number = self._aside() / path.name, 0
        while os.path.lexists(at):
            number += 1
            at = at.with_name(f"{path.name}.again{number}")
        path.rename(at)

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


def _record(line: bytes) -> Record | None:
    """The record of a line, None when it does not verify."""
    return checksum.read(line, _decoder.decode)
