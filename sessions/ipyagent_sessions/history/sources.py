"""Which files feed a query: the query cache for sessions that have not changed since, whole segments for DuckDB to read, and
everything else as lines of JSON.

A segment all of whose events count is read by DuckDB itself.  The tails of journals, segments of which only a part counts, and
segments that DuckDB could not read come through our own readers, which verify each event and keep what is whole.  One session
that cannot be read is left out, or read as far as it goes, and named in `problems`.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ipyagent_sessions import folding
from ipyagent_sessions.errors import DamageError, IpyagentError, NewerFormat
from ipyagent_sessions.events import TYPES, Event, as_raw, decode, encode
from ipyagent_sessions.history import cache
from ipyagent_sessions.history.cache import Glance, Kept, Manifest
from ipyagent_sessions.log import columns, segment_reader
from ipyagent_sessions.log.format import Damage, clean_lines, scan
from ipyagent_sessions.log.reader import Piece, pieces
from ipyagent_sessions.place import Header, Place, is_id
from ipyagent_sessions.session import Session

if TYPE_CHECKING:
    import pyarrow as pa

_TRIES: Final = 5
_END: Final = 2**62
_TYPE: Final = re.compile(rb'"event_type":"([A-Za-z]+)"')
_KNOWN: Final = frozenset(name.encode() for name in TYPES)
_SCHEMA: Final = b'"schema_version":'
"""Left out of a line where it is 1."""


class Sources:
    """What a query reads: `files` are segments, `lines` are events as JSON, `owners` says for each the session.  `kept` are
    files of the query cache, each with the sessions in it that are not to be read from it, and `cached` gives the headers of
    those that are; `headers` has the others, which are looked at one by one."""

    def __init__(self) -> None:
        self.files: list[Path] = []
        self.kept: list[tuple[Path, list[str]]] = []
        self.cached: Callable[[], dict[str, Header]] = dict
        self.lines: list[bytes] = []
        self.owners: list[bytes] = []
        self.headers: dict[str, Header] = {}
        self.held: dict[str, bool] = {}
        self.problems: list[str] = []

    @property
    def loose(self) -> int:
        """How many sessions are not read from the cache."""
        return len(self.headers)

    @property
    def paths(self) -> list[Path]:
        """All files that DuckDB reads."""
        return [*self.files, *(path for path, _ in self.kept)]

    def add(self, other: Sources) -> None:
        """Take in what another look gave."""
        self.files += other.files
        self.lines += other.lines
        self.owners += other.owners
        self.headers |= other.headers
        self.held |= other.held
        self.problems += other.problems

    def tail(self) -> pa.Table:
        """One row a line: session_id, line."""
        return columns.table(session_id=columns.texts(self.owners), line=columns.texts(self.lines))

    def everyone(self) -> dict[str, Header]:
        """The headers of all sessions."""
        return self.cached() | self.headers

    def sessions(self, everyone: dict[str, Header]) -> pa.Table:
        """One row a session: what its header says, and whether its lease is held (0 or 1)."""
        headers = everyone.values()
        return columns.table(
            session_id=columns.texts([s.encode() for s in everyone]),
            notebook=columns.texts([h.notebook.encode() if h.notebook is not None else None for h in headers]),
            created=columns.texts([h.created.encode() or None for h in headers]),
            parent=columns.texts([h.parent.session.encode() if h.parent else None for h in headers]),
            parent_seq=columns.integers([h.parent.seq if h.parent else None for h in headers]),
            held=columns.integers([self.held.get(s, False) for s in everyone]),
        )


def lineage(everyone: dict[str, Header]) -> pa.Table:
    """For each session the sessions its history goes through, itself at depth 0, and the seqs of each that count."""
    steps = [(session_id, *step) for session_id in everyone for step in _ancestry(everyone, session_id)]
    return columns.table(
        session_id=columns.texts([s[0].encode() for s in steps]),
        origin=columns.texts([s[1].encode() for s in steps]),
        first=columns.integers([s[2] for s in steps]),
        last=columns.integers([s[3] for s in steps]),
        depth=columns.integers([s[4] for s in steps]),
    )


def _ancestry(everyone: dict[str, Header], session_id: str) -> Iterator[tuple[str, int, int, int]]:
    seen: set[str] = set()
    last, current = _END, session_id
    while current in everyone and current not in seen:
        seen.add(current)
        parent = everyone[current].parent
        yield current, parent.seq + 1 if parent else 0, last, len(seen) - 1
        if parent is None:
            return
        last, current = parent.seq, parent.session


def gather(store: Place, distrusted: Iterable[Path] = ()) -> Sources:
    """Look at the store.  The segments in `distrusted` are read event by event, as far as they verify, and files of the query
    cache in it not at all."""
    found, apart = Sources(), frozenset(distrusted)
    at = cache.looked_at(store)
    body, mark = cache.body(store)
    seen = None if apart else cache.glance(store, at, mark)
    if seen is None:
        manifest = cache.decode(store, body)
        seen = _look(store, manifest, {n for n in manifest.files if cache.path_of(store, n) not in apart}, at, mark)
        if not apart:
            cache.remember(store, seen)
    found.kept = [(cache.path_of(store, n), gone) for n, gone in seen.kept.items()]
    outside = set[str]().union(*seen.kept.values(), seen.loose)
    numbers = seen.kept.keys()

    def cached() -> dict[str, Header]:
        sessions = cache.decode(store, body).sessions
        return {s: k.header for s, k in sessions.items() if k.file in numbers and s not in outside}

    found.cached = cached
    with _without_collector():
        for session_id in seen.loose:
            try:
                take(Session(store, session_id), found, apart)
            except (IpyagentError, OSError) as error:
                found.problems.append(f"session {session_id} is left out: {error}")
    _miss_parents(found, seen)
    return found


def _look(store: Place, manifest: Manifest, usable: set[int], at: int, mark: tuple[int, int, int]) -> Glance:
    """Which sessions are as the cache has them, by the times of their folders."""
    unchanged, loose = dict[str, Kept](), list[str]()
    for session_id, changed in folders(store).items():
        known = manifest.sessions.get(session_id)
        if known is not None and known.changed == changed and known.file in usable:
            unchanged[session_id] = known
        else:
            loose.append(session_id)
    kept = {n: moved_on(manifest, n, unchanged) for n in sorted({k.file for k in unchanged.values()})}
    parents = [(s, k.header.parent) for s, k in unchanged.items()]
    apart = [(s, p.session, p.seq) for s, p in parents if p is not None and p.session not in unchanged]
    return Glance(at, mark, kept, loose, apart)


def _miss_parents(found: Sources, seen: Glance) -> None:
    """Report the forks whose parent cannot be read."""
    forks = [(s, h.parent.session, h.parent.seq) for s, h in found.headers.items() if h.parent is not None]
    forks += seen.apart
    absent = [fork for fork in forks if fork[1] not in found.headers]
    known = found.cached() if absent else {}
    found.problems += [
        f"session {session_id}: its parent {parent} cannot be read, so the events up to {seq} are missing from its lineage"
        for session_id, parent, seq in absent
        if parent not in known
    ]


def folders(store: Place) -> dict[str, int]:
    """All session ids in order, each with the time (ns) its folder was changed last."""
    found: dict[str, int] = {}
    try:
        with os.scandir(store.sessions_folder) as entries:
            for entry in entries:
                if is_id(entry.name):
                    with contextlib.suppress(OSError):  # deleted meanwhile
                        if entry.is_dir():
                            found[entry.name] = entry.stat().st_mtime_ns
    except FileNotFoundError:
        return {}
    return dict(sorted(found.items()))


def moved_on(manifest: Manifest, number: int, wanted: Collection[str]) -> list[str]:
    """The sessions in a file of the cache that are not to be read from it."""
    sessions = manifest.sessions
    return [s for s in manifest.files[number].sessions if s not in wanted or sessions[s].file != number]


class _Log:
    """What one look at a session's files gave."""

    def __init__(self, next_seq: int) -> None:
        self.next_seq = next_seq
        self.files: list[Path] = []
        self.lines: list[bytes] = []
        self.gaps: list[str] = []
        self.damage: list[str] = []

    def reach(self, seq: int) -> None:
        """Note that the next event is `seq`."""
        if seq > self.next_seq:
            missing = f"event {self.next_seq} is" if seq == self.next_seq + 1 else f"events {self.next_seq} to {seq - 1} are"
            self.gaps.append(f"{missing} missing")


def take(session: Session, sources: Sources, distrusted: frozenset[Path]) -> None:
    """Add what a session consists of.  Raises IpyagentError or OSError, and has added nothing then."""
    header, first, problems = _header(session)
    if header is None:
        return
    log = _Log(first)
    for attempt in range(_TRIES):
        try:
            log = _read(pieces(session.layout, first), first, distrusted)
        except FileNotFoundError:  # sealed or merged away since it was listed
            if attempt == _TRIES - 1:
                raise
            continue
        if not log.gaps:
            break
    held = session.held()
    problems += [text for text in log.damage if not (held and ": torn, " in text)]  # held: the writer is inside a line
    sources.problems += [f"session {session.id}: {text}" for text in problems + log.gaps + _newer(log.lines)]
    sources.files += log.files
    sources.lines += log.lines
    sources.owners += [session.id.encode()] * len(log.lines)
    sources.headers[session.id] = header
    sources.held[session.id] = held


def _newer(lines: list[bytes]) -> list[str]:
    """The first of some events that this version does not know and must not pass over: what is derived may lack it."""
    for line in lines:
        found = _TYPE.search(line)
        if _SCHEMA not in line and found is not None and found[1] in _KNOWN:
            continue
        try:
            folding.check(decode(line))
        except NewerFormat as error:
            return [f"{error}; views of tasks and activities may be wrong"]
    return []


def _header(session: Session) -> tuple[Header | None, int, list[str]]:
    """The header, the first seq, and what is wrong.  None for a folder that holds no session (yet)."""
    try:
        return session.header, session.first, []
    except NewerFormat:
        raise
    except IpyagentError as error:
        starts = [s.first for s in session.layout.segments()] + [j.first for j in session.layout.journals()]
        if not starts and isinstance(error, DamageError):
            raise
        if not starts:
            return None, 1, []
        return Header(0, session.id, ""), min(starts), [f"{error.message}; its events are read all the same"]


def _read(found: list[Piece], first: int, distrusted: frozenset[Path]) -> _Log:
    """The pieces of a log, each seq once and in order.  Raises FileNotFoundError."""
    log = _Log(first)
    for piece in found:
        if piece.whole and piece.last is not None and piece.path not in distrusted:
            log.reach(piece.first)
            log.files.append(piece.path)
            log.next_seq = piece.last + 1
            continue
        data = b"" if piece.sealed else piece.path.read_bytes()
        clean = clean_lines(data)
        start = max(log.next_seq, piece.first)
        if clean is not None:
            skip, stop = max(0, start - clean[0]), None if piece.last is None else max(0, piece.last + 1 - clean[0])
            lines = clean[1][skip:stop]
            if lines:
                log.reach(clean[0] + skip)
                log.lines += lines
                log.next_seq = clean[0] + skip + len(lines)
            continue
        for event in _verified(piece, data, log.damage):
            if log.next_seq <= event.seq and piece.first <= event.seq <= (math.inf if piece.last is None else piece.last):
                log.reach(event.seq)
                log.lines.append(_json(event))
                log.next_seq = event.seq + 1
    return log


def _verified(piece: Piece, data: bytes, damage: list[str]) -> Iterator[Event]:
    """The events of a file that verify."""
    found: list[Damage | str] = []
    if piece.sealed:
        yield from segment_reader.read(piece.path, after=piece.first - 1, until=piece.last, damage=found)
    for item in scan(data, piece.path.name):
        if isinstance(item, Damage):
            found.append(item)
        else:
            yield item[1]
    damage += map(str, found)


def _json(event: Event) -> bytes:
    """The event as JSON that DuckDB reads too: a payload that is not good UTF-8 becomes a text."""
    body = encode(event)
    try:
        body.decode()
    except UnicodeDecodeError:
        return encode(msgspec.structs.replace(event, payload=as_raw(bytes(event.payload).decode("utf-8", "replace"))))
    return body


@contextlib.contextmanager
def _without_collector() -> Generator[None]:
    """Hundreds of thousands of new objects, none of them in a cycle: the collector would walk them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
