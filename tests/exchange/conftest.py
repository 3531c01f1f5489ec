"""A session with a history, a fork of it, and another store that they may travel to."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path

import pytest

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.log.blobs import Blobs
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, FakeIds, FaultyDisk, History, activities, emit


@pytest.fixture
def other(tmp_path: Path, clock: FakeClock) -> Store:
    """Another store."""
    ids = FakeIds()
    for _ in range(50):
        ids()
    return Store(tmp_path / "other", clock=clock, ids=ids, disk=FaultyDisk())


@pytest.fixture
def parent(session: Session, me: Holder) -> Session:
    """A session with a few hundred events and a blob, whose task waits."""
    appender = session.append(me)
    for item in islice(History(random.Random(5)), 1, 300):
        emit(appender, item)
    appender.emit("TaskQueued", p.TaskQueued("m:f", args=as_raw([[], {}])), task_id="t9")
    appender.emit("TaskStarted", p.TaskStarted(), task_id="t9")
    big: dict[str, bytes] = {}
    _, name = appender.put(b'"' + b"x" * 40_000 + b'"', big)
    body = p.ActivityCompleted("big", result_blob=name)
    appender.emit("ActivityCompleted", body, task_id="t9", activity_id="/big:1", blobs=big)
    before = b"what the file held"
    held = Blobs.name(before)
    appender.emit("FileWritten", p.FileWritten("a.txt", "sha256:00", before=held), task_id="t9", blobs={held: before})
    appender.emit("TaskSuspended", p.TaskSuspended("network"), task_id="t9")
    appender.close(rest=True)
    return session


@pytest.fixture
def child(parent: Session, me: Holder) -> Session:
    """A fork of it with events of its own."""
    forked = parent.fork()
    appender = forked.append(me)
    activities(appender, 5)
    appender.close()
    return forked
