"""The store: a folder of sessions, open files that anyone can query.

    <store>/store.json
    <store>/s/<session_id>/...

Nothing but files: no server, no database that one process could lock.  `Store()` finds the user's store, `Store(path)` another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ipyagent_sessions import config, events, payloads
from ipyagent_sessions import state as states
from ipyagent_sessions.clock import Clock, Ids, SystemClock, random_id
from ipyagent_sessions.errors import IpyagentError, NewerFormat, NotFound
from ipyagent_sessions.events import Stamper
from ipyagent_sessions.log import live
from ipyagent_sessions.log.files import Disk, sync_folder
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.layout import FORMAT, Layout
from ipyagent_sessions.session import VERSION, Header, Parent, Session, summarise


class _StoreFile(Struct):
    id: str
    format: int


class Listed(Struct):
    """One line of a listing.  `problem` is set, and the rest is empty, for a session that cannot be read."""

    session_id: str
    summary: live.Summary | None
    state: str
    problem: str = ""


class Store:
    """A store at `root` (default: `config.store_path()`), made when it does not exist.

    Clock, ids and disk come from outside so that tests own them.  Raises NewerFormat for a store of a newer version.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, *, clock: Clock | None = None, ids: Ids | None = None,
                 disk: Disk | None = None) -> None:
        self.root = Path(root) if root is not None else config.store_path()
        self.clock: Clock = clock or SystemClock()
        self.ids: Ids = ids or random_id
        self.disk = disk or Disk()
        self.sessions_folder = self.root / "s"
        self.id = self._open()

    def __repr__(self) -> str:
        return f"Store({str(self.root)!r})"

    def _open(self) -> str:
        path = self.root / "store.json"
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_StoreFile)
        except FileNotFoundError:
            self.sessions_folder.mkdir(parents=True, exist_ok=True)
            found = _StoreFile(self.ids(), FORMAT)
            self.disk.write_whole(path, msgspec.json.encode(found), what="header")
        except msgspec.DecodeError as error:
            raise IpyagentError(f"{path} is damaged: {error}", hint="restore it from a copy; the sessions beside it are untouched") \
                from error
        if found.format > FORMAT:
            raise NewerFormat(f"the store {self.root} has format {found.format}, this version reads up to {FORMAT}",
                              hint="use the newer ipyagent that wrote it")
        return found.id

    # Sessions

    def create(self, *, title: str = "", notebook: str | None = None) -> Session:
        """A new, empty session."""
        session = self.new_session_folder(notebook=notebook)
        body = payloads.SessionCreated(events.clean(title)[0], notebook)
        self.write_first_event(session, "SessionCreated", body, 1)
        return session

    def new_session_folder(self, *, notebook: str | None = None, parent: Parent | None = None) -> Session:
        """The folder and the header of a new session; its first event is still to be written."""
        while True:
            session_id = self.ids()
            folder = self.sessions_folder / session_id
            try:
                folder.mkdir(parents=True)
                break
            except FileExistsError:
                continue
        header = Header(FORMAT, session_id, Stamper()(self.clock.now()), notebook, parent)
        self.disk.write_whole(folder / "session.json", msgspec.json.encode(header), what="header")
        return Session(self, session_id)

    def write_first_event(self, session: Session, event_type: str, body: payloads.Payload, seq: int, *, title: str = "") -> None:
        """Write a session's first event as the journal of epoch 1, durably, and make the folder's name durable."""
        event = events.Event(seq, event_type, Stamper()(self.clock.now()), payload=events.as_raw(body), agent_version=VERSION)
        path = session.layout.journal(1, seq)
        self.disk.write_whole(path, line_of(event), what="header")
        sync_folder(self.sessions_folder)
        if event_type == "SessionCreated":
            state = states.fold([event])
            live.write_summary(session.layout, summarise(session.id, state), self.disk)
        else:
            parent = session.header.parent
            assert parent is not None
            summary = live.Summary(session.id, seq, title, session.header.notebook, event.timestamp, event.timestamp,
                                   parent=parent.session, state="suspended", reason="forked")
            live.write_summary(session.layout, summary, self.disk)

    def session(self, session_id: str) -> Session:
        """The session of exactly that id; whether it can be read is seen when it is."""
        return Session(self, session_id)

    def find(self, wanted: str) -> Session:
        """The session of an id, a unique beginning of one, or a task id (`<session_id>.<n>`).

        Raises NotFound when none or several fit.
        """
        stem = wanted.partition(".")[0]
        fits = [name for name in self.session_ids() if name.startswith(stem)] if stem else []
        if stem in fits:
            fits = [stem]
        if len(fits) == 1:
            return Session(self, fits[0])
        if fits:
            raise NotFound(f"{wanted!r} fits {len(fits)} sessions: {', '.join(sorted(fits)[:5])}", hint="write more of the id")
        raise NotFound(f"there is no session {wanted!r} in {self.root}", hint="list them with: ls")

    def session_ids(self) -> list[str]:
        """All ids, in no order."""
        try:
            with os.scandir(self.sessions_folder) as entries:
                return [e.name for e in entries if e.is_dir()]
        except FileNotFoundError:
            return []

    def sessions(self) -> list[Listed]:
        """Every session, newest change first; one that cannot be read is listed with its problem."""
        out = [self._listed(session_id) for session_id in self.session_ids()]
        return sorted(out, key=lambda x: x.summary.updated_at if x.summary else "", reverse=True)

    def _listed(self, session_id: str) -> Listed:
        session = Session(self, session_id)
        try:
            summary = session.summary()
            return Listed(session_id, summary, session.effective_state(summary))
        except (IpyagentError, OSError) as error:
            return Listed(session_id, None, "damaged", str(error))

    def of_notebook(self, notebook: str | None) -> Iterator[Listed]:
        """The sessions of a notebook, newest change first."""
        return (x for x in self.sessions() if x.summary is not None and x.summary.notebook == notebook)

    def children(self, session_id: str) -> list[str]:
        """The ids of the sessions forked from `session_id`."""
        out = []
        for other in self.session_ids():
            try:
                parent = Session(self, other).header.parent
            except (IpyagentError, OSError):
                continue
            if parent is not None and parent.session == session_id:
                out.append(other)
        return sorted(out)

    def sql(self, query: str) -> Any:
        """The result of one SELECT over all sessions; see `history.sql`."""
        from ipyagent_sessions.history.sql import query as run

        return run(self, query)


__all__ = ["Layout", "Listed", "Store"]
