"""The state of a watched session, kept up to date from the tail of its log.

The first look folds the session (from its newest checkpoint); later ones read what was appended to the newest journal since.
A new epoch, a journal that became shorter, or damage make it begin anew, since what was read may then not count.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from ipyagent_sessions import folding
from ipyagent_sessions.events import seconds_of
from ipyagent_sessions.lifecycle import TaskState, effective
from ipyagent_sessions.log import lease
from ipyagent_sessions.log.format import Damage, scan
from ipyagent_sessions.log.layout import JournalFile, Layout
from ipyagent_sessions.serving.shapes import Detail, Shown, TaskLine
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.state import State
from ipyagent_sessions.views.card import Card, card

EMPTY: Final = "empty"
"""The state of a session without a task."""

_PARTIAL: Final = 64 * 1024


class Followed:
    """One session.  Safe to use from several threads; blocks."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = threading.Lock()
        self._state: State | None = None
        self._journal: JournalFile | None = None
        self._offset = 0

    def shown(self) -> Shown:
        """The task as it is now.  Raises NotFound, DamageError or NewerFormat."""
        with self._lock:
            return shown(self.session, self._fresh())

    def title(self) -> str:
        """What the session is called.  Raises as `shown` does."""
        with self._lock:
            return self._fresh().title

    def detail(self, children: list[str]) -> Detail:
        """All about the session as it is now; `children` are its forks.  Raises as `shown` does."""
        with self._lock:
            state, session = self._fresh(), self.session
            parent, system = session.header.parent, state.system_state
            return Detail(
                shown(session, state),
                state.title,
                session.header,
                _tasks(session, state),
                session.checkpoints(),
                children,
                parent.seq if parent is not None else 0,
                summarise(session.id, state).model,
                system.cell,
                system.target.rpartition(":")[0],
            )

    def _fresh(self) -> State:
        journals = self.session.layout.journals()
        newest = journals[-1] if journals else None
        state = self._state
        if state is None or self._journal is None or newest is None or newest.epoch != self._journal.epoch:
            return self._anew(newest)
        try:
            if newest != self._journal:
                for event in self.session.events(after=state.seq):
                    if event.seq != state.seq + 1:
                        return self._anew(newest)
                    folding.apply(state, event)
                self._journal, self._offset = newest, 0
                return state
            return state if self._read_on(newest, state) else self._anew(newest)
        except BaseException:
            self._state = None  # half applied
            raise

    def _anew(self, newest: JournalFile | None) -> State:
        self._state = None
        _ = self.session.header
        self._state = self.session.loaded().state
        self._journal, self._offset = newest, 0
        return self._state

    def _read_on(self, journal: JournalFile, state: State) -> bool:
        """Apply what was appended; whether that went without a gap."""
        try:
            with open(journal.path, "rb") as file:
                size = file.seek(0, 2)
                if size < self._offset:
                    return False
                file.seek(self._offset)
                body = file.read(size - self._offset)
        except FileNotFoundError:
            return False
        for item in scan(body, journal.path.name, self._offset):
            if isinstance(item, Damage):
                return item.kind == "torn"  # the end is still being written
            offset, event = item
            if event.seq > state.seq + 1:
                return False
            if event.seq == state.seq + 1:
                folding.apply(state, event)
            self._offset = offset
        return True


def _tasks(session: Session, state: State) -> list[TaskLine]:
    """A line for each task.  Only with several of them the log has to be read for where each ended."""
    last = dict.fromkeys(state.tasks, state.seq)
    if len(last) > 1:
        for event in session.events():
            if event.task_id in last:
                last[event.task_id] = event.seq
    return [TaskLine(i, t.status, t.target, t.title, t.queued_at, t.ended_at, last[i]) for i, t in state.tasks.items()]


def shown(session: Session, state: State) -> Shown:
    """What is shown of `state`, the newest one of `session`."""
    status = state.system_state.status
    now_is = EMPTY if status is None else effective(status, held=status is not TaskState.RUNNING or session.held())
    live = session.live()
    holder = lease.read_holder(session.layout)
    running = now_is == TaskState.RUNNING
    partial = live.partial[-_PARTIAL:] if live is not None and running and live.task_id == state.system_state.task_id else ""
    return Shown(
        session.id,
        card(session.id, state, live, now_is, session.place.clock.now()),
        partial,
        silent_since(session.layout) if running else None,
        holder.describe() if holder is not None and running else None,
    )


def past(session_id: str, state: State) -> Card:
    """The card of a state that is over: as it was right after its last event, with nothing to be done about it."""
    status = state.system_state.status
    then = card(session_id, state, None, EMPTY if status is None else status.value, seconds_of(state.updated_at))
    then.actions = {name: "" if name == "log" else f"this is the past: event {state.seq}" for name in then.actions}
    return then


def silent_since(layout: Layout) -> float | None:
    """When the holder was last heard of, if that is longer ago than two heartbeats.

    Taking the lease counts, since the first heartbeat comes a moment later and `live.json` may be that of a former holder.
    """
    silence = lease.silence(layout)
    return None if silence is None else round(time.time() - silence, 1)
