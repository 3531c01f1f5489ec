"""One execution of a task under a lease: its log, what is open, and whether it is asked to stop.

Everything here runs on the task's own event loop.  Other threads reach it through `call`; what they append to the log
themselves, with `appender.emit`, is looked at on the loop too.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, Final, Literal

from msgspec import Raw, Struct

from ipyagent_sessions import payloads as p
from ipyagent_sessions.config import CheckpointPolicy
from ipyagent_sessions.errors import LeaseLost, PersistenceError
from ipyagent_sessions.events import Event
from ipyagent_sessions.lifecycle import TaskState, check
from ipyagent_sessions.log import live
from ipyagent_sessions.log.appender import Appender, Durability
from ipyagent_sessions.run.definitions import Effect
from ipyagent_sessions.run.rereading import Rereader
from ipyagent_sessions.run.threads import Threads
from ipyagent_sessions.run.triggers import Triggers
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.state import State

Why = Literal["pause", "abort", "cancel", "suspend", "lease_lost", "deadline"]
_RANK: Final = {"pause": 0, "suspend": 0, "abort": 1, "deadline": 2, "cancel": 2, "lease_lost": 3}
"""A stop is replaced by one of a higher rank only: a second press of Pause does not undo an accepted cancel."""


class TaskStop(BaseException):
    """Raised into a workflow's body to end it for now.  Not an Exception, so that a body's own handlers let it pass."""

    def __init__(self, why: Why, *, actor: str = "engine", reason: str = "", detail: str = "") -> None:
        super().__init__(why, reason, detail)
        self.why: Why = why
        self.actor = actor
        self.reason = reason
        self.detail = detail


class RunOptions(Struct, frozen=True):
    """How a task is run.

    `actor` is who asked; `headless` means that nobody can answer here, so an approval ends this execution at once; `pickle`
    allows results that only pickle can keep.  `recover` is how often in a row it waits by itself for what is away or short;
    None is what the task was last run with, 0 for a new one.  `model` and `budget` are an agent's: see `payloads.TaskQueued`.
    `settings` are the sha256 of the files that settings come from, by layer, empty for a layer that has none.
    """

    durability: Durability = "sync"
    actor: str = "user"
    headless: bool = False
    policy: CheckpointPolicy = CheckpointPolicy()
    title: str = ""
    pickle: bool = False
    model: str = ""
    budget: dict[str, float] = {}
    recover: int | None = None
    settings: dict[str, str] = {}


class TaskRun:
    """The state of one execution, shared by what `ctx` offers."""

    def __init__(
        self, session: Session, appender: Appender, task_id: str, options: RunOptions, default_effect: Effect | None
    ) -> None:
        self.session = session
        self.appender = appender
        self.state: State = appender.state
        self.task_id = task_id
        self.options = options
        self.default_effect: Effect | None = default_effect
        self.clock = session.place.clock
        self.rereader = Rereader(session)
        self.threads = Threads()
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.body: asyncio.Task[Any] | None = None
        self.executing: dict[str, str] = {}
        self.stragglers: dict[str, str] = {}
        self.drained: list[str] = []
        self.aborted: list[str] = []
        self.compensators: dict[str, Callable[[], Any]] = {}
        self.approvals = {a.activity_id: key for key, a in self.state.execution_state.approvals.items() if a.activity_id}
        self.outages: dict[str, int] = {}
        self.answers: dict[str, asyncio.Future[None]] = {}
        self.changed_sources: set[str] = set()
        self.degraded = ""
        self.partial = ""
        self._degraded_at = 0
        self.stopping: TaskStop | None = None
        self._stopped: asyncio.Future[None] = self.loop.create_future()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.triggers = Triggers(options.policy, self.clock, self.state)
        appender.durability = options.durability
        appender.keep_last = options.policy.last_events
        appender.listeners.append(self._observe)
        self._taking = False
        self.closed = False

    # The log

    def emit(
        self,
        event_type: str,
        payload: p.Payload | dict[str, Any] | Raw,
        *,
        activity_id: str | None = None,
        **fields: Any,
    ) -> Event:
        """Append an event of this task, with what caused it as its parent (R096); see `Appender.emit`."""
        cause = self.cause(activity_id)
        return self.appender.emit(event_type, payload, task_id=self.task_id, activity_id=activity_id, parent=cause, **fields)

    def cause(self, activity_id: str | None) -> int | None:
        """The seq of the start of an open activity or stage; for what begins, that of the stage or the task it begins in."""
        execution = self.state.execution_state
        if activity_id is not None:
            active = execution.active_activities.get(activity_id)
            if active is not None:
                return active.seq
            place = execution.stages.get(activity_id) or execution.stages.get(activity_id.partition("/")[0])
            if place is not None:
                return place.seq
        return self.state.system_state.queued_seq or None

    def move(
        self,
        target: TaskState,
        event_type: str,
        payload: p.Payload,
        *,
        actor: str = "engine",
        blobs: dict[str, bytes] | None = None,
    ) -> Event:
        """Change the task's state: checked against the lifecycle, logged, durable as far as the disk allows, summarised.

        Raises IllegalTransition.
        """
        check(self.state.system_state.status, target, actor)
        event = self.emit(event_type, payload, actor=actor, blobs=blobs)
        self.sync()
        self.summarise()
        return event

    def sync(self) -> None:
        """Make everything durable if the disk allows; a refusing disk is an alarm here, not an error."""
        try:
            self.appender.barrier()
        except PersistenceError as error:
            self.degrade(error)
        except LeaseLost as error:
            self.stop("lease_lost", reason=str(error))

    def before_effect(self) -> None:
        """Make everything durable, or do not go on: called before an effect and before a model request (R041, R246)."""
        try:
            self.appender.barrier()
        except PersistenceError as error:
            self.degrade(error)
            self.stop("suspend", reason="persistence", detail=error.message)
        except LeaseLost as error:
            self.stop("lease_lost", reason=str(error))
        self.check()

    def acknowledge(self, *, effect: bool = False) -> None:
        """Make a result durable: as the mode promises, and that of an effect in every mode.

        Work goes on while the disk refuses, within a bound (R245); the next effect does not begin then.
        """
        try:
            if effect:
                self.appender.barrier()
            else:
                self.appender.acknowledge()
        except PersistenceError as error:
            self.degrade(error)
            if self.appender.backlog_full:
                self.stop("suspend", reason="persistence", detail=error.message)
                self.check()
        except LeaseLost as error:
            self.stop("lease_lost", reason=str(error))
            self.check()
        else:
            self._mended()

    def degrade(self, error: PersistenceError) -> None:
        """Raise the alarm that the disk refuses, once."""
        if not self.degraded:
            self.degraded = error.message
            self._degraded_at = self.emit("AlarmRaised", p.AlarmRaised("persistence", error.message)).seq

    def notice(self) -> None:
        """Take notice of what the log's threads ran into: in mode async nobody else flushes for a long time."""
        trouble = self.appender.trouble
        if isinstance(trouble, LeaseLost):
            self.stop("lease_lost", reason=str(trouble))
        elif isinstance(trouble, PersistenceError):
            self.degrade(trouble)
        self._mended()
        for alarm in self.appender.setbacks.take():
            self.emit("AlarmRaised", alarm)

    def _mended(self) -> None:
        if self.degraded and self.appender.durable_seq >= self._degraded_at:
            self.degraded = ""
            self.emit("AlarmRaised", p.AlarmRaised("persistence", "the disk takes events again; nothing was lost"))

    def checkpoint(self, trigger: str, label: str = "", *, actor: str = "engine") -> Event:
        """Take a checkpoint; its snapshot is written in the background."""
        self._taking = True
        try:
            return self.appender.checkpoint(
                trigger,
                label,
                materialise=self.triggers.taken(trigger, behind=self.appender.snapshots_behind),
                actor=actor,
                task_id=self.task_id,
            )
        finally:
            self._taking = False

    def _observe(self, event: Event) -> None:
        """Take the checkpoint that an event triggers; for one that an activity's own thread appended, on the loop's next turn,
        which comes before the result of that activity."""
        if threading.get_ident() != self._thread:
            self.call(lambda: self._observe(event))
            return
        if self._taking or event.task_id is None:
            return
        trigger = self.triggers.observe(event, self.state)
        if trigger is not None:
            self.checkpoint(trigger)

    def summarise(self) -> None:
        """Replace `summary.json`, unless it would say more than the log on disk does."""
        if self.appender.durable_seq < self.state.seq:
            return
        live.write_summary(self.session.layout, summarise(self.session.id, self.state), self.appender.disk)

    # Stopping

    def stop(self, why: Why, *, actor: str = "engine", reason: str = "", detail: str = "") -> None:
        """Ask the body to end.  Open activities finish first, unless `why` is abort, cancel, deadline or lease_lost."""
        hard = why in ("abort", "cancel", "deadline", "lease_lost")
        if self.stopping is None or _RANK[why] > _RANK[self.stopping.why]:
            self.stopping = TaskStop(why, actor=actor, reason=reason, detail=detail)
        if not self._stopped.done():
            self._stopped.set_result(None)
        if hard:
            for task in [*self._tasks, self.body]:
                if task is not None and task is not asyncio.current_task():
                    task.cancel()

    def check(self) -> None:
        """Raise TaskStop when the task was asked to stop: nothing new begins then."""
        if self.stopping is not None:
            raise self.stopping

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """A task that an abort reaches."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def wait(self, future: asyncio.Future[Any], timeout: float | None = None) -> bool:
        """Wait for `future` at most `timeout` seconds of the loop; whether it is done.  Raises TaskStop when asked to stop."""
        self.check()
        await asyncio.wait({future, self._stopped}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        self.check()
        return future.done()

    async def rest(self, seconds: float) -> None:
        """Let `seconds` of the task's clock pass.  Raises TaskStop when asked to stop."""
        sleeper = self.loop.create_task(self.clock.sleep(seconds))
        try:
            await self.wait(sleeper)
        finally:
            sleeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sleeper

    # Waiting for people

    def waits(self) -> None:
        """Look, once what can go on now has gone on, whether everything that is open waits for a person."""
        self.loop.call_soon(self._suspend_if_all_wait)

    def _suspend_if_all_wait(self) -> None:
        """Suspended, or stopped when nobody can answer here."""
        approvals = self.state.execution_state.approvals
        pending = [approvals[key] for key in self.answers if approvals[key].answer is None]
        ended = self.body is None or self.body.done()
        if self.executing or not pending or self.stopping is not None or ended:
            return
        if self.options.headless:
            self.stop("suspend", reason="approval", detail=pending[-1].question)
        elif self.state.system_state.status is TaskState.RUNNING:
            self.move(
                TaskState.SUSPENDED,
                "TaskSuspended",
                p.TaskSuspended("approval", pending[-1].question, "an answer: approve or deny"),
            )

    def works_again(self, actor: str = "engine", *, cause: str = "answered") -> None:
        """Note that an answer, the end of an outage, or work beside an open question lets the task go on."""
        if self.state.system_state.status is TaskState.SUSPENDED:
            self.move(TaskState.RUNNING, "TaskResumed", p.TaskResumed(self.state.system_state.attempt, cause), actor=actor)

    def call(self, function: Callable[[], object]) -> None:
        """Run `function` on the task's loop, from any thread; nothing happens once this execution has ended."""

        def unless_closed() -> None:
            if not self.closed:
                function()

        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(unless_closed)
