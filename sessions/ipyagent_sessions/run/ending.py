"""How a task ends: completed, failed or cancelled, with compensations in reverse order and a list of what exists (R158,
R159, R163)."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Final

from ipyagent_sessions import codec
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import ActivityError, IpyagentError, NotSerialisable
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.run import control
from ipyagent_sessions.run.keys import Keyed
from ipyagent_sessions.run.task import TaskRun, TaskStop

UNDOING: Final = "undoing"
"""What the log says of an activity whose compensation begins; `ActivityCompensated` says how it ended."""


def completed(run: TaskRun, value: Any) -> str | None:
    """Log the end of a task that returned `value`; returns why its result could not be kept, None when it was."""
    run.works_again()
    lost = None
    blobs: dict[str, bytes] = {}
    try:
        body = codec.dumps(value, pickle=run.options.pickle)
    except NotSerialisable as error:
        lost, body = error.message, b"null"
    result, blob = run.appender.put(body, blobs)
    run.checkpoint("end")
    run.move(TaskState.COMPLETED, "TaskCompleted", p.TaskCompleted(result, blob, lost, _artefacts(run)), blobs=blobs or None)
    return lost


async def failed(run: TaskRun, error: Exception, cause: str, where: tuple[str, str]) -> None:
    """Undo what declares a compensation, then log the failure; `where` is what `frames.of` says.

    Raises TaskStop as `_compensate` does.
    """
    run.works_again()
    kind = error.error_type if isinstance(error, ActivityError) else type(error).__name__
    text = error.message if isinstance(error, IpyagentError) else str(error)
    done, broken = await _compensate(run, f"it failed with {kind}: {text}")
    control.reject(run.appender, "engine", "the task failed")
    last = run.state.checkpoint.seq if run.state.checkpoint else None
    run.checkpoint("end")
    trace, line = where
    body = p.TaskFailed(kind, text, cause, None, last, _artefacts(run), done, broken, line, trace)
    run.move(TaskState.FAILED, "TaskFailed", body)


async def cancelled(run: TaskRun, stop: TaskStop) -> None:
    """Undo what declares a compensation, then log the cancellation with what exists.

    Raises TaskStop as `_compensate` does.
    """
    done, broken = await _compensate(run, "it was cancelled")
    control.reject(run.appender, stop.actor, "the task was cancelled")
    results = run.state.business_state.results
    run.checkpoint("end")
    run.move(
        TaskState.CANCELLED,
        "TaskCancelled",
        p.TaskCancelled(
            stop.reason,
            _artefacts(run),
            done,
            [i for i, r in results.items() if r.compensable and r.ok and not r.compensated and i not in broken],
            [i for i, r in results.items() if r.effect == "irreversible" and r.ok and not r.compensated],
            sorted(run.stragglers),
        ),
        actor=stop.actor,
    )


def interrupted(run: TaskRun, stop: TaskStop) -> None:
    """Log a stop that a person asked for."""
    run.checkpoint("interrupted")
    run.move(
        TaskState.INTERRUPTED,
        "TaskInterrupted",
        p.TaskInterrupted(run.drained, run.aborted, sorted(run.stragglers), stop.reason),
        actor=stop.actor,
    )


def suspended(run: TaskRun, stop: TaskStop) -> None:
    """Log a wait that no process sits through."""
    if run.state.system_state.status is TaskState.SUSPENDED:
        run.sync()
        return
    resumes = {"approval": "an answer (approve or deny), then resume", "persistence": "room on the disk, then resume"}
    resumes |= {"network": "the network back, then resume", "resources": "room (disk, memory, quota), then resume"}
    run.move(
        TaskState.SUSPENDED,
        "TaskSuspended",
        p.TaskSuspended(
            stop.reason, stop.detail, resumes.get(stop.reason, "resume"), sorted(run.state.execution_state.active_activities)
        ),
    )


def _artefacts(run: TaskRun) -> dict[str, list[str]]:
    """What became of the files the task wrote: all are kept unless something rolls them back."""
    files = sorted(run.state.business_state.files)
    return {"kept": files} if files else {}


async def _compensate(run: TaskRun, why: str) -> tuple[list[str], list[str]]:
    """Run the declared compensations of completed activities, the last one first.

    Returns the ids compensated and the ids whose compensation failed, for which a person is needed.  Raises TaskStop when the
    lease is lost, and when the disk refuses: then nothing more is undone, and the task waits to end (`why`) until a resume.
    """
    results = run.state.business_state.results
    todo = sorted(
        (i for i, r in results.items() if i in run.compensators and r.ok and not r.compensated),
        key=lambda i: results[i].seq,
        reverse=True,
    )
    done, broken = [], []
    for activity_id in todo:
        undo = run.compensators[activity_id]
        name = results[activity_id].name
        _intend(run, activity_id, why)
        try:
            with Keyed(run.task_id, activity_id):
                ran = await run.threads.submit(undo)
                if inspect.isawaitable(ran.value):
                    await ran.value
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # whatever it raises, the others have their turn
            _still_held(run)
            broken.append(activity_id)
            run.emit(
                "ActivityCompensated",
                p.ActivityCompensated(name, False, f"{type(error).__name__}: {error}"),
                activity_id=activity_id,
            )
            run.emit(
                "AlarmRaised", p.AlarmRaised("compensation", f"undoing {activity_id} failed: {error}; a person is needed")
            )
        else:
            _still_held(run)
            done.append(activity_id)
            run.emit("ActivityCompensated", p.ActivityCompensated(name), activity_id=activity_id)
        run.sync()
    _still_held(run)
    return done, broken


def _intend(run: TaskRun, activity_id: str, why: str) -> None:
    """Log that an undo begins, and make that and all before it durable: an undo is an effect."""
    _still_held(run)
    begun = run.emit("ActivityProgressed", p.ActivityProgressed(text=UNDOING), activity_id=activity_id)
    run.sync()
    _still_held(run)
    if run.appender.durable_seq < begun.seq:
        raise TaskStop("suspend", reason="persistence", detail=f"{why}; undoing {activity_id} waits for the disk")


def _still_held(run: TaskRun) -> None:
    """Raise TaskStop when the lease is lost: a holder that was fenced undoes nothing more and writes nothing more."""
    if run.appender.lease.fenced():
        run.stop("lease_lost", reason="another holder has taken over")
    if run.stopping is not None and run.stopping.why == "lease_lost":
        raise run.stopping
