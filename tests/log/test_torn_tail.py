"""A journal cut at any byte opens: what lies before the cut is there, the torn end is set aside, cut and reported."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from ipyagent_sessions.errors import PersistenceError
from ipyagent_sessions.events import encode
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk, activities

TEXT = 'ä "q" \u2028 \U0001f9ea'


@pytest.fixture
def written(session: Session, me: Holder) -> Path:
    """A journal that ends with three activities."""
    appender = session.append(me)
    activities(appender, 5, text=TEXT)
    appender.close()
    return session.layout.journals()[-1].path


def tails(session: Session) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in session.layout.damaged.iterdir()} if session.layout.damaged.is_dir() else {}


def test_a_whole_end_is_known_by_a_look_at_it_and_a_long_one_all_the_same(
    session: Session, me: Holder, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = written.stat().st_size
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", lambda _: pytest.fail("the whole journal was read"))
        tail = Reader(session.layout).tail()
    assert tail is not None
    assert (tail.good_bytes, tail.torn) == (size, None)
    appender = session.append(me)
    appender.emit("Noted", {"text": "x" * 20_000}, ignorable=True)
    appender.close()
    journal = session.layout.journals()[-1].path
    size = journal.stat().st_size
    tail = Reader(session.layout).tail()
    assert tail is not None
    assert (tail.good_bytes, tail.torn) == (size, None)
    os.truncate(journal, size - 1)
    tail = Reader(session.layout).tail()
    assert tail is not None
    assert tail.torn is not None
    assert tail.good_bytes + tail.torn.length == size - 1


def test_cut_at_every_byte_of_the_last_three_events(
    session: Session, store: Store, me: Holder, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sync in ("fsync", "fdatasync"):  # hundreds of stores, and no power is cut here
        monkeypatch.setattr(os, sync, lambda fd: None, raising=False)
    whole = written.read_bytes()
    bodies = [encode(e) for e in session.events()]
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 0x0A]
    asked = range(ends[-4], len(whole))
    assert len(asked) > 600
    for n, cut in enumerate(asked):
        copy = store.sessions_folder / f"cut{n}"
        shutil.copytree(session.layout.root, copy)
        os.truncate(copy / written.name, cut)
        there = Session(store, copy.name)
        kept = 1 + sum(end <= cut for end in ends)
        assert [encode(e) for e in there.events()] == bodies[:kept], cut
        assert there.state().seq == kept, cut
        if n % 4 == 0 or any(abs(end - cut) < 3 for end in ends):
            check_that_it_can_be_written_again(there, me, kept, whole[max(e for e in ends if e <= cut) : cut])
        shutil.rmtree(copy)


def check_that_it_can_be_written_again(there: Session, me: Holder, kept: int, torn: bytes) -> None:
    appender = there.append(me)
    assert appender.state.seq == kept + bool(torn)
    appender.close()
    assert list(tails(there).values()) == ([torn] if torn else [])
    after = list(there.events())[kept:]
    assert [e.event_type for e in after] == (["AlarmRaised"] if torn else [])
    if torn:
        assert there.payload(after[0])["kind"] == "torn_tail"
        assert f"{len(torn)} bytes" in there.payload(after[0])["text"]
    reader = Reader(there.layout)
    assert len(list(reader.events())) == kept + bool(torn)
    assert reader.damage == []


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 4096, b'{"c":"12' + b"\0" * 500, b"\xff\xfe garbage", b'{"c":"00000000","seq":99}\n', b"}\n{", b"\0\0\n\0\0\n"],
)
def test_rubbish_behind_the_last_event_is_set_aside_whole(session: Session, me: Holder, written: Path, tail: bytes) -> None:
    size = written.stat().st_size
    with open(written, "ab") as file:
        file.write(tail)
    appender = session.append(me)
    assert appender.state.alarms[-1].startswith(f"torn_tail: {len(tail)} bytes")
    appender.close()
    assert list(tails(session).values()) == [tail]
    assert written.stat().st_size == size
    assert [e.seq for e in session.events()] == list(range(1, 13))


def test_a_whole_record_glued_to_a_torn_one_at_the_end_survives_the_cut(session: Session, me: Holder, written: Path) -> None:
    lines = written.read_bytes().splitlines(keepends=True)
    written.write_bytes(b"".join(lines[:-2]) + lines[-2].rstrip(b"\n") + lines[-1][:50])
    assert [e.seq for e in session.events()] == list(range(1, 11))
    appender = session.append(me)
    assert list(tails(session).values()) == [lines[-1][:50]]
    appender.close()
    reader = Reader(session.layout)
    assert [e.seq for e in reader.events()] == list(range(1, 12))
    assert reader.damage == []


def test_reading_a_torn_journal_cuts_nothing(session: Session, written: Path) -> None:
    with open(written, "ab") as file:
        file.write(b'{"c":"')
    before = written.read_bytes()
    assert session.state().seq == 11
    assert session.last_seq() == 11
    assert written.read_bytes() == before
    assert tails(session) == {}


def test_a_tail_that_cannot_be_set_aside_is_not_cut(session: Session, me: Holder, written: Path, disk: FaultyDisk) -> None:
    with open(written, "ab") as file:
        file.write(b'{"c":"torn')
    before = written.read_bytes()
    disk.fail("before tail rename")
    with pytest.raises(PersistenceError):
        session.append(me)
    assert written.read_bytes() == before
    session.append(me).close()
    assert list(tails(session).values()) == [b'{"c":"torn']


def test_an_empty_newest_journal_is_no_damage(session: Session, me: Holder, written: Path) -> None:
    session.append(me).close()
    assert session.layout.journals()[-1].path.stat().st_size == 0
    assert session.state().seq == 11
    session.append(me).close()
    assert tails(session) == {}
