"""Events as Arrow tables, and events from them: the columns of a segment.

They are those of `events.Event` with `session_id`, and `checksum`, the CRC-32 of the canonical event, so that a row can be
verified by itself.  Times are timestamps in UTC with milliseconds.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from ipyagent_sessions.events import Event, Stamper, encode
from ipyagent_sessions.log.columns import column

if TYPE_CHECKING:
    import pyarrow as pa

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
            arrays.append(column(columns[field.name], pa.string()).cast(pa.timestamp("ms")).cast(field.type))
        else:
            arrays.append(column(columns[field.name], field.type))
    return pa.Table.from_arrays(arrays, schema=schema())


def rows(table: pa.Table) -> Iterator[Event]:
    """The events of a table with the columns of `schema()`; the checksum is not looked at."""
    import pyarrow as pa

    stamp = Stamper()
    size = table.num_rows

    def column(name: str) -> list[Any]:
        found = table[name]
        return [None] * size if found.null_count == size else values(found)

    def times(name: str) -> list[str]:
        return [stamp(ms / 1000) for ms in table[name].cast(pa.int64()).to_pylist() if ms is not None]

    stamps, payloads = times("timestamp"), column("payload")
    recorded = stamps if table["recorded_at"].equals(table["timestamp"]) else times("recorded_at")
    plain = zip(*map(column, _PLAIN), strict=True)
    for at, late, payload, row in zip(stamps, recorded, payloads, plain, strict=True):
        seq, event_type, task, activity, attempt, actor, *rest = row
        yield Event(
            seq, event_type, at, None if late == at else late, task, activity, attempt, actor, Raw(payload.encode()), *rest
        )


def values(column: pa.ChunkedArray[Any]) -> list[Any]:
    """The values of a column.  Bytes of a text that damage has made none are replaced, so that its checksum tells."""
    import pyarrow as pa

    try:
        return column.to_pylist()
    except UnicodeDecodeError:
        return [None if body is None else body.decode("utf-8", "replace") for body in column.cast(pa.binary()).to_pylist()]
