"""Sealing and merging change the files of a log and nothing of what it says."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ipyagent_sessions import events as ev
from ipyagent_sessions.log import journal, sealing, segment_reader, segments
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.format import Damage
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, FaultyDisk, History, activities, emit, wait_until


def bodies(session: Session) -> list[bytes]:
    reader = Reader(session.layout)
    found = [ev.encode(e) for e in reader.events()]
    assert (reader.damage, reader.missing) == ([], [])
    return found


def write_history(appender: Appender, seed: int, count: int) -> None:
    for item in itertools.islice(History(random.Random(seed)), 1, count + 1):
        emit(appender, item)


@pytest.mark.parametrize("seed", range(4))
def test_events_are_the_same_bytes_and_the_same_hash_before_and_after(
    session: Session, me: Holder, seed: int, clock: FakeClock
) -> None:
    appender = session.append(me)
    write_history(appender, seed, 150)
    appender.emit(
        "Noted",
        {"late": 1.5e300},
        ignorable=True,
        timestamp=clock.now() - 5,
        actor="user:änne",
        parent=3,
        cpu_s=0.25,
        rss_bytes=2**40,
        execution_time_ms=-0.0,
        cost_usd=1e-9,
    )
    appender.close()
    before = bodies(session)
    hashes = [ev.digest(e) for e in session.events()]
    session.append(me).close(rest=True)
    assert [(s.first, s.last) for s in session.layout.segments()] == [(1, 152)]
    for journal_file in session.layout.journals()[:-1]:
        journal_file.path.unlink()
    assert bodies(session) == before
    assert [ev.digest(e) for e in session.events()] == hashes


def holds(session: Session, *, segments: int, journals: int) -> Callable[[], bool]:
    return lambda: (len(session.layout.segments()), len(session.layout.journals())) == (segments, journals)


def test_a_journal_is_removed_one_seal_after_its_own_while_the_work_goes_on(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEAL_EVENTS", 20)
    appender = session.append(me)
    for part in range(1, 4):
        activities(appender, 10)
        appender.acknowledge()
        wait_until(holds(session, segments=part, journals=3 if part == 1 else 2), what="the seal, and older journals to go")
    appender.close()
    assert len(bodies(session)) == 61


def test_at_rest_no_journal_stays_but_the_newest_which_is_empty(session: Session, me: Holder) -> None:
    for last in (5, 9, 13):
        appender = session.append(me)
        activities(appender, 2)
        appender.close(rest=True)
        assert [(j.first, j.path.stat().st_size) for j in session.layout.journals()] == [(last + 1, 0)]
    assert len(bodies(session)) == 13


def test_a_full_journal_is_sealed_while_the_work_goes_on(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEAL_EVENTS", 50)
    appender = session.append(me)
    for _ in range(100):
        activities(appender, 1)
        appender.acknowledge()
    wait_until(lambda: sum(s.last - s.first + 1 for s in session.layout.segments()) >= 150, what="sealed segments")
    assert appender.trouble is None
    appender.close()
    assert len(bodies(session)) == 201


def test_a_seal_that_fails_is_made_up_for_by_the_next(
    session: Session, me: Holder, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEAL_EVENTS", 20)
    disk.fail("before seal rename", times=2)
    appender = session.append(me)
    for _ in range(60):
        activities(appender, 1)
        appender.acknowledge()
    appender.close(rest=True)
    assert not list(session.layout.events.glob("*.tmp"))
    assert sum(s.last - s.first + 1 for s in session.layout.segments()) == 122
    assert len(bodies(session)) == 122
    assert [e.event_type for e in session.events()].count("AlarmRaised") == 1, "which is told"


def test_small_neighbours_are_merged_at_rest_into_one(session: Session, me: Holder) -> None:
    for _ in range(4):
        appender = session.append(me)
        activities(appender, 3)
        appender.close(rest=True)
    assert [(s.first, s.last) for s in session.layout.segments()] == [(1, 25)]
    assert len(bodies(session)) == 25


def test_readers_always_see_a_contiguous_log_that_only_grows(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SEAL_EVENTS", 16)
    done = threading.Event()
    wrong: list[str] = []
    reads = [0, 0, 0]

    def read(number: int) -> None:
        seen = 0
        while not done.is_set():
            reader = Reader(session.layout)
            seqs = [e.seq for e in reader.events()]
            if seqs != list(range(1, len(seqs) + 1)) or reader.missing or len(seqs) < seen:
                wrong.append(f"{len(seqs)} after {seen}, missing {reader.missing}, {reader.damage}")
            seen = len(seqs)
            reads[number] += 1

    threads = [threading.Thread(target=read, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(6):
            appender = session.append(me)
            for _ in range(25):
                activities(appender, 1)
                appender.acknowledge()
            appender.close(rest=True)
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert wrong == []
    assert min(reads) > 3
    assert len(bodies(session)) == 301


@pytest.fixture
def sealed(session: Session, me: Holder) -> Path:
    appender = session.append(me)
    write_history(appender, 5, 200)
    appender.close(rest=True)
    return session.layout.segments()[0].path


def test_plain_pyarrow_reads_a_segment_with_the_promised_columns_not_null(sealed: Path, session: Session) -> None:
    table = pq.read_table(sealed)
    assert table.num_rows == 201
    never_null = {
        "session_id",
        "seq",
        "event_type",
        "timestamp",
        "recorded_at",
        "actor",
        "payload",
        "schema_version",
        "ignorable",
        "checksum",
    }
    assert {f.name for f in table.schema if not f.nullable} == never_null
    assert set(table.schema.names) >= never_null | {
        "task_id",
        "activity_id",
        "attempt",
        "parent_event",
        "agent_version",
        "execution_time_ms",
        "cpu_s",
        "rss_bytes",
        "input_tokens",
        "output_tokens",
        "cost_usd",
    }
    assert table["seq"].to_pylist() == list(range(1, 202))
    assert table.schema.field("timestamp").type == pa.timestamp("ms", tz="UTC")
    assert set(table["session_id"].to_pylist()) == {session.id}
    assert table["cpu_s"].null_count == 201, "what is not known is null"
    assert 0 < table["input_tokens"].null_count < 201


def test_an_unfinished_segment_matches_no_reader_s_pattern(sealed: Path, session: Session) -> None:
    (sealed.parent / f"{sealed.name}.123-456.tmp").write_bytes(b"PAR1 half")
    assert len(session.layout.segments()) == 1
    assert len(list(sealed.parent.glob("*.parquet"))) == 1
    assert len(bodies(session)) == 201


def test_a_changed_row_is_detected_by_its_checksum(sealed: Path, session: Session) -> None:
    table = pq.read_table(sealed)
    types = table["event_type"].to_pylist()
    types[7] = "Forged"
    forged = table.set_column(table.schema.get_field_index("event_type"), table.schema.field("event_type"), pa.array(types))
    pq.write_table(forged, sealed)
    damage: list[Damage | str] = []
    assert [e.seq for e in segment_reader.read(sealed, damage=damage)] == [n for n in range(1, 202) if n != 8]
    assert damage == [f"{sealed.name}: 1 of the events 8 to 8 do not match their checksums"]


def test_a_store_in_a_folder_with_an_equals_sign_seals_and_merges(tmp_path: Path, me: Holder) -> None:
    session = Store(tmp_path / "year=2026" / "项目 测试" / "é").create()
    for _ in range(3):
        appender = session.append(me)
        activities(appender, 2)
        appender.close(rest=True)
    assert len(session.layout.segments()) == 1
    assert "year" not in pq.ParquetFile(session.layout.segments()[0].path).schema_arrow.names
    assert len(bodies(session)) == 13


def test_what_is_open_at_a_seq_is_what_the_state_says(session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "SEAL_EVENTS", 40)
    appender = session.append(me)
    for item in itertools.islice(History(random.Random(3)), 1, 220):
        emit(appender, item)
        appender.acknowledge()
    appender.close(rest=True)
    for seq in range(2, 220, 3):
        state = session.state(seq)
        ended = state.system_state.ended_at is not None
        assert session.open_activities(seq) == (set() if ended else set(state.execution_state.active_activities)), seq


def test_large_events_are_sealed_and_merged_by_their_bytes(
    session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "SEGMENT_BYTES", 1_500_000)
    for module in (segments, segment_reader):
        monkeypatch.setattr(module, "PORTION", 300_000)
    monkeypatch.setattr(sealing, "SMALL_BYTES", 800_000)
    appender = session.append(me)
    rng = random.Random(1)
    for _ in range(400):
        activities(appender, 1, text=rng.randbytes(4000).hex())
    appender.close(rest=True)
    found = session.layout.segments()
    assert len(found) > 2, "not one of all events"
    assert min(pq.ParquetFile(s.path).metadata.num_row_groups for s in found[:2]) > 1
    assert [e.seq for e in session.events()] == list(range(1, 802))
    middle = found[1].first + 70
    assert session.event(middle).seq == middle
