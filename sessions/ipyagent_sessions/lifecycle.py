"""The seven states of a task and every allowed change between them (DESIGN section 6; R160-R163).

The table is data: `check` enforces it, `%agent help states` prints it, one test walks every (from, to, actor).
`effective` combines what the log says with whether somebody holds the lease: "running" with nobody running it is lost, and is
shown so everywhere before anybody has written it down.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from ipyagent_sessions.errors import IllegalTransition


class TaskState(StrEnum):
    """The state of a task as the log has it."""

    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    INTERRUPTED = "interrupted"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


ENDED: Final = frozenset({TaskState.COMPLETED, TaskState.CANCELLED, TaskState.FAILED})
LOST: Final = "lost"
MOVES: Final = MappingProxyType(
    {
        "TaskQueued": TaskState.QUEUED,
        "TaskStarted": TaskState.RUNNING,
        "TaskResumed": TaskState.RUNNING,
        "TaskSuspended": TaskState.SUSPENDED,
        "TaskInterrupted": TaskState.INTERRUPTED,
        "TaskCompleted": TaskState.COMPLETED,
        "TaskFailed": TaskState.FAILED,
        "TaskCancelled": TaskState.CANCELLED,
    }
)
"""By the type of an event the state that it takes its task to."""


class Transition(NamedTuple):
    """One row.  `source` is None for a task that does not exist yet; `actors` are kinds, see `actor_kind`."""

    source: TaskState | None
    target: TaskState
    actors: frozenset[str]
    why: str
    person_sees: str
    artefacts: str


def _row(source: TaskState | None, target: TaskState, actors: str, why: str, sees: str, artefacts: str) -> Transition:
    return Transition(source, target, frozenset(actors.split()), why, sees, artefacts)


_Q, _R, _S, _I = TaskState.QUEUED, TaskState.RUNNING, TaskState.SUSPENDED, TaskState.INTERRUPTED
_C, _X, _F = TaskState.COMPLETED, TaskState.CANCELLED, TaskState.FAILED

TRANSITIONS: Final = (
    _row(
        None,
        _Q,
        "user schedule engine",
        "a task is asked for",
        "a handle, its position, behind what",
        "none yet; inputs and configuration are frozen",
    ),
    _row(_Q, _R, "engine", "its turn has come", "started, attempt n", "environment snapshot stored"),
    _row(_Q, _X, "user schedule", "cancelled or expired before it began", "never started", "none"),
    _row(_Q, _F, "engine", "the plan is not valid or a capability is missing", "the cause and the fix", "none"),
    _row(
        _R,
        _S,
        "engine rule sweeper user",
        "approval, cap, external wait, resources, network, persistence or a lost worker",
        "what it waits for and what resumes it",
        "kept; open calls are outcome unknown",
    ),
    _row(_R, _I, "user", "Pause or a kernel interrupt", "interrupted, not failed; what was drained", "kept"),
    _row(_S, _R, "user engine rule", "answered, condition met or recovered", "resumed; what is not restored", "re-verified"),
    _row(_I, _R, "user", "resumed, with or without a new instruction", "resumed; what is not restored", "verified first"),
    _row(_S, _X, "user engine rule schedule", "cancelled, expired or denied", "what exists: keep or roll back", "by policy"),
    _row(_I, _X, "user schedule", "cancelled", "what exists: keep or roll back", "by policy"),
    _row(
        _R,
        _X,
        "user rule",
        "cancelled, or over budget",
        "who, why, how much",
        "files kept; irreversible effects listed; compensations run in reverse order",
    ),
    _row(_R, _C, "engine", "the workflow returned", "result, cost, artefacts", "kept"),
    _row(_R, _F, "engine", "the workflow raised", "cause, last good checkpoint, retry and fork", "kept"),
)

_TABLE: Final = {(row.source, row.target): row for row in TRANSITIONS}


def actor_kind(actor: str) -> str:
    """The kind of an actor: "user:anna@cli" is a "user"."""
    return actor.partition(":")[0]


def check(source: TaskState | None, target: TaskState, actor: str) -> Transition:
    """The row that allows `actor` to take a task from `source` to `target`; raises IllegalTransition when none does."""
    row = _TABLE.get((source, target))
    came_from = source.value if source else "nothing"
    if row is None:
        hint = "ended tasks never change: retry makes a new task, or fork it" if source in ENDED else ""
        raise IllegalTransition(f"a task cannot go from {came_from} to {target.value}", hint=hint)
    if actor_kind(actor) not in row.actors:
        raise IllegalTransition(
            f"{actor_kind(actor)} may not take a task from {came_from} to {target.value}",
            hint=f"allowed: {', '.join(sorted(row.actors))}",
        )
    return row


def effective(state: TaskState, *, held: bool) -> str:
    """What a person is shown: the logged state, or "lost" when it says running and nobody holds the lease."""
    return LOST if state is TaskState.RUNNING and not held else state.value
