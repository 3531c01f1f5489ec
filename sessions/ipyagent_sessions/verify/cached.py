"""The query cache against the logs that it was copied from."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.events import encode
from ipyagent_sessions.history import building, cache, sources
from ipyagent_sessions.log import arrow, segments
from ipyagent_sessions.store import Store
from ipyagent_sessions.verify.finding import Finding

if TYPE_CHECKING:
    import pyarrow as pa

_MEANS = "queries show what the log does not hold"
_LAST = "keep a copy of this file, restore the log from a copy; repair does not remove it"


def check(store: Store, *, repair: bool) -> list[Finding]:
    """What a query would read from the cache and the log does not give.  With `repair` the file goes, and is copied again."""
    manifest, folders = cache.read(store), sources.folders(store)
    found = _manifest(store)
    wrong = set[int]()
    for number in manifest.files:
        wanted = {s for s, k in manifest.sessions.items() if k.file == number and folders.get(s) == k.changed}
        differs = list(_compare(store, number, wanted))
        last = any(lost for _, _, lost in differs)
        if differs and not last:
            wrong.add(number)
        file = f"history/{cache.path_of(store, number).name}"
        for place, what, lost in differs:
            means = "it may hold the last copy of them" if lost else _MEANS
            todo = _LAST if last else "verify --repair removes it; it is copied again"
            found.append(Finding("", file, place, what, means, todo, derived=not last, repaired=repair and not last))
    if repair:
        building.drop(store, wrong)
    return found


def _compare(store: Store, number: int, wanted: set[str]) -> Iterator[tuple[str, str, bool]]:
    """What differs, session by session, and whether the file holds events that the log does not give."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    left = set(wanted)
    try:
        with pq.ParquetFile(cache.path_of(store, number), page_checksum_verification=True) as file:
            for session_id, sums in _sessions(file, wanted):
                left.discard(session_id)
                if sums != (log := _log(store, session_id)):
                    yield f"session {session_id}", *_difference(sums, log)
    except (OSError, LookupError, ValueError, pa.ArrowException) as error:
        yield "", (str(error).splitlines() or [type(error).__name__])[0], False
        return
    for session_id in sorted(left):
        yield f"session {session_id}", "its events are missing", False


def _difference(sums: list[tuple[int, int]], log: list[tuple[int, int]]) -> tuple[str, bool]:
    lost = {seq for seq, _ in sums} - {seq for seq, _ in log}
    if not lost:
        return "its events are not those of the log", False
    return f"the log does not give {len(lost)} of its events, {min(lost)} to {max(lost)}", True


def _manifest(store: Store) -> list[Finding]:
    """A note of a manifest that cannot be read."""
    try:
        cache.check(store)
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        means, todo = "queries read each session's own files, which is slower", "nothing: it is made anew"
        return [Finding("", "history/manifest.json", "", str(error), means, todo, "note")]
    return []


def _sessions(file: Any, wanted: set[str]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """(seq, checksum) of the events of each wanted session; the file is sorted by session and seq."""
    current, sums = "", list[tuple[int, int]]()
    for batch in file.iter_batches(batch_size=segments.GROUP):
        for session_id, part in _runs(batch):
            if session_id != current:
                if current in wanted:
                    yield current, sums
                current, sums = session_id, []
            if current in wanted:
                sums += [(event.seq, zlib.crc32(encode(event))) for event in arrow.rows(part)]
    if current in wanted:
        yield current, sums


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Table]]:
    """The rows of a batch, cut where another session begins, in the form of a segment's."""
    import pyarrow as pa

    table = pa.Table.from_batches([batch])
    ids: list[Any] = table["session_id"].to_pylist()
    columns = [field for field in arrow.schema() if field.name != "checksum"]
    table = table.select([field.name for field in columns]).cast(pa.schema(columns))
    start = 0
    for end in range(1, len(ids) + 1):
        if end == len(ids) or ids[end] != ids[start]:
            yield ids[start], table.slice(start, end - start)
            start = end


def _log(store: Store, session_id: str) -> list[tuple[int, int]]:
    try:
        return [(event.seq, zlib.crc32(encode(event))) for event in store.session(session_id).events(lineage=False)]
    except (IpyagentError, OSError):  # what is wrong with the session is said there
        return []
