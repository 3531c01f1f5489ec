"""Copying events of resting sessions into the query cache, behind a query that would have profited.

Each step is complete or did not happen: a file appears under its name when it is whole, the manifest names it after that, and
what the manifest does not name is nobody's and is removed by the next builder.  DuckDB copies in bounded memory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import threading
import time
from pathlib import Path
from threading import Thread
from typing import Final

import msgspec

from ipyagent_sessions.errors import IpyagentError, LeaseHeld
from ipyagent_sessions.history import cache, sources, tables
from ipyagent_sessions.history.cache import CacheFile, Kept, Manifest
from ipyagent_sessions.log import lease
from ipyagent_sessions.log.exclusive import exclusive
from ipyagent_sessions.log.files import sync_file
from ipyagent_sessions.place import Place
from ipyagent_sessions.session import Session

WORTHWHILE: Final = 64
"""A query that met so many resting sessions outside the cache has some of them copied."""
STEP: Final = 500_000
STEP_BYTES: Final = 64 * 2**20
"""So many events are copied at a time, or so many bytes of files and tails: about a second."""
LARGE: Final = 1_000_000
"""Files of fewer rows are merged when there are several; a larger one stays as it is."""
FEW: Final = 6
_MEMORY: Final = "256MB"


def catch_up(store: Place) -> Thread:
    """Copy what rests, step by step in a thread of its own, until all is copied or the process has nothing else to do."""

    def work() -> None:
        refused: dict[str, int] = {}
        while threading.main_thread().is_alive() and step(store, refused):
            pass

    thread = Thread(target=work, name="ipyagent-cache")
    thread.start()
    return thread


def step(store: Place, refused: dict[str, int] | None = None) -> int:
    """Copy the next sessions that rest; returns how many were tried.  Another builder, or a disk that refuses, is no trouble.

    A session whose files do not hold what their names say stays outside: it is added to `refused`, with the time of its last
    change, and those in it are not tried again.
    """
    refused = {} if refused is None else refused
    try:
        cache.folder(store).mkdir(exist_ok=True)
        with exclusive(cache.folder(store) / "lock", what="the query cache"):
            manifest = cache.read(store)
            _sweep(store, manifest)
            count = _copy(store, manifest, refused)
            if count == 0 or len(manifest.files) > FEW:
                _merge(store, manifest)
            return count
    except (OSError, LeaseHeld):
        return 0


def drop(store: Place, numbers: set[int]) -> None:
    """Forget files of the cache, as far as the disk allows."""
    if not numbers:
        return
    with contextlib.suppress(OSError, LeaseHeld), exclusive(cache.folder(store) / "lock", what="the query cache"):
        manifest = cache.read(store)
        for number in numbers:
            manifest.files.pop(number, None)
        manifest.sessions = {s: kept for s, kept in manifest.sessions.items() if kept.file not in numbers}
        _commit(store, manifest)
        _sweep(store, manifest)


def _copy(store: Place, manifest: Manifest, refused: dict[str, int]) -> int:
    chosen: dict[str, Kept] = {}
    taken, number, events, size = sources.Sources(), manifest.next_file(), 0, 0
    here = sources.folders(store)
    for session_id, changed in here.items():
        known = manifest.sessions.get(session_id)
        known_here = changed in (known.changed if known is not None else None, refused.get(session_id))
        if known_here or time.time_ns() - changed < cache.SETTLED_NS:
            continue
        found = _resting(Session(store, session_id), changed)
        if found is None:
            continue
        one, count = found
        chosen[session_id] = Kept(number, count, changed, one.headers[session_id])
        taken.add(one)
        events += count
        size += sum(path.stat().st_size for path in one.files) + sum(map(len, one.lines))
        if events >= STEP or size >= STEP_BYTES:
            break
    if not chosen:
        return 0
    written = _write(store, number, taken, "ORDER BY session_id, seq")
    manifest.files[number] = CacheFile(sum(written.values()), sorted(written))
    taken_in = {s: kept for s, kept in chosen.items() if written.get(s) == kept.events}
    refused |= {s: kept.changed for s, kept in chosen.items() if s not in taken_in}
    manifest.sessions |= taken_in
    manifest.sessions = {s: kept for s, kept in manifest.sessions.items() if s in here}
    _commit(store, manifest)
    return len(chosen)


def _resting(session: Session, changed: int) -> tuple[sources.Sources, int] | None:
    """What a session consists of and how many events that is; None when it is held, empty, damaged, or has just changed."""
    holder = lease.read_holder(session.layout)
    if lease.holding(session.layout) or (holder is not None and holder.host != lease.host()):
        return None
    found = sources.Sources()
    try:
        sources.take(session, found, frozenset())
        if found.problems or session.id not in found.headers or not session.layout.header.exists():
            return None
        count = session.last_seq() - session.first + 1
        unchanged = session.layout.root.stat().st_mtime_ns == changed
    except (IpyagentError, OSError):
        return None
    return (found, count) if count > 0 and unchanged else None


def _merge(store: Place, manifest: Manifest) -> None:
    """One file in place of several small ones, and of those that are mostly past."""
    alive = {n: sum(k.events for k in manifest.sessions.values() if k.file == n) for n in manifest.files}
    small = [n for n, file in manifest.files.items() if file.rows < LARGE or alive[n] < file.rows * 0.7]
    if len(small) < 2 and not any(alive[n] < manifest.files[n].rows * 0.7 for n in small):
        return
    chosen, rows = list[int](), 0
    for number in sorted(small, key=lambda n: alive[n]):
        chosen.append(number)
        rows += alive[number]
        if rows >= LARGE:
            break
    number = manifest.next_file()
    moved = {s: msgspec.structs.replace(k, file=number) for s, k in manifest.sessions.items() if k.file in chosen}
    found = sources.Sources()
    found.kept = [(cache.path_of(store, n), sources.moved_on(manifest, n, moved.keys())) for n in chosen]
    written = _write(store, number, found) if moved else {}
    moved = {s: k for s, k in moved.items() if written.get(s) == k.events}
    manifest.sessions = {s: k for s, k in manifest.sessions.items() if k.file not in chosen} | moved
    manifest.files = {n: f for n, f in manifest.files.items() if n not in chosen}
    if moved:
        manifest.files[number] = CacheFile(sum(written.values()), sorted(written))
    _commit(store, manifest)
    _sweep(store, manifest)


def _write(store: Place, number: int, found: sources.Sources, order: str = "") -> dict[str, int]:
    """Write all events into a file of the cache, each session's in one piece; returns how many of each.

    DuckDB keeps the order of the files it reads, so merging needs no sort.  Raises OSError.
    """
    import duckdb

    target = cache.path_of(store, number)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    spill = Path(tempfile.gettempdir(), f"ipyagent-cache-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with duckdb.connect(":memory:", config={"temp_directory": os.fspath(spill), "memory_limit": _MEMORY}) as connection:
            select = f"SELECT {tables.KEPT} FROM base.told {order}"
            tables.define(connection, found, select)
            connection.execute(f"COPY ({select}) TO '{_quoted(temporary)}' ({cache.WRITTEN})")
            counted = connection.execute(
                "SELECT session_id, count(*) FROM read_parquet(?, hive_partitioning = false) GROUP BY 1",
                [os.fspath(temporary)],
            ).fetchall()
        with open(temporary, "rb+") as file:
            sync_file(file.fileno())
        store.disk.publish(temporary, target, what="cache")
        return {str(session_id): int(count) for session_id, count in counted}
    except (duckdb.Error, UnicodeDecodeError) as error:
        raise OSError(f"the query cache cannot be built: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)
        shutil.rmtree(spill, ignore_errors=True)


def _quoted(path: Path) -> str:
    return os.fspath(path).replace("'", "''")


def _commit(store: Place, manifest: Manifest) -> None:
    manifest.store = store.id
    store.disk.write_whole(cache.folder(store) / "manifest.json", msgspec.json.encode(manifest), what="cache")


def _sweep(store: Place, manifest: Manifest) -> None:
    """Remove what the manifest does not name: of builders that died, and of files that were merged."""
    named = {cache.path_of(store, number).name for number in manifest.files}
    for path in cache.folder(store).iterdir():
        if path.name not in named and (path.suffix == ".parquet" or path.name.endswith(".tmp")):
            with contextlib.suppress(OSError):  # a query may have it open; the next builder removes it
                path.unlink()
