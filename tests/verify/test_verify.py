"""Damage of every kind of file is named by its place, and only what is derived is repaired."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import pytest

from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.errors import LeaseHeld
from ipyagent_sessions.events import as_raw, encode
from ipyagent_sessions.log import checkpoints, lease, live
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.format import event_of, line_of
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk, History, activities, emit
from ipyagent_sessions.verify import files, whole
from ipyagent_sessions.verify.finding import Finding, Report

Rich = tuple[Session, Session]


def flip(path: Path, at: int) -> None:
    body = bytearray(path.read_bytes())
    body[at] ^= 0x10
    path.write_bytes(body)


def contents(folder: Path) -> dict[str, bytes]:
    """What the log consists of, by name: nothing of it may ever be touched."""
    logs = [*folder.glob("journal-*"), *folder.glob("events/*"), *folder.glob("blobs/*"), folder / "session.json"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in logs}


@pytest.fixture
def rich(store: Store, session: Session, me: Holder) -> Rich:
    """A session with segments, a journal, checkpoints (whole and by difference), a blob; and a fork of it."""
    appender = session.append(me)
    for item in islice(History(random.Random(3)), 1, 400):
        emit(appender, item)
    big: dict[str, bytes] = {}
    _, name = appender.put(b'"' + b"x" * 40_000 + b'"', big)
    appender.emit(
        "ActivityCompleted", p.ActivityCompleted("big", result_blob=name), task_id="t", activity_id="/big:1", blobs=big
    )
    for n in range(3):
        activities(appender, 5)
        appender.checkpoint("manual", f"label {n}")
    appender.close(rest=True)
    appender = session.append(me)
    activities(appender, 8)
    appender.checkpoint("manual", "last")
    appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id="t9")
    appender.emit("TaskStarted", p.TaskStarted(), task_id="t9")
    appender.emit("TaskCompleted", p.TaskCompleted(), task_id="t9")
    appender.close()
    whole.session(session, repair=True)  # the summary, which a task's own run would have written
    return session, session.fork()


def damage(report: Report) -> list[Finding]:
    return [f for f in report.findings if f.level == "damage"]


def only(report: Report) -> Finding:
    found = damage(report)
    assert len(found) == 1, found
    assert report.damaged
    return found[0]


def test_a_line_that_stands_twice_is_noted_and_counts_once(rich: Rich) -> None:
    session, _ = rich
    journal = session.layout.journals()[-1].path
    before = [event.seq for event in session.events()]
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines, *lines[-2:]]))
    (found,) = whole.session(session).findings
    assert (found.file, found.place, found.level) == (journal.name, f"events {before[-2]} to {before[-1]}", "note")
    assert (found.what, found.means) == ("they stand here again", "each counts once")
    assert [event.seq for event in session.events()] == before


def test_a_sound_store_has_no_findings_and_everything_was_looked_at(store: Store, rich: Rich) -> None:
    report = whole.store(store)
    assert report.findings == []
    assert (report.sessions, report.snapshots, report.blobs) == (2, 4, 1)
    assert report.events == rich[0].last_seq() + 1


def test_a_snapshot_at_an_event_that_is_no_checkpoint_is_named_and_the_repair_goes_on(rich: Rich) -> None:
    layout = rich[0].layout
    last = checkpoints.sequence(layout)[-1]
    stray = checkpoints.path_of(layout, last + 2)
    stray.write_bytes(checkpoints.path_of(layout, last).read_bytes())
    flip(checkpoints.path_of(layout, last), 30)
    report = whole.session(rich[0], repair=True)
    found = {f.file: f for f in report.findings}
    assert found[f"checkpoints/{stray.name}"].what == "that event is TaskStarted"
    assert not found[f"checkpoints/{stray.name}"].repaired
    assert found[f"checkpoints/{last}.json.zst"].repaired
    assert not any("repair stopped" in f.what for f in report.findings)


def test_a_changed_byte_of_a_journal_is_named_by_byte_line_and_event(rich: Rich) -> None:
    session = rich[0]
    journal = session.layout.journals()[-1]
    lines = journal.path.read_bytes().splitlines(keepends=True)
    offset = sum(map(len, lines[:4]))
    flip(journal.path, offset + 60)
    before = contents(session.layout.root)
    report = whole.session(session, repair=True)
    seq = journal.first + 4
    places = {(f.file, f.place) for f in damage(report)}
    assert (journal.path.name, f"byte {offset} ({len(lines[4]) - 1} bytes), line 5, after event {seq - 1}") in places
    assert ("log", f"event {seq}") in places
    assert contents(session.layout.root) == before, "the log is never touched"
    assert report.damaged


def test_an_unfinished_event_at_the_end_is_a_note(rich: Rich) -> None:
    journal = rich[0].layout.journals()[-1].path
    with open(journal, "ab") as file:
        file.write(b'{"c":"0011')
    report = whole.session(rich[0])
    assert [(f.level, f.file) for f in report.findings] == [("note", journal.name)]
    assert not report.damaged


def test_a_damaged_last_event_that_was_acknowledged_is_damage(rich: Rich) -> None:
    journal = rich[0].layout.journals()[-1].path
    flip(journal, journal.stat().st_size - 20)
    assert any(f.file == journal.name and "checksum" in f.what for f in damage(whole.session(rich[0])))


@pytest.mark.parametrize(
    "break_it", [lambda path: flip(path, path.stat().st_size // 3), lambda path: path.write_bytes(b"PAR1")]
)
def test_a_damaged_segment_is_named_with_its_events(rich: Rich, break_it: Callable[[Path], None]) -> None:
    for journal in rich[0].layout.journals()[:-1]:
        journal.path.unlink()
    segment = rich[0].layout.segments()[0]
    break_it(segment.path)
    report = whole.session(rich[0])
    named = [f for f in damage(report) if f.file == f"events/{segment.path.name}"]
    assert named
    assert named[0].place.startswith("events 1 to ")
    assert any(f.file == "log" and f.what == "missing" for f in damage(report))


def test_a_missing_segment_is_a_gap_in_the_log(rich: Rich) -> None:
    for journal in rich[0].layout.journals()[:-1]:
        journal.path.unlink()
    segment = rich[0].layout.segments()[0]
    segment.path.unlink()
    gaps = [f for f in damage(whole.session(rich[0])) if f.what == "missing"]
    assert [(f.file, f.place) for f in gaps] == [("log", f"events 1 to {segment.last}")]


def test_an_event_that_two_files_tell_differently_is_named(rich: Rich, me: Holder) -> None:
    session = rich[0]
    journal = session.layout.journals()[-1]
    lines = journal.path.read_bytes().splitlines()
    session.append(me).close(rest=True)  # sealed now; a journal that could not be removed yet counts as well
    event = event_of(lines[2])
    assert event is not None
    forged = line_of(msgspec.structs.replace(event, actor="user:mallory"))
    journal.path.write_bytes(b"\n".join([*lines[:2], forged.rstrip(b"\n"), *lines[3:]]) + b"\n")
    assert only(whole.session(session)).place == f"line 3, event {event.seq}"


def test_a_segment_of_another_session_is_named(store: Store, rich: Rich) -> None:
    other = store.create(title="other")
    segment = rich[0].layout.segments()[0]
    other.layout.events.mkdir()
    (other.layout.events / segment.path.name).write_bytes(segment.path.read_bytes())
    found = damage(whole.session(other))
    assert any(f.place == "column session_id" and rich[0].id in f.what for f in found)


def test_a_checkpoint_that_is_no_checkpoint_is_named_and_repaired(rich: Rich) -> None:
    session = rich[0]
    wanted = {seq: states.encode(checkpoints.load(session.layout, seq)[0]) for seq in checkpoints.sequence(session.layout)}
    first = checkpoints.sequence(session.layout)[0]
    assert any(i.base == first for i in session.checkpoints()), "the others are differences to it"
    checkpoints.path_of(session.layout, first).write_bytes(b"rubbish")
    named = {f.file for f in damage(whole.session(session))}
    assert f"checkpoints/{first}.json.zst" in named
    assert not whole.session(session, repair=True).damaged
    assert whole.session(session).findings == []
    assert {s: states.encode(checkpoints.load(session.layout, s)[0]) for s in wanted} == wanted


def test_a_checkpoint_whose_state_the_log_does_not_give_is_named_and_repaired(rich: Rich, store: Store) -> None:
    session = rich[0]
    seq = checkpoints.sequence(session.layout)[-1]
    state, snapshot = checkpoints.load(session.layout, seq)
    state.business_state.values["forged"] = True
    checkpoints.write(
        session.layout,
        seq,
        states.encode(state),
        label=snapshot.label,
        trigger=snapshot.trigger,
        at=snapshot.at,
        last_events=[],
        disk=store.disk,
    )
    found = only(whole.session(session))
    assert (found.file, found.place) == (f"checkpoints/{seq}.json.zst", f"event {seq}")
    assert "differs" in found.what
    whole.session(session, repair=True)
    assert "forged" not in checkpoints.load(session.layout, seq)[0].business_state.values


def test_a_checkpoint_behind_the_last_event_is_named(rich: Rich) -> None:
    folder = rich[0].layout.checkpoints
    last = checkpoints.sequence(rich[0].layout)[-1]
    (folder / "99999.json.zst").write_bytes((folder / f"{last}.json.zst").read_bytes())
    assert only(whole.session(rich[0])).file == "checkpoints/99999.json.zst"


def test_the_checkpoint_behind_damage_is_kept_as_the_only_copy_of_its_state(rich: Rich) -> None:
    session = rich[0]
    for journal in session.layout.journals()[:-1]:
        journal.path.unlink()
    session.layout.segments()[0].path.unlink()
    before = {s: checkpoints.path_of(session.layout, s).read_bytes() for s in checkpoints.sequence(session.layout)}
    whole.session(session, repair=True)
    assert {s: checkpoints.path_of(session.layout, s).read_bytes() for s in before} == before


def test_a_changed_and_a_missing_blob_are_named_with_the_event_that_names_them(rich: Rich) -> None:
    blob = next(rich[0].layout.blobs.iterdir())
    body = blob.read_bytes()
    flip(blob, 100)
    found = only(whole.session(rich[0]))
    assert (found.file, found.place) == (f"blobs/{blob.name}", "event 401")
    blob.unlink()
    assert only(whole.session(rich[0])).what == "it is missing"
    assert only(whole.session(rich[1])).what == "it is missing", "a fork needs it too"
    blob.write_bytes(body)
    assert not whole.session(rich[0]).damaged


def test_a_blob_that_nothing_names_is_a_note(rich: Rich) -> None:
    body = b"nobody's"
    (rich[0].layout.blobs / hashlib.sha256(body).hexdigest()).write_bytes(body)
    report = whole.session(rich[0])
    assert [(f.level, f.what) for f in report.findings] == [("note", "no event names it")]


@pytest.mark.parametrize("change", [{"title": "another"}, {"state": "failed"}, {"cost_usd": 17.0}, {"seq": 99999}])
def test_a_summary_that_says_something_else_is_named_and_repaired(rich: Rich, change: dict[str, object]) -> None:
    path = rich[0].layout.summary
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert only(whole.session(rich[0])).file == "summary.json"
    assert not whole.session(rich[0], repair=True).damaged
    assert rich[0].summary() == summarise(rich[0].id, rich[0].state())


def test_a_fork_whose_parent_has_changed_or_gone_is_named(store: Store, rich: Rich) -> None:
    header = rich[1].layout.header
    told = json.loads(header.read_text())
    told["parent"]["hash"] = "0" * 64
    header.write_text(json.dumps(told))
    found = damage(whole.session(store.session(rich[1].id)))
    assert any(f.place.startswith(f"parent {rich[0].id}, event ") for f in found)
    header.write_text(json.dumps({**told, "parent": {**told["parent"], "session": "gone"}}))
    found = damage(whole.session(store.session(rich[1].id)))
    assert any("gone" in f.place and f.todo == "restore the parent" for f in found)


def test_a_header_that_cannot_be_read_costs_one_session(store: Store, rich: Rich) -> None:
    rich[0].layout.header.write_bytes(b"{")
    report = whole.store(store)
    assert report.sessions == 2
    assert any(f.session == rich[0].id and f.file == "session.json" for f in damage(report))


def test_an_event_that_cannot_be_folded_is_named(session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.emit("FileWritten", {"path": "a", "checksum": "0"})
    appender.close()
    journal = session.layout.journals()[-1].path
    event = event_of(journal.read_bytes().splitlines()[0])
    assert event is not None
    journal.write_bytes(line_of(msgspec.structs.replace(event, payload=as_raw({"path": 5}))))
    found = only(whole.session(session))
    assert (found.file, found.place) == ("log", "event 2")
    assert "does not fit" in found.what


def test_a_session_that_is_held_is_checked_and_not_repaired(rich: Rich, me: Holder) -> None:
    session = rich[0]
    appender = session.append(me)
    activities(appender, 2)
    appender.barrier()
    seq = checkpoints.sequence(session.layout)[0]
    checkpoints.path_of(session.layout, seq).write_bytes(b"rubbish")
    try:
        report = whole.session(session, repair=True)
    finally:
        appender.close()
    assert report.damaged
    assert left(report) == f"it was not repaired: session {session.id} is held by {me.describe()}, this process"
    assert checkpoints.path_of(session.layout, seq).read_bytes() == b"rubbish"


def left(report: Report) -> str:
    """Why a session was not repaired."""
    (found,) = (f for f in report.findings if f.file == "")
    assert (found.level, found.todo) == ("note", "repair again when no task runs in it")
    return found.what


@pytest.fixture
def meanwhile(rich: Rich, me: Holder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Spoils a checkpoint and the summary, and lets a task begin when the log was read; given True it ends at once."""
    session = rich[0]
    checkpoints.path_of(session.layout, checkpoints.sequence(session.layout)[0]).write_bytes(b"rubbish")
    session.layout.summary.unlink()
    check = files.check
    begun: list[Appender] = []

    def begin(ends: bool) -> None:
        def then(layout: Layout, sums: files.Sums, *, held: bool) -> list[Finding]:
            begun.append(session.append(me))
            activities(begun[0], 2)
            begun[0].checkpoint("manual", "meanwhile")
            live.write_summary(session.layout, summarise(session.id, begun[0].state), begun[0].disk)
            if ends:
                begun.pop().close()
            return check(layout, sums, held=held)

        monkeypatch.setattr(files, "check", then)

    yield begin
    for appender in begun:
        appender.close()


@pytest.mark.parametrize("ends", [True, False])
def test_what_a_task_wrote_while_the_session_was_checked_is_not_repaired(
    rich: Rich, me: Holder, meanwhile: Callable[[bool], None], ends: bool
) -> None:
    session = rich[0]
    meanwhile(ends)
    report = whole.session(session, repair=True)
    told = session.summary()
    assert (told.seq, told.state) == (session.last_seq(), session.state().system_state.status)
    assert checkpoints.path_of(session.layout, checkpoints.sequence(session.layout)[0]).read_bytes() == b"rubbish"
    assert not any(f.repaired for f in report.findings)
    held = f"session {session.id} is held by {me.describe()}, this process"
    assert left(report) == f"it was not repaired: {'a task wrote to it while it was checked' if ends else held}"


def test_no_task_begins_while_a_session_is_repaired(rich: Rich, me: Holder, disk: FaultyDisk) -> None:
    session = rich[0]
    checkpoints.path_of(session.layout, checkpoints.sequence(session.layout)[0]).write_bytes(b"rubbish")
    refused: list[str] = []

    def begin() -> None:
        with pytest.raises(LeaseHeld) as raised:
            session.append(me)
        refused.append(raised.value.message)

    disk.do("before checkpoint rename", begin)
    assert not whole.session(session, repair=True).damaged
    assert len(refused) == 1
    assert "is held by repair (pid " in refused[0]


def test_looking_takes_no_lease_and_neither_does_a_repair_with_nothing_to_do(
    store: Store, rich: Rich, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: object, **__: object) -> None:
        raise AssertionError("the lease was taken")

    monkeypatch.setattr(lease, "acquire", taken)
    assert not whole.store(store, repair=True).damaged
    checkpoints.path_of(rich[0].layout, checkpoints.sequence(rich[0].layout)[0]).write_bytes(b"rubbish")
    assert whole.store(store).damaged


def test_events_that_come_while_it_looks_are_no_damage(session: Session, me: Holder) -> None:
    appender = session.append(me)
    activities(appender, 2)
    appender.acknowledge()
    sums = files.Sums(session.first)
    for event in session.events():
        sums.add(event, encode(event))
    activities(appender, 2)
    appender.acknowledge()
    assert files.check(session.layout, sums, held=True) == []
    appender.close()


def test_a_session_that_is_deleted_while_the_store_is_checked_is_no_damage(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = store.session_ids()
    shutil.rmtree(session.layout.root)
    monkeypatch.setattr(Store, "session_ids", lambda self: ids)
    assert not whole.store(store).damaged
