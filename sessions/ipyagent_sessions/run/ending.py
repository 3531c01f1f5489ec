"""How a task ends: completed, failed or cancelled, with compensations in reverse order and a list of what exists (R158,
R159, R163)."""

from __future__ import annotations

from typing import Any

from ipyagent_sessions import codec
from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import ActivityError, CheckFailed, IpyagentError, NotSerialisable
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.run import control, frames, remains, undoing
from ipyagent_sessions.run.task import TaskRun, TaskStop


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
    told = p.TaskCompleted(result, blob, lost, remains.artefacts(run.state))
    run.move(TaskState.COMPLETED, "TaskCompleted", told, blobs=blobs or None)
    return lost


async def failed(run: TaskRun, error: Exception, cause: str, where: tuple[str, str]) -> None:
    """Undo what declares a compensation, then log the failure; `where` is what `frames.of` says.

    Raises TaskStop as `undoing.compensate` does.
    """
    run.works_again()
    kind = error.error_type if isinstance(error, ActivityError) else type(error).__name__
    text = error.message if isinstance(error, IpyagentError) else frames.text_of(error)
    done, broken = await undoing.compensate(run, f"it failed with {kind}: {text}")
    control.reject(run.appender, "engine", "the task failed")
    newest = run.state.checkpoint.seq if run.state.checkpoint else None
    last = error.checkpoint if isinstance(error, CheckFailed) else newest
    run.checkpoint("end")
    trace, line = where
    body = p.TaskFailed(kind, text, cause, None, last, remains.artefacts(run.state), done, broken, line, trace)
    run.move(TaskState.FAILED, "TaskFailed", body)


async def cancelled(run: TaskRun, stop: TaskStop) -> None:
    """Undo what declares a compensation, then log the cancellation with what exists.

    Raises TaskStop as `undoing.compensate` does.
    """
    done, broken = await undoing.compensate(run, "it was cancelled")
    control.reject(run.appender, stop.actor, "the task was cancelled")
    run.checkpoint("end")
    told = remains.of_cancelled(
        run.state, stop.reason, compensated=done, needs_person=broken, still_running=sorted(run.stragglers)
    )
    run.move(TaskState.CANCELLED, "TaskCancelled", told, actor=stop.actor)


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
