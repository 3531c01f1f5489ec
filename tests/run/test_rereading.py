"""Recorded results that the state does not hold are read from the log once, in whatever order they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ipyagent_sessions.errors import NotFound
from ipyagent_sessions.events import Event
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.run import rereading
from ipyagent_sessions.run.rereading import Rereader
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import activities

COUNT = 300


@pytest.fixture
def long(session: Session, me: Holder) -> Session:
    """A session of which the first half is sealed."""
    appender: Appender = session.append(me)
    activities(appender, COUNT // 2, text="x" * 50)
    appender.close(rest=True)
    appender = session.append(me)
    activities(appender, COUNT // 2, text="y" * 50)
    appender.barrier()
    appender.close()
    return session


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each reading of the log that is begun."""
    begun: list[int] = []
    read = Session.events

    def counting(session: Session, after: int = 0, until: int | None = None, **rest: Any) -> Iterator[Event]:
        begun.append(after)
        return read(session, after, until, **rest)

    monkeypatch.setattr(Session, "events", counting)
    return begun


def seqs(session: Session) -> list[int]:
    return [e.seq for e in session.events() if e.event_type == "ActivityCompleted"]


def test_in_order_the_log_is_read_once(long: Session, reads: list[int]) -> None:
    wanted = {e.seq: e for e in long.events()}
    asked = seqs(long)
    reads.clear()
    reader = Rereader(long)
    assert [reader.event(seq) for seq in asked] == [wanted[seq] for seq in asked]
    assert len(reads) == 1


def test_a_little_out_of_order_it_still_is(long: Session, reads: list[int]) -> None:
    asked = seqs(long)
    for at in range(0, len(asked) - 8, 8):
        asked[at : at + 8] = reversed(asked[at : at + 8])
    reads.clear()
    reader = Rereader(long)
    assert [reader.event(seq).seq for seq in asked] == asked
    assert len(reads) == 1


@pytest.mark.parametrize("kept", [0, 500])
def test_backwards_each_is_found_though_little_is_kept(long: Session, monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    monkeypatch.setattr(rereading, "_KEPT_BYTES", kept)
    asked = seqs(long)[::-1]
    reader = Rereader(long)
    assert [reader.event(seq).seq for seq in asked] == asked
    assert reader.event(asked[-1] - 1).event_type == "ActivityStarted"


def test_a_long_jump_begins_anew_and_reads_nothing_between(long: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rereading, "GROUP", 10)
    first, *_, last = seqs(long)
    reader = Rereader(long)
    assert [reader.event(seq).seq for seq in (first, last, first)] == [first, last, first]


def test_what_is_not_there_is_an_error_and_what_comes_later_is_found(long: Session, me: Holder) -> None:
    reader = Rereader(long)
    last = long.last_seq()
    assert reader.event(last).seq == last
    with pytest.raises(NotFound):
        reader.event(last + 2)
    appender = long.append(me)
    activities(appender, 1)
    appender.barrier()
    assert reader.event(last + 2).event_type == "ActivityCompleted"
    appender.close()
