"""One session checked as a whole, or every session of a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.decoding import from_json
from ipyagent_sessions.errors import DamageError, IpyagentError, LeaseHeld, NotFound
from ipyagent_sessions.events import Event
from ipyagent_sessions.log import checkpoints, lease, witnesses
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.log.reader import Reader, seqs
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.verify import blobs, cached, files, identity, tails
from ipyagent_sessions.verify.finding import COPY, MEND, Finding, Report, level_of, unreadable
from ipyagent_sessions.verify.states import Fold


def store(checked: Store, *, repair: bool = False) -> Report:
    """Every session of the store.  One that cannot be read at all is a finding, and the others are checked."""
    report = Report(findings=_identity(checked, repair=repair))
    copied = cached.check(checked, repair=repair)  # first, since a repaired session counts as changed
    for session_id in sorted(checked.session_ids()):
        one = session(checked.session(session_id), repair=repair)
        if not one.damaged or (checked.sessions_folder / session_id).exists():  # else it was deleted meanwhile
            report.add(one)
    report.findings += _shared(checked) + copied
    return report


def _identity(checked: Store, *, repair: bool) -> list[Finding]:
    """Before anything else is asked for the store's id."""
    try:
        return identity.check(checked, repair=repair)
    except OSError as error:
        return [unreadable("", "store.json", error)]


def _shared(checked: Store) -> list[Finding]:
    """What of the files that sessions share does not verify."""
    means, todo = (
        "the entries that stood there are lost, the others are whole",
        "restore the file from a copy, or put it again",
    )
    try:
        problems, torn = checked.memory.problems(), checked.memory.torn()
    except (IpyagentError, OSError) as error:
        means = "what sessions share cannot be read"
        return [Finding("", "memory", "", str(error), means, "see the message", level_of(error))]
    found = [Finding("", f"memory/{p.partition(': ')[0]}", "", p.partition(": ")[2], means, todo) for p in problems]
    if torn:
        file, _, place = torn.partition(", ")
        means, todo = "normal after a crash: it was never acknowledged", "nothing; the next put or delete sets it aside"
        found.append(Finding("", f"memory/{file}", place, "an unfinished line at the end", means, todo, "note"))
    for path in checked.memory.set_aside():
        what, means = f"{path.stat().st_size} bytes set aside", "cut from a damaged file, kept for you to look at"
        found.append(Finding("", f"memory/damaged/{path.name}", "", what, means, "nothing", "note"))
    return found


def session(checked: Session, *, repair: bool = False) -> Report:
    """One session, and the part of its ancestors that it inherits.

    Looking takes no lock.  With `repair` its checkpoints and its summary are made anew where they are wrong, under its lease.
    A session that somebody holds, or wrote to while it was read, is left, and the report says so.
    """
    try:
        _ = checked.header
    except (IpyagentError, OSError) as error:
        what, todo = (error.message, error.hint) if isinstance(error, IpyagentError) else (error.strerror or str(error), MEND)
        if isinstance(error, NotFound):  # its folder is there
            what, todo = "it is missing", "restore session.json from a copy"
        means = "the session cannot be opened; its events are still there"
        return Report(1, findings=[Finding(checked.id, "session.json", "", what, means, todo, level_of(error))])
    try:
        return _session(checked, repair=repair)
    except IpyagentError as error:
        means = "the session cannot be read"
        return Report(1, findings=[Finding(checked.id, "", "", error.message, means, error.hint, level_of(error))])
    except OSError as error:
        return Report(1, findings=[unreadable(checked.id, str(error.filename or ""), error)])


def _session(checked: Session, *, repair: bool) -> Report:
    held, begun = checked.held(), _mark(checked) if repair else None
    known = witnesses.look(checked.layout)
    walk = _Walk(checked)
    reader = Reader(checked.layout, checked.first)
    for event in _inherited(checked):
        walk.take(event)
    count = 0
    for event in reader.events():
        walk.take(event, own=True)
        count += 1
    last = walk.last
    walk.fold.end(last, held=held)
    found = [*_header(checked), *_fork(checked)]
    found += [_missing(checked, *gap) for gap in reader.missing]
    found += files.check(checked.layout, walk.sums, held=held)
    if not held:
        found += tails.check(checked.layout, known, max([last, *(end for _, end in reader.missing)]), walk.at)
    sizes, wrong = blobs.check(checked, walk.named, held=held)
    found += walk.findings + walk.fold.findings + wrong
    if _knows_more(walk.fold, found):
        found = [_kept(f) if f.file == "summary.json" else f for f in found]
    if begun is not None and any(f.derived for f in found):
        found = _repaired(checked, walk.fold, found, None if held else begun)
    return Report(1, count, walk.fold.checked, sizes, found)


class _Walk:
    """What is gathered in one pass over a session's history."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.fold = Fold(session)
        self.sums = files.Sums(session.first)
        self.named: dict[str, int] = {}
        self.findings: list[Finding] = []
        self.last = 0
        self.at = ""

    def take(self, event: Event, *, own: bool = False) -> None:
        body = ev.encode(event)
        self.last, self.at = event.seq, event.timestamp
        if own:
            self.sums.add(event, body)
        if event.parent_event is not None and not 0 < event.parent_event < event.seq:
            what = f"its parent_event is {event.parent_event}, which does not come before it"
            self.findings.append(
                Finding(self.session.id, "log", f"event {event.seq}", what, "causes cannot be followed", COPY)
            )
        for name in blobs.named_by(event):
            self.named.setdefault(name, event.seq)
        self.fold.take(event, body)


def _inherited(checked: Session) -> Iterator[Event]:
    parent = checked.header.parent
    if parent is not None and checked.parent is not None:
        try:
            yield from checked.parent.events(until=parent.seq)
        except (IpyagentError, OSError):  # `_fork` says what is wrong with the parent
            return


def _header(checked: Session) -> Iterator[Finding]:
    if checked.header.session_id != checked.id:
        what = f"it is the header of session {checked.header.session_id}"
        yield Finding(checked.id, "session.json", "", what, "the folder was renamed or its header replaced", COPY)


def _fork(checked: Session) -> Iterator[Finding]:
    """The event that a fork begins after, as its header, its first event and its parent have it."""
    parent = checked.header.parent
    if parent is None or checked.parent is None:
        return
    place = f"parent {parent.session}, event {parent.seq}"
    means = "what the session inherited is not what it was forked from"
    try:
        event = checked.parent.event(parent.seq)
    except (IpyagentError, OSError) as error:
        what = error.message if isinstance(error, IpyagentError) else str(error)
        yield Finding(
            checked.id, "session.json", place, what, "the inherited part of the session is lost", "restore the parent"
        )
        return
    if ev.digest(event) != parent.hash:
        yield Finding(checked.id, "session.json", place, "that event has changed since", means, "restore the parent")
    for begun in checked.events(parent.seq, parent.seq + 1):
        try:
            body = from_json(begun.payload, p.SessionForked)
        except msgspec.DecodeError:
            return  # the fold says so
        if (body.parent_session, body.parent_seq, body.parent_hash) != (parent.session, parent.seq, parent.hash):
            yield Finding(checked.id, "session.json", place, f"event {begun.seq} names another parent", means, COPY)


def _missing(checked: Session, first: int, last: int) -> Finding:
    means = f"no file holds {'it' if first == last else 'them'}; the session can be used up to event {first - 1}"
    todo = f"restore the file from a copy, or fork at {first - 1}"
    return Finding(checked.id, "log", seqs(first, last), "missing", means, todo)


def _mark(checked: Session) -> tuple[int, int]:
    """What is another one once anybody has written to the session."""
    return checked.layout.epoch(), checked.last_seq()


def _repaired(checked: Session, fold: Fold, found: list[Finding], begun: tuple[int, int] | None) -> list[Finding]:
    """What was found, after `_make_anew` under the lease.  `begun` is the mark before the walk, None for a session that was
    held then: its files may be later than what the walk has seen."""
    means, todo = "what is wrong with it was found, and nothing was changed", "repair again when no task runs in it"
    try:
        with lease.held(checked.layout, "repair", now=checked.place.clock.now(), disk=checked.place.disk):
            if _mark(checked) != begun:
                what = "it was not repaired: a task wrote to it while it was checked"
                return [*found, Finding(checked.id, "", "", what, means, todo, "note")]
            _make_anew(checked, fold, found)
    except LeaseHeld as error:
        return [*found, Finding(checked.id, "", "", f"it was not repaired: {error.message}", means, todo, "note")]
    except (OSError, DamageError) as error:
        means = "the rest was checked; nothing of the log was touched"
        return [*found, Finding(checked.id, "", "", f"the repair stopped: {error}", means, "mend the disk, then repair again")]
    return [msgspec.structs.replace(f, repaired=True) if f.derived else f for f in found]


def _make_anew(checked: Session, fold: Fold, found: list[Finding]) -> None:
    """Make the wrong checkpoints and the summary anew.  All wrong checkpoints go first: one may stand on another."""
    layout, disk = checked.layout, checked.place.disk
    for seq in fold.wrong:
        _clear(layout, checkpoints.path_of(layout, seq))
    for _, made in sorted(fold.wrong.items()):
        checkpoints.write_again(layout, made.event, made.body, made.recent, disk)
    if fold.state is not None and any(f.file == "summary.json" and f.derived for f in found):
        if layout.summary.is_dir():
            _clear(layout, layout.summary)
        disk.replace(layout.summary, msgspec.json.encode(summarise(checked.id, fold.state)))


def _clear(layout: Layout, path: Path) -> None:
    """Make room for a file.  A folder of that name may hold anything: it is set aside."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    layout.damaged.mkdir(exist_ok=True)
    at, number = layout.damaged / path.name, 0
    while os.path.lexists(at):
        number += 1
        at = layout.damaged / f"{path.name}.{number}"
    path.rename(at)


def _knows_more(fold: Fold, found: list[Finding]) -> bool:
    """Whether the summary is of a later event than a damaged log ends at: it is then the last that tells of what is lost."""
    lost = any(f.level == "damage" and not f.derived and f.file.startswith(("log", "events/", "journal-")) for f in found)
    return lost and fold.state is not None and fold.told > fold.state.seq


def _kept(found: Finding) -> Finding:
    todo = "restore the log; repair leaves the summary, which tells of what the log has lost"
    return msgspec.structs.replace(found, todo=todo, derived=False)
