"""Reads sealed segments: events with their checksums verified, damage told by its place, and what was open when.

A segment is read in portions of row groups, so that who reads a log of gigabytes holds a small part of it, and where one is
damaged the others are still read.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import UPDATE, DamageError, NewerFormat
from ipyagent_sessions.events import Event, encode
from ipyagent_sessions.log.arrow import rows, schema, values
from ipyagent_sessions.log.format import Damage
from ipyagent_sessions.log.layout import FORMAT, SegmentFile
from ipyagent_sessions.log.open_activities import follow

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

PORTION: Final = 2 * 2**20
"""About so many bytes are read at a time, and written into one row group."""
LAST: Final = 2**63 - 1


def read(path: Path, *, after: int = 0, until: int | None = None, damage: list[Damage | str]) -> Iterator[Event]:
    """The events of a segment with `after` < seq <= `until`, each verified against its checksum.

    What cannot be read or does not verify is skipped and added to `damage`.  Raises FileNotFoundError.
    """
    until = LAST if until is None else until
    for table in _readable(path, after, until, damage):
        size = table.nbytes
        yield from _verified(table, path, after, until, damage)
        del table
        give_back(size)


def _verified(table: pa.Table, path: Path, after: int, until: int, damage: list[Damage | str]) -> Iterator[Event]:
    seqs = table["seq"]
    start, stop = (bisect_right(seqs, seq, key=lambda value: value.as_py()) for seq in (after, until))
    table = table.slice(start, max(0, stop - start))
    checks = table["checksum"].to_pylist()
    bad: list[int] = []
    for event, check in zip(rows(table), checks, strict=True):
        if zlib.crc32(encode(event)) == check:
            yield event
        else:
            bad.append(event.seq)
    if bad:
        damage.append(f"{path.name}: {len(bad)} of the events {bad[0]} to {bad[-1]} do not match their checksums")


def _readable(path: Path, after: int, until: int, damage: list[Damage | str]) -> Iterator[pa.Table]:
    """The row groups that hold the events of `read`, in tables of about `PORTION` bytes; where one cannot be read, a table for
    each of its row groups that can be, the others added to `damage`."""
    try:
        with _file(path) as file:
            groups = _groups(file, path, after, until)
            rows, wanted = sum(_row_counts(file)), _count(path)
            portions = _portions(file, groups)
    except DamageError as error:
        damage.append(error.message)
        return
    if rows != wanted:
        damage.append(f"{path.name}: it holds {rows} events instead of {wanted}")
    for portion in portions:
        try:
            with _file(path) as file:
                table = _take(file, portion)
        except DamageError as error:
            damage.append(error.message)
            yield from _one_by_one(path, portion, damage)
        else:
            yield table


def _portions(file: pq.ParquetFile, groups: list[int]) -> list[list[int]]:
    """The row groups, put together as far as they are small."""
    found, room = list[list[int]](), 0
    for group in groups:
        size = file.metadata.row_group(group).total_byte_size
        if not found or size > room:
            found.append([])
            room = PORTION
        found[-1].append(group)
        room -= size
    return found


def _one_by_one(path: Path, groups: list[int], damage: list[Damage | str]) -> Iterator[pa.Table]:
    for group in groups if len(groups) > 1 else ():
        try:
            with _file(path) as file:
                table = _take(file, [group])
        except DamageError as error:
            damage.append(f"{error.message} (row group {group})")
        else:
            yield table


def _take(file: pq.ParquetFile, groups: list[int]) -> pa.Table:
    return file.read_row_groups(groups).select(schema().names).cast(schema())


def whole(path: Path) -> pa.Table:
    """All of a segment, its events' checksums not looked at.  Raises DamageError, FileNotFoundError."""
    with _file(path) as file:
        return _take(file, list(range(file.num_row_groups)))


def owners(path: Path) -> list[str]:
    """The ids in the column `session_id`: one, that of the session's folder.  Raises DamageError, FileNotFoundError."""
    with _file(path) as file:
        found = values(file.read(["session_id"])["session_id"])
    return sorted(set(map(str, found)))


def opened_before(segment: SegmentFile) -> set[str]:
    """The activities that were open before the first event of a segment.  Raises DamageError, FileNotFoundError."""
    with _file(segment.path) as file:
        return set(_opened(file)[0])


def opened_after(segment: SegmentFile, seq: int) -> set[str]:
    """The activities that were open right after event `seq` of a segment.  Raises DamageError, FileNotFoundError."""
    with _file(segment.path) as file:
        groups = _groups(file, segment.path, seq - 1, seq)
        opened = set(_opened(file)[groups[0]])
        table = file.read_row_groups(groups, ["seq", "event_type", "activity_id"])
    for number, event_type, activity_id in boundaries(table):
        if number <= seq:
            follow(opened, event_type, activity_id)
    return opened


def boundaries(table: pa.Table) -> Iterator[tuple[int, str, str | None]]:
    """(seq, event_type, activity_id) of each event: what it takes to know which activities are open."""
    return zip(*(values(table[name]) for name in ("seq", "event_type", "activity_id")), strict=True)


def _opened(file: pq.ParquetFile) -> list[list[str]]:
    """The activities that were open before each row group."""
    return from_json((file.metadata.metadata or {})[b"ipyagent.open"], list[list[str]])


def _groups(file: pq.ParquetFile, path: Path, after: int, until: int) -> list[int]:
    """The row groups that hold events with `after` < seq <= `until`.

    Counted from the file's name, since its events are contiguous.  Column statistics are not asked: pyarrow ends the process
    when a footer is damaged there.
    """
    first, found = int(path.name.partition("-")[0]), list[int]()
    rows = _row_counts(file)
    if sum(rows) != _count(path):
        return list(range(len(rows)))
    for i, count in enumerate(rows):
        following = first + count
        if after < following - 1 and first <= until:
            found.append(i)
        first = following
    return found


def _row_counts(file: pq.ParquetFile) -> list[int]:
    return [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]


def _count(path: Path) -> int:
    """How many events a segment must hold, by its name."""
    first, last = path.name.split("-")[:2]
    return int(last) - int(first) + 1


@contextmanager
def _file(path: Path) -> Generator[pq.ParquetFile, None, None]:
    """The file, opened; its page checksums are verified as it is read.  Raises DamageError, NewerFormat, FileNotFoundError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            written = int((file.metadata.metadata or {}).get(b"ipyagent.format", FORMAT))
            if written > FORMAT:
                raise NewerFormat(f"{path.name} has format {written}, this version reads up to {FORMAT}", hint=UPDATE)
            yield file
    except FileNotFoundError:
        raise
    except (OSError, LookupError, ValueError, msgspec.DecodeError, pa.ArrowException) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DamageError:
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    return DamageError(f"{path.name}: {first_line}", hint="restore the file from a copy")


def give_back(size: int) -> None:
    """Return freed memory to the system after `size` bytes were worked on, if that is much: what is kept of each portion lies
    between what is not, and so it would pile up."""
    import pyarrow as pa

    if size < PORTION // 2:
        return
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()
