"""Writes a store with the sources of an earlier commit, for a form of the state that this version no longer writes.

    git archive COMMIT sessions | tar x -C PLACE
    PYTHONPATH=PLACE/sessions python tests/golden/make_earlier.py FOLDER

writes FOLDER/form-<form>.zip and prints, by session, how many events it has and the sha256 of their own.  What is kept here
was written so, by the first commit (form 0: before forms had numbers) and by one of each form after it; `earlier.json` holds
what was printed.  One of a newer form is added when the form goes up, and none is ever written anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ipyagent_sessions import events as ev
from ipyagent_sessions import payloads as p
from ipyagent_sessions import state as states
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

ME = Holder(1, 1.0, "golden", "golden")


def _begun(session: Session) -> tuple[Appender, str]:
    appender, task_id = session.append(ME), f"{session.id}.1"
    appender.emit("TaskQueued", p.TaskQueued("m:f", args=as_raw([[], {"n": 3}])), task_id=task_id)
    appender.emit("TaskStarted", p.TaskStarted(), task_id=task_id)
    return appender, task_id


def fill(store: Store) -> list[Session]:
    """A session that completed, with a checkpoint for each stage, and one that waits for a person."""
    done = store.create(title="done")
    appender, task_id = _begun(done)
    for n in range(30):
        about: dict[str, Any] = {"task_id": task_id, "activity_id": f"/step:{n}", "attempt": 1}
        appender.emit("ActivityStarted", p.ActivityStarted("step", key=str(n)), **about)
        appender.emit("ActivityCompleted", p.ActivityCompleted("step", result=as_raw({"n": n, "t": "é" * 10})), **about)
        if n % 10 == 9:
            appender.checkpoint("stage", str(n // 10 + 1), task_id=task_id)
    appender.emit("FileWritten", p.FileWritten("out.txt", "sha256:00", 12), task_id=task_id)
    appender.emit("TaskCompleted", p.TaskCompleted(as_raw({"n": 3})), task_id=task_id)
    appender.checkpoint("end", task_id=task_id)
    appender.close(rest=True)
    waits = store.create(title="waits")
    appender, task_id = _begun(waits)
    appender.emit("ApprovalRequested", p.ApprovalRequested("a1", "Go on?", as_raw({"cost": 1}), "d"), task_id=task_id)
    appender.emit("TaskSuspended", p.TaskSuspended("approval", "Go on?"), task_id=task_id)
    appender.checkpoint("manual", "mine", task_id=task_id)
    appender.close()
    return [done, waits]


def main(folder: Path) -> None:
    """Write the file and print what it holds."""
    with tempfile.TemporaryDirectory() as place:
        store = Store(Path(place, "store"))
        told = {}
        for session in fill(store):
            sums = [hashlib.sha256(ev.encode(event)).hexdigest() for event in session.events()]
            told[session.id] = [len(sums), hashlib.sha256("".join(sums).encode()).hexdigest()]
        form = getattr(states, "FORM", 0)
        with zipfile.ZipFile(folder / f"form-{form}.zip", "w", zipfile.ZIP_DEFLATED) as file:
            for path in sorted(store.root.rglob("*")):
                if path.is_file() and path.suffix != ".lock":
                    file.write(path, path.relative_to(store.root).as_posix())
    print(json.dumps({form: told}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
