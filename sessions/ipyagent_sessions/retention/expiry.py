"""Which checkpoints have outlived the policy (R058-R060, R063).

The checkpoints of a task that completed go `successful_s` seconds after its end, of one that failed or was cancelled
`failed_s` seconds after; those of a task that may go on never do.  Whatever their age these stay:

- one that a person took by hand,
- the newest that verifies, from which a resume or a look starts,
- the newest at or before an event where a fork begins,
- a whole one that another one which stays builds on,
- all of a session whose log has damage: they may be the only copy of the state behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from ipyagent_sessions.clock import duration
from ipyagent_sessions.config import CheckpointPolicy
from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.events import Event, seconds_of
from ipyagent_sessions.lifecycle import ENDED, MOVES, TaskState
from ipyagent_sessions.log import checkpoints, lease
from ipyagent_sessions.log.checkpoints import Info
from ipyagent_sessions.log.reader import Reader
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

DAY: Final = 86400.0


class Expired(Struct, frozen=True):
    """A checkpoint that may go: its file, its size in bytes, and why."""

    session_id: str
    seq: int
    file: str
    size: int
    why: str


def expired(store: Store, policy: CheckpointPolicy) -> list[Expired]:
    """What may go of the whole store, by session and seq.  A session that cannot be read keeps all it has."""
    found: list[Expired] = []
    points = fork_points(store)
    for session_id in sorted(store.session_ids()):
        session = store.session(session_id)
        try:
            found += of_session(session, policy, points.get(session_id, []))
        except (IpyagentError, OSError):
            continue
    return found


def fork_points(store: Store) -> dict[str, list[int]]:
    """For each session the seqs where others begin."""
    points: dict[str, list[int]] = {}
    for session_id in store.session_ids():
        try:
            parent = store.session(session_id).header.parent
        except (IpyagentError, OSError):
            continue
        if parent is not None:
            points.setdefault(parent.session, []).append(parent.seq)
    return points


def of_session(session: Session, policy: CheckpointPolicy, points: list[int]) -> list[Expired]:
    """What may go of one session; nothing while somebody holds it.  Raises IpyagentError, OSError."""
    now = session.place.clock.now()
    if len(checkpoints.sequence(session.layout)) < 2 or lease.holding(session.layout) or not _old(session, policy, now):
        return []
    reader = Reader(session.layout, session.first)
    ends = dict(_ends(reader.events()))
    if reader.missing or reader.damage:
        return []
    known = checkpoints.listing(session.layout)
    stay = _needed(known, points)
    found: list[Expired] = []
    for info in known:
        if info.seq in stay or not info.complete or info.trigger == "manual":
            continue
        why = _outlived(ends.get(info.seq), policy, now)
        if why:
            file = checkpoints.path_of(session.layout, info.seq).name
            found.append(Expired(session.id, info.seq, f"s/{session.id}/checkpoints/{file}", info.size, why))
    gone = {e.seq for e in found}
    bases = {info.base for info in known if info.seq not in gone}
    return [e for e in found if e.seq not in bases]


def _old(session: Session, policy: CheckpointPolicy, now: float) -> bool:
    """Whether any task of it can have ended long enough ago: a look at the summary spares reading the log."""
    summary = session.summary()
    return bool(summary.created_at) and now - seconds_of(summary.created_at) >= min(policy.successful_s, policy.failed_s)


def _needed(known: list[Info], points: list[int]) -> set[int]:
    """The seqs that a resume, a look or a fork starts from."""
    usable = [info.seq for info in known if info.complete]
    needed = {max(usable)} if usable else set[int]()
    for point in points:
        before = [seq for seq in usable if seq <= point]
        needed |= {max(before)} if before else set()
    return needed


class _Task(Struct):
    state: TaskState | None = None
    at: str = ""
    task_id: str = ""


def _ends(events: Iterator[Event]) -> Iterator[tuple[int, _Task]]:
    """For each checkpoint the task that it was taken in, as that is now.  Tasks of a session follow one another."""
    task = _Task()
    for event in events:
        if event.event_type in ("TaskQueued", "SessionForked"):
            task = _Task()
        moved = MOVES.get(event.event_type)
        if moved is not None:
            task.state, task.at, task.task_id = moved, event.timestamp, event.task_id or ""
        elif event.event_type == "CheckpointCreated":
            yield event.seq, task


def _outlived(task: _Task | None, policy: CheckpointPolicy, now: float) -> str:
    """Why a checkpoint of `task` may go, empty when it may not."""
    if task is None or task.state is None or task.state not in ENDED:
        return ""
    kept_s = policy.successful_s if task.state is TaskState.COMPLETED else policy.failed_s
    age = now - seconds_of(task.at)
    if age < kept_s:
        return ""
    return f"task {task.task_id} {task.state.value} {duration(age)} ago, kept {duration(kept_s)}"
