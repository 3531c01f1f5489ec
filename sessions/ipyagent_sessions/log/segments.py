"""Sealed segments: immutable Parquet files that any program can query.

Their columns are in `arrow`; pages carry Parquet's own checksums as well.  The file's metadata holds `ipyagent.open`: for each
row group the activities that were open before its first event.  So a fork, and who looks for one event, reads one row group,
however long the segment is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.events import Event
from ipyagent_sessions.log.arrow import table_of
from ipyagent_sessions.log.files import Disk, make_folder, sync_file, temporary_beside
from ipyagent_sessions.log.layout import FORMAT, Layout, SegmentFile
from ipyagent_sessions.log.open_activities import follow
from ipyagent_sessions.log.segment_reader import PORTION, boundaries, give_back, opened_before, whole

if TYPE_CHECKING:
    import pyarrow as pa

GROUP: Final = 2048
"""So many events are in a row group; of large events fewer, so that about `PORTION` bytes are in one."""


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
    return _publish(layout, table, table["seq"][0].as_py(), table["seq"][-1].as_py(), epoch, opened, disk)


def merge(layout: Layout, parts: list[SegmentFile], epoch: int, disk: Disk) -> SegmentFile:
    """One segment in place of several adjoining ones.  The parts are removed only after it is durable.

    Raises DamageError, and changes nothing, when a part cannot be read whole.
    """
    import pyarrow as pa

    tables = [whole(part.path) for part in parts]
    for part, table in zip(parts, tables, strict=True):
        if table.num_rows != part.last - part.first + 1:
            raise DamageError(f"{part.path.name} holds {table.num_rows} events", hint="restore the file from a copy")
    opened = opened_before(parts[0])
    merged = _publish(layout, pa.concat_tables(tables), parts[0].first, parts[-1].last, epoch, opened, disk)
    for part in parts:
        if part.path != merged.path:
            part.path.unlink(missing_ok=True)
    return merged


def _publish(layout: Layout, table: pa.Table, first: int, last: int, epoch: int, opened: set[str], disk: Disk) -> SegmentFile:
    import pyarrow.parquet as pq

    give_back(table.nbytes)
    before: list[list[str]] = []
    group = min(GROUP, max(64, PORTION * table.num_rows // max(1, table.nbytes)))
    for start in range(0, table.num_rows, group):
        before.append(sorted(opened))
        for _, event_type, activity_id in boundaries(table.slice(start, group)):
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
