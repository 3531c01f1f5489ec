"""A task on a daemon thread with an event loop of its own, and the handle to it.

The thread is a daemon so that a kernel restart never waits for it; what it has acknowledged is on disk.  It runs in a
copy of the caller's context, so that prints of activities land where the caller's would."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Generator
from typing import Any

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import IpyagentError, LeaseLost, PersistenceError, TaskNotCompleted
from ipyagent_sessions.events import Stamper
from ipyagent_sessions.lifecycle import ENDED, TaskState
from ipyagent_sessions.log import inbox, live
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.run import frames, loop
from ipyagent_sessions.run.beginning import Call, Resume
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.runner import Outcome, drive
from ipyagent_sessions.run.task import RunOptions, TaskRun
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.textsafe import plain_lines


class TaskHandle:
    """A task that runs in this process.  Awaitable; `result()` gives its value or raises TaskNotCompleted.

    It takes the appender over, and closes it also when no thread can be had, which is raised.
    """

    def __init__(
        self,
        session: Session,
        appender: Appender,
        workflow: Workflow,
        options: RunOptions,
        resume: Resume | None,
        call: Call | None = None,
    ) -> None:
        self.session = session
        self.task_id = appender.state.system_state.task_id or ""
        self.options = options
        self.kind = workflow.kind
        self.outcome: Outcome | None = None
        self.trouble: BaseException | None = None
        self.run: TaskRun | None = None
        self._appender = appender
        self._done = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=lambda: context.run(self._main, workflow, resume, call), name=f"ipyagent-{self.task_id}", daemon=True
        )
        try:
            self._thread.start()
        except Exception:  # no thread will close it; an interrupt is none of these, since it may find the thread at work
            appender.close()
            raise

    def __repr__(self) -> str:
        return f"<task {self.task_id} {self.outcome.state if self.outcome else 'running'}>"

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds for this execution to end; whether it has."""
        return self._done.wait(timeout)

    def result(self, timeout: float | None = None) -> Any:
        """The workflow's value.  Raises TaskNotCompleted for every other end (the cause is its `__cause__`), TimeoutError."""
        if not self.wait(timeout):
            raise TimeoutError(f"task {self.task_id} goes on")
        if self.trouble is not None:
            raise self.trouble
        assert self.outcome is not None
        if self.outcome.state == "completed":
            return self.outcome.value
        raise not_completed(self.outcome) from self.outcome.error

    def interrupt(self, actor: str = "user") -> bool:
        """Ask for a pause from this process, without a file; whether the execution had begun and could be asked.

        One that waits for a person ends and stays suspended.  A second time stops the open activities.
        """
        run = self.run
        if run is not None:
            run.call(lambda: _interrupt(run, actor))
        return run is not None

    def ask(self, action: str, actor: str = "user", **args: Any) -> None:
        """Leave a request for this task without waiting for it to be logged."""
        place = self.session.place
        at, attempt = Stamper()(place.clock.now()), self.run.state.system_state.attempt if self.run is not None else 0
        inbox.put(self.session.layout, Control(place.ids(), action, actor, at, self.task_id, [], args, attempt), place.disk)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._wait_async().__await__()

    async def _wait_async(self) -> Any:
        """A short heartbeat keeps an awaiting cell interruptible while its loop is otherwise idle."""
        while not self.done:
            await asyncio.sleep(0.1)
        return self.result()

    def _main(self, workflow: Workflow, resume: Resume | None, call: Call | None) -> None:
        try:
            with asyncio.Runner(loop_factory=loop.new) as runner:
                self.outcome = runner.run(self._drive(workflow, resume, call))
        except BaseException as error:  # noqa: BLE001  # kept for result(): this thread has nobody else to tell
            self.trouble = error
            self._record(error)
        finally:
            try:
                self._close()
            finally:
                self._done.set()

    async def _drive(self, workflow: Workflow, resume: Resume | None, call: Call | None) -> Outcome:
        return await drive(self.session, self._appender, workflow, self.options, resume, call=call, on_run=self._began)

    def _began(self, run: TaskRun) -> None:
        self.run = run

    def _record(self, error: BaseException) -> None:
        """Log that the engine itself stopped: a task that had not begun has failed, one that ran can be resumed."""
        status, said = self._appender.state.system_state.status, frames.text_of(error)
        if status is TaskState.QUEUED:
            failed = p.TaskFailed(type(error).__name__, said, "start")
            self._appender.emit("TaskFailed", failed, task_id=self.task_id)
        elif status is TaskState.RUNNING:
            stopped = p.TaskSuspended("worker_lost", f"the engine stopped with {type(error).__name__}: {said}", "resume")
            self._appender.emit("TaskSuspended", stopped, task_id=self.task_id)

    def _close(self) -> None:
        appender = self._appender
        try:
            if self.outcome is not None and self.outcome.state == "lease lost":
                appender.abandon()
                return
            try:
                appender.barrier()
                live.write_summary(self.session.layout, summarise(self.session.id, appender.state), appender.disk)
            finally:
                appender.close(rest=appender.state.system_state.status in ENDED)
        except PersistenceError as error:
            self.trouble = self.trouble or _unwritten(error, appender)
        except LeaseLost as error:
            self.trouble = self.trouble or error


def _unwritten(error: PersistenceError, appender: Appender) -> PersistenceError:
    """The same, with what goes with this execution because it never reached the disk (R016, R245)."""
    first, last = appender.durable_seq + 1, appender.state.seq
    if first <= last:
        error.hint += f"; events {first} to {last} did not get there, and a resume does again what they tell of"
    return error


def _interrupt(run: TaskRun, actor: str) -> None:
    system = run.state.system_state
    if system.status is TaskState.SUSPENDED:
        run.stop("suspend", actor=actor, reason=system.reason, detail=system.detail)
        return
    run.emit("ControlRequested", p.ControlRequested(run.session.place.ids(), "pause"), actor=actor)
    run.sync()
    run.stop("abort" if run.stopping is not None else "pause", actor=actor)


def not_completed(outcome: Outcome) -> TaskNotCompleted:
    """The error for an execution that ended otherwise than completed, in one line."""
    error, why = outcome.error, outcome.detail or outcome.reason
    if error is not None:
        named = outcome.state == "suspended" or isinstance(error, IpyagentError)
        said = frames.text_of(error)
        why = said if named else f"{type(error).__name__}: {said}"
        why += f" ({outcome.where})" if outcome.where else ""
    if outcome.state == "lease lost":
        known = f"session {outcome.session_id} was taken over"
        told = f"task {outcome.task_id} was taken over{why.removeprefix(known) if why.startswith(known) else f': {why}'}"
        return TaskNotCompleted(plain_lines(told), task_id=outcome.task_id, state=outcome.state)
    reason = f" ({outcome.reason})" if outcome.state == "suspended" and outcome.reason else ""
    text = f"task {outcome.task_id} is {outcome.state}{reason}"
    return TaskNotCompleted(f"{text}: {plain_lines(why)}" if why else text, task_id=outcome.task_id, state=outcome.state)
