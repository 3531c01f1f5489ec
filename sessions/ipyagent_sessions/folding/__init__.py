"""From events to the state: a pure fold, and the only way a state comes about (R009, R098).

`apply(state, event)` takes the next event into `state`.  It does no I/O, reads no clock and draws no random number, so
the state at any seq is the same in the kernel that wrote the log, in a replay, and in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ipyagent_sessions.errors import NewerFormat
from ipyagent_sessions.events import SCHEMA_VERSION, Event
from ipyagent_sessions.folding import activities, business, people, records, sections, tasks
from ipyagent_sessions.folding.activities import INLINE_RESULT
from ipyagent_sessions.folding.people import meant
from ipyagent_sessions.folding.reading import parsed
from ipyagent_sessions.state import State


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
    handler = _HANDLERS.get(event.event_type) if event.schema_version <= SCHEMA_VERSION else None
    if handler is not None:
        handler(state, event)
    else:
        check(event)
        if event.activity_id is not None:
            activities.emitted(state, event)
    state.seq = event.seq
    state.updated_at = event.timestamp
    if event.input_tokens or event.output_tokens or event.cost_usd:
        records.spend(state, event)


def check(event: Event) -> None:
    """Raises NewerFormat for an event that this version must not pass over and does not know."""
    if event.ignorable:
        return
    by = event.agent_version or "an unknown version"
    if event.schema_version > SCHEMA_VERSION:
        raise NewerFormat(
            f"event {event.seq} ({event.event_type}) has form {event.schema_version}, this version reads {SCHEMA_VERSION}",
            hint=f"it was written by {by}; install that version or a newer one",
        )
    if event.event_type not in _HANDLERS and event.event_type not in _NEUTRAL:
        raise NewerFormat(
            f"event {event.seq} is of the unknown type {event.event_type!r} and is not marked ignorable",
            hint=f"it was written by {by}; install that version or a newer one",
        )


def is_folded(event_type: str) -> bool:
    """Whether the payload of such an event is taken into the state."""
    return event_type in _HANDLERS


_HANDLERS: Final[dict[str, Callable[[State, Event], None]]] = {
    "SessionCreated": tasks.session_created,
    "SessionForked": tasks.session_forked,
    "TaskQueued": tasks.task_queued,
    "TaskStarted": tasks.task_started,
    "TaskSuspended": tasks.task_suspended,
    "TaskInterrupted": tasks.task_interrupted,
    "TaskResumed": tasks.task_resumed,
    "TaskCompleted": tasks.task_completed,
    "TaskFailed": tasks.task_failed,
    "TaskCancelled": tasks.task_cancelled,
    "ActivityStarted": activities.activity_started,
    "ActivityProgressed": activities.activity_progressed,
    "ActivityCompleted": activities.activity_completed,
    "ActivityFailed": activities.activity_failed,
    "ActivityRetried": activities.activity_retried,
    "ActivityCompensated": activities.activity_compensated,
    "CheckFailed": sections.check_failed,
    "StateChanged": business.state_changed,
    "ApprovalRequested": people.approval_requested,
    "ApprovalResolved": people.approval_resolved,
    "FileWritten": business.file_written,
    "FileRolledBack": business.file_rolled_back,
    "CodeGenerated": business.code_generated,
    "CheckpointCreated": records.checkpoint_created,
    "RecoveryCompleted": records.recovery_completed,
    "ControlRequested": people.control_requested,
    "AlarmRaised": records.alarm_raised,
    "MessageAdded": records.message_added,
}
_NEUTRAL: Final = frozenset({"EffectDeclared", "TestExecuted", "ErrorOccurred", "BudgetExceeded", "ConfigChanged"})

__all__ = ["INLINE_RESULT", "apply", "check", "fold", "is_folded", "meant", "parsed"]
