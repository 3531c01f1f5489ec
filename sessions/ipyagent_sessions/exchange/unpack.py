"""An archive into a store, where the session is in replay.

Everything is checked before anything is visible: checksums, contiguity, the chain of parents, that each blob is there, that
the events can be folded, that nothing has to be unpickled.  Then the sessions appear, each complete, the oldest first.

What was imported is never written to: `Session.native` is false, so no door resumes it, answers in it or unpickles from it.  A
person who wants to go on forks it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import UPDATE, DamageError, IpyagentError, NewerFormat, UsageError
from ipyagent_sessions.events import Event
from ipyagent_sessions.exchange import wellformed
from ipyagent_sessions.exchange.archive import Archive, Part, opened
from ipyagent_sessions.exchange.draft import Draft
from ipyagent_sessions.log import live, sealing
from ipyagent_sessions.log.files import create_durable, sync_folder
from ipyagent_sessions.log.format import event_of
from ipyagent_sessions.log.layout import FORMAT, Layout
from ipyagent_sessions.place import Header
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.state import State
from ipyagent_sessions.store import Store
from ipyagent_sessions.verify.blobs import coded_by, named_by

ELSEWHERE: Final = "elsewhere"
"""The store of an import that does not say a credible one."""
_LINE: Final = 256 * 2**20


class Imported(Struct):
    """What an import did: `new` are the ids that it added, `known` those that were here with the same content, `grown` those
    that were here in replay with a part of it, each with the number of events that were added."""

    session_id: str
    events: int
    new: list[str]
    known: list[str]
    grown: dict[str, int]


def bring_in(store: Store, path: Path) -> Imported:
    """Import the archive at `path`.

    Raises UsageError for what is no archive, holds what none may, or has an id that is here with other content, DamageError
    for one that was cut or changed, NewerFormat.  Nothing is imported then.
    """
    with opened(path) as archive:
        _check_lineage(archive)
        store.make()
        try:
            return _imported(archive, store)
        except FileExistsError:  # another import was first: what it brought is compared
            return _imported(archive, store)


def _imported(archive: Archive, store: Store) -> Imported:
    done, drafts = Imported(archive.manifest.session, 0, [], [], {}), list[Draft]()
    try:
        _prepare(archive, store, drafts, done)
        for draft in drafts:
            added = draft.publish(store)
            if draft.here is None:
                done.new.append(draft.session_id)
            else:
                done.grown[draft.session_id] = added
    finally:
        for draft in drafts:
            draft.discard()
    return done


def _prepare(archive: Archive, store: Store, drafts: list[Draft], done: Imported) -> None:
    """Check all sessions of the lineage, and unpack what is not here into `drafts`.  What it raises is as of `bring_in`."""
    state, before, told = State(), None, b""
    for part in archive.manifest.lineage:
        incoming = _Incoming(archive, part, state, before, told)
        done.events += part.last - part.first + 1
        here = store.session(part.session) if (store.sessions_folder / part.session).exists() else None
        behind = incoming.compare(here) if here is not None else None
        if here is not None and behind is None:
            done.known.append(part.session)
        else:
            drafts.append(Draft(part.session, store, here))
            incoming.unpack(drafts[-1], store, behind)
        before, told = incoming.last, incoming.told


def _check_lineage(archive: Archive) -> None:
    """The parts follow one another, and the last one is the session.  Raises DamageError."""
    after, ids = 0, set[str]()
    for part in archive.manifest.lineage:
        if part.first != after + 1 or part.last < part.first or part.session in ids:
            raise _wrong(archive, f"its lineage does not hang together at session {part.session[:40]}")
        after = part.last
        ids.add(part.session)
    if not ids or archive.manifest.lineage[-1].session != archive.manifest.session:
        raise _wrong(archive, "its lineage does not lead to its session")
    if any(name.split("/")[1] not in ids for name in archive.manifest.members):
        raise _wrong(archive, "it holds files of a session that is not in its lineage")


class _Incoming:
    """One session of an archive, being read.  `state` is folded on, `before` is the last event of its parent, `told` tells
    all events of the lineage so far from others (`_chained`)."""

    def __init__(self, archive: Archive, part: Part, state: State, before: Event | None, told: bytes) -> None:
        self.archive = archive
        self.part = part
        self.state = state
        self.before = before
        self.last = before
        self.told = told
        self.header = self._header()
        self._named = set[str]()
        self._coded = set[str]()

    def _header(self) -> Header:
        try:
            header = from_json(self.archive.read(f"s/{self.part.session}/session.json"), Header)
        except msgspec.DecodeError as error:
            raise _wrong(self.archive, f"the header of session {self.part.session} cannot be read: {error}") from error
        if header.format > FORMAT:
            raise NewerFormat(
                f"session {header.session_id} has format {header.format}, this version reads up to {FORMAT}",
                hint=UPDATE,
            )
        if header.created and not wellformed.is_time(header.created):
            raise _wrong(self.archive, f"session {self.part.session} says that it was made at {header.created[:40]!r}")
        parent, before = header.parent, self.before
        fits = (
            parent is None
            if before is None
            else parent is not None and parent.seq == before.seq and parent.hash == ev.digest(before)
        )
        if header.session_id != self.part.session or not fits:
            raise _wrong(self.archive, f"the header of session {self.part.session} does not fit its lineage")
        return header

    def events(self) -> Iterator[Event]:
        """The events, each verified and folded.  Raises DamageError, NewerFormat, UsageError for a pickled value."""
        expected = self.part.first
        for line in self._lines():
            event = event_of(line) if _is_text(line) else None
            if event is None or event.seq != expected:
                raise _wrong(self.archive, f"event {expected} of session {self.part.session} does not verify")
            if wrong := wellformed.wrong(event):
                raise _wrong(self.archive, f"event {expected} of session {self.part.session} {wrong}")
            if _pickled(event.payload):
                raise self._unpicklable(f"event {event.seq}")
            folding.apply(self.state, event)
            self._named.update(named_by(event))
            self._coded.update(coded_by(event))
            self.told = _chained(self.told, event)
            self.last = event
            yield event
            expected += 1
        if expected != self.part.last + 1:
            raise _wrong(self.archive, f"session {self.part.session} ends at event {expected - 1}")

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for piece in self.archive.pieces(f"s/{self.part.session}/events.jsonl"):
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
            if len(rest) > _LINE:
                raise _wrong(self.archive, "a line of it has no end")
        if rest:
            yield rest

    def compare(self, here: Session) -> Iterator[Event] | None:
        """Check that the session here holds the same events as far as it goes, and as far as the archive goes.

        Returns what the archive has behind its end, None when that is nothing.  Raises UsageError.
        """
        self._same_beginning(here)
        mine, end, incoming = here.events(self.part.first - 1, self.part.last), here.last_seq(), self.events()
        for event in incoming:
            if event.seq > end:
                self._check_growth(here, end)
                return itertools.chain([event], incoming)
            found = next(mine, None)
            if found is None or found.seq != event.seq:
                raise self._refused(here, f"and its event {event.seq} is missing", f"ipyagent verify {here.id} says more")
            if ev.encode(found) != ev.encode(event):
                raise self._refused(here, f"with other content from event {event.seq} on")
        return None

    def _same_beginning(self, here: Session) -> None:
        """The session here goes on from the same events: by its parent, or when that was deleted by its own copy of them."""
        try:
            parent = here.header.parent
            if parent == self.header.parent:
                return
            mine = functools.reduce(_chained, here.events(until=self.part.first - 1), b"")
        except (IpyagentError, OSError) as error:
            raise self._refused(here, f"and cannot be read: {error}") from error
        if mine != self.told:
            raise self._refused(here, f"with other content before event {self.part.first}")

    def _check_growth(self, here: Session, end: int) -> None:
        """Raises UsageError for a session that nothing may be added to: it was made here, or somebody wrote to it."""
        if not here.in_replay or here.layout.epoch():
            what = f"and shorter: it ends at event {end}, and the archive goes on to event {self.part.last}"
            raise self._refused(here, what, f"to a session that was made here nothing is added; look at it: replay {here.id}")

    def _refused(self, here: Session, what: str, todo: str = "look at both") -> UsageError:
        also = f"delete the one here first if you want the other: delete {here.id}"
        return UsageError(f"session {here.id} is here already, {what}", hint=f"nothing was imported; {todo}, and {also}")

    def unpack(self, draft: Draft, store: Store, behind: Iterator[Event] | None) -> None:
        """Write the session, or what is `behind` the end of the one here, into a folder that nobody sees yet."""
        layout, here = draft.layout, draft.here
        layout.events.mkdir()
        opened = here.open_activities(draft.end) if here is not None else ()
        events = self.events() if behind is None else behind
        sealing.seal_whole(layout, events, store.disk, session_id=self.part.session, opened=opened)
        self._blobs(layout)
        origin = self.header.store if self.header.store not in (None, store.id) else ELSEWHERE
        header = msgspec.structs.replace(self.header, store=origin)
        create_durable(layout.header, [msgspec.json.encode(header)])
        live.write_summary(layout, summarise(self.part.session, self.state), store.disk)
        sync_folder(layout.root)

    def _blobs(self, layout: Layout) -> None:
        held = self.archive.blobs(self.part.session)
        missing = sorted(self._named - set(held))
        if missing:
            raise _wrong(self.archive, f"the blob {missing[0][:12]} of session {self.part.session} is not in it")
        for name in held:
            layout.blobs.mkdir(exist_ok=True)
            path = f"s/{self.part.session}/blobs/{name}"
            if self.archive.manifest.members[path].sha256 != name:
                raise _wrong(self.archive, f"the blob {name[:12]} is not what its name says")
            create_durable(layout.blobs / name, self.archive.pieces(path))
            if name in self._coded and _pickled((layout.blobs / name).read_bytes()):
                raise self._unpicklable(f"the blob {name[:12]}")
        if held:
            sync_folder(layout.blobs)

    def _unpicklable(self, where: str) -> UsageError:
        return UsageError(
            f"{self.archive.path.name} is refused: {where} of session {self.part.session} holds a pickled value, "
            "and a pickle from elsewhere can run anything",
            hint="nothing was imported; export it as a notebook, or run it again without --pickle",
        )


def _chained(told: bytes, event: Event) -> bytes:
    """What tells a history that goes on with `event` from every other one."""
    return hashlib.sha256(told + ev.encode(event)).digest()


def _is_text(line: bytes) -> bool:
    """Whether a line is UTF-8, which a checksum does not say and a segment needs."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _pickled(body: bytes | msgspec.Raw) -> bool:
    """Whether JSON holds a value in the tagged form that only pickle can read; what is no JSON holds none."""
    raw = bytes(memoryview(body))
    if b"pickle" not in raw and b"\\u" not in raw:
        return False
    open_: list[Any] = []
    with contextlib.suppress(msgspec.DecodeError):
        open_.append(from_json(raw))
    while open_:
        node = open_.pop()
        if isinstance(node, dict):
            if node.get("$") == "pickle":
                return True
            open_ += node.values()
        elif isinstance(node, list):
            open_ += node
    return False


def _wrong(archive: Archive, what: str) -> DamageError:
    return DamageError(f"{archive.path.name} was cut or changed: {what}", hint="export it again; nothing was imported")
