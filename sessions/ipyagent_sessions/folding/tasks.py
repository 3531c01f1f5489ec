"""Sessions and tasks: begun, moved from state to state, ended, forked."""

from __future__ import annotations

from typing import Final

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Event
from ipyagent_sessions.folding.reading import parsed
from ipyagent_sessions.lifecycle import ENDED, TaskState
from ipyagent_sessions.state import KEPT_TASKS, ExecutionState, State, SystemState, TaskRecord


def session_created(state: State, event: Event) -> None:
    body: p.SessionCreated = parsed(event)
    state.title, state.notebook, state.created_at = body.title, body.notebook, event.timestamp


def session_forked(state: State, event: Event) -> None:
    body: p.SessionForked = parsed(event)
    state.lineage.append((body.parent_session, body.parent_seq))
    state.created_at = event.timestamp
    sys = state.system_state
    if sys.task_id is not None and sys.status is not None and sys.status not in ENDED:
        record = state.tasks.pop(sys.task_id, None)
        sys.task_id = event.task_id
        if record is not None and event.task_id is not None:
            state.tasks[event.task_id] = record
        move(state, event, TaskState.SUSPENDED, "forked", f"forked from {body.parent_session} at {body.parent_seq}")
    opened = state.execution_state.active_activities  # nothing is under way; an effect cut short is still of unknown outcome
    state.execution_state.active_activities = {key: call for key, call in opened.items() if call.effect != "none"}
    results = state.business_state.results
    state.business_state.results = {
        key: done
        for key, done in results.items()
        if not done.compensated and done.kind != "note"  # files are noted anew
    }
    if body.direction:
        sys.instruction = body.direction
    state.title = body.title or state.title


def task_queued(state: State, event: Event) -> None:
    body: p.TaskQueued = parsed(event)
    business = state.business_state
    business.results, business.completed_subtasks = {}, []
    state.execution_state = ExecutionState()
    state.system_state = SystemState(
        task_id=event.task_id,
        status=TaskState.QUEUED,
        target=body.target,
        kind=body.kind,
        title=body.title,
        run_key=body.run_key,
        cell=body.cell,
        durability=body.durability,
        queued_seq=event.seq,
        queued_at=event.timestamp,
        changed_at=event.timestamp,
        default_effect=body.default_effect,
        retry_of=body.retry_of,
        rerun_of=body.rerun_of,
        pickle=body.pickle,
        model=body.model,
        budget=body.budget,
        recover=body.recover,
    )
    if event.task_id is not None:
        state.tasks[event.task_id] = TaskRecord(
            TaskState.QUEUED.value, body.target, body.title, event.timestamp, run_key=body.run_key
        )
    state.begun += 1
    while len(state.tasks) > KEPT_TASKS:
        del state.tasks[next(iter(state.tasks))]


_FOUND_LATER: Final = frozenset({"worker_lost", "forked"})
"""What is noticed or done after the work had stopped: it ran until the event before."""


def move(state: State, event: Event, target: TaskState, reason: str = "", detail: str = "") -> None:
    sys = state.system_state
    if sys.status is TaskState.RUNNING and target is not TaskState.RUNNING:
        ended = state.updated_at if reason in _FOUND_LATER else event.timestamp
        sys.ran_s = round(sys.ran_s + max(0.0, between(sys.changed_at, ended)), 3)
    sys.status, sys.reason, sys.detail, sys.changed_at = target, reason, detail, event.timestamp
    sys.pausing = False
    record = state.tasks.get(event.task_id or sys.task_id or "")
    if record is not None:
        record.status = target.value
    if target in ENDED:
        sys.ended_at = event.timestamp
        if record is not None:
            record.ended_at = event.timestamp


def between(earlier: str, later: str) -> float:
    """Seconds between two of our own timestamps."""
    from datetime import datetime

    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def task_started(state: State, event: Event) -> None:
    body: p.TaskStarted = parsed(event)
    sys = state.system_state
    move(state, event, TaskState.RUNNING)
    sys.started_at = sys.started_at or event.timestamp
    sys.attempt, sys.holder, sys.environment_blob, sys.deadline = (
        body.attempt,
        body.holder,
        body.environment_blob,
        body.deadline,
    )


def task_suspended(state: State, event: Event) -> None:
    body: p.TaskSuspended = parsed(event)
    move(state, event, TaskState.SUSPENDED, body.reason, body.detail)


def task_interrupted(state: State, event: Event) -> None:
    body: p.TaskInterrupted = parsed(event)
    move(state, event, TaskState.INTERRUPTED, "paused", body.partial)
    for activity_id in body.drained:
        state.execution_state.active_activities.pop(activity_id, None)


def task_resumed(state: State, event: Event) -> None:
    body: p.TaskResumed = parsed(event)
    move(state, event, TaskState.RUNNING)
    sys = state.system_state
    sys.attempt, sys.instruction = body.attempt, body.instruction
    if body.holder:
        sys.holder = body.holder
    if body.recover is not None:
        sys.recover = body.recover


def task_completed(state: State, event: Event) -> None:
    move(state, event, TaskState.COMPLETED)
    state.system_state.result_seq = event.seq


def task_failed(state: State, event: Event) -> None:
    body: p.TaskFailed = parsed(event)
    where = f" ({body.where})" if body.where else ""
    move(state, event, TaskState.FAILED, body.cause, f"{body.error_type}: {body.error}{where}")
    state.system_state.error_type, state.system_state.error = body.error_type, body.error


def task_cancelled(state: State, event: Event) -> None:
    body: p.TaskCancelled = parsed(event)
    move(state, event, TaskState.CANCELLED, "cancelled", body.reason)
