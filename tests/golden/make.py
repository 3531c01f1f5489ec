"""Writes a golden store: run once for each released format, never again for one that is kept.

    python tests/golden/make.py FOLDER      writes FOLDER/store-<format>.zip and FOLDER/archive-<format>.ipyagent.zip

It holds one of each kind of file: segments, a journal with a tail, whole and differential checkpoints, a blob, a fork, a
request that waits, what sessions share, the query cache.  `test_golden.py` opens what is kept here and looks at all of it.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import zipfile
from itertools import islice
from pathlib import Path

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.exchange import pack
from ipyagent_sessions.history import building
from ipyagent_sessions.log.layout import FORMAT
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, FakeIds, FaultyDisk, History, activities, emit
from ipyagent_sessions.verify import whole

ME = Holder(1, 1.0, "golden", "golden")


def fill(store: Store) -> str:
    """Write a history into an empty store; returns the id of the fork."""
    session = store.create(title="golden", notebook="golden.ipynb")
    task_id = f"{session.id}.1"
    appender = session.append(ME)
    appender.emit("TaskQueued", p.TaskQueued("m:f", title="golden", args=as_raw([[], {"n": 3}])), task_id=task_id)
    appender.emit("TaskStarted", p.TaskStarted(), task_id=task_id)
    for n in range(4):
        activities(appender, 20, task_id=task_id, text="é" * 20)
        appender.emit("StateChanged", p.StateChanged("count", as_raw(n)), task_id=task_id)
        appender.checkpoint("stage", f"{n + 1}", task_id=task_id)
    blobs: dict[str, bytes] = {}
    _, name = appender.put(b'"' + b"x" * 40_000 + b'"', blobs)
    body = p.ActivityCompleted("big", result_blob=name)
    appender.emit("ActivityCompleted", body, task_id=task_id, activity_id="/big:1", blobs=blobs)
    appender.emit("FileWritten", p.FileWritten("out.txt", "sha256:00", 12), task_id=task_id)
    appender.emit("TaskCompleted", p.TaskCompleted(as_raw({"n": 3})), task_id=task_id)
    appender.checkpoint("end", task_id=task_id)
    appender.close(rest=True)
    other = store.create(title="drawn")
    appender = other.append(ME)
    for item in islice(History(random.Random(1)), 1, 300):
        emit(appender, item)
    appender.close()
    child = session.fork()
    appender = child.append(ME)
    appender.emit("TaskQueued", p.TaskQueued("m:f"), task_id=f"{child.id}.2")
    asked = p.ApprovalRequested("a1", "Go on?", as_raw({"cost": 1}), "d")
    appender.emit("ApprovalRequested", asked, task_id=f"{child.id}.2")
    appender.emit("TaskSuspended", p.TaskSuspended("approval", "Go on?"), task_id=f"{child.id}.2")
    appender.close()
    store.memory.put("facts", "answer", {"value": 42}, by=task_id)
    store.memory.put("facts", "gone", 1, ttl=1)
    whole.store(store, repair=True)  # the summaries, which a task's own run would have written
    for path in store.sessions_folder.iterdir():
        os.utime(path, (1.7e9, 1.7e9))
    building.step(store)
    return child.id


def main(folder: Path) -> None:
    """Write both files."""
    with tempfile.TemporaryDirectory() as place:
        store = Store(Path(place, "store"), clock=FakeClock(), ids=FakeIds(), disk=FaultyDisk())
        child = fill(store)
        pack.export(store.session(child), folder / f"archive-{FORMAT}.ipyagent.zip")
        with zipfile.ZipFile(folder / f"store-{FORMAT}.zip", "w", zipfile.ZIP_DEFLATED) as file:
            for path in sorted(store.root.rglob("*")):
                if path.is_file() and path.suffix != ".lock" and path.name != "lock":
                    file.write(path, path.relative_to(store.root).as_posix())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
