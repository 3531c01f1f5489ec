"""No event is counted twice or left out in silence, whatever files a session consists of at the moment."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ipyagent_sessions.errors import LeaseLost
from ipyagent_sessions.history import building, cache, sources
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.log import reader, sealing, segments
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import activities

Ask = Callable[[str], list[tuple[Any, ...]]]
COUNTS = "SELECT count(*), count(DISTINCT seq), min(seq), max(seq) FROM events"


def sealed_in_parts(session: Session, me: Holder, *sizes: int) -> None:
    """Seal a segment for each size; every activity is two events."""
    for size in sizes:
        appender = session.append(me)
        activities(appender, size)
        appender.barrier()
        appender.close()
        sealing.seal(session.layout, session.last_seq(), appender.epoch, 1, session.place.disk)


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("payload", [b'{"name":', b'{"name":"\xff\xfe"}'])
def test_a_payload_that_is_no_json_or_no_text_breaks_no_query_over_the_others(
    store: Store, me: Holder, payload: bytes, cached: bool
) -> None:
    """A flipped bit that Parquet does not notice: the session is read event by event, the cache not at all."""
    hurt, whole = store.create(), store.create()
    for session in (hurt, whole):
        sealed_in_parts(session, me, 4)
    if cached:
        for folder in store.sessions_folder.iterdir():
            os.utime(folder, (1e9, 1e9))
        assert building.step(store) == 2
        [damaged] = cache.folder(store).glob("*.parquet")
    else:
        damaged = hurt.layout.segments()[0].path
    _with_payload(damaged, 3, payload)
    names = "SELECT session_id, count(*) FROM events WHERE payload->>'$.name' <> '' GROUP BY 1"
    for sql in (names, "SELECT * FROM events", "SELECT sum(hash(e)::HUGEINT) FROM events e"):
        found = query(store, sql)
        assert found.rows()
        assert [hurt.id in problem for problem in found.problems] == ([] if cached else [True] * len(found.problems))
        assert bool(found.problems) is not cached
    counts = {row["session_id"]: row["count_star()"] for row in query(store, names).rows()}
    assert counts[whole.id] == 8
    assert counts[hurt.id] == (8 if cached else 7)


def _with_payload(path: Path, row: int, payload: bytes) -> None:
    """Change a payload in a Parquet file, as damage does: nobody looks whether it is text."""
    table = pq.read_table(path)
    column = table.column_names.index("payload")
    bodies = [str(body).encode() for body in table["payload"].to_pylist()]
    bodies[row] = payload
    ends = np.cumsum([0, *map(len, bodies)], dtype=np.int32)
    texts = pa.StringArray.from_buffers(len(bodies), pa.py_buffer(ends.tobytes()), pa.py_buffer(b"".join(bodies)))
    field = table.schema.field("payload").with_type(pa.string())
    pq.write_table(table.set_column(column, field, texts), path)


def test_a_sealed_journal_that_is_still_there_does_not_double_its_events(ask: Ask, session: Session, me: Holder) -> None:
    sealed_in_parts(session, me, 20)
    assert len(session.layout.journals()) >= 1
    assert len(session.layout.segments()) == 1
    assert ask(COUNTS) == [(41, 41, 1, 41)]


def test_segments_and_a_tail_are_one_log(ask: Ask, session: Session, me: Holder) -> None:
    sealed_in_parts(session, me, 5, 7)
    appender = session.append(me)
    activities(appender, 3)
    appender.barrier()
    assert ask(COUNTS) == [(31, 31, 1, 31)]
    appender.close()


def test_what_is_not_durable_yet_is_not_shown(ask: Ask, session: Session, appender: Appender) -> None:
    appender.durability = "exit"
    activities(appender, 3)
    assert ask("SELECT count(*) FROM events") == [(1,)]


def test_the_parts_of_a_merged_segment_do_not_count_again(ask: Ask, session: Session, me: Holder, tmp_path: Path) -> None:
    sealed_in_parts(session, me, 5, 5, 5)
    shutil.copytree(session.layout.events, tmp_path / "parts")
    assert sealing.merge_small(session.layout, 9, session.place.disk) == 2
    for part in (tmp_path / "parts").iterdir():
        shutil.copy(part, session.layout.events)
    assert len(session.layout.segments()) == 4
    assert ask(COUNTS) == [(31, 31, 1, 31)]


def test_segments_that_overlap_in_part_count_each_event_once(ask: Ask, session: Session, me: Holder) -> None:
    sealed_in_parts(session, me, 10)
    events = list(session.events())
    disk = session.place.disk
    for path in session.layout.events.iterdir():
        path.unlink()
    segments.seal(session.layout, events[:14], session.layout.epoch(), set(), disk)
    segments.seal(session.layout, events[10:], session.layout.epoch(), set(), disk)
    for journal in session.layout.journals()[:-1]:
        journal.path.unlink()
    assert ask(COUNTS) == [(21, 21, 1, 21)]
    assert ask("SELECT payload FROM events ORDER BY seq") == [(bytes(e.payload).decode(),) for e in events]


def test_lines_of_a_fenced_epoch_are_not_shown(ask: Ask, session: Session, me: Holder) -> None:
    appender = session.append(me)
    appender.emit("Noted", {"by": "zombie"}, ignorable=True)
    appender.barrier()
    os.utime(session.layout.holder, (0, 0))  # as one that has been silent for long
    taker = session.append(me, force=True)
    taker.emit("Noted", {"by": "me"}, ignorable=True)
    taker.barrier()
    appender.emit("Noted", {"by": "fenced"}, ignorable=True)
    with pytest.raises(LeaseLost):
        appender.barrier()
    assert b"fenced" in session.layout.journals()[1].path.read_bytes()
    assert ask("SELECT payload->>'by' FROM events WHERE event_type = 'Noted' ORDER BY seq") == [("zombie",), ("me",)]
    taker.close()
    appender.abandon()


def test_a_half_written_parquet_file_is_never_read(ask: Ask, session: Session, me: Holder) -> None:
    sealed_in_parts(session, me, 5)
    (session.layout.events / "0000000012-0000000020-2.parquet.77-1.tmp").write_bytes(b"PAR1 half")
    assert ask(COUNTS) == [(11, 11, 1, 11)]


def test_a_store_in_a_folder_with_glob_and_hive_characters_is_read(tmp_path: Path, me: Holder) -> None:
    store = Store(tmp_path / "a [b] *c d=e 'f'")
    session = store.create(title="x")
    sealed_in_parts(session, me, 5)
    found = query(store, "SELECT * FROM events")
    assert len(found) == 11
    assert "d" not in found.columns


def test_plain_duckdb_reads_the_parquet_files_without_us(store: Store, session: Session, me: Holder) -> None:
    sealed_in_parts(session, me, 5, 5)
    with duckdb.connect(":memory:") as connection:
        sql = f"select count(*), count(distinct seq) from read_parquet('{store.root}/s/*/events/*.parquet')"
        assert connection.execute(sql).fetchall() == [(21, 21)]


# Damage


@pytest.fixture
def two(store: Store, session: Session, me: Holder) -> Session:
    """A second session beside `session`; both have two segments and a tail."""
    other = store.create(title="other")
    for each in (session, other):
        sealed_in_parts(each, me, 5, 5)
        appender = each.append(me)
        activities(appender, 5)
        appender.close()
    return other


PER_SESSION = "SELECT session_id, count(*) FROM events GROUP BY 1 ORDER BY 1"


@pytest.mark.parametrize("harm", ["empty", "cut", "pages", "not parquet"])
def test_a_damaged_segment_costs_only_its_own_events_and_is_named(
    store: Store, session: Session, two: Session, harm: str
) -> None:
    path = session.layout.segments()[1].path
    body = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "cut": body[: len(body) // 2],
            "pages": body[:4] + b"\xff" * 600 + body[604:],
            "not parquet": b"x" * 500,
        }[harm]
    )
    found = query(
        store,
        "SELECT session_id, count(*), max(payload::VARCHAR), sum(seq), max(timestamp), max(activity_id) "
        "FROM events GROUP BY 1 ORDER BY 1",
    )
    assert [list(row.values())[:2] for row in found.rows()] == [[session.id, 21], [two.id, 31]]
    assert any(session.id in text and path.name in text for text in found.problems)
    assert "Not complete" in str(found)
    assert path.name in found.html()


def test_damage_inside_a_journal_costs_one_event_and_is_named_with_its_place(
    store: Store, session: Session, two: Session
) -> None:
    path = session.layout.journals()[-1].path
    lines = path.read_bytes().split(b"\n")
    lines[3] = lines[3].replace(b"work", b"w\xffrk", 1)
    path.write_bytes(b"\n".join(lines))
    found = query(store, PER_SESSION)
    assert [row["count_star()"] for row in found.rows()] == [30, 31]
    assert any("offset" in text for text in found.problems)
    assert any("event 25 is missing" in text for text in found.problems)


def test_a_torn_tail_is_named_only_when_nobody_is_writing(store: Store, session: Session, two: Session, me: Holder) -> None:
    path = session.layout.journals()[-1].path
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"c":"0000')
    assert [text for text in query(store, PER_SESSION).problems if "torn" in text]
    path.write_bytes(whole)
    appender = session.append(me)
    with open(appender.layout.journals()[-1].path, "ab") as file:
        file.write(b'{"c":"0000')
    assert query(store, PER_SESSION).problems == []
    appender.abandon()


def test_a_damaged_header_is_named_and_the_events_are_shown(store: Store, session: Session, two: Session) -> None:
    session.layout.header.write_bytes(b"{")
    found = query(store, PER_SESSION)
    assert [row["count_star()"] for row in found.rows()] == [31, 31]
    assert len(found.problems) == 1
    assert "session.json is damaged" in found.problems[0]


def test_a_session_of_a_newer_format_is_left_out_and_named(store: Store, session: Session, two: Session) -> None:
    header = json.loads(session.layout.header.read_bytes())
    session.layout.header.write_text(json.dumps(header | {"format": 99}))
    found = query(store, PER_SESSION)
    assert [row["session_id"] for row in found.rows()] == [two.id]
    assert "format 99" in found.problems[0]


def test_a_folder_without_a_session_in_it_is_no_problem(ask: Ask, store: Store, two: Session) -> None:
    (store.sessions_folder / "soon").mkdir()
    assert len(ask(PER_SESSION)) == 2


def test_a_missing_segment_is_named_as_a_gap(store: Store, session: Session, two: Session) -> None:
    session.layout.segments()[0].path.unlink()
    found = query(store, PER_SESSION)
    assert [row["count_star()"] for row in found.rows()] == [20, 31]
    assert found.problems == [f"session {session.id}: events 1 to 11 are missing"]


def test_a_fork_whose_parent_is_gone_is_named(store: Store, session: Session, two: Session) -> None:
    child = session.fork()
    shutil.rmtree(session.layout.root)
    found = query(store, "FROM sessions")
    assert {row["session_id"] for row in found.rows()} == {child.id, two.id}
    assert "cannot be read" in found.problems[0]


def test_a_merge_between_the_listing_and_the_reading_is_not_noticed(
    store: Store, session: Session, two: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sources.gather
    merged: list[int] = []

    def gather(*args: Any) -> sources.Sources:
        found = real(*args)
        if not merged:
            merged.append(sealing.merge_small(session.layout, 9, session.place.disk))
        return found

    monkeypatch.setattr("ipyagent_sessions.history.sql.gather", gather)
    found = query(store, PER_SESSION)
    assert merged == [1]
    assert [row["count_star()"] for row in found.rows()] == [31, 31]
    assert found.problems == []


def test_a_journal_sealed_away_between_the_listing_and_the_reading_is_not_noticed(
    store: Store, session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed_in_parts(session, me, 5)
    appender = session.append(me)
    activities(appender, 5)
    appender.barrier()
    appender.close()
    again = session.append(me)
    real = reader.pieces
    calls: list[int] = []

    def pieces(*args: Any) -> Any:
        found = real(*args)
        if not calls:
            sealing.seal(session.layout, 21, again.epoch, 1, session.place.disk)
            sealing.seal(session.layout, 21, again.epoch, 1, session.place.disk)
        calls.append(len(found))
        return found

    monkeypatch.setattr("ipyagent_sessions.history.sources.pieces", pieces)
    found = query(store, COUNTS)
    assert len(calls) > 1, "the listing was found stale and made again"
    assert list(found.rows()[0].values()) == [21, 21, 1, 21]
    again.close()


def test_the_sources_hold_exactly_what_the_reader_reads(store: Store, session: Session, me: Holder) -> None:
    sealed_in_parts(session, me, 5, 5)
    appender = session.append(me)
    activities(appender, 5, text='naïve \\ud "q" \u2028 \U0001f9ea')
    appender.close()
    rows = query(store, "SELECT seq, payload FROM events ORDER BY seq").rows()
    assert [(r["seq"], r["payload"]) for r in rows] == [
        (e.seq, bytes(e.payload).decode()) for e in Reader(session.layout).events()
    ]


def test_a_listing_that_missed_a_file_is_made_again(
    ask: Ask, session: Session, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed_in_parts(session, me, 5, 5)
    real = reader.pieces
    calls: list[int] = []

    def pieces(*args: Any) -> Any:
        calls.append(1)
        return real(*args)[1:] if len(calls) == 1 else real(*args)

    monkeypatch.setattr("ipyagent_sessions.history.sources.pieces", pieces)
    assert ask(COUNTS) == [(21, 21, 1, 21)]
