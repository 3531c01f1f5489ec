"""Forks: what one would mean, and two sessions side by side.  Only reads."""

from __future__ import annotations

from typing import Final

from ipyagent_sessions.commands.outside import still_there
from ipyagent_sessions.errors import NotFound, UsageError
from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.log.open_activities import follow
from ipyagent_sessions.serving.following import Followed
from ipyagent_sessions.serving.shapes import Aftermath, Compared, Side
from ipyagent_sessions.session import Session
from ipyagent_sessions.views.compare import compare

_MOST: Final = 100
_NAMED: Final = 5


def aftermath(session: Session, at: int) -> Aftermath:
    """What a fork at event `at` (0: the newest) would mean.  Raises NotFound, and UsageError for an empty session."""
    last = session.last_seq()
    at = at or last
    if not 1 <= at <= last:
        raise NotFound(f"session {session.id} has no event {at}", hint=f"it has events 1 to {last}")
    opened: set[str] = set()
    nearest, started = None, False
    for event in session.events(until=at):
        follow(opened, event.event_type, event.activity_id)
        started = started or event.event_type == "TaskQueued"
        if not opened and started:
            nearest = event.seq
    if not started:
        raise UsageError(f"no task of session {session.id} had begun at event {at}", hint="fork at a later event")
    effects = still_there(session, at)
    ended = session.state(at).system_state.status in ENDED
    return Aftermath(at, nearest, sorted(opened)[:_NAMED], ended, effects[:_MOST], max(0, len(effects) - _MOST))


def compared(left: Followed, right: Followed) -> Compared:
    """Both sessions as they are now.  Raises as reading them does."""
    ours, theirs = (Side(each.title(), each.shown().card) for each in (left, right))
    return Compared(ours, theirs, compare(left.session, right.session))
