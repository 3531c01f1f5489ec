"""One session checked as a whole, or every session of a store."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import msgspec

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import DamageError, IpyagentError
from ipyagent_sessions.events import Event
from ipyagent_sessions.log import checkpoints, live
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.verify import blobs, cached, files
from ipyagent_sessions.verify.finding import COPY, Finding, Report, level_of, seqs
from ipyagent_sessions.verify.states import Fold


def store(checked: Store, *, repair: bool = False) -> Report:
    """Every session of the store.  One that cannot be read at all is a finding, and the others are checked."""
    report = Report(findings=_identity(checked))
    copied = cached.check(checked, repair=repair)  # first, since a repaired session counts as changed
    for session_id in sorted(checked.session_ids()):
        report.add(session(checked.session(session_id), repair=repair))
    report.findings += _shared(checked) + copied
    return report


def _identity(checked: Store) -> list[Finding]:
    """Looked at before anything else: who needs the store's id makes a new one where there is none."""
    if (checked.root / "store.json").is_file():
        return []
    named: set[str] = set()
    for session_id in checked.session_ids():
        with contextlib.suppress(IpyagentError, OSError):  # its own check says what is wrong with it
            named.add(checked.session(session_id).header.store or "")
    if not named:
        return []
    what = f"it is missing; the sessions were made in {', '.join(sorted(named - {''})) or 'a store that they do not name'}"
    means = "they count as brought from elsewhere: nothing is added to them"
    return [Finding("", "store.json", "", what, means, COPY)]


def _shared(checked: Store) -> list[Finding]:
    """What of the files that sessions share does not verify."""
    means, todo = "that entry is lost, the others are whole", "restore the file from a copy, or put it again"
    try:
        problems = checked.memory.problems()
    except (IpyagentError, OSError) as error:
        means = "what sessions share cannot be read"
        return [Finding("", "memory", "", str(error), means, "see the message", level_of(error))]
    return [Finding("", f"memory/{p.partition(': ')[0]}", "", p.partition(": ")[2], means, todo) for p in problems]


def session(checked: Session, *, repair: bool = False) -> Report:
    """One session, and the part of its ancestors that it inherits.

    With `repair` its checkpoints and its summary are made anew where they are wrong, unless somebody holds its lease.
    """
    try:
        _ = checked.header
    except IpyagentError as error:
        means = "the session cannot be opened; its events are still there"
        found = Finding(checked.id, "session.json", "", error.message, means, error.hint, level_of(error))
        return Report(1, findings=[found])
    try:
        return _session(checked, repair=repair)
    except IpyagentError as error:
        means = "the session cannot be read"
        return Report(1, findings=[Finding(checked.id, "", "", error.message, means, error.hint, level_of(error))])
    except OSError as error:
        where = str(error.filename or "")
        means = "what is in it could not be checked"
        return Report(1, findings=[Finding(checked.id, where, "", error.strerror or str(error), means, "mend the disk")])


def _session(checked: Session, *, repair: bool) -> Report:
    held = checked.held()
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
    sizes, wrong = blobs.check(checked, walk.named, held=held)
    found += walk.findings + walk.fold.findings + wrong
    if repair and not held:
        found = _repaired(checked, walk.fold, found)
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

    def take(self, event: Event, *, own: bool = False) -> None:
        body = ev.encode(event)
        self.last = event.seq
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
        except IpyagentError:  # `_fork` says what is wrong with the parent
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
            body = msgspec.json.decode(begun.payload, type=p.SessionForked)
        except msgspec.DecodeError:
            return  # the fold says so
        if (body.parent_session, body.parent_seq, body.parent_hash) != (parent.session, parent.seq, parent.hash):
            yield Finding(checked.id, "session.json", place, f"event {begun.seq} names another parent", means, COPY)


def _missing(checked: Session, first: int, last: int) -> Finding:
    means = f"no file holds {'it' if first == last else 'them'}; the session can be used up to event {first - 1}"
    todo = f"restore the file from a copy, or fork at {first - 1}"
    return Finding(checked.id, "log", seqs(first, last), "missing", means, todo)


def _repaired(checked: Session, fold: Fold, found: list[Finding]) -> list[Finding]:
    """Make the wrong checkpoints and the summary anew.  All wrong checkpoints go first: one may stand on another."""
    layout, disk = checked.layout, checked.place.disk
    try:
        for seq in fold.wrong:
            checkpoints.path_of(layout, seq).unlink(missing_ok=True)
        for seq, made in sorted(fold.wrong.items()):
            body = msgspec.json.decode(made.event.payload, type=p.CheckpointCreated)
            checkpoints.write(
                layout, seq, made.body, label=body.label, trigger=body.trigger, at=made.event.timestamp,
                last_events=made.recent, disk=disk,
            )  # fmt: skip
        if fold.state is not None and any(f.file == "summary.json" for f in found):
            live.write_summary(layout, summarise(checked.id, fold.state), disk)
    except (OSError, DamageError, msgspec.DecodeError) as error:
        means = "the rest was checked; nothing of the log was touched"
        return [*found, Finding(checked.id, "", "", f"the repair stopped: {error}", means, "mend the disk, then repair again")]
    return [msgspec.structs.replace(f, repaired=True) if f.derived else f for f in found]
