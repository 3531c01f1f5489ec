"""The query cache: events of resting sessions, copied into few large files.

    <store>/history/manifest.json     which session's events lie in which file, and what the session's folder looked like then
    <store>/history/<n>.parquet       many sessions, each by seq: the columns of a query, and `triggered_events`
    <store>/history/glance.json       what the last look at all folders gave
    <store>/history/lock              one builder at a time

A session is read from here or from its own files, never from both.  It counts as unchanged while its folder has the time that
the manifest noted: whoever appends first creates a journal and a lock file there, which changes it.  So a look at an unchanged
session costs one `stat`.  Who took the lease then changes the time of the folder of all sessions (`Lease.announce`), before
the first event, and so do a new session and a deleted one: while it is what the glance noted, one `stat` tells that all those
that were unchanged still are.  Deleting the folder loses nothing, and so does any damage in it.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.log.files import temporary_beside
from ipyagent_sessions.place import Header, Place

FORMAT: Final = 2
SETTLED_NS: Final = 3_000_000_000
"""A folder's time means something once it is so old: two changes within one tick of the file system's clock have the same."""
WRITTEN: Final = "FORMAT parquet, PARQUET_VERSION v2, COMPRESSION lz4_raw, ROW_GROUP_SIZE 245760"
"""How DuckDB writes a file of the cache."""


class Kept(Struct, frozen=True, array_like=True):
    """A session in the cache: in which file, how many events, and its folder's time (ns) and header when it was copied."""

    file: int
    events: int
    changed: int
    header: Header


class CacheFile(Struct, frozen=True, omit_defaults=True):
    """A file of the cache: its rows, and the sessions that it was made of, also those that have moved on."""

    rows: int
    sessions: list[str]


class Manifest(Struct):
    """What the cache holds.  `store` is the id of the store it was made for: a copied folder is no cache of another one.
    Asking a store that does not exist for its id would make it, so an empty manifest has none.  `last` is the highest number
    that a file ever had: who still reads by an earlier manifest must not find other sessions under a number that it names."""

    format: int
    store: str
    files: dict[int, CacheFile] = {}
    sessions: dict[str, Kept] = {}
    last: int = 0

    def next_file(self) -> int:
        """A number that no file has had."""
        self.last = max(self.last, *self.files, 0) + 1
        return self.last


class Glance(Struct):
    """What a query reads while `at`, the time of the folder of all sessions (ns), and the manifest's `mark` are the same.

    `kept` are the files of the cache, each with the sessions in it that are not to be read from it, `loose` the sessions that
    are looked at one by one, and `apart` the forks in the cache whose parent is not: (session, parent, the parent's seq)."""

    at: int
    mark: tuple[int, int, int]
    kept: dict[int, list[str]]
    loose: list[str]
    apart: list[tuple[str, str, int]]


class _Head(Struct):
    format: int


def folder(store: Place) -> Path:
    """Where the cache of a store lies."""
    return store.root / "history"


def path_of(store: Place, number: int) -> Path:
    """The file of that number."""
    return folder(store) / f"{number}.parquet"


def read(store: Place) -> Manifest:
    """The manifest; an empty one when there is none, or none that this version can use."""
    return decode(store, body(store)[0])


def check(store: Place) -> None:
    """Raises msgspec.DecodeError for a manifest that is damaged, OSError for one that cannot be read or is not there."""
    found = (folder(store) / "manifest.json").read_bytes()
    if from_json(found, _Head).format == FORMAT:
        from_json(found, Manifest)


def body(store: Place) -> tuple[bytes, tuple[int, int, int]]:
    """The bytes of the manifest, and what tells it from another one; nothing when there is none."""
    try:
        with open(folder(store) / "manifest.json", "rb") as file:
            about = os.fstat(file.fileno())
            return file.read(), (about.st_ino, about.st_size, about.st_mtime_ns)
    except OSError:
        return b"", (0, 0, 0)


def decode(store: Place, body: bytes) -> Manifest:
    """The manifest of these bytes; an empty one when this version cannot use it, or it belongs to another store."""
    try:
        if from_json(body, _Head).format == FORMAT:
            found = from_json(body, Manifest)
            if found.store == store.known_id:
                return found
    except msgspec.DecodeError:
        pass
    return Manifest(FORMAT, "")


def looked_at(store: Place) -> int:
    """The time of the folder of all sessions (ns), 0 when there is none."""
    try:
        return store.sessions_folder.stat().st_mtime_ns
    except OSError:
        return 0


def glance(store: Place, at: int, mark: tuple[int, int, int]) -> Glance | None:
    """What the last look gave, if it still holds."""
    try:
        found = from_json((folder(store) / "glance.json").read_bytes(), Glance)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.at == at and found.mark == mark else None


def remember(store: Place, found: Glance) -> None:
    """Keep what a look gave for the next one, unless the folder has just changed; a disk that refuses is no trouble."""
    if not found.kept or time.time_ns() - found.at < SETTLED_NS:
        return
    path = folder(store) / "glance.json"
    mine = temporary_beside(path)
    try:
        mine.write_bytes(msgspec.json.encode(found))
        mine.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            mine.unlink()
