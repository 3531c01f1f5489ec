"""Removing what has outlived the policy: on request, and once a day by itself after it was announced.

    <store>/gc.json     when it was announced, for checkpoints and shared entries, and when it was last looked or cleaned
    <store>/gc.jsonl    one line for each file that was removed: when, by whom, why
    <store>/gc.lock     one clean-up at a time

A file's line is on disk before the file goes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from ipyagent_sessions.config import CheckpointPolicy, MemoryPolicy
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import LeaseHeld, NewerFormat
from ipyagent_sessions.events import Stamper
from ipyagent_sessions.log.exclusive import exclusive
from ipyagent_sessions.log.files import sync_file
from ipyagent_sessions.memory.memory import Outlived
from ipyagent_sessions.retention import expiry, workspaces
from ipyagent_sessions.retention.expiry import DAY, Expired
from ipyagent_sessions.store import Store

EVERY_S: Final = DAY
"""How often the store is looked at, and how long a person has between the announcement and the first clean-up."""
_BY_ITSELF: Final = "ipyagent, by itself"


class _Known(Struct, omit_defaults=True):
    announced: float | None = None
    looked: float = 0.0
    announced_shared: float | None = None


class Entry(Struct, frozen=True, omit_defaults=True):
    """A line of `gc.jsonl`."""

    at: str
    by: str
    file: str
    bytes: int
    why: str


class Removable(Protocol):
    """What a plan lists."""

    @property
    def file(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def why(self) -> str: ...


def checkpoints(store: Store, policy: CheckpointPolicy, *, by: str) -> list[Expired]:
    """Remove the checkpoints that have outlived the policy; returns them.  Raises LeaseHeld, OSError."""
    if not store.exists():
        return []
    with exclusive(store.root / "gc.lock", what="a clean-up"):
        gone: list[Expired] = []
        points = expiry.fork_points(store)
        by_session: dict[str, list[Expired]] = {}
        for found in expiry.expired(store, policy):
            by_session.setdefault(found.session_id, []).append(found)
        for session_id in by_session:  # once more, since a task may have been continued or forked while others were cleaned
            due = expiry.of_session(store.session(session_id), policy, points.get(session_id, []))
            remove(store, due, by=by)
            gone += due
        return gone


def memory(store: Store, due: Sequence[Outlived], *, by: str) -> None:
    """Remove shared entries that have outlived their time, each on record first.  Raises LeaseHeld, OSError."""
    if not due:
        return
    with exclusive(store.root / "gc.lock", what="a clean-up"):
        _record(store, due, by=by)
        store.memory.forget(due)


def folders(store: Store, due: Sequence[Removable], *, by: str) -> None:
    """Remove workspaces that no session names, or backups, each on record first.  Raises LeaseHeld, OSError."""
    if not due:
        return
    with exclusive(store.root / "gc.lock", what="a clean-up"):
        _record(store, due, by=by)
        for found in due:
            workspaces.remove(store.root / found.file)


def remove(store: Store, due: Sequence[Removable], *, by: str) -> None:
    """Write down what goes and why, durably; then let it go, the newest first: a difference before what it stands on."""
    _record(store, due, by=by)
    for item in reversed(due):
        Path(store.root, item.file).unlink(missing_ok=True)


def _record(store: Store, due: Sequence[Removable], *, by: str) -> None:
    if not due:
        return
    now = Stamper()(store.clock.now())
    lines = [msgspec.json.encode(Entry(now, by, d.file, d.size, d.why)) + b"\n" for d in due]
    with open(store.root / "gc.jsonl", "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":  # a crash left a part of a line
                lines.insert(0, b"\n")
        file.writelines(lines)
        file.flush()
        sync_file(file.fileno())


def record(store: Store) -> list[Entry]:
    """What was removed so far, oldest first."""
    try:
        body = (store.root / "gc.jsonl").read_bytes()
    except FileNotFoundError:
        return []
    out: list[Entry] = []
    for line in body.split(b"\n"):
        try:
            out.append(from_json(line, Entry))
        except msgspec.DecodeError:
            continue
    return out


def by_itself(store: Store, policy: CheckpointPolicy, shared: MemoryPolicy) -> str:
    """What a door does after a task, once a day: announce the first clean-up, and from a day later on clean.

    Checkpoints and shared entries are announced each for itself.  Returns what a person is to be told, mostly nothing.  A disk
    that refuses, another process that cleans, or shared entries of a newer version are no trouble.
    """
    try:
        known, now = _known(store), store.clock.now()
        if now - known.looked < EVERY_S:
            return ""
        told = [_checkpoints_by_itself(store, policy, known, now), _shared_by_itself(store, shared, known, now)]
        known.looked = now
        store.disk.replace(store.root / "gc.json", msgspec.json.encode(known))
        return "\n".join(filter(None, told))
    except (OSError, LeaseHeld):
        return ""


def _checkpoints_by_itself(store: Store, policy: CheckpointPolicy, known: _Known, now: float) -> str:
    if known.announced is None:
        due = expiry.expired(store, policy)
        if due:
            known.announced = now
            return _announcement(due, now)
    elif now - known.announced >= EVERY_S:
        checkpoints(store, policy, by=_BY_ITSELF)
    return ""


def _shared_by_itself(store: Store, policy: MemoryPolicy, known: _Known, now: float) -> str:
    try:
        due = store.memory.outlived(policy.kept_s)
    except NewerFormat:
        return ""
    if known.announced_shared is None:
        if due:
            known.announced_shared = now
            entries = "entry" if len(due) == 1 else "entries"
            return (
                f"the time of {len(due)} shared {entries} is over; from {_day(now + EVERY_S)} on "
                "such are removed once a day. `gc` lists them and says why."
            )
    elif now - known.announced_shared >= EVERY_S and not store.memory.problems():  # what is damaged is left to a person
        memory(store, due, by=_BY_ITSELF)
    return ""


def standing(store: Store) -> str:
    """The announcements for as long as nothing was cleaned yet, empty otherwise: for lists and the doctor."""
    known, told = _known(store), list[str]()
    if known.announced is not None and not os.path.exists(store.root / "gc.jsonl"):
        told.append(f"old checkpoints of ended tasks are removed from {_day(known.announced + EVERY_S)} on; gc lists them")
    if known.announced_shared is not None and known.looked <= known.announced_shared:
        day = _day(known.announced_shared + EVERY_S)
        told.append(f"shared entries whose time is over are removed from {day} on; gc lists them")
    return "\n".join(told)


def _announcement(due: list[Expired], now: float) -> str:
    size = sum(d.size for d in due) / 1e6
    return (
        f"{len(due)} checkpoints of ended tasks ({size:.1f} MB) are older than checkpoint.retention allows; from "
        f"{_day(now + EVERY_S)} on such are removed once a day. The log and its results stay. `gc` lists them and says why; "
        "a longer retention keeps them."
    )


def _day(seconds: float) -> str:
    return Stamper()(seconds)[:10]


def _known(store: Store) -> _Known:
    try:
        known = from_json((store.root / "gc.json").read_bytes(), _Known)
        now = store.clock.now() + EVERY_S  # what is later was not written by a clock that can be believed
        times = (known.looked, known.announced or 0.0, known.announced_shared or 0.0)
        return known if all(0 <= t <= now for t in times) else _Known()
    except (OSError, msgspec.DecodeError):
        return _Known()
