"""What the log is told of an attempt: that it starts, what came of it, that it failed, was cut short or is tried again."""

from __future__ import annotations

import traceback
from typing import Any

from ipyagent_sessions import codec
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import ActivityError, ActivityTimeout, NotSerialisable, ResultLost
from ipyagent_sessions.run import frames
from ipyagent_sessions.run.plan import Plan
from ipyagent_sessions.run.task import TaskRun
from ipyagent_sessions.run.threads import Ran


def start(run: TaskRun, plan: Plan, attempt: int) -> None:
    """Log the intent, with the arguments.  It is not durable yet."""
    blobs: dict[str, bytes] = {}
    recorded, blob = run.appender.put(plan.arguments, blobs)
    run.appender.emit(  # as run.emit does, whose keywords go through a dictionary: a twentieth of an activity's own time
        "ActivityStarted",
        p.ActivityStarted(
            plan.activity.name,
            plan.kind,
            plan.key,
            plan.stage,
            plan.digest,
            plan.effect,
            recorded,
            blob,
            plan.activity.source,
            compensable=plan.compensate is not None,
            verifiable=plan.verify is not None,
        ),
        task_id=run.task_id,
        activity_id=plan.id,
        attempt=attempt,
        parent=run.cause(plan.id),
        blobs=blobs or None,
    )


def retry(run: TaskRun, plan: Plan, attempt: int, cause: BaseException, wait: float) -> None:
    """Log that another attempt follows `attempt`, which `cause` ended, after `wait` seconds."""
    run.emit(
        "ActivityRetried",
        p.ActivityRetried(plan.activity.name, type(cause).__name__, str(cause), round(wait, 3)),
        activity_id=plan.id,
        attempt=attempt,
    )
    run.acknowledge()


def result(run: TaskRun, plan: Plan, attempt: int, ran: Ran, begun: float, *, late: bool) -> Any:
    """Log the value and make it durable as the mode promises; returns it.

    Raises ResultLost when an activity that had its effect gave what cannot be kept, ActivityError when one without did.
    """
    elapsed = round((run.clock.monotonic() - begun) * 1000, 3)
    lost = None
    blobs: dict[str, bytes] = {}
    try:
        body = codec.dumps(ran.value, pickle=plan.activity.pickle or run.options.pickle)
    except NotSerialisable as error:
        if plan.effect == "none":
            raise failure(run, plan, attempt, error, begun) from error
        lost, body = error.message, b"null"
    recorded, blob = run.appender.put(body, blobs)
    run.appender.emit(  # see start
        "ActivityCompleted",
        p.ActivityCompleted(plan.activity.name, plan.kind, plan.digest, recorded, blob, lost, late),
        task_id=run.task_id,
        activity_id=plan.id,
        attempt=attempt,
        parent=run.cause(plan.id),
        blobs=blobs or None,
        execution_time_ms=elapsed,
        cpu_s=ran.cpu_s,
    )
    if run.stopping is not None:
        run.drained.append(plan.id)
    run.acknowledge(effect=plan.effect != "none")
    if lost is not None:
        raise ResultLost(plan.activity.name, "ResultLost", lost, hint="it had its effect and will not run again")
    return ran.value


def failure(
    run: TaskRun, plan: Plan, attempt: int, error: BaseException, begun: float, *, still_running: bool = False
) -> ActivityError:
    """Log that an activity failed for good; returns the error that the workflow sees."""
    text = frames.text_of(error) if not isinstance(error, ActivityError) else error.error
    trace = "" if isinstance(error, ActivityError | NotSerialisable) else "".join(traceback.format_exception(error))[-8000:]
    kind = type(error).__name__
    run.emit(
        "ActivityFailed",
        p.ActivityFailed(
            plan.activity.name, kind, text, plan.kind, plan.digest, trace, isinstance(error, ActivityTimeout), still_running
        ),
        activity_id=plan.id,
        attempt=attempt,
        execution_time_ms=round((run.clock.monotonic() - begun) * 1000, 3),
    )
    run.acknowledge(effect=plan.effect != "none")
    return error if isinstance(error, ActivityError) else ActivityError(plan.activity.name, kind, text)


def abort(run: TaskRun, plan: Plan, attempt: int, kind: str = "Aborted", error: str = "stopped before it ended") -> None:
    """Log that an activity was cut short.  With an effect its outcome stays unknown and is settled at the next resume."""
    if run.stopping is not None and run.stopping.why == "lease_lost":
        return
    run.aborted.append(plan.id)
    run.emit(
        "ActivityFailed",
        p.ActivityFailed(
            plan.activity.name,
            kind,
            error,
            plan.kind,
            plan.digest,
            aborted=True,
            still_running=plan.id in run.stragglers,
        ),
        activity_id=plan.id,
        attempt=attempt,
    )


def not_run(run: TaskRun, plan: Plan, attempt: int) -> None:
    """Log that the function was not called: the disk did not take the intent."""
    abort(run, plan, attempt, p.NOT_RUN, "its intent could not be made durable, so it was not called")
