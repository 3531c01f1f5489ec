"""The query cache: events of resting sessions, copied into few large files.

    <store>/history/manifest.json     which session's events lie in which file, and what the session's folder looked like then
    <store>/history/<n>.parquet       many sessions, by session and seq: the columns of a query, and `triggered_events`
    <store>/history/lock              one builder at a time

A session is read from here or from its own files, never from both.  It counts as unchanged while its folder has the time that
the manifest noted: whoever appends first creates a journal and a lock file there, which changes it.  So a look at an unchanged
session costs one `stat`.  Deleting the folder loses nothing, and so does any damage in it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.place import Header, Place

FORMAT: Final = 1


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
    Asking a store that does not exist for its id would make it, so an empty manifest has none."""

    format: int
    store: str
    files: dict[int, CacheFile] = {}
    sessions: dict[str, Kept] = {}


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
    try:
        body = (folder(store) / "manifest.json").read_bytes()
        if msgspec.json.decode(body, type=_Head).format == FORMAT:
            found = msgspec.json.decode(body, type=Manifest)
            if found.store == store.id:
                return found
    except (OSError, msgspec.DecodeError):
        pass
    return Manifest(FORMAT, "")
