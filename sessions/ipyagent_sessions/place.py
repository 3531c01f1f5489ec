"""The folder of a store: where sessions lie, and how a new one comes into being.

Clock, ids and disk come from outside so that tests own them.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ipyagent_sessions import config, events, payloads
from ipyagent_sessions._version import __version__
from ipyagent_sessions.clock import Clock, Ids, SystemClock, random_id
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import UPDATE, DamageError, IpyagentError, NewerFormat
from ipyagent_sessions.log.exclusive import exclusive
from ipyagent_sessions.log.files import Disk, sync_file, sync_folder, temporary_beside
from ipyagent_sessions.log.format import line_of
from ipyagent_sessions.log.layout import FORMAT, Layout
from ipyagent_sessions.memory.memory import Memory

VERSION = f"ipyagent-{__version__}"
ID: Final = "[a-z0-9]{2,40}"
"""What an id of a session or a workspace looks like, as a pattern; pages have the same one (`guards.ts`)."""
_ID: Final = re.compile(ID)
DEEPEST: Final = 200
"""How many ancestors a session may have."""
_ABANDONED_S: Final = 3600.0
_MADE_WITHIN_S: Final = 10.0


def is_id(text: str) -> bool:
    """Whether `text` may be the id of a session: nothing else that came from elsewhere becomes part of a path."""
    return _ID.fullmatch(text) is not None


class _StoreFile(Struct):
    id: str
    format: int


class Parent(Struct, frozen=True):
    """Where a fork begins: the parent's event `seq`, whose sha256 is `hash`."""

    session: str
    seq: int
    hash: str

    def __post_init__(self) -> None:
        """Raises ValueError, which is a damaged header for who decodes one."""
        if not is_id(self.session) or self.seq < 1:
            raise ValueError(f"no event {self.seq} of a session {self.session[:60]!r} can be a parent")


class Header(Struct, frozen=True, omit_defaults=True):
    """`session.json`, written once, and once more when a parent is deleted.  `store` is the id of the store the session was
    made in; `foreign` says that it took over events that were made elsewhere.  `workspace` is where an isolated fork works,
    below the store's `w`."""

    format: int
    session_id: str
    created: str
    notebook: str | None = None
    parent: Parent | None = None
    store: str | None = None
    foreign: bool = False
    workspace: str | None = None


class Place:
    """A store's folder at `root` (default: `config.store_path()`).  It is made with its first session: looking makes none.

    Raises NewerFormat for a store of a newer version, and IpyagentError when `store.json` is damaged; a `lenient` one, which
    is only looked at, has that as its `problem`.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        disk: Disk | None = None,
        lenient: bool = False,
    ) -> None:
        self.root = Path(root) if root is not None else config.store_path()
        self.clock: Clock = clock or SystemClock()
        self.ids: Ids = ids or random_id
        self.disk = disk or Disk()
        self.sessions_folder = self.root / "s"
        self.workspaces_folder = self.root / "w"
        self._file = self.root / "store.json"
        self._id: str | None = None
        self.problem: IpyagentError | None = None
        try:
            self._id = self._read()
        except IpyagentError as error:
            if not lenient:
                raise
            self.problem = error
        self._sweep()

    @cached_property
    def memory(self) -> Memory:
        """What the sessions of this store share."""
        return Memory(self.root / "memory", self.clock, self.disk, self.make)

    @property
    def id(self) -> str:
        """The store's id: `known_id`, and where there is none yet the store is made."""
        if self.known_id is None:
            self.make()
        assert self._id is not None
        return self._id

    @property
    def known_id(self) -> str | None:
        """The id that `store.json` has; without that file the one that the sessions name, None where they name none."""
        if self._id is None:
            self._id = self._read() or self.id_of_sessions()
        return self._id

    def make(self) -> None:
        """See to it that there is a store, which has the id that its sessions name, if they do."""
        while self._id is None or not self._file.is_file():
            self._create()
            self._id = self._read()

    def makers(self) -> Counter[str]:
        """In which stores the sessions say that they were made, and how many say so of each.

        Those count that were written to, in this store or in one that had its folder: they have a journal, and what an import
        brings has none.  So no archive can say whose store this is.
        """
        named = Counter[str]()
        for session_id in self.session_ids():
            layout = Layout(self.sessions_folder / session_id)
            with contextlib.suppress(OSError, msgspec.DecodeError):
                made_in = from_json(layout.header.read_bytes().removeprefix(b"\xef\xbb\xbf"), Header).store
                if made_in is not None and layout.epoch():
                    named[made_in] += 1
        return named

    def id_of_sessions(self, makers: Counter[str] | None = None) -> str | None:
        """The id that most of `makers` name; None when there are none, or two are named as often."""
        named = (self.makers() if makers is None else makers).most_common(2)
        return named[0][0] if named and (len(named) == 1 or named[0][1] > named[1][1]) else None

    def write_id(self, store_id: str) -> None:
        """Make `store.json` anew with that id.  Raises OSError."""
        self.disk.write_whole(self._file, msgspec.json.encode(_StoreFile(store_id, FORMAT)), what="header")
        self._id = store_id

    def exists(self) -> bool:
        """Whether there is a store: one without sessions, or with sessions whose `store.json` is missing, is one."""
        return self._file.is_file() or self.sessions_folder.is_dir()

    def _read(self) -> str | None:
        """The id that `store.json` has, None without one.  Raises NewerFormat and IpyagentError."""
        path = self._file
        try:
            found = from_json(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), _StoreFile)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except msgspec.DecodeError as error:
            raise IpyagentError(
                f"{path} is damaged: {error}", hint="restore it from a copy, or remove it and run: ipyagent verify --repair"
            ) from error
        if found.format > FORMAT:
            raise NewerFormat(
                f"the store {self.root} has format {found.format}, this version reads up to {FORMAT}",
                hint=UPDATE,
            )
        return found.id

    def _create(self) -> None:
        """Write `store.json`; of several processes that do so at once, one wins and all have its id.  Raises OSError."""
        self.sessions_folder.mkdir(parents=True, exist_ok=True)
        mine = temporary_beside(self._file)
        try:
            with open(mine, "wb") as file:
                file.write(msgspec.json.encode(_StoreFile(self.known_id or self.ids(), FORMAT)))
                file.flush()
                sync_file(file.fileno())
            with contextlib.suppress(FileExistsError):
                if _linked(mine, self._file):
                    sync_folder(self.root)
                else:
                    self._publish_alone(mine)
        finally:
            mine.unlink(missing_ok=True)

    def _publish_alone(self, mine: Path) -> None:
        """Where a file cannot be linked: the first of several processes renames its own.  Raises LeaseHeld, OSError."""
        with exclusive(self.root / "store.lock", what="the making of the store", wait_s=_MADE_WITHIN_S):
            if not self._file.is_file():
                self.disk.publish(mine, self._file, what="header")

    def new_session(
        self,
        event_type: str,
        body: payloads.Payload,
        *,
        notebook: str | None = None,
        parent: Parent | None = None,
        with_task: bool = False,
        workspace: str | None = None,
    ) -> tuple[str, events.Event]:
        """Make a session with its header and its first event; returns its id and that event.

        It appears under its id complete and durable, or not at all.  `with_task` gives the event the id of the session's first
        task.
        """
        session_id, draft = self._draft()
        self.make()
        now = events.Stamper()(self.clock.now())
        event = events.Event(
            parent.seq + 1 if parent else 1,
            event_type,
            now,
            task_id=f"{session_id}.1" if with_task else None,
            payload=events.as_raw(body),
            agent_version=VERSION,
        )
        header = Header(FORMAT, session_id, now, notebook, parent, self.id, workspace=workspace)
        layout = Layout(draft)
        try:
            layout.header.write_bytes(msgspec.json.encode(header))
            layout.journal(1, event.seq).write_bytes(line_of(event))
            for path in (layout.header, layout.journal(1, event.seq)):
                with open(path, "rb+") as file:
                    sync_file(file.fileno())
            sync_folder(draft)
            self.disk.publish(draft, self.sessions_folder / session_id, what="header")
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        return session_id, event

    def _sweep(self) -> None:
        """Remove the hidden drafts of processes that died while they made a session.  By the file system's own times."""
        with contextlib.suppress(OSError), os.scandir(self.sessions_folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") and is_id(entry.name[1:]):
                    with contextlib.suppress(OSError):
                        if time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED_S:
                            shutil.rmtree(entry.path, ignore_errors=True)

    def _draft(self) -> tuple[str, Path]:
        """An id that is free, and the hidden folder in which its session is prepared."""
        self.sessions_folder.mkdir(parents=True, exist_ok=True)
        while True:
            session_id = self.ids()
            draft = self.sessions_folder / f".{session_id}"
            if (self.sessions_folder / session_id).exists():
                continue
            try:
                draft.mkdir()
            except FileExistsError:
                continue
            return session_id, draft

    def session_ids(self) -> list[str]:
        """All ids, in no order."""
        try:
            with os.scandir(self.sessions_folder) as entries:
                return [e.name for e in entries if is_id(e.name) and e.is_dir()]
        except FileNotFoundError:
            return []

    def check_lineage(self, session_id: str, header: Header) -> None:
        """Follow the ancestors of a session.  Raises DamageError when it is its own, or has too many.

        One that cannot be read ends the walk: whoever reads it says why.
        """
        seen, parent = {session_id}, header.parent
        while parent is not None:
            if parent.session in seen or len(seen) > DEEPEST:
                what = "is its own ancestor" if parent.session in seen else f"has more than {DEEPEST} ancestors"
                raise DamageError(f"session {session_id} {what}", hint="restore its session.json from a copy")
            seen.add(parent.session)
            path = Layout(self.sessions_folder / parent.session).header
            try:
                parent = from_json(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), Header).parent
            except (OSError, msgspec.DecodeError):
                return


def _linked(there: Path, name: Path) -> bool:
    """Whether `there` has that name as well now: exFAT and some network and FUSE file systems refuse, each with its own error.
    Raises FileExistsError."""
    try:
        os.link(there, name)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True
