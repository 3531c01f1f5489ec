"""From events to the state: a pure fold, and the only way a state comes about (R009, R098).

`apply(state, event)` takes the next event into `state`.  It does no I/O, reads no clock and draws no random number, so
the state at any seq is the same in the kernel that wrote the log, in a replay, and in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import DamageError, NewerFormat
from ipyagent_sessions.events import NULL, SCHEMA_VERSION, Event, payload_of
from ipyagent_sessions.lifecycle import ENDED, TaskState
from ipyagent_sessions.state import (
    Active,
    Approval,
    Checkpointed,
    ExecutionState,
    Recorded,
    Stage,
    State,
    SystemState,
    TaskRecord,
)

INLINE_RESULT: Final = 2048
"""Results up to this many bytes of JSON live in the state; larger ones by the seq of their event."""


def fold(events: Iterable[Event], state: State | None = None) -> State:
    """The state after `events`, starting from `state` (which is changed) or from nothing."""
    state = State() if state is None else state
    for event in events:
        apply(state, event)
    return state


def apply(state: State, event: Event) -> None:
    """Take `event` into `state`.

    Raises NewerFormat for a required event that this version does not know, DamageError for a payload that does not fit its
    type. An ignorable event of a newer form is passed over, whatever its type.
    """
    newer = event.schema_version > SCHEMA_VERSION
    handler = None if newer else _HANDLERS.get(event.event_type)
    if newer and not event.ignorable:
        raise NewerFormat(
            f"event {event.seq} ({event.event_type}) has form {event.schema_version}, this version reads {SCHEMA_VERSION}",
            hint=f"it was written by {event.agent_version or 'a newer version'}; upgrade ipyagent to fold it",
        )
    if handler is not None:
        handler(state, event)
    elif not event.ignorable and event.event_type not in _NEUTRAL:
        raise NewerFormat(
            f"event {event.seq} is of the unknown type {event.event_type!r} and is not marked ignorable",
            hint=f"it was written by {event.agent_version or 'an unknown version'}; upgrade ipyagent to fold it",
        )
    elif event.activity_id is not None:
        _emitted(state, event)
    state.seq = event.seq
    state.updated_at = event.timestamp
    if event.input_tokens or event.output_tokens or event.cost_usd:
        _spend(state, event)


def _spend(state: State, event: Event) -> None:
    spent = state.system_state.spent
    tokens_in, tokens_out, cost = event.input_tokens or 0, event.output_tokens or 0, event.cost_usd or 0.0
    state.input_tokens += tokens_in
    state.output_tokens += tokens_out
    state.cost_usd += cost
    spent.input_tokens += tokens_in
    spent.output_tokens += tokens_out
    spent.cost_usd += cost


def is_folded(event_type: str) -> bool:
    """Whether the payload of such an event is taken into the state."""
    return event_type in _HANDLERS


_decoders: dict[str, msgspec.json.Decoder[Any]] = {name: msgspec.json.Decoder(cls) for name, cls in p.SCHEMAS.items()}


def parsed(event: Event) -> Any:
    """The payload of `event` as its Struct from `payloads`.  Raises DamageError when it does not fit."""
    try:
        return _decoders[event.event_type].decode(event.payload)
    except msgspec.DecodeError as error:
        raise DamageError(f"the payload of event {event.seq} does not fit its type {event.event_type}: {error}") from error


def _session_created(state: State, event: Event) -> None:
    body: p.SessionCreated = parsed(event)
    state.title, state.notebook, state.created_at = body.title, body.notebook, event.timestamp


def _session_forked(state: State, event: Event) -> None:
    body: p.SessionForked = parsed(event)
    state.lineage.append((body.parent_session, body.parent_seq))
    state.created_at = event.timestamp
    sys = state.system_state
    if sys.task_id is not None and sys.status is not None and sys.status not in ENDED:
        record = state.tasks.pop(sys.task_id, None)
        sys.task_id = event.task_id
        if record is not None and event.task_id is not None:
            state.tasks[event.task_id] = record
        _move(state, event, TaskState.SUSPENDED, "forked", f"forked from {body.parent_session} at {body.parent_seq}")
    opened = state.execution_state.active_activities  # nothing is under way; an effect cut short is still of unknown outcome
    state.execution_state.active_activities = {key: call for key, call in opened.items() if call.effect != "none"}
    results = state.business_state.results
    state.business_state.results = {key: done for key, done in results.items() if not done.compensated}
    if body.direction:
        sys.instruction = body.direction
    state.title = body.title or state.title


def _task_queued(state: State, event: Event) -> None:
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
    )
    if event.task_id is not None:
        state.tasks[event.task_id] = TaskRecord(
            TaskState.QUEUED.value, body.target, body.title, event.timestamp, run_key=body.run_key
        )


_FOUND_LATER: Final = frozenset({"worker_lost", "forked"})
"""What is noticed or done after the work had stopped: it ran until the event before."""


def _move(state: State, event: Event, target: TaskState, reason: str = "", detail: str = "") -> None:
    sys = state.system_state
    if sys.status is TaskState.RUNNING and target is not TaskState.RUNNING:
        ended = state.updated_at if reason in _FOUND_LATER else event.timestamp
        sys.ran_s = round(sys.ran_s + max(0.0, _between(sys.changed_at, ended)), 3)
    sys.status, sys.reason, sys.detail, sys.changed_at = target, reason, detail, event.timestamp
    sys.pausing = False
    record = state.tasks.get(event.task_id or sys.task_id or "")
    if record is not None:
        record.status = target.value
    if target in ENDED:
        sys.ended_at = event.timestamp
        if record is not None:
            record.ended_at = event.timestamp


def _between(earlier: str, later: str) -> float:
    """Seconds between two of our own timestamps."""
    from datetime import datetime

    return (datetime.fromisoformat(later) - datetime.fromisoformat(earlier)).total_seconds()


def _task_started(state: State, event: Event) -> None:
    body: p.TaskStarted = parsed(event)
    sys = state.system_state
    _move(state, event, TaskState.RUNNING)
    sys.started_at = sys.started_at or event.timestamp
    sys.attempt, sys.holder, sys.environment_blob, sys.deadline = (
        body.attempt,
        body.holder,
        body.environment_blob,
        body.deadline,
    )


def _task_suspended(state: State, event: Event) -> None:
    body: p.TaskSuspended = parsed(event)
    _move(state, event, TaskState.SUSPENDED, body.reason, body.detail)


def _task_interrupted(state: State, event: Event) -> None:
    body: p.TaskInterrupted = parsed(event)
    _move(state, event, TaskState.INTERRUPTED, "paused", body.partial)
    for activity_id in body.drained:
        state.execution_state.active_activities.pop(activity_id, None)


def _task_resumed(state: State, event: Event) -> None:
    body: p.TaskResumed = parsed(event)
    _move(state, event, TaskState.RUNNING)
    sys = state.system_state
    sys.attempt, sys.instruction = body.attempt, body.instruction
    if body.holder:
        sys.holder = body.holder


def _task_completed(state: State, event: Event) -> None:
    _move(state, event, TaskState.COMPLETED)
    state.system_state.result_seq = event.seq


def _task_failed(state: State, event: Event) -> None:
    body: p.TaskFailed = parsed(event)
    where = f" ({body.where})" if body.where else ""
    _move(state, event, TaskState.FAILED, body.cause, f"{body.error_type}: {body.error}{where}")
    state.system_state.error_type, state.system_state.error = body.error_type, body.error


def _task_cancelled(state: State, event: Event) -> None:
    body: p.TaskCancelled = parsed(event)
    _move(state, event, TaskState.CANCELLED, "cancelled", body.reason)


def _activity_started(state: State, event: Event) -> None:
    body: p.ActivityStarted = parsed(event)
    run = state.execution_state
    activity_id = event.activity_id or ""
    if body.kind == "stage":
        run.stages[activity_id] = Stage(body.name, event.seq)
        run.current_stage = activity_id
        return
    run.active_activities[activity_id] = Active(
        event.seq,
        body.name,
        event.timestamp,
        body.kind,
        body.key,
        body.stage,
        body.digest,
        body.effect,
        event.attempt or 1,
        body.until,
        body.compensable,
        body.source,
        verifiable=body.verifiable,
    )
    run.last_activity = activity_id


def _activity_progressed(state: State, event: Event) -> None:
    body: p.ActivityProgressed = parsed(event)
    run = state.execution_state
    active = run.active_activities.get(event.activity_id or "")
    if active is not None:
        active.done, active.total = body.done, body.total
    elif event.activity_id is None:
        run.total, run.text = body.total, body.text


_UNCOUNTED: Final = frozenset({"value", "sleep", "emit"})
"""Recorded results that are no work of their own."""


def _activity_completed(state: State, event: Event) -> None:
    body: p.ActivityCompleted = parsed(event)
    run, business = state.execution_state, state.business_state
    activity_id = event.activity_id or ""
    if body.kind == "stage":
        stage = run.stages.get(activity_id)
        if stage is not None:
            stage.done = True
        business.completed_subtasks.append(f"{activity_id} {body.name}")
        run.current_stage = activity_id.rpartition(".")[0]
        return
    active = run.active_activities.pop(activity_id, None)
    inline = body.result_blob is None and len(memoryview(body.result)) <= INLINE_RESULT
    recorded = Recorded(
        event.seq,
        body.digest,
        body.name,
        body.kind,
        result=body.result if inline else NULL,
        by_reference=not inline,
        result_lost=body.result_lost is not None,
    )
    if active is not None:
        recorded.effect, recorded.compensable, recorded.source = active.effect, active.compensable, active.source
    business.results[activity_id] = recorded
    if body.kind not in _UNCOUNTED:
        run.done += 1


def _activity_failed(state: State, event: Event) -> None:
    body: p.ActivityFailed = parsed(event)
    run = state.execution_state
    activity_id = event.activity_id or ""
    if body.aborted or body.still_running:
        active = run.active_activities.get(activity_id)
        if active is not None:
            active.timed_out = body.timed_out
            if body.aborted and active.effect == "none":
                del run.active_activities[activity_id]
        if body.aborted:
            return
    active = run.active_activities.pop(activity_id, None)
    recorded = Recorded(event.seq, body.digest, body.name, body.kind, ok=False)
    if active is not None:
        recorded.effect, recorded.source = active.effect, active.source
    state.business_state.results[activity_id] = recorded
    run.failed += 1


def _activity_retried(state: State, event: Event) -> None:
    run = state.execution_state
    active = run.active_activities.get(event.activity_id or "")
    if active is not None:
        active.attempt = (event.attempt or 1) + 1
    run.retried += 1
    counts = state.system_state.retry_counts
    counts[event.activity_id or ""] = event.attempt or 1


def _activity_compensated(state: State, event: Event) -> None:
    body: p.ActivityCompensated = parsed(event)
    recorded = state.business_state.results.get(event.activity_id or "")
    if recorded is not None and body.ok:
        recorded.compensated = True


def _state_changed(state: State, event: Event) -> None:
    body: p.StateChanged = parsed(event)
    value: Any = msgspec.json.decode(body.value) if body.value_blob is None else {"$": "blob", "v": body.value_blob}
    state.business_state.large = state.business_state.large or body.value_blob is not None
    if event.activity_id is not None:
        _emitted(state, event)
    if body.path == "current_goal":
        plain = value is None or isinstance(value, str)
        state.business_state.current_goal = value if plain else str(memoryview(body.value), "utf-8")
        return
    *parents, last = body.path.split(".")
    place = state.business_state.values
    for part in parents:
        child = place.setdefault(part, {})
        if not isinstance(child, dict):
            child = place[part] = {}
        place = child
    if body.op == "append":
        items = place.setdefault(last, [])
        if isinstance(items, list):
            items.append(value)
    else:
        place[last] = value


def _approval_requested(state: State, event: Event) -> None:
    body: p.ApprovalRequested = parsed(event)
    state.asked += 1
    state.execution_state.approvals[body.approval_id] = Approval(
        event.seq,
        body.question,
        body.digest,
        body.details,
        body.kind,
        event.activity_id,
        body.choices,
        event.timestamp,
        body.expires_at,
        body.if_ignored,
        body.about,
        tool=body.tool,
    )


def meant(state: State, asked: Approval) -> list[str]:
    """The open activities that an answer is about: those whose attempt began before the question."""
    opened = state.execution_state.active_activities
    return [i for i in asked.about if i in opened and opened[i].seq < asked.seq]


def _approval_resolved(state: State, event: Event) -> None:
    body: p.ApprovalResolved = parsed(event)
    asked = state.execution_state.approvals.get(body.approval_id)
    if asked is None or asked.answer is not None:
        return
    said_of = [i for i in meant(state, asked) if not body.about or i in body.about]
    if body.partial:
        asked.about = [i for i in asked.about if i not in body.about]
    else:
        asked.answer, asked.choice, asked.reason, asked.by = body.answer, body.choice, body.reason, body.by
        asked.answered_at, asked.arguments = event.timestamp, body.arguments
    if body.always and asked.tool and asked.tool not in state.allowed_tools:
        state.allowed_tools = [*state.allowed_tools, asked.tool]
    if asked.kind == "outcome" and body.choice == "run_again":  # what happened is logged as the completion that it was
        for activity_id in said_of:
            del state.execution_state.active_activities[activity_id]


def _file_written(state: State, event: Event) -> None:
    body: p.FileWritten = parsed(event)
    state.business_state.files[body.path] = {"checksum": body.checksum, "size": body.size, "seq": event.seq}
    if event.activity_id is not None:
        _emitted(state, event)


def _file_rolled_back(state: State, event: Event) -> None:
    body: p.FileRolledBack = parsed(event)
    if body.checksum is None:
        state.business_state.files.pop(body.path, None)
    else:
        state.business_state.files[body.path] = {"checksum": body.checksum, "size": body.size, "seq": event.seq}


def _code_generated(state: State, event: Event) -> None:
    body = payload_of(event)
    listed = body.get("files_generated") if isinstance(body, dict) else None
    for file in (f for f in listed if isinstance(f, dict)) if isinstance(listed, list) else ():
        state.business_state.files[str(file.get("path"))] = {
            "checksum": file.get("checksum"),
            "lines": file.get("lines"),
            "seq": event.seq,
        }
    if event.activity_id is not None:
        _emitted(state, event)


def _checkpoint_created(state: State, event: Event) -> None:
    body: p.CheckpointCreated = parsed(event)
    state.checkpoint = Checkpointed(event.seq, body.label, event.timestamp, body.trigger)
    state.checkpoints += 1


def _recovery_completed(state: State, event: Event) -> None:
    body: p.RecoveryCompleted = parsed(event)
    state.system_state.recoveries += 1
    state.system_state.recovery = body.sentence


def _control_requested(state: State, event: Event) -> None:
    body: p.ControlRequested = parsed(event)
    state.controls = [*state.controls[-49:], body.control_id]
    if body.outcome != "accepted":
        return
    if body.action == "pause":
        state.system_state.pausing = True
    elif body.action == "redo":
        for activity_id in body.args.get("activities", ()):
            dropped = state.business_state.results.pop(str(activity_id), None)
            state.system_state.retry_counts.pop(str(activity_id), None)
            if dropped is not None and not dropped.ok:
                state.execution_state.failed -= 1
            elif dropped is not None and dropped.kind not in _UNCOUNTED:
                state.execution_state.done -= 1
    elif body.action == "extend":
        extended = state.system_state.extended
        for what, more in body.args.get("budget", {}).items():
            extended[str(what)] = extended.get(str(what), 0.0) + float(more)
    elif body.action == "rename":
        state.title = str(body.args.get("title", state.title))


def _alarm_raised(state: State, event: Event) -> None:
    body: p.AlarmRaised = parsed(event)
    state.alarms = [*state.alarms[-9:], f"{body.kind}: {body.text}"]


def _message_added(state: State, event: Event) -> None:
    body: p.MessageAdded = parsed(event)
    if body.role != "assistant" or body.partial or event.activity_id is None:  # not an answer, or one written down again
        return
    spent = state.system_state.spent
    state.requests += 1
    spent.requests += 1
    if event.cost_usd is None:
        state.unpriced += 1
        spent.unpriced += 1


def _emitted(state: State, event: Event) -> None:
    """An event that a workflow emitted: recorded, so that a resumed body does not emit it again."""
    state.business_state.results[event.activity_id or ""] = Recorded(event.seq, name=event.event_type, kind="emit")


_HANDLERS: Final[dict[str, Callable[[State, Event], None]]] = {
    "SessionCreated": _session_created,
    "SessionForked": _session_forked,
    "TaskQueued": _task_queued,
    "TaskStarted": _task_started,
    "TaskSuspended": _task_suspended,
    "TaskInterrupted": _task_interrupted,
    "TaskResumed": _task_resumed,
    "TaskCompleted": _task_completed,
    "TaskFailed": _task_failed,
    "TaskCancelled": _task_cancelled,
    "ActivityStarted": _activity_started,
    "ActivityProgressed": _activity_progressed,
    "ActivityCompleted": _activity_completed,
    "ActivityFailed": _activity_failed,
    "ActivityRetried": _activity_retried,
    "ActivityCompensated": _activity_compensated,
    "StateChanged": _state_changed,
    "ApprovalRequested": _approval_requested,
    "ApprovalResolved": _approval_resolved,
    "FileWritten": _file_written,
    "FileRolledBack": _file_rolled_back,
    "CodeGenerated": _code_generated,
    "CheckpointCreated": _checkpoint_created,
    "RecoveryCompleted": _recovery_completed,
    "ControlRequested": _control_requested,
    "AlarmRaised": _alarm_raised,
    "MessageAdded": _message_added,
}
_NEUTRAL: Final = frozenset({"TestExecuted", "ErrorOccurred", "BudgetExceeded", "ConfigChanged"})
