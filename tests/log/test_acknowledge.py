"""Acknowledged means synced: nothing that was acknowledged is lost, glued or reordered, whatever the disk does."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ipyagent_sessions.errors import PersistenceError
from ipyagent_sessions.log import appender as appenders
from ipyagent_sessions.log import journal, scribe
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk, activities, wait_until


def seqs(session: Session) -> list[int]:
    reader = Reader(session.layout)
    found = [event.seq for event in reader.events()]
    assert reader.damage == []
    return found


def note(appender: Appender, text: str = "") -> int:
    return appender.emit("Noted", {"text": text}, ignorable=True).seq


def test_sync_mode_syncs_once_for_each_acknowledge(session: Session, me: Holder, disk: FaultyDisk) -> None:
    appender = session.append(me)
    for n in range(5):
        before = disk.passed["after journal sync"]
        seq = note(appender)
        assert appender.durable_seq < seq
        appender.acknowledge()
        assert disk.passed["after journal sync"] - before == 1, n
        assert appender.durable_seq == seq
    appender.close()


def test_events_that_ride_together_share_one_sync(session: Session, me: Holder, disk: FaultyDisk) -> None:
    appender = session.append(me)
    appender.acknowledge()
    before = disk.passed["after journal sync"]
    activities(appender, 1)
    appender.acknowledge()
    assert disk.passed["after journal sync"] - before == 1
    appender.close()


def test_an_acknowledge_without_new_events_does_not_sync(session: Session, me: Holder, disk: FaultyDisk) -> None:
    appender = session.append(me)
    note(appender)
    appender.barrier()
    before = disk.passed["after journal sync"]
    appender.acknowledge()
    appender.barrier()
    assert disk.passed["after journal sync"] == before
    appender.close()


@pytest.mark.parametrize("mode", ["async", "exit"])
def test_the_lazy_modes_do_not_sync_on_acknowledge_and_do_at_a_barrier(
    session: Session, me: Holder, disk: FaultyDisk, mode: appenders.Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scribe, "WINDOW", 60.0)
    appender = session.append(me)
    appender.durability = mode
    before = disk.passed["after journal sync"]
    for _ in range(50):
        note(appender)
        appender.acknowledge()
    assert disk.passed["after journal sync"] == before
    appender.barrier()
    assert disk.passed["after journal sync"] == before + 1
    assert appender.durable_seq == 51
    appender.close()


def test_async_mode_flushes_within_its_window(session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.durability = "async"
    seq = note(appender)
    appender.acknowledge()
    wait_until(lambda: appender.durable_seq >= seq, timeout=2.0, what="the window")
    assert scribe.WINDOW <= 0.2
    appender.close()


def test_a_slow_seal_does_not_hold_up_the_flush_window(session: Session, me: Holder, disk: FaultyDisk) -> None:
    release = threading.Event()
    appender = session.append(me)
    appender.durability = "async"
    disk.do("before checkpoint rename", lambda: (release.wait(20), None)[1])
    appender.checkpoint("manual", "slow")
    wait_until(lambda: disk.passed["before checkpoint rename"] == 1, what="the snapshot to begin")
    seq = note(appender)
    try:
        wait_until(lambda: appender.durable_seq >= seq, timeout=3.0, what="a flush while the scribe is busy")
    finally:
        release.set()
    appender.close()


def test_exit_mode_flushes_at_the_end(session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.durability = "exit"
    activities(appender, 10)
    appender.acknowledge()
    assert seqs(session) == [1]
    appender.close()
    assert seqs(session) == list(range(1, 22))


def test_a_full_backlog_is_flushed_even_in_exit_mode(session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "BACKLOG_EVENTS", 10)
    appender = session.append(me)
    appender.durability = "exit"
    for _ in range(9):
        note(appender)
        appender.acknowledge()
    assert appender.durable_seq == 1
    note(appender)
    assert appender.backlog_full
    appender.acknowledge()
    assert appender.durable_seq == 11
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
    assert Path(appender._journal.file.path).read_bytes().count(b"\n") == 4


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
    appender._journal.close()
    appender.lease.release()
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


def test_closing_twice_is_harmless_and_a_closed_journal_takes_nothing(session: Session, me: Holder, tmp_path: Path) -> None:
    appender = session.append(me)
    appender.close()
    with open(tmp_path / "another file", "w+b") as other:
        appender.abandon()
        note(appender)
        with pytest.raises(PersistenceError):
            appender.barrier()
        assert other.read() == b""
    assert seqs(session) == [1]


def test_eight_threads_get_contiguous_seqs(session: Session, me: Holder) -> None:
    appender = session.append(me)
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            for n in range(60):
                note(appender, f"{number} {n}")
                if n % 3 == 0:
                    appender.acknowledge()
        except Exception as error:  # noqa: BLE001  # it is reported by the test
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    appender.close()
    assert errors == []
    assert seqs(session) == list(range(1, 8 * 60 + 2))
    for number in range(8):
        mine = [
            session.payload(e)["text"] for e in session.events(after=1) if session.payload(e)["text"].startswith(f"{number} ")
        ]
        assert mine == [f"{number} {n}" for n in range(60)], "the order of each thread is kept"
