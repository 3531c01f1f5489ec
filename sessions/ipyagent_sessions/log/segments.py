"""Sealed segments: immutable Parquet files that any program can query.

Columns are those of `events.Event` with `session_id`, and `checksum`, the CRC-32 of the canonical event, so that a row can be
verified by itself; pages carry Parquet's own checksums as well.  Times are timestamps in UTC with milliseconds.  The file's
metadata holds `ipyagent.open`: for each row group the activities that were open before its first event.  So a fork, and who
looks for one event, reads one row group, however long the segment is.
"""

from __future__ import annotations

import json
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from ipyagent_sessions.errors import UPDATE, DamageError, NewerFormat
from ipyagent_sessions.events import Event, Stamper, encode
from ipyagent_sessions.log.files import Disk, make_folder, sync_file, temporary_beside
from ipyagent_sessions.log.format import Damage
from ipyagent_sessions.log.layout import FORMAT, Layout, SegmentFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_PLAIN: Final = (
    "seq",
    "event_type",
    "task_id",
    "activity_id",
    "attempt",
    "actor",
    "parent_event",
    "schema_version",
    "ignorable",
    "agent_version",
    "execution_time_ms",
    "cpu_s",
    "rss_bytes",
    "input_tokens",
    "output_tokens",
    "cost_usd",
)
_ENDS: Final = ("TaskQueued", "TaskCompleted", "TaskFailed", "TaskCancelled")
_CODES: Final = {"int16": "h", "int32": "i", "int64": "q", "uint32": "I", "double": "d"}
ROW_GROUP: Final = 65_536
"""A segment has at most so many events when it is sealed, and its row groups `GROUP`."""
GROUP: Final = 2048
GROUP_BYTES: Final = 2 * 2**20
"""A row group of large events has fewer of them, so that about so many bytes are in one; and about so many are read at a time:
who reads a log of gigabytes holds a small part of it."""
SEGMENT_BYTES: Final = 4 * 2**20
"""A segment is closed when so many bytes of payload are in it."""
LAST: Final = 2**63 - 1


def schema() -> pa.Schema:
    """The columns of a segment, in the order of the documents' record."""
    import pyarrow as pa

    text, stamp = pa.string(), pa.timestamp("ms", tz="UTC")
    fields: list[pa.Field[Any]] = [
        pa.field("session_id", text, nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("event_type", text, nullable=False),
        pa.field("timestamp", stamp, nullable=False),
        pa.field("recorded_at", stamp, nullable=False),
        pa.field("task_id", text),
        pa.field("activity_id", text),
        pa.field("attempt", pa.int32()),
        pa.field("actor", text, nullable=False),
        pa.field("payload", text, nullable=False),
        pa.field("parent_event", pa.int64()),
        pa.field("schema_version", pa.int16(), nullable=False),
        pa.field("ignorable", pa.bool_(), nullable=False),
        pa.field("agent_version", text),
        pa.field("execution_time_ms", pa.float64()),
        pa.field("cpu_s", pa.float64()),
        pa.field("rss_bytes", pa.int64()),
        pa.field("input_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("cost_usd", pa.float64()),
        pa.field("checksum", pa.uint32(), nullable=False),
    ]
    return pa.schema(fields)


def table_of(events: Iterable[Event], session_id: str) -> pa.Table:
    """The events as an Arrow table with `schema()`."""
    import pyarrow as pa

    rows = list(events)
    columns: dict[str, list[Any]] = {name: [getattr(e, name) for e in rows] for name in _PLAIN}
    columns["session_id"] = [session_id] * len(rows)
    columns["timestamp"] = [e.timestamp[:-1] for e in rows]
    columns["recorded_at"] = [(e.recorded_at or e.timestamp)[:-1] for e in rows]
    columns["payload"] = [str(memoryview(e.payload), "utf-8") for e in rows]
    columns["checksum"] = [zlib.crc32(encode(e)) for e in rows]
    arrays: list[pa.Array[Any]] = []
    for field in schema():
        if pa.types.is_timestamp(field.type):
            arrays.append(_column(columns[field.name], pa.string()).cast(pa.timestamp("ms")).cast(field.type))
        else:
            arrays.append(_column(columns[field.name], field.type))
    return pa.Table.from_arrays(arrays, schema=schema())


def _column(values: list[Any], kind: pa.DataType) -> pa.Array[Any]:
    """`values`, some of them perhaps None, as a column.  It is made from buffers, since the first call of `pyarrow.array`
    imports pandas where that is installed: most of a second in a kernel that may have no use for it."""
    import pyarrow as pa

    present = _bits([value is not None for value in values]) if None in values else None
    if pa.types.is_string(kind):
        parts = [b"" if value is None else value.encode() for value in values]
        offsets = array("i", accumulate(map(len, parts), initial=0))
        buffers = [present, pa.py_buffer(offsets), pa.py_buffer(b"".join(parts))]
    elif pa.types.is_boolean(kind):
        buffers = [present, _bits(values)]
    else:
        buffers = [present, pa.py_buffer(array(_CODES[str(kind)], [0 if value is None else value for value in values]))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _bits(values: list[bool]) -> pa.Buffer:
    """A bitmap, the first value in the lowest bit."""
    import pyarrow as pa

    text = "".join(["1" if value else "0" for value in reversed(values)])
    return pa.py_buffer(int(text or "0", 2).to_bytes((len(values) + 7) // 8, "little"))


def seal(
    layout: Layout, events: Iterable[Event], epoch: int, opened: set[str], disk: Disk, *, session_id: str | None = None
) -> SegmentFile:
    """Write `events` (contiguous, not empty) as a segment, and take their starts and ends into `opened`.  Of an iterator few
    are in memory at a time, the others as the columns of a table, which take a tenth of the room.

    `session_id` is needed where the folder has another name yet.  Raises OSError; no file of the segment's name exists then.
    """
    import pyarrow as pa

    rest, name = iter(events), session_id or layout.root.name
    tables = [table_of(some, name) for some in iter(lambda: list(islice(rest, GROUP)), [])]
    table = pa.concat_tables(tables)
    return _publish(layout, table, _plain(table["seq"][0]), _plain(table["seq"][-1]), epoch, opened, disk)


def follow(opened: set[str], event_type: str, activity_id: str | None) -> None:
    """Keep `opened`, the ids of open activities, up to date.  A stage is not an activity, and its id has no slash; when a task
    has ended nothing of it is open any more."""
    if event_type in _ENDS:
        opened.clear()
    if activity_id is None or "/" not in activity_id:
        return
    if event_type == "ActivityStarted":
        opened.add(activity_id)
    elif event_type in ("ActivityCompleted", "ActivityFailed"):
        opened.discard(activity_id)


def merge(layout: Layout, parts: list[SegmentFile], epoch: int, disk: Disk) -> SegmentFile:
    """One segment in place of several adjoining ones.  The parts are removed only after it is durable.

    Raises DamageError, and changes nothing, when a part cannot be read whole.
    """
    import pyarrow as pa

    tables = [_table(part.path) for part in parts]
    for part, table in zip(parts, tables, strict=True):
        if table.num_rows != part.last - part.first + 1:
            raise DamageError(f"{part.path.name} holds {table.num_rows} events", hint="restore the file from a copy")
    with _file(parts[0].path) as file:
        opened = set(_opened(file)[0])
    merged = _publish(layout, pa.concat_tables(tables), parts[0].first, parts[-1].last, epoch, opened, disk)
    for part in parts:
        if part.path != merged.path:
            part.path.unlink(missing_ok=True)
    return merged


def _publish(layout: Layout, table: pa.Table, first: int, last: int, epoch: int, opened: set[str], disk: Disk) -> SegmentFile:
    import pyarrow.parquet as pq

    _give_back(table.nbytes)
    before: list[list[str]] = []
    group = min(GROUP, max(64, GROUP_BYTES * table.num_rows // max(1, table.nbytes)))
    for start in range(0, table.num_rows, group):
        before.append(sorted(opened))
        for _, event_type, activity_id in _boundaries(table.slice(start, group)):
            follow(opened, event_type, activity_id)

    make_folder(layout.events)
    path = layout.segment(first, last, epoch)
    temporary = temporary_beside(path)
    meta = {"ipyagent.format": str(FORMAT), "ipyagent.open": json.dumps(before), "ipyagent.epoch": str(epoch)}
    try:
        pq.write_table(
            table.replace_schema_metadata(meta),
            temporary,
            compression="zstd",
            row_group_size=group,
            write_page_checksum=True,
            use_dictionary=["session_id", "event_type", "task_id", "actor", "agent_version"],  # type: ignore[arg-type]  # a wrong stub
            column_encoding={
                "seq": "DELTA_BINARY_PACKED",
                "timestamp": "DELTA_BINARY_PACKED",
                "recorded_at": "DELTA_BINARY_PACKED",
                "activity_id": "DELTA_BYTE_ARRAY",
            },
        )
        with open(temporary, "rb+") as file:
            sync_file(file.fileno())
        disk.publish(temporary, path, what="seal")
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return SegmentFile(first, last, epoch, path)


def opened_after(segment: SegmentFile, seq: int) -> set[str]:
    """The activities that were open right after event `seq` of a segment.  Raises DamageError, FileNotFoundError."""
    with _file(segment.path) as file:
        groups = _groups(file, segment.path, seq - 1, seq)
        opened = set(_opened(file)[groups[0]])
        table = file.read_row_groups(groups, ["seq", "event_type", "activity_id"])
    for number, event_type, activity_id in _boundaries(table):
        if number <= seq:
            follow(opened, event_type, activity_id)
    return opened


def _boundaries(table: pa.Table) -> Iterator[tuple[int, str, str | None]]:
    """(seq, event_type, activity_id) of each event: what it takes to know which activities are open."""
    return zip(*(_values(table[name]) for name in ("seq", "event_type", "activity_id")), strict=True)


def _values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """The values of a column.  Bytes of a text that damage has made none are replaced, so that its checksum tells."""
    import pyarrow as pa

    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        return [None if body is None else body.decode("utf-8", "replace") for body in column.cast(pa.binary()).to_pylist()]


def owners(path: Path) -> list[str]:
    """The ids in the column `session_id`: one, that of the session's folder.  Raises DamageError, FileNotFoundError."""
    with _file(path) as file:
        found = {str(value) for value in file.read(["session_id"])["session_id"].unique().to_pylist()}
    return sorted(found)


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
    except (OSError, LookupError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, error) from error


def _opened(file: pq.ParquetFile) -> list[list[str]]:
    """The activities that were open before each row group."""
    return json.loads((file.metadata.metadata or {})[b"ipyagent.open"])  # type: ignore[no-any-return]  # as _publish wrote it


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


def _table(path: Path, after: int = 0, until: int = LAST) -> pa.Table:
    """The row groups of a segment that hold events with `after` < seq <= `until`.  Raises DamageError, FileNotFoundError."""
    with _file(path) as file:
        return _take(file, _groups(file, path, after, until))


def _take(file: pq.ParquetFile, groups: list[int]) -> pa.Table:
    return file.read_row_groups(groups).select(schema().names).cast(schema())


def _readable(path: Path, after: int, until: int, damage: list[Damage | str]) -> Iterator[pa.Table]:
    """The same in tables of about `GROUP_BYTES`; where one cannot be read, a table for each of its row groups that can be,
    the others added to `damage`."""
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
            room = GROUP_BYTES
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


def _damaged(path: Path, error: Exception) -> DamageError:
    first_line = (str(error).splitlines() or [type(error).__name__])[0]
    return DamageError(f"{path.name}: {first_line}", hint="restore the file from a copy")


def read(path: Path, *, after: int = 0, until: int | None = None, damage: list[Damage | str]) -> Iterator[Event]:
    """The events of a segment with `after` < seq <= `until`, each verified against its checksum.

    What cannot be read or does not verify is skipped and added to `damage`.  Raises FileNotFoundError.
    """
    until = LAST if until is None else until
    for table in _readable(path, after, until, damage):
        size = table.nbytes
        yield from _verified(table, path, after, until, damage)
        del table
        _give_back(size)


def _give_back(size: int) -> None:
    """Return freed memory to the system after `size` bytes were worked on, if that is much: what is kept of each portion lies
    between what is not, and so it would pile up."""
    import pyarrow as pa

    if size < GROUP_BYTES // 2:
        return
    for pool in (pa.default_memory_pool(), pa.system_memory_pool()):
        pool.release_unused()


def _verified(table: pa.Table, path: Path, after: int, until: int, damage: list[Damage | str]) -> Iterator[Event]:
    seqs = table["seq"]
    start = bisect_right(seqs, after, key=_plain)
    stop = bisect_right(seqs, until, key=_plain)
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


def _plain(value: pa.Scalar[Any]) -> Any:
    return value.as_py()


def rows(table: pa.Table) -> Iterator[Event]:
    """The events of a table with the columns of `schema()`; the checksum is not looked at."""
    import pyarrow as pa

    stamp = Stamper()
    size = table.num_rows

    def values(name: str) -> list[Any]:
        column = table[name]
        return [None] * size if column.null_count == size else _values(column)

    def times(name: str) -> list[str]:
        return [stamp(ms / 1000) for ms in table[name].cast(pa.int64()).to_pylist() if ms is not None]

    stamps, payloads = times("timestamp"), values("payload")
    recorded = stamps if table["recorded_at"].equals(table["timestamp"]) else times("recorded_at")
    plain = zip(*map(values, _PLAIN), strict=True)
    for at, late, payload, row in zip(stamps, recorded, payloads, plain, strict=True):
        seq, event_type, task, activity, attempt, actor, *rest = row
        yield Event(
            seq, event_type, at, None if late == at else late, task, activity, attempt, actor, Raw(payload.encode()), *rest
        )
