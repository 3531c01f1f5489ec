"""Deleting a session says what is lost, and leaves its forks as they were."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.errors import DamageError, LeaseHeld
from ipyagent_sessions.log import segments
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.place import Place
from ipyagent_sessions.retention import deletion
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk, activities
from ipyagent_sessions.verify import whole

Family = tuple[Session, Session, Session]


def grow(session: Session, me: Holder, *, blob: bool = False) -> None:
    appender = session.append(me)
    activities(appender, 6)
    if blob:
        blobs: dict[str, bytes] = {}
        _, name = appender.put(b'"' + session.id.encode() * 20_000 + b'"', blobs)
        body = p.ActivityCompleted("big", result_blob=name)
        appender.emit("ActivityCompleted", body, activity_id="/big:1", blobs=blobs)
    appender.close()


@pytest.fixture
def family(session: Session, me: Holder) -> Family:
    """A session, a fork of it, and a fork of that."""
    grow(session, me, blob=True)
    child = session.fork(14)
    grow(session, me)
    grow(child, me, blob=True)
    grandchild = child.fork()
    grow(grandchild, me)
    return session, child, grandchild


def picture(session: Session) -> tuple[list[tuple[int, str, bytes]], bytes, list[bytes]]:
    """All that a session is, apart from where it lies."""
    told = [(e.seq, e.event_type, bytes(e.payload)) for e in session.events()]
    names = [session.payload(e)["result"].encode() for e in session.events() if b"result_blob" in bytes(e.payload)]
    return told, states.encode(session.state()), names


def again(store: Store, session: Session) -> Session:
    return store.session(session.id)


def test_what_is_lost_and_what_depends_on_it_is_said_first(store: Store, family: Family) -> None:
    found = deletion.loss(store, family[0])
    assert (found.events, found.forks, found.problem) == (26, [family[1].id], "")
    assert found.bytes > 40_000
    assert family[0].id in store.session_ids(), "and nothing is deleted by asking"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_forks_of_a_deleted_session_are_as_they_were(store: Store, family: Family, order: tuple[int, ...]) -> None:
    wanted = picture(family[2])
    for which in order:
        deletion.delete(store, again(store, family[which]))
        left = again(store, family[2])
        assert picture(left) == wanted
        assert not whole.store(store).damaged
    assert store.session_ids() == [family[2].id]
    assert again(store, family[2]).header.parent is None
    assert [path.name for path in store.sessions_folder.iterdir()] == [family[2].id]


def test_a_fork_goes_on_after_its_parent_was_deleted(store: Store, family: Family, me: Holder) -> None:
    deletion.delete(store, family[0])
    child = again(store, family[1])
    grow(child, me)
    child.append(me).close(rest=True)
    assert [e.seq for e in child.events()] == list(range(1, child.last_seq() + 1))
    assert child.fork(5).state().seq == 6
    seen = store.sql("select count(*) as n, count(distinct seq) as d from events where session_id = ?", [child.id]).rows()
    assert seen == [{"n": child.last_seq(), "d": child.last_seq()}]


def test_a_session_that_runs_or_whose_fork_runs_is_not_deleted(store: Store, family: Family, me: Holder) -> None:
    for running in family[:2]:
        appender = running.append(me)
        try:
            assert running.id in deletion.loss(store, family[0]).problem
            with pytest.raises(LeaseHeld):
                deletion.delete(store, family[0])
        finally:
            appender.close()
    assert not whole.store(store).damaged


@pytest.mark.parametrize("seam", ["before seal rename", "before blob rename", "before header rename", "before delete rename"])
def test_a_disk_that_refuses_on_the_way_costs_nothing(store: Store, disk: FaultyDisk, family: Family, seam: str) -> None:
    wanted = [picture(s) for s in family]
    disk.fail(seam)
    with pytest.raises(OSError, match="No space"):
        deletion.delete(store, family[0])
    assert [picture(again(store, s)) for s in family] == wanted
    assert not whole.store(store).damaged
    deletion.delete(store, again(store, family[0]))
    assert [picture(again(store, s)) for s in family[1:]] == wanted[1:]


def test_a_disk_too_full_for_the_name_of_who_deletes_does_not_stop_it(
    store: Store, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(store.disk, "replace", full)
    deletion.delete(store, session)
    assert store.session_ids() == []


def test_what_a_fork_needs_and_is_damaged_is_not_thrown_away(store: Store, family: Family) -> None:
    journal = family[0].layout.journals()[0].path
    whole_journal = journal.read_bytes()
    journal.write_bytes(whole_journal[40:])
    with pytest.raises(DamageError, match="shares events"):
        deletion.delete(store, family[0])
    assert family[0].id in store.session_ids()
    assert family[1].layout.segments() == [], "a program that reads the files would count its parent's events twice"
    journal.write_bytes(whole_journal)
    wanted = [picture(again(store, s)) for s in family[1:]]
    for first, last in ((1, 5), (6, 9)):  # what a process left that was killed while it handed over
        part = [e for e in family[0].events() if first <= e.seq <= last]
        segments.seal(family[1].layout, part, 0, set(), store.disk)
    deletion.delete(store, family[0])
    assert [(s.first, s.last) for s in family[1].layout.segments()] == [(1, 14)]
    assert [picture(again(store, s)) for s in family[1:]] == wanted


def test_a_damaged_session_that_nobody_needs_can_be_deleted(store: Store, session: Session) -> None:
    session.layout.header.write_bytes(b"{")
    assert deletion.loss(store, again(store, session)).state.startswith("damaged")
    deletion.delete(store, again(store, session))
    assert store.session_ids() == []


def test_a_fork_of_an_import_stays_foreign_when_the_import_is_deleted(store: Store, family: Family) -> None:
    header = family[0].layout.header
    header.write_bytes(header.read_bytes().replace(store.id.encode(), b"elsewhere"))
    assert not again(store, family[1]).native
    deletion.delete(store, again(store, family[0]))
    assert not again(store, family[1]).native


def test_what_a_crash_left_of_a_deleted_session_is_swept(
    store: Store, family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    deletion.delete(store, family[2])
    monkeypatch.undo()
    monkeypatch.setattr("ipyagent_sessions.place._ABANDONED_S", -1.0)
    Place(store.root)
    assert not any(path.name.startswith(".") for path in store.sessions_folder.iterdir())
