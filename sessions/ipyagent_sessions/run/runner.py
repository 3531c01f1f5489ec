"""Drives one execution of a task from its first event to its last: start or resume, run the body, log how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.errors import (
    CheckFailed,
    ConfigError,
    ControlRefused,
    IdentityError,
    LeaseLost,
    NotSerialisable,
    PersistenceError,
    UsageError,
)
from ipyagent_sessions.lifecycle import ENDED, TaskState
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.run import attending, beginning, ending, frames
from ipyagent_sessions.run.beginning import Resume
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.pulse import Pulse
from ipyagent_sessions.run.task import RunOptions, TaskRun, TaskStop
from ipyagent_sessions.session import Session


class Outcome(Struct):
    """How an execution ended.

    `value` is the workflow's result, `error` what it raised and `where` the line; `state` may also be "lease lost".
    """

    task_id: str
    session_id: str
    state: str
    value: Any = None
    error: Exception | None = None
    reason: str = ""
    detail: str = ""
    where: str = ""


async def drive(
    session: Session,
    appender: Appender,
    workflow: Workflow,
    options: RunOptions,
    resume: Resume | None = None,
    *,
    call: beginning.Call | None = None,
    on_run: Callable[[TaskRun], None] | None = None,
) -> Outcome:
    """Run the session's current task until it ends or stops; the appender stays open.  `call` are its recorded arguments, if
    they were read before.

    Raises ControlRefused when there is nothing to run.
    """
    system = appender.state.system_state
    if system.task_id is None or system.status is None or system.status in ENDED:
        what = f"task {system.task_id} is {system.status}" if system.task_id else f"session {session.id} has no task"
        raise ControlRefused(
            f"{what}, there is nothing to resume",
            hint=f"start a new task, or go on from a checkpoint: ipyagent fork {session.id} --at SEQ",
        )
    args, kwargs = call or beginning.recorded_arguments(session, appender.state)
    workflow.bind(args, kwargs)
    run = TaskRun(session, appender, system.task_id, options, workflow.default_effect)
    if on_run is not None:
        on_run(run)
    pulse = Pulse(run, lambda controls: attending.attend(run, controls), lambda: attending.tick(run))
    try:
        beginning.begin(run, workflow, resume or Resume())
        pulse.start()
        try:
            outcome = await _body(run, workflow, args, kwargs)
            if run.stopping is not None and run.stopping.why == "lease_lost":  # its end is not acknowledged
                outcome = await _stopped(run, run.stopping)
        finally:
            run.closed = True  # what people ask from now on is for the next holder
            pulse.stop()
        attending.forget_cancellations(run)
        return outcome
    except LeaseLost as error:
        return _outcome(run, state="lease lost", detail=str(error))
    finally:
        appender.listeners.clear()
        run.threads.close()


async def _body(run: TaskRun, workflow: Workflow, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outcome:
    ctx = Context(run)

    async def whole() -> Any:
        try:
            value = await workflow.function(ctx, *args, **kwargs)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            raise RuntimeError(f"the workflow raised {type(error).__name__}") from error
        ctx.check_awaited()
        return value

    run.body = run.loop.create_task(whole())
    await asyncio.wait({run.body})
    if run.body.cancelled():
        error: BaseException | None = run.stopping or RuntimeError("the workflow cancelled itself")
    else:
        error = run.body.exception()
    if isinstance(error, BaseExceptionGroup):
        error = _within(run, error)
    if error is None:
        lost = ending.completed(run, run.body.result())
        return _outcome(run, value=run.body.result(), detail=lost or "")
    if isinstance(error, TaskStop):
        return await _stopped(run, error)
    if isinstance(error, PersistenceError):
        return await _stopped(run, TaskStop("suspend", reason="persistence", detail=error.message))
    if isinstance(error, _DEFINITION):
        ending.suspended(run, TaskStop("suspend", reason="definition", detail=error.message))
        return _outcome(run, error=error)
    if not isinstance(error, Exception):
        raised, error = error, RuntimeError(f"the workflow raised {type(error).__name__}: {frames.text_of(error)}")
        error.__cause__ = raised
    cause = "logic" if isinstance(error, CheckFailed) else "error"
    return await _failed(run, error, cause, frames.of(error, workflow.function))


_DEFINITION: Final = (IdentityError, UsageError, NotSerialisable, ConfigError)


def _within(run: TaskRun, group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a group, as a TaskGroup raises it, means: a stop when one is in it, a mistake of the definition, or itself."""
    if run.stopping is not None and group.subgroup(TaskStop) is not None:
        return run.stopping
    refused = group.subgroup(PersistenceError)
    if refused is not None:
        return _first(refused)
    return _first(group) if group.split(_DEFINITION)[1] is None else group


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first


async def _failed(run: TaskRun, error: Exception, cause: str, where: tuple[str, str] = ("", "")) -> Outcome:
    try:
        await ending.failed(run, error, cause, where)
    except TaskStop as stop:  # its end could not be carried out
        return await _stopped(run, stop)
    return msgspec.structs.replace(_outcome(run, error=error), where=where[1])


async def _stopped(run: TaskRun, stop: TaskStop) -> Outcome:
    if stop.why == "lease_lost":
        return _outcome(run, state="lease lost", detail=stop.reason)
    if stop.why == "cancel":
        try:
            await ending.cancelled(run, stop)
        except TaskStop as other:  # its end could not be carried out
            return await _stopped(run, other)
    elif stop.why == "deadline":
        return msgspec.structs.replace(await _failed(run, TimeoutError(stop.detail), "timeout"), error=None)
    elif stop.why == "suspend" or run.state.system_state.status is TaskState.SUSPENDED:
        ending.suspended(run, stop)
    else:
        ending.interrupted(run, stop)
    return _outcome(run)


def _outcome(run: TaskRun, *, state: str = "", value: Any = None, error: Exception | None = None, detail: str = "") -> Outcome:
    system = run.state.system_state
    return Outcome(
        run.task_id, run.session.id, state or str(system.status), value, error, system.reason, detail or system.detail
    )
