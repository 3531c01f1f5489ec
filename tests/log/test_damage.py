"""Damage is reported with its place, what verifies stays readable, and one bad session never breaks the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from ipyagent_sessions.errors import DamageError, IpyagentError
from ipyagent_sessions.log import checkpoints, segment_reader, segments
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import activities, wait_until


def flip(path: Path, at: int) -> None:
    body = bytearray(path.read_bytes())
    body[at] ^= 0x10
    path.write_bytes(body)


def flip_payloads(path: Path) -> None:
    """Flip a byte inside the column of payloads."""
    with pq.ParquetFile(path) as file:
        names = file.schema_arrow.names
        column = file.metadata.row_group(0).column(names.index("payload"))
        at = column.data_page_offset + column.total_compressed_size * 2 // 3
    flip(path, at)


def read(session: Session) -> tuple[list[int], Reader]:
    reader = Reader(session.layout)
    return [e.seq for e in reader.events()], reader


@pytest.fixture
def written(session: Session, me: Holder) -> Path:
    appender = session.append(me)
    activities(appender, 10)
    appender.close()
    return session.layout.journals()[-1].path


def break_line(journal: Path, number: int) -> int:
    """Flip a byte in the middle of a line; returns the offset of the line."""
    lines = journal.read_bytes().splitlines(keepends=True)
    offset = sum(map(len, lines[:number]))
    flip(journal, offset + len(lines[number]) // 2)
    return offset


def test_a_flipped_byte_in_a_journal_costs_one_event_and_is_reported_with_its_place(session: Session, written: Path) -> None:
    offset = break_line(written, 4)
    seqs, reader = read(session)
    assert seqs == [1, 2, 3, 4, 5, *range(7, 22)]
    assert reader.missing == [(6, 6)]
    assert [str(d).split(": ")[0] for d in reader.damage] == [written.name]
    assert f"at offset {offset}" in str(reader.damage[0])


def test_a_state_behind_missing_events_is_refused_with_the_place_and_before_them_is_not(
    session: Session, me: Holder, written: Path
) -> None:
    break_line(written, 4)
    with pytest.raises(DamageError, match=rf"event 6 is damaged .*{written.name}.*offset") as raised:
        session.state()
    assert "fork a1 --at 5" in raised.value.hint
    with pytest.raises(DamageError):
        session.append(me)
    assert session.state(5).seq == 5
    assert session.fork(5).state().seq == 6
    assert not session.held()


def test_a_checkpoint_behind_the_damage_makes_the_session_usable_again(session: Session, me: Holder, written: Path) -> None:
    appender = session.append(me)
    appender.checkpoint("manual", "good")
    appender.close()
    activities(appender := session.append(me), 3)
    appender.close()
    break_line(written, 4)
    loaded = session.loaded()
    assert (loaded.checkpoint, loaded.state.seq) == (22, 28)
    appender = session.append(me)
    activities(appender, 1)
    appender.close(rest=True)
    session.append(me).close(rest=True)
    seqs, reader = read(session)
    assert reader.missing == [(6, 6)], "sealing keeps the gap visible"
    assert seqs == [n for n in range(1, 31) if n != 6]
    assert session.layout.segments()[0][:2] == (1, 5), "a segment's name does not claim what it lacks"
    assert (session.layout.damaged / written.name).exists(), "the damaged bytes outlive the sealing of their journal"


def test_a_flipped_byte_in_a_segment_is_reported_and_the_other_segments_are_read(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ipyagent_sessions.log.sealing.SMALL", 0)
    for _ in range(3):
        appender = session.append(me)
        activities(appender, 10)
        appender.close(rest=True)
    middle = session.layout.segments()[1]
    flip_payloads(middle.path)
    seqs, reader = read(session)
    assert seqs == [n for n in range(1, 62) if not middle.first <= n <= middle.last]
    assert reader.missing == [(middle.first, middle.last)]
    assert any(middle.path.name in str(d) for d in reader.damage)


def test_a_flipped_byte_in_a_long_segment_costs_one_row_group(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "GROUP", 10)
    appender = session.append(me)
    activities(appender, 20)
    appender.close(rest=True)
    for journal in session.layout.journals()[:-1]:
        journal.path.unlink()
    path = session.layout.segments()[0].path
    flip_payloads(path)
    seqs, reader = read(session)
    assert seqs == list(range(11, 42))
    assert reader.missing == [(1, 10)]
    assert any("row group 0" in str(d) for d in reader.damage)


def test_every_flipped_byte_in_a_segment_is_seen_or_harmless(session: Session, me: Holder) -> None:
    appender = session.append(me)
    activities(appender, 4)
    appender.close(rest=True)
    path = session.layout.segments()[-1].path
    whole = path.read_bytes()
    wanted = [(e.seq, e.event_type, bytes(e.payload), e.timestamp) for e in session.events()]
    unseen = 0
    for at in range(0, len(whole), 7):
        flip(path, at)
        damage: list[object] = []
        found = [(e.seq, e.event_type, bytes(e.payload), e.timestamp) for e in segment_reader.read(path, damage=damage)]  # type: ignore[arg-type]  # a list of any
        assert [f for f in found if f not in wanted] == [], f"byte {at} invents an event"
        if not damage:
            assert found == wanted, f"byte {at} loses an event in silence"
            unseen += 1
        path.write_bytes(whole)
    assert unseen < len(whole) / 7


@pytest.mark.parametrize("how", ["deleted", "cut", "flipped"])
def test_a_lost_last_segment_of_a_resting_session_is_damage_and_not_an_empty_session(
    session: Session, me: Holder, how: str
) -> None:
    appender = session.append(me)
    activities(appender, 10)
    appender.close(rest=True)
    for journal in session.layout.journals()[:-1]:
        journal.path.unlink()
    segment = session.layout.segments()[-1].path
    if how == "deleted":
        segment.unlink()
    elif how == "cut":
        segment.write_bytes(segment.read_bytes()[:200])
    else:
        flip_payloads(segment)
    seqs, reader = read(session)
    assert seqs == []
    assert reader.missing == [(1, 21)]
    with pytest.raises(DamageError, match="events 1 to 21"):
        session.append(me)
    assert [j.first for j in session.layout.journals()] == [22], "no journal that begins at 1 again"


def test_a_damaged_segment_does_not_stop_a_running_session_from_closing(session: Session, me: Holder) -> None:
    appender = session.append(me)
    activities(appender, 5)
    appender.checkpoint("manual", "here")
    appender.close(rest=True)
    wait_until(lambda: checkpoints.sequence(session.layout), what="the snapshot")
    path = session.layout.segments()[-1].path
    path.write_bytes(path.read_bytes()[:100])
    appender = session.append(me)
    activities(appender, 3)
    appender.close(rest=True)
    seqs, reader = read(session)
    assert seqs[-7:] == list(range(13, 20))
    (told,) = [e for e in reader.events() if e.event_type == "AlarmRaised"]
    assert told.seq == 19, "it could not be sealed, and that is in the log"
    assert any(path.name in str(d) for d in reader.damage)


def test_a_flipped_byte_in_a_checkpoint_makes_it_refused_and_an_older_one_used(session: Session, me: Holder) -> None:
    appender = session.append(me)
    for label in ("a", "b"):
        activities(appender, 5)
        appender.checkpoint("manual", label)
    appender.close()
    older, newer = checkpoints.sequence(session.layout)
    flip(checkpoints.path_of(session.layout, newer), 60)
    loaded = session.loaded()
    assert (loaded.checkpoint, loaded.refused) == (older, [newer])
    assert [(i.seq, i.complete) for i in session.checkpoints()] == [(older, True), (newer, False)]


def test_a_flipped_byte_in_a_blob_is_refused_with_its_name(session: Session, me: Holder) -> None:
    appender = session.append(me)
    blobs: dict[str, bytes] = {}
    _, name = appender.put(b'"' + b"y" * 50_000 + b'"', blobs)
    appender.emit("Noted", {"result_blob": name}, ignorable=True, blobs=blobs)
    appender.close()
    flip(session.layout.blobs / str(name), 17)
    with pytest.raises(DamageError, match=str(name)[:12]):
        session.payload(session.event(2))
    assert [e.seq for e in session.events()] == [1, 2]
    session.blobs.write(str(name), blobs[str(name)], session.place.disk)
    assert len(session.payload(session.event(2))["result"]) == 50_000, "written again, the blob is whole again"


BAD: dict[str, Callable[[Session], object]] = {
    "session.json cut": lambda s: s.layout.header.write_bytes(b'{"format":1,'),
    "session.json missing": lambda s: s.layout.header.unlink(),
    "session.json of a newer version": lambda s: s.layout.header.write_bytes(b'{"format":99,"session_id":"x","created":""}'),
    "session.json is nothing but NUL": lambda s: s.layout.header.write_bytes(b"\0" * 300),
    "session.json is not UTF-8": lambda s: s.layout.header.write_bytes(b'{"format":1,"session_id":"\xff"}'),
    "its journal is rubbish": lambda s: s.layout.journals()[0].path.write_bytes(b"\xff\0rubbish\n" * 9),
    "summary.json has an unknown state": lambda s: s.layout.summary.write_bytes(
        b'{"session_id":"x","seq":1,"state":"dancing"}'
    ),
    "its parent is gone": lambda s: s.layout.header.write_bytes(
        b'{"format":1,"session_id":"x","created":"","parent":{"session":"gone","seq":5,"hash":""}}'
    ),
    "summary.json is a folder": lambda s: s.layout.summary.rename(s.layout.events / "x").parent.rename(s.layout.summary),
}


@pytest.mark.parametrize("what", BAD)
def test_one_bad_session_never_breaks_the_list(store: Store, session: Session, what: str) -> None:
    bad = store.create(title="bad")
    if not what.startswith("summary"):
        bad.layout.summary.unlink()
    bad.layout.events.mkdir()
    BAD[what](bad)
    listed = {x.session_id: x for x in store.sessions()}
    assert listed[session.id].problem == ""
    assert listed[session.id].state == "empty"
    assert set(listed) >= {session.id}
    assert store.children(session.id) == []


@pytest.mark.parametrize("name", ["session.json", "store.json", "summary.json"])
def test_a_byte_order_mark_is_accepted(store: Store, session: Session, name: str) -> None:
    path = store.root / name if name == "store.json" else session.layout.root / name
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    again = Store(store.root)
    assert [x.problem for x in again.sessions()] == [""]
    assert again.session(session.id).state().title == "test"


def test_a_store_of_a_newer_version_is_refused_with_its_direction(store: Store) -> None:
    store.create()
    (store.root / "store.json").write_bytes(b'{"id":"x","format":99}')
    with pytest.raises(IpyagentError, match=r"has format 99, this version reads up to 1; install the ipyagent"):
        Store(store.root)
