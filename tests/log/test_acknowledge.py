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
from ipyagent_sessions.testing import FaultyDisk, activities, wait_until


@pytest.fixture(autouse=True)
def window(monkeypatch: pytest.MonkeyPatch) -> float:
    """No flush but those that a test asks for; returns the length of the real window."""
    real = scribe.WINDOW
    monkeypatch.setattr(scribe, "WINDOW", 600.0)
    return real


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
    session: Session, me: Holder, disk: FaultyDisk, mode: appenders.Durability
) -> None:
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


def test_async_mode_flushes_within_its_window(
    session: Session, me: Holder, window: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scribe, "WINDOW", window)
    appender = session.append(me)
    appender.durability = "async"
    seq = note(appender)
    appender.acknowledge()
    wait_until(lambda: appender.durable_seq >= seq, timeout=2.0, what="the window")
    assert window <= 0.2
    appender.close()


def test_a_slow_seal_does_not_hold_up_the_flush_window(
    session: Session, me: Holder, disk: FaultyDisk, window: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scribe, "WINDOW", window)
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
