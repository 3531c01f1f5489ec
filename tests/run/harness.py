"""What the tests of running share: a witness outside the store, gates that hold an activity open, and a small engine to drive.

witness("scan")                      # called by an activity: one more real run of it, written to a file
await gate.passing()                 # an activity that stays open until the test says gate.open()
handle = engine.start(flow, 3)       # a task on a thread of its own
engine.crash(handle)                 # its process "dies": nothing more is written, the lease is free
engine.resume(handle, flow).result(10)
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from ipyagent_sessions import events as ev
from ipyagent_sessions import folding
from ipyagent_sessions.events import Event
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.run import control, launch
from ipyagent_sessions.run.beginning import Resume
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.task import RunOptions, TaskRun
from ipyagent_sessions.run.worker import TaskHandle
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import State
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import FakeClock, wait_until


class Clock(FakeClock):
    """A fake clock that forgets the sleepers of a task that was stopped: their loop is closed when time goes on."""

    async def sleep(self, seconds: float) -> None:
        try:
            await super().sleep(seconds)
        except asyncio.CancelledError:
            here = asyncio.get_running_loop()
            with self._lock:
                self._sleepers = [s for s in self._sleepers if s[1] is not here]
            raise


PATIENCE = 10.0
"""Seconds after which a test gives up on a condition: generous, since nothing waits for it that goes well."""


class Witness:
    """Counts real executions in a file that lies outside the store, so that it also counts those of killed processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def __call__(self, name: object) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(fd, f"{name}\n".encode())
        finally:
            os.close(fd)

    @property
    def order(self) -> list[str]:
        """What ran, in order."""
        return self.path.read_text("utf-8").splitlines()

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.order)


class Gate:
    """Holds whoever passes until the test opens it.  Works from coroutines, threads and the test at once."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._inside = 0
        self._lock = threading.Lock()

    async def passing(self) -> None:
        self._arrive()
        while not self._open.is_set():
            await asyncio.sleep(0.002)

    def blocking(self) -> None:
        self._arrive()
        self._open.wait(PATIENCE)

    def _arrive(self) -> None:
        with self._lock:
            self._inside += 1

    def open(self) -> None:
        self._open.set()

    def reached(self, by: int = 1) -> None:
        """Return once so many have arrived."""
        wait_until(lambda: self._inside >= by, timeout=PATIENCE, what=f"{by} at the gate, {self._inside} are")


class Engine:
    """A store to run workflows in, and what a test wants to know of them."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.handles: list[TaskHandle] = []

    def start(self, workflow: Workflow, *args: Any, session: Session | None = None, **options: Any) -> TaskHandle:
        """A new task; `options` are those of RunOptions."""
        handle = launch.run_workflow(self.store, workflow, args, options=RunOptions(**options), session=session)
        self.handles.append(handle)
        return handle

    def resume(
        self, where: TaskHandle | Session, workflow: Workflow, *, redo: tuple[str, ...] = (), say: str = "", **options: Any
    ) -> TaskHandle:
        session = where if isinstance(where, Session) else where.session
        handle = launch.resume_task(session, workflow, options=RunOptions(**options), resume=Resume(redo, say))
        self.handles.append(handle)
        return handle

    def crash(self, handle: TaskHandle) -> Session:
        """End this execution the way a killed process does: nothing of it is logged, unflushed events are gone."""
        run = running(handle)
        run.call(lambda: run.stop("lease_lost", reason="crashed by the test"))
        assert handle.wait(PATIENCE)
        assert handle.outcome is not None
        assert handle.outcome.state == "lease lost"
        return handle.session

    def ask(self, handle: TaskHandle, action: str, **args: Any) -> None:
        """Ask through the inbox, and return once the task has been told to stop."""
        handle.ask(action, "user:anna", **args)
        wait_until(lambda: running(handle).stopping is not None, timeout=PATIENCE, what=f"{action} to arrive")

    def ended(self, handle: TaskHandle, state: str) -> Session:
        """Wait for the end of this execution, which must be `state`; returns its session."""
        assert handle.wait(PATIENCE), f"{handle} did not end"
        assert handle.outcome is not None, handle.trouble
        assert handle.outcome.state == state, (handle.outcome, handle.trouble)
        return handle.session

    def close(self) -> None:
        for handle in self.handles:
            if not handle.done and handle.run is not None:
                run = handle.run
                run.call(lambda run=run: run.stop("lease_lost"))  # type: ignore[misc]  # mypy cannot infer the default
        for handle in self.handles:
            handle.wait(5)


def running(handle: TaskHandle) -> TaskRun:
    """The execution behind a handle, once it has begun."""
    wait_until(lambda: handle.run is not None or handle.done, timeout=PATIENCE, what="the task to begin")
    assert handle.run is not None, handle.trouble
    return handle.run


def of_type(session: Session, *event_types: str) -> list[Event]:
    return [e for e in session.events() if e.event_type in event_types]


def bodies(session: Session, event_type: str) -> list[dict[str, Any]]:
    """The payloads of all events of a type, as plain data."""
    return [ev.payload_of(e) for e in of_type(session, event_type)]


def checkpoints(session: Session) -> list[tuple[str, str]]:
    """(trigger, label) of each CheckpointCreated."""
    return [(b["trigger"], b.get("label", "")) for b in bodies(session, "CheckpointCreated")]


def status_is(session: Session, state: TaskState | str) -> bool:
    return session.state().system_state.status == state


def until_status(session: Session, state: TaskState | str) -> State:
    wait_until(lambda: status_is(session, state), timeout=PATIENCE, what=f"the task to be {state}")
    return session.state()


def until_asked(session: Session, count: int = 1) -> list[str]:
    """The ids of the approvals that wait, once there are `count`."""

    def pending() -> list[str]:
        return [k for k, a in session.state().execution_state.approvals.items() if a.answer is None]

    wait_until(lambda: len(pending()) >= count, timeout=PATIENCE, what=f"{count} approvals")
    return pending()


def answer(session: Session, approval_id: str, said: str = "approved", *, by: str = "user:anna", **args: Any) -> None:
    """Answer through the door, whoever holds the lease."""
    digest = args.pop("digest", session.state().execution_state.approvals[approval_id].digest)
    control.request(session, "answer", actor=by, approval_id=approval_id, answer=said, digest=digest, **args)


def refolded(session: Session) -> State:
    """The state from the events alone, no snapshot asked."""
    return folding.fold(session.events())
