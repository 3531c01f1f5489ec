"""A file that cannot be read, or is a folder, costs what it holds and nothing beside it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from ipyagent_sessions.errors import DamageError
from ipyagent_sessions.history import building, cache
from ipyagent_sessions.log import checkpoints
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.retention import clean
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import activities
from ipyagent_sessions.verify import whole
from ipyagent_sessions.verify.finding import Finding


def folder_at(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "inside").write_text("somebody's")


def loop_at(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path)


@pytest.fixture
def rested(session: Session, me: Holder) -> Session:
    """A session with a segment, two checkpoints, a blob and a summary."""
    appender = session.append(me)
    activities(appender, 5)
    big: dict[str, bytes] = {}
    _, name = appender.put(b'"' + b"x" * 40_000 + b'"', big)
    appender.emit("MessageAdded", {"role": "user", "text_blob": name}, task_id="t", blobs=big)
    appender.checkpoint("manual", "one")
    activities(appender, 5)
    appender.checkpoint("manual", "two")
    appender.close(rest=True)
    whole.session(session, repair=True)
    return session


def damage(store: Store, *, repair: bool = False) -> list[Finding]:
    return [f for f in whole.store(store, repair=repair).findings if f.level == "damage" and not f.repaired]


@pytest.mark.parametrize("what", [folder_at, loop_at])
def test_a_header_that_cannot_be_read_costs_one_session(store: Store, rested: Session, what: object) -> None:
    forked = rested.fork()
    other = store.create()
    assert callable(what)
    what(rested.layout.header)
    found = damage(Store(store.root))
    assert [f.file for f in found if f.session == rested.id] == ["session.json"]
    assert [f.file for f in found if f.session == forked.id] == ["session.json"]
    assert [f for f in found if f.session == other.id] == []


def test_a_missing_header_says_what_to_restore(store: Store, rested: Session) -> None:
    rested.layout.header.unlink()
    (found,) = damage(Store(store.root))
    assert (found.what, found.todo) == ("it is missing", "restore session.json from a copy")


@pytest.mark.parametrize("what", [folder_at, loop_at])
def test_a_summary_that_cannot_be_read_is_made_from_the_log(store: Store, rested: Session, what: object) -> None:
    assert callable(what)
    wanted = summarise(rested.id, rested.state())
    what(rested.layout.summary)
    again = Store(store.root).session(rested.id)
    assert again.summary() == wanted
    (found,) = damage(store)
    assert (found.file, found.derived) == ("summary.json", True)
    assert damage(store, repair=True) == []
    assert damage(store) == []
    assert again.layout.summary.is_file()


@pytest.mark.parametrize("what", [folder_at, loop_at])
def test_a_checkpoint_that_cannot_be_read_is_passed_over_and_made_anew(store: Store, rested: Session, what: object) -> None:
    assert callable(what)
    last = checkpoints.sequence(rested.layout)[-1]
    what(checkpoints.path_of(rested.layout, last))
    assert [info.complete for info in rested.checkpoints()] == [True, False]
    assert rested.state().seq == rested.last_seq()
    assert damage(store, repair=True) == []
    assert damage(store) == []
    assert all(info.complete for info in rested.checkpoints())
    if what is folder_at:
        assert (rested.layout.damaged / f"{last}.json.zst" / "inside").read_text() == "somebody's", "it is set aside"


@pytest.mark.parametrize("what", [folder_at, loop_at])
def test_a_blob_that_cannot_be_read_is_one_finding(store: Store, rested: Session, what: object) -> None:
    assert callable(what)
    (path,) = rested.layout.blobs.iterdir()
    what(path)
    (found,) = damage(store)
    assert found.file == f"blobs/{path.name}"
    assert found.what.startswith("it cannot be read: ")
    with pytest.raises(DamageError, match="cannot be read"):
        rested.blobs.read(path.name)


@pytest.mark.parametrize("what", [folder_at, loop_at])
@pytest.mark.parametrize("name", ["live.json", "holder.json"])
def test_a_sign_of_life_that_cannot_be_read_leaves_the_session_in_queries(
    store: Store, rested: Session, name: str, what: object
) -> None:
    assert callable(what)
    what(rested.layout.root / name)
    assert not rested.held()
    found = store.sql("select count(*) as n from events")
    assert (found.rows()[0]["n"], found.problems) == (rested.last_seq(), [])


def test_a_segment_that_leads_to_itself_costs_one_session_in_a_query(store: Store, rested: Session, me: Holder) -> None:
    other = store.create()
    other.append(me).close()
    loop_at(rested.layout.segments()[0].path)
    found = store.sql("select distinct session_id from events").rows()
    assert {"session_id": other.id} in found
    assert any(f.session == rested.id for f in damage(store))


def test_an_announcement_that_is_a_folder_stops_no_list(store: Store, rested: Session) -> None:
    folder_at(store.root / "gc.json")
    assert clean.standing(store) == ""


def test_a_torn_journal_of_what_sessions_share_is_a_note(store: Store, session: Session) -> None:
    store.memory.put("facts", "pi", 3)
    store.memory.put("facts", "e", 2)
    (path,) = (store.root / "memory").glob("journal-*")
    whole_size = path.stat().st_size
    os.truncate(path, whole_size - 9)
    (found,) = (f for f in whole.store(Store(store.root)).findings if f.file.startswith("memory"))
    assert (found.file, found.level) == (f"memory/{path.name}", "note")
    assert found.place.startswith("byte ")
    assert Store(store.root).memory.get("facts", "pi") == 3


def cached(store: Store, session: Session) -> Path:
    """The file of the query cache into which all sessions were copied."""
    os.utime(session.layout.root, (1, 1))
    assert building.step(store)
    return cache.path_of(store, 1)


def test_a_broken_manifest_of_the_cache_is_a_note(store: Store, rested: Session) -> None:
    cached(store, rested)
    manifest = store.root / "history" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-7])
    (found,) = whole.store(store).findings
    assert (found.file, found.level) == ("history/manifest.json", "note")


def test_a_repair_keeps_the_last_copies_of_what_the_log_lost(store: Store, rested: Session) -> None:
    path = cached(store, rested)
    before, summary = path.read_bytes(), rested.layout.summary.read_bytes()
    shutil.rmtree(rested.layout.events)
    os.utime(rested.layout.root, (1, 1))
    found = damage(store, repair=True)
    (told,) = (f for f in found if f.file == "history/1.parquet")
    assert told.what.startswith("the log does not give ")
    assert (told.repaired, told.derived) == (False, False)
    assert path.read_bytes() == before
    (told,) = (f for f in found if f.file == "summary.json")
    assert "repair leaves the summary" in told.todo
    assert rested.layout.summary.read_bytes() == summary


def test_a_summary_of_a_later_event_is_repaired_where_the_log_is_whole(rested: Session) -> None:
    path = rested.layout.summary
    path.write_bytes(msgspec.json.encode({**msgspec.json.decode(path.read_bytes()), "seq": 9999}))
    assert not whole.session(rested, repair=True).damaged
    assert rested.summary().seq == rested.last_seq()
