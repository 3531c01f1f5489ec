"""Bringing what an older version wrote to the form that this one writes, with a copy of what is replaced.

    <store>/backups/upgrade-<time>/upgrade.json     by whom, to which form, and which sessions are done
    <store>/backups/upgrade-<time>/s/<id>/...       each replaced file as it was, under its old path
    <store>/upgrade.lock                            one upgrade at a time

The log is the same since the first version and is never touched.  What changed is what stands beside it:

- checkpoints hold the state in a numbered form.  One of another form is not used: the state is folded from the log, each time.
  An upgrade makes it anew, under its number and its label;
- a summary that lacks what lists show today is made anew;
- sessions of the first versions do not say which store they were made in, and count as brought from elsewhere: nothing is
  added to them.  An upgrade notes the store that they lie in.  What was imported always says where from.

A session is done under its lease.  Its files are copied before the first of them is replaced, each is replaced as a whole, and
what is already of this form is no part of the plan: so a kill at any point leaves a store that reads as before, and the next
run goes on where this one stopped, into the same copy.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding
from ipyagent_sessions import state as states
from ipyagent_sessions.config import LAST_EVENTS
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import DamageError, IpyagentError
from ipyagent_sessions.events import Stamper
from ipyagent_sessions.log import checkpoints, lease, live
from ipyagent_sessions.log.exclusive import exclusive
from ipyagent_sessions.log.files import make_folder
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.place import VERSION
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.state import FORM, State
from ipyagent_sessions.store import Store

BACKUPS: Final = "backups"
KEPT_DAYS: Final = 30
"""How long a backup stays."""
_PREFIX: Final = "upgrade-"
_RECORD: Final = "upgrade.json"


class Older(Struct, frozen=True):
    """A file of an older form: its path relative to the session's folder, its bytes, and what it lacks."""

    session_id: str
    file: str
    size: int
    why: str


class Plan(Struct):
    """What an upgrade would replace.  `problems` are sessions that cannot be upgraded, with the reason."""

    older: list[Older] = []
    problems: dict[str, str] = {}


class Kept(Struct, frozen=True):
    """A session that is done: how many files were replaced, how many events its history has, and the sha256 of these, which
    was the same before and after."""

    files: int
    events: int
    sha256: str


class Record(Struct):
    """`upgrade.json`.  `ended` is None while the upgrade is under way, or was cut short."""

    begun: str
    by: str
    version: str
    form: int
    ended: str | None = None
    sessions: dict[str, Kept] = {}


class Done(Struct):
    """What an upgrade did, and the folder that holds what it replaced; None when there was nothing to replace."""

    sessions: dict[str, Kept] = {}
    problems: dict[str, str] = {}
    backup: Path | None = None


def plan(store: Store, session_id: str | None = None) -> Plan:
    """What of one session, or of all, is of an older form."""
    found = Plan()
    for name in [session_id] if session_id is not None else sorted(store.session_ids()):
        try:
            found.older += of_session(store.session(name))
        except (IpyagentError, OSError) as error:
            found.problems[name] = str(error)
    return found


def of_session(session: Session) -> list[Older]:
    """The files of a session that are of an older form.  Raises IpyagentError when it cannot be read."""
    return list(_of_session(session))


def _of_session(session: Session) -> Iterator[Older]:
    layout = session.layout
    if session.header.store is None:
        yield _older(session, layout.header, "it does not say in which store it was made")
    for seq in checkpoints.sequence(layout):
        form = checkpoints.form_of(layout, seq)
        if form is not None and form < FORM:
            yield _older(session, checkpoints.path_of(layout, seq), f"form {form} of the state, this version has {FORM}")
    summary = live.read_summary(layout)
    if summary is not None and summary.form < FORM:
        yield _older(session, layout.summary, "a summary of an older form")


def _older(session: Session, path: Path, why: str) -> Older:
    return Older(session.id, path.relative_to(session.layout.root).as_posix(), path.stat().st_size, why)


def is_due(store: Store) -> bool:
    """Whether some session is of an older form, as far as the summaries say: one small file of each."""
    summaries = (live.read_summary(store.session(name).layout) for name in store.session_ids())
    return any(summary is not None and summary.form < FORM for summary in summaries)


def upgrade(store: Store, session_id: str | None = None, *, by: str) -> Done:
    """Do what `plan` says, session by session.

    A session that is held, damaged or newer than this version is left as it is, and named.  Raises LeaseHeld when another
    upgrade is under way, OSError when the disk refuses; what is done by then is done, and the next run goes on.
    """
    done = Done()
    with exclusive(store.root / "upgrade.lock", what="an upgrade"):
        found = plan(store, session_id)
        done.problems = found.problems
        if not found.older and _cut_short(store) is None:
            return done
        done.backup, record = _begin(store, by)
        for name in dict.fromkeys(older.session_id for older in found.older):
            try:
                record.sessions[name] = done.sessions[name] = _session(store.session(name), done.backup)
            except IpyagentError as error:
                done.problems[name] = str(error)
                continue
            except FileNotFoundError:
                if store.session(name).layout.root.exists():
                    raise
                done.problems[name] = "it was deleted meanwhile"
                continue
            _write(store, done.backup, record)
        record.ended = Stamper()(store.clock.now())
        _write(store, done.backup, record)
    return done


def _begin(store: Store, by: str) -> tuple[Path, Record]:
    """The folder of the upgrade that was cut short, or a new one."""
    now = Stamper()(store.clock.now())
    folder = _cut_short(store) or store.root / BACKUPS / f"{_PREFIX}{now[:19].replace(':', '')}"
    record = read(folder)
    if record is not None and record.ended is None:
        return folder, record
    while record is not None:  # two in one second
        folder = folder.with_name(f"{folder.name}-1")
        record = read(folder)
    record = Record(now, by, VERSION, FORM)
    make_folder(folder.parent)
    make_folder(folder)
    _write(store, folder, record)
    return folder, record


def _cut_short(store: Store) -> Path | None:
    """The folder of an upgrade that did not end, perhaps before it noted anything."""
    for folder in backups(store):
        record = read(folder)
        if record is None or record.ended is None:
            return folder
    return None


def backups(store: Store) -> list[Path]:
    """The folders that upgrades of this store left, oldest first."""
    folder = store.root / BACKUPS
    return sorted(path for path in folder.glob(f"{_PREFIX}*") if path.is_dir())


def read(backup: Path) -> Record | None:
    """What the upgrade noted that made this folder; None when it was cut short before it noted anything."""
    try:
        return from_json((backup / _RECORD).read_bytes(), Record)
    except (OSError, msgspec.DecodeError):
        return None


def _write(store: Store, backup: Path, record: Record) -> None:
    store.disk.write_whole(backup / _RECORD, msgspec.json.encode(record), what="upgrade")


def _session(session: Session, backup: Path) -> Kept:
    """Upgrade one session.  Raises LeaseHeld, DamageError, NewerFormat."""
    with lease.held(session.layout, "upgrade", now=session.place.clock.now(), disk=session.place.disk):
        older = of_session(session)  # once more, now that nobody writes
        for folder in (session.layout, Layout(backup / "s" / session.id)):
            checkpoints.clean_unfinished(folder)
        before = _fold(session, set())
        for item in older:
            _copy(session, item.file, backup)
        wanted = {int(item.file.split("/")[1].partition(".")[0]) for item in older if item.file.startswith("checkpoints/")}
        state, count, digest = _fold(session, wanted)
        if any(item.file == "session.json" for item in older):
            header = msgspec.structs.replace(session.header, store=session.place.id)
            session.place.disk.write_whole(session.layout.header, msgspec.json.encode(header), what="header")
        if any(item.file == "summary.json" for item in older):
            summary = msgspec.json.encode(summarise(session.id, state))
            session.place.disk.write_whole(session.layout.summary, summary, what="upgrade")
        if before[1:] != (count, digest) or _fold(session, set())[1:] != (count, digest):
            raise DamageError(f"the log of session {session.id} changed during the upgrade", hint="ipyagent verify says where")
        return Kept(len(older), count, digest)


def _copy(session: Session, file: str, backup: Path) -> None:
    """Keep a file as it is.  What a run that was cut short has copied already is older, and stays."""
    kept = backup / "s" / session.id / file
    if not kept.exists():
        make_folder(kept.parent)
        session.place.disk.write_whole(kept, (session.layout.root / file).read_bytes(), what="backup")


def _fold(session: Session, wanted: set[int]) -> tuple[State, int, str]:
    """Fold the history and write a checkpoint at each seq of `wanted`; returns the state, and the number and the sha256 of the
    events.  Raises DamageError for a gap, and when what was written does not read as the state."""
    state, count, digest = State(), 0, hashlib.sha256()
    recent: deque[bytes] = deque(maxlen=LAST_EVENTS)
    for event in session.events():
        if event.seq != state.seq + 1:
            raise DamageError(f"session {session.id} lacks event {state.seq + 1}", hint="ipyagent verify says where")
        folding.apply(state, event)
        body = ev.encode(event)
        digest.update(body + b"\n")
        count += 1
        if event.seq in wanted and event.seq >= session.first:
            checkpoints.write_again(session.layout, event, states.encode(state), recent, session.place.disk)
        recent.append(body)
    return state, count, digest.hexdigest()
