"""A disk that refuses: nothing acknowledged is lost or glued, the order is kept, and work goes on once it is mended."""

from __future__ import annotations

import errno
import os
import threading

import pytest

from ipyagent_sessions.errors import PersistenceError
from ipyagent_sessions.log import journal, scribe
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk


@pytest.fixture(autouse=True)
def _no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flush but those that a test asks for, so that each fault meets the flush it is meant for."""
    monkeypatch.setattr(scribe, "WINDOW", 600.0)


def seqs(session: Session) -> list[int]:
    reader = Reader(session.layout)
    found = [event.seq for event in reader.events()]
    assert reader.damage == []
    return found


def note(appender: Appender, text: str = "") -> int:
    return appender.emit("Noted", {"text": text}, ignorable=True).seq


def test_what_is_appended_during_a_flush_counts_as_backlog(
    session: Session, me: Holder, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "BACKLOG_BYTES", 5000)
    appender = session.append(me)
    appender.barrier()
    note(appender)

    def meanwhile() -> None:
        note(appender, "x" * 6000)

    disk.do("before journal sync", meanwhile)
    appender.barrier()
    assert appender.backlog_full
    appender.barrier()
    assert not appender.backlog_full
    appender.close()


@pytest.mark.parametrize("seam", ["before journal write", "after journal write", "before journal sync", "after journal sync"])
@pytest.mark.parametrize("again", [1, 3])
def test_a_refusing_disk_loses_nothing_and_keeps_the_order(
    session: Session, me: Holder, disk: FaultyDisk, seam: str, again: int
) -> None:
    appender = session.append(me)
    note(appender, "before")
    appender.acknowledge()
    disk.fail(seam, times=again)
    for n in range(again):
        note(appender, f"while {n}")
        with pytest.raises(PersistenceError, match="No space left"):
            appender.acknowledge()
        assert appender.durable_seq == 2
    note(appender, "after")
    appender.acknowledge()
    appender.close()
    assert seqs(session) == list(range(1, 4 + again))
    assert [session.payload(e)["text"] for e in session.events(after=1)] == [
        "before",
        *(f"while {n}" for n in range(again)),
        "after",
    ]


@pytest.mark.parametrize("length", [0, 1, 20, 150])
def test_a_short_write_is_cut_back_before_the_next_one(session: Session, me: Holder, disk: FaultyDisk, length: int) -> None:
    appender = session.append(me)
    note(appender)
    appender.acknowledge()
    disk.short_writes = [length, length + 1]
    for _ in range(2):
        note(appender)
        with pytest.raises(PersistenceError):
            appender.acknowledge()
    note(appender)
    appender.acknowledge()
    appender.close()
    assert seqs(session) == [1, 2, 3, 4, 5]
    assert session.layout.journals()[-1].path.read_bytes().count(b"\n") == 4


def test_after_a_failed_sync_the_bytes_are_written_again(session: Session, me: Holder, disk: FaultyDisk) -> None:
    appender = session.append(me)
    note(appender)
    disk.fail("before journal sync")
    with pytest.raises(PersistenceError):
        appender.acknowledge()
    before = disk.passed["after journal write"]
    appender.acknowledge()
    assert disk.passed["after journal write"] == before + 1, "a failed sync must not simply be repeated"
    appender.close()
    assert seqs(session) == [1, 2]


def test_a_crash_after_a_failed_flush_loses_only_what_was_not_acknowledged(
    session: Session, me: Holder, disk: FaultyDisk, store: Store
) -> None:
    appender = session.append(me)
    note(appender)
    appender.acknowledge()
    disk.short_writes = [40]
    note(appender)
    with pytest.raises(PersistenceError):
        appender.acknowledge()
    disk.fail("before journal write", times=1000)
    appender.abandon()
    disk.mend()
    again = store.session(session.id).append(me)
    again.close()
    assert [e.event_type for e in session.events()] == ["SessionCreated", "Noted", "AlarmRaised"]


def test_a_blob_that_cannot_be_written_holds_its_event_back(session: Session, me: Holder, disk: FaultyDisk) -> None:
    appender = session.append(me)
    blobs: dict[str, bytes] = {}
    _, name = appender.put(b'"' + b"x" * 100_000 + b'"', blobs)
    disk.fail("before blob rename")
    appender.emit("Noted", {"result_blob": name}, ignorable=True, blobs=blobs)
    with pytest.raises(PersistenceError):
        appender.acknowledge()
    assert seqs(session) == [1]
    appender.acknowledge()
    assert len(session.payload(session.event(2))["result"]) == 100_000
    appender.close()


def test_a_rotation_that_fails_is_tried_again_and_nothing_is_lost(
    session: Session, me: Holder, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEAL_EVENTS", 4)
    appender = session.append(me)
    disk.fail("before epoch created")
    disk.fail("after epoch created", at=1, times=2)
    for n in range(20):
        note(appender)
        appender.acknowledge()
        assert appender.durable_seq == n + 2
        if n == 6:
            disk.short_writes = [30]
            note(appender)
            with pytest.raises(PersistenceError):
                appender.acknowledge()
            appender.acknowledge()
            break
    for _ in range(12):
        note(appender)
        appender.acknowledge()
    appender.close()
    assert seqs(session) == list(range(1, 22))
    assert not any(b"\0" in j.path.read_bytes() for j in session.layout.journals())


def test_a_disk_that_refuses_the_new_journal_is_told_as_such_and_leaves_the_lease_free(
    session: Session, me: Holder, disk: FaultyDisk
) -> None:
    disk.fail("before epoch created")
    with pytest.raises(PersistenceError, match="could not be opened"):
        session.append(me)
    appender = session.append(me)
    appender.close()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("seam", ["before journal write", "after journal write", "before journal sync", "after journal sync"])
def test_an_interrupt_in_the_middle_of_a_flush_loses_nothing(
    session: Session, me: Holder, disk: FaultyDisk, seam: str
) -> None:
    appender = session.append(me)
    note(appender)
    disk.do(seam, interrupt)
    with pytest.raises(KeyboardInterrupt):
        appender.acknowledge()
    assert appender.durable_seq == 1
    note(appender)
    appender.acknowledge()
    appender.close()
    assert seqs(session) == [1, 2, 3]


def test_what_could_not_be_flushed_at_the_end_is_told_and_the_lease_is_free_all_the_same(
    session: Session, me: Holder, disk: FaultyDisk
) -> None:
    appender = session.append(me)
    note(appender)
    disk.fail("before journal sync", times=1000)
    with pytest.raises(PersistenceError):
        appender.close(rest=True)
    disk.mend()
    assert not session.held()
    session.append(me).close()
    assert [e.event_type for e in session.events()][:2] in (["SessionCreated"], ["SessionCreated", "Noted"])


@pytest.fixture(params=[errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS])
def _no_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system on which no file has two names."""

    def refuse(source: object, target: object) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("_no_links")
def test_where_no_file_has_two_names_a_store_is_made_once_by_all_who_begin_at_once(store: Store) -> None:
    stores = [Store(store.root) for _ in range(6)]
    together = threading.Barrier(len(stores))

    def make(one: Store) -> None:
        together.wait(20)
        one.make()

    threads = [threading.Thread(target=make, args=[one]) for one in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {one.id for one in stores} == {Store(store.root).id}
    assert list(store.root.glob("*.tmp")) == []
    assert store.create(title="the first").state().seq == 1


@pytest.mark.usefixtures("_no_links")
def test_a_store_that_cannot_be_made_leaves_no_part_of_its_file(store: Store, disk: FaultyDisk) -> None:
    disk.fail("before header rename")
    with pytest.raises(OSError, match="No space"):
        store.make()
    assert list(store.root.glob("store.json*")) == []
    store.make()
    assert Store(store.root).id == store.id
