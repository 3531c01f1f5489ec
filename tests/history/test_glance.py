"""What the last look at the store gave spares the next one, and is never believed once a session has moved."""

from __future__ import annotations

import os
import random
import shutil
import time
from itertools import islice
from pathlib import Path

import pytest

from ipyagent_sessions.history import building, cache, sources
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.retention import deletion
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import History, activities, emit

COUNT = "SELECT count(*) AS n, count(DISTINCT event_id) AS d FROM events"


def settle(store: Store) -> None:
    """Make the store look as if nobody had touched it for a while."""
    at = time.time() - 100
    for path in (*store.sessions_folder.iterdir(), store.sessions_folder):
        os.utime(path, (at, at))


def counted(store: Store) -> int:
    """How many events a query sees, none of them twice and nothing missing."""
    found = query(store, COUNT)
    assert found.problems == []
    [row] = found.rows()
    assert row["n"] == row["d"] == sum(s.last_seq() - s.first + 1 for s in map(store.session, store.session_ids()))
    return int(row["n"])


@pytest.fixture
def looked(store: Store, me: Holder) -> Store:
    """A store whose sessions are all in the cache, and that was looked at."""
    for number in range(3):
        appender = store.create(title=f"{number}").append(me)
        for item in islice(History(random.Random(number)), 1, 40):
            emit(appender, item)
        appender.close(rest=True)
    store.session(store.session_ids()[0]).fork(3)
    settle(store)
    assert building.step(store) == 4
    assert sources.gather(store).loose == 0
    assert (cache.folder(store) / "glance.json").exists()
    return store


@pytest.fixture
def blind(looked: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The same where the folders of the sessions cannot be looked at."""

    def folders(store: Store) -> dict[str, int]:
        raise AssertionError("each session was looked at")

    monkeypatch.setattr(sources, "folders", folders)
    return looked


def test_an_unchanged_store_is_queried_without_a_look_at_each_session(blind: Store) -> None:
    counted(blind)
    [row] = query(blind, "SELECT count(*) AS n, count(parent) AS forks FROM sessions").rows()
    assert row == {"n": 4, "forks": 1}


def test_a_session_that_goes_on_is_seen_from_its_first_event(looked: Store, me: Holder) -> None:
    before = counted(looked)
    appender = looked.session(looked.session_ids()[1]).append(me)
    activities(appender, 1)
    appender.barrier()
    assert counted(looked) == before + 2
    os.utime(looked.sessions_folder, (time.time() - 50, time.time() - 50))
    assert sources.gather(looked).loose == 1, "remembered as one that is looked at each time"
    activities(appender, 1)
    appender.barrier()
    assert counted(looked) == before + 4
    appender.close(rest=True)
    assert counted(looked) == before + 4


def test_a_new_session_and_a_deleted_one_are_seen(looked: Store) -> None:
    before = counted(looked)
    gone = looked.session(looked.session_ids()[2])
    length = gone.last_seq() - gone.first + 1
    looked.create(title="new")
    assert counted(looked) == before + 1
    deletion.delete(looked, gone)
    assert counted(looked) == before + 1 - length


def test_a_fork_whose_parent_is_gone_is_reported_each_time(looked: Store) -> None:
    parent = next(s for s in looked.session_ids() if looked.children(s))
    shutil.rmtree(looked.session(parent).layout.root)
    os.utime(looked.sessions_folder, (time.time() - 50, time.time() - 50))
    for _ in range(2):
        assert any(parent in problem for problem in query(looked, COUNT).problems)


def test_a_store_that_changed_only_just_now_is_not_remembered(looked: Store) -> None:
    (cache.folder(looked) / "glance.json").unlink()
    os.utime(looked.sessions_folder)
    counted(looked)
    assert not (cache.folder(looked) / "glance.json").exists()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"at":1}'])
def test_a_damaged_glance_costs_one_look(looked: Store, body: bytes) -> None:
    wanted = counted(looked)
    (cache.folder(looked) / "glance.json").write_bytes(body)
    assert counted(looked) == wanted


def test_another_manifest_is_another_store(looked: Store) -> None:
    wanted = counted(looked)
    manifest = cache.folder(looked) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-3])
    assert counted(looked) == wanted
    assert sources.gather(looked).loose == 4


def test_a_folder_that_refuses_the_glance_is_no_trouble(looked: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache.folder(looked) / "glance.json").unlink()

    def refuse(path: Path, body: bytes) -> int:
        raise PermissionError(13, "no")

    monkeypatch.setattr(Path, "write_bytes", refuse)
    counted(looked)
