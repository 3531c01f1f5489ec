"""Which activities are open after an event: started, and without a result so far."""

from __future__ import annotations

from typing import Final

_ENDS: Final = ("TaskQueued", "TaskCompleted", "TaskFailed", "TaskCancelled")


def follow(opened: set[str], event_type: str, activity_id: str | None) -> None:
    """Keep `opened`, the ids of open activities, up to date.  A stage is not an activity, and its id has no slash; when a task
    has ended nothing of it is open any more."""
    if event_type in _ENDS:
        opened.clear()
    if activity_id is None or "/" not in activity_id:
        return
    if event_type == "ActivityStarted":
        opened.add(activity_id)
    elif event_type in ("ActivityCompleted", "ActivityFailed"):
        opened.discard(activity_id)
