"""The query cache changes how long a query takes, and never what it gives."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ipyagent_sessions.history import building, cache, sources, tables
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.history.views import VIEWS
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.retention import deletion
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, FaultyDisk, History, activities, emit
from ipyagent_sessions.verify import whole

COUNT = "SELECT count(*) AS n, count(DISTINCT event_id) AS d FROM events"


def settle(store: Store) -> None:
    """Make all sessions look as if nobody had touched them for a while."""
    at = time.time() - 100
    for path in store.sessions_folder.iterdir():
        os.utime(path, (at, at))


def caught_up() -> None:
    """Wait until nothing is being copied behind a query."""
    for thread in threading.enumerate():
        if thread.name == "ipyagent-cache":
            thread.join(30)


def pictures(store: Store) -> list[dict[str, Any]]:
    """How many rows each view has, and a sum over all that is in them."""
    parts = [f"SELECT '{v.name}' AS view, count(*) AS n, sum(hash(x)::HUGEINT) AS h FROM {v.name} x" for v in VIEWS]
    found = query(store, " UNION ALL ".join(parts) + " ORDER BY view")
    assert found.problems == []
    return found.rows()


def test_with_all_in_the_cache_nothing_is_planned_over_the_sessions_own_files(
    store: Store, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, me, 1)
    settle(store)
    assert building.step(store) == 1
    monkeypatch.setattr(tables, "TOLD", "SELECT nothing_like_that FROM base.loose")
    found = query(store, "SELECT * FROM events").rows()
    assert len(found) == query(store, COUNT).rows()[0]["n"] > 0


def fill(store: Store, me: Holder, number: int) -> Session:
    session = store.create(title=f"{number}", notebook=f"{number}.ipynb")
    appender = session.append(me)
    for item in islice(History(random.Random(number)), 1, 60 + number):
        emit(appender, item)
    appender.close(rest=number % 2 == 0)
    return session


@pytest.fixture
def many(store: Store, me: Holder, rich: Appender) -> Store:
    """Sessions of all kinds: sealed, with a tail, a fork, an empty one, and one with rows in every view."""
    rich.close()
    made = [fill(store, me, n) for n in range(5)]
    made[0].fork(3)
    store.create(title="empty")
    settle(store)
    return store


def test_every_view_gives_the_same_with_the_cache_and_without(many: Store) -> None:
    wanted = pictures(many)
    assert building.step(many) == 8
    assert sources.gather(many).loose == 0
    assert pictures(many) == wanted
    lineage = f"SELECT * FROM lineage('{many.session_ids()[0]}')"
    with_cache = query(many, lineage).rows()
    shutil.rmtree(cache.folder(many))
    assert query(many, lineage).rows() == with_cache
    assert pictures(many) == wanted, "deleting it loses nothing"


def test_a_session_that_went_on_is_read_from_its_own_files(many: Store, me: Holder) -> None:
    building.step(many)
    chosen = max(many.session_ids())
    for rest in (False, True):
        appender = many.session(chosen).append(me)
        activities(appender, 3)
        appender.barrier()
        assert query(many, COUNT).rows()[0] == dict.fromkeys("nd", sum(_lengths(many))), "also while it is held"
        appender.close(rest=rest)
        assert query(many, COUNT).rows()[0] == dict.fromkeys("nd", sum(_lengths(many)))
        assert sources.gather(many).loose == 1
    wanted = pictures(many)
    settle(many)
    assert building.step(many) == len(many.session_ids()), "their folders have another time"
    assert pictures(many) == wanted


def _lengths(store: Store) -> list[int]:
    return [store.session(s).last_seq() - store.session(s).first + 1 for s in store.session_ids()]


def test_a_deleted_session_is_in_no_query_any_more(many: Store) -> None:
    building.step(many)
    gone = next(s for s in many.session_ids() if many.children(s))
    deletion.delete(many, many.session(gone))
    assert query(many, "SELECT * FROM events WHERE session_id = ?", [gone]).rows() == []
    assert query(many, COUNT).rows()[0] == dict.fromkeys("nd", sum(_lengths(many)))


def test_what_is_held_or_has_just_changed_is_not_copied(store: Store, session: Session, me: Holder) -> None:
    assert building.step(store) == 0, "it has just been made"
    appender = session.append(me)
    settle(store)
    assert building.step(store) == 0, "it is held"
    appender.close()
    settle(store)
    assert building.step(store) == 1


def test_a_damaged_session_stays_outside_and_is_reported_each_time(many: Store) -> None:
    chosen = next(s for s in many.session_ids() if many.session(s).layout.segments())
    segment = many.session(chosen).layout.segments()[0].path
    segment.write_bytes(segment.read_bytes()[:-40])
    settle(many)
    building.step(many)
    for _ in range(2):
        assert any(chosen in problem for problem in query(many, COUNT).problems)
        building.step(many)
    assert chosen not in cache.read(many).sessions


@pytest.mark.parametrize("what", ["flip", "cut", "empty", "gone", "manifest", "other store", "newer"])
def test_damage_in_the_cache_costs_nothing(many: Store, what: str) -> None:
    wanted = pictures(many)
    building.step(many)
    manifest = cache.folder(many) / "manifest.json"
    path = cache.path_of(many, 1)
    body = bytearray(path.read_bytes())
    if what == "flip":
        for at in range(4, len(body) - 8, 97):
            body[at] ^= 0x55
        path.write_bytes(body)
    elif what == "cut":
        path.write_bytes(body[: len(body) // 2])
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "gone":
        path.unlink()
    elif what == "manifest":
        manifest.write_bytes(manifest.read_bytes()[:-5])
    elif what == "other store":
        manifest.write_bytes(manifest.read_bytes().replace(many.id.encode(), b"another"))
    else:
        manifest.write_bytes(manifest.read_bytes().replace(b'"format":2', b'"format":9', 1))
    assert pictures(many) == wanted


def test_a_cache_that_says_something_else_is_found_by_verify_and_removed(many: Store) -> None:
    import duckdb

    building.step(many)
    assert whole.store(many).findings == [f for f in whole.store(many).findings if f.file == "summary.json"]
    path = cache.path_of(many, 1)
    with duckdb.connect() as connection:
        forged = f"SELECT * REPLACE (CASE WHEN seq = 2 THEN 'mallory' ELSE actor END AS actor) FROM '{path}'"
        connection.execute(f"COPY ({forged}) TO '{path}.new' (FORMAT parquet)")
    os.replace(f"{path}.new", path)
    found = [f for f in whole.store(many).findings if f.file == "history/1.parquet"]
    assert found
    assert all(f.place.startswith("session ") for f in found), found
    whole.store(many, repair=True)
    assert not path.exists()
    assert [f for f in whole.store(many).findings if f.file.startswith("history/")] == []


def test_small_files_are_merged_and_dead_rows_go(many: Store, me: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "STEP", 50)
    monkeypatch.setattr(building, "FEW", 2)
    wanted = pictures(many)
    while building.step(many):
        assert pictures(many) == wanted
    assert len(cache.read(many).files) == 1
    for n in range(3):
        activities(appender := many.session(many.session_ids()[n]).append(me), 2)
        appender.close()
    settle(many)
    wanted = pictures(many)
    while building.step(many):
        pass
    manifest = cache.read(many)
    assert sum(f.rows for f in manifest.files.values()) == sum(_lengths(many)), "no row of the past is left"
    assert pictures(many) == wanted
    assert len(list(cache.folder(many).glob("*.parquet"))) == len(manifest.files)


BUILD = """
import sys
from ipyagent_sessions.history import building
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FaultyDisk
building.STEP, building.FEW = 50, 2
disk = FaultyDisk()
if len(sys.argv) > 2:
    disk.kill(sys.argv[2], at=int(sys.argv[3]))
store = Store(sys.argv[1], disk=disk)
while building.step(store):
    print("step", flush=True)
print("done", flush=True)
"""


@pytest.mark.parametrize("at", [1, 4])
@pytest.mark.parametrize("seam", ["before cache rename", "after cache rename"])
def test_a_builder_killed_anywhere_costs_nothing(many: Store, seam: str, at: int) -> None:
    wanted = pictures(many)
    with Child(BUILD, str(many.root), seam, str(at)) as child, contextlib.suppress(EOFError):
        child.expect("done")
    assert pictures(many) == wanted
    while building.step(many):
        pass
    assert pictures(many) == wanted
    assert sources.gather(many).loose == 0
    named = {cache.path_of(many, n).name for n in cache.read(many).files}
    found = {path.name for path in cache.folder(many).iterdir()}
    assert found - {"glance.json"} == named | {"manifest.json", "lock"}, "a glance is noted once the folders have rested"


def test_two_builders_and_a_reader_at_once(many: Store) -> None:
    wanted = query(many, COUNT).rows()
    with Child(BUILD, str(many.root)) as one, Child(BUILD, str(many.root)) as two:
        ended = [threading.Thread(target=child.expect, args=("done",), daemon=True) for child in (one, two)]
        for thread in ended:
            thread.start()
        while any(thread.is_alive() for thread in ended):
            assert query(many, COUNT).rows() == wanted
    while building.step(many):
        pass
    assert query(many, COUNT).rows() == wanted
    assert not any(f.file.startswith("history/") for f in whole.store(many).findings)


def test_a_query_has_some_sessions_copied_when_it_met_many(many: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    query(many, COUNT)
    assert not cache.folder(many).exists(), "a small store needs no cache"
    monkeypatch.setattr(building, "WORTHWHILE", 3)
    wanted = query(many, COUNT).rows()
    caught_up()
    assert sources.gather(many).loose == 0
    assert query(many, COUNT).rows() == wanted


def test_a_store_that_cannot_be_written_is_queried_all_the_same(
    many: Store, disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(building, "WORTHWHILE", 0)
    disk.fail("before cache rename")
    wanted = query(many, COUNT).rows()
    caught_up()
    assert cache.read(many).sessions == {}
    assert query(many, COUNT).rows() == wanted
    caught_up()
    assert list(tmp_path.rglob("*.tmp")) == []


def test_a_step_ends_with_a_number_of_bytes_too(many: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "STEP_BYTES", 1)
    wanted = query(many, COUNT).rows()
    assert [building.step(many) for _ in range(9)] == [1] * 8 + [0]
    assert query(many, COUNT).rows() == wanted


ASK = """
import sys, threading
from ipyagent_sessions.history import building
from ipyagent_sessions.store import Store
building.STEP_BYTES, building.WORTHWHILE = 1, 3
step = building.step
def late(store, refused):
    threading.main_thread().join()
    return step(store, refused)
building.step = late
print(len(Store(sys.argv[1]).sql("FROM events")))
"""


def test_copying_goes_on_behind_the_answer_and_ends_with_the_process(many: Store) -> None:
    wanted = query(many, COUNT).rows()
    done = subprocess.run([sys.executable, "-c", ASK, str(many.root)], capture_output=True, text=True, check=True, timeout=60)
    assert int(done.stdout) == wanted[0]["n"], "the answer came before the first step, which waits for the end"
    assert len(cache.read(many).sessions) == 1, "and no step came after that"
    assert query(many, COUNT).rows() == wanted


def test_a_builder_killed_while_it_copies_costs_nothing(many: Store) -> None:
    wanted = pictures(many)
    building.step(many)
    folder = cache.folder(many)
    (folder / "77.parquet").write_bytes(b"PAR1")  # renamed, and not yet in the manifest
    (folder / "78.parquet.4711.tmp").write_bytes(b"PAR1 and half of a row group")
    assert pictures(many) == wanted
    building.step(many)
    assert pictures(many) == wanted
    assert [path.name for path in folder.glob("7*")] == []


def test_a_merge_keeps_each_session_in_one_piece_and_in_order(many: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    monkeypatch.setattr(building, "STEP_BYTES", 1)
    monkeypatch.setattr(building, "FEW", 2)
    while building.step(many):
        pass
    [path] = cache.folder(many).glob("*.parquet")
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT session_id, seq FROM read_parquet(?)", [os.fspath(path)]).fetchall()
    runs = [session_id for n, (session_id, _) in enumerate(rows) if n == 0 or rows[n - 1][0] != session_id]
    assert len(runs) == len(set(runs)) == 8
    assert all(a[0] != b[0] or a[1] + 1 == b[1] for a, b in itertools.pairwise(rows))


def test_the_number_of_a_file_that_was_dropped_is_given_to_no_other(many: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that looked before would read other sessions under it."""
    monkeypatch.setattr(building, "STEP_BYTES", 1)
    building.step(many)
    building.step(many)
    building.drop(many, {2})
    building.step(many)
    assert sorted(cache.read(many).files) == [1, 3]


def test_a_session_whose_segment_is_not_what_its_name_says_stays_outside_and_is_tried_once(store: Store, me: Holder) -> None:
    sound, sick = fill(store, me, 2), fill(store, me, 4)
    (segment,) = sick.layout.segments()
    table = pq.read_table(segment.path)
    pq.write_table(table.slice(0, table.num_rows - 1), segment.path)
    settle(store)
    refused: dict[str, int] = {}
    assert building.step(store, refused) == 2
    assert building.step(store, refused) == 0, "else it would be copied again for ever"
    assert list(refused) == [sick.id]
    assert list(cache.read(store).sessions) == [sound.id]
    settle(store)
    assert query(store, COUNT).rows()[0]["n"] == sound.last_seq() + sick.last_seq() - 1
