"""A store with a history in which every view has rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import LeaseLost
from ipyagent_sessions.events import as_raw
from ipyagent_sessions.history.sql import query
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock


class Script:
    """Emits what a task emits, with times that the test owns."""

    def __init__(self, appender: Appender, clock: FakeClock, task_id: str) -> None:
        self.appender, self.clock, self.task_id = appender, clock, task_id

    def emit(self, event_type: str, payload: p.Payload | dict[str, Any], *, after: float = 1.0, **fields: Any) -> int:
        """Emit `after` seconds later; returns the seq."""
        self.clock.advance(after)
        return self.appender.emit(event_type, payload, task_id=self.task_id, **fields).seq

    def step(
        self,
        name: str,
        number: int,
        *,
        kind: str = "step",
        ms: float = 10.0,
        cost: float | None = None,
        effect: str = "none",
        stage: str = "1",
    ) -> int:
        """One activity that completes at once."""
        made = f"{stage}/{name}:{number}"
        start = self.emit(
            "ActivityStarted",
            p.ActivityStarted(name, kind, str(number), stage, f"d{number}", effect, as_raw({"n": number})),
            activity_id=made,
            attempt=1,
        )
        return self.emit(
            "ActivityCompleted",
            p.ActivityCompleted(name, kind, f"d{number}", as_raw({"ok": number})),
            activity_id=made,
            attempt=1,
            parent=start,
            execution_time_ms=ms,
            cost_usd=cost,
            input_tokens=None if cost is None else 100,
            output_tokens=None if cost is None else 10,
        )

    def start(self, target: str = "jobs:migrate", **more: Any) -> None:
        self.emit("TaskQueued", p.TaskQueued(target, **more), actor="user:anna")
        self.emit("TaskStarted", p.TaskStarted())


@pytest.fixture
def appender(session: Session, me: Holder) -> Iterator[Appender]:
    opened = session.append(me)
    yield opened
    with contextlib.suppress(LeaseLost):  # a test has closed it, and somebody else has written since
        opened.close()


@pytest.fixture
def rich(session: Session, appender: Appender, clock: FakeClock) -> Appender:
    """A failed task with a retry, an approval, files, a checkpoint, a tool call, a message; and its retry, which completes."""
    script = Script(appender, clock, f"{session.id}.1")
    script.start(title="Migrate")
    script.step("scan", 1, ms=5)
    script.emit(
        "ActivityStarted",
        p.ActivityStarted("convert", key="a", stage="1", effect="idempotent"),
        activity_id="1/convert:a",
        attempt=1,
    )
    script.emit("ActivityRetried", p.ActivityRetried("convert", "OSError", "busy", 2.0), activity_id="1/convert:a", attempt=1)
    script.emit(
        "ActivityStarted",
        p.ActivityStarted("convert", key="a", stage="1", effect="idempotent"),
        activity_id="1/convert:a",
        attempt=2,
    )
    script.emit(
        "ActivityCompleted", p.ActivityCompleted("convert"), activity_id="1/convert:a", attempt=2, execution_time_ms=40.0
    )
    script.emit(
        "ActivityStarted", p.ActivityStarted("upload", stage="2", effect="irreversible"), activity_id="2/upload:1", attempt=1
    )
    script.emit(
        "ActivityFailed",
        p.ActivityFailed("upload", "ValueError", "no such bucket"),
        activity_id="2/upload:1",
        attempt=1,
        execution_time_ms=7.0,
    )
    script.step("ask", 1, kind="model", ms=900, cost=0.02, stage="2")
    script.step("search", 1, kind="tool", ms=120, stage="2")
    script.emit("MessageAdded", {"role": "user", "text": "hello"})
    script.emit("ApprovalRequested", p.ApprovalRequested("a1", "Delete?", as_raw({"files": 3})))
    script.emit("TaskSuspended", p.TaskSuspended("approval", "Delete?"))
    script.emit("ApprovalResolved", p.ApprovalResolved("a1", "approved", by="user:anna"), after=60, actor="user:anna")
    script.emit("ApprovalResolved", p.ApprovalResolved("a1", "denied", by="user:late"), actor="user:late")
    script.emit("TaskResumed", p.TaskResumed(2, "answered"))
    script.emit("FileWritten", p.FileWritten("out/a.txt", "sha256:00", 12))
    script.emit("CodeGenerated", {"files_generated": [{"path": "b.py", "checksum": "sha256:01", "lines": 9}]})
    script.emit("ErrorOccurred", {"error_type": "Warning", "message": "odd"})
    appender.checkpoint("stage", "1", materialise=False, task_id=script.task_id)
    script.emit("TaskFailed", p.TaskFailed("ValueError", "no such bucket", activity_id="2/upload:1"))
    second = Script(appender, clock, f"{session.id}.2")
    second.start(title="Migrate", retry_of=script.task_id)
    second.step("scan", 1, ms=6)
    second.emit("RecoveryCompleted", p.RecoveryCompleted(3, "worker_lost", "recovered", duration_ms=4.0, repeated=["scan"]))
    second.emit("TaskCompleted", p.TaskCompleted(as_raw({"done": True})))
    appender.barrier()
    return appender


@pytest.fixture
def ask(store: Store) -> Callable[[str], list[tuple[Any, ...]]]:
    """The rows of a query as tuples; nothing may be wrong with the store."""

    def ask(sql: str) -> list[tuple[Any, ...]]:
        found = query(store, sql)
        assert found.problems == []
        return [tuple(row.values()) for row in found.rows()]

    return ask
