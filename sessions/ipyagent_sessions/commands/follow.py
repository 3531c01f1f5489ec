"""Watch a foreground task until it ends, showing what changes, and turn Ctrl-C into a pause."""

from __future__ import annotations

import contextlib
import time
from typing import Final, Protocol

from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.commands.look import card_of, show_card
from ipyagent_sessions.errors import IpyagentError, PersistenceError
from ipyagent_sessions.log.live import Live
from ipyagent_sessions.run.worker import TaskHandle
from ipyagent_sessions.views.card import card
from ipyagent_sessions.views.shown import Shown

EVERY_S: Final = 0.2


class Screen(Protocol):
    """Where progress is shown: `update` while it runs, `final` once.  `breathe` gives the place a moment for itself."""

    def breathe(self) -> None: ...

    def update(self, shown: Shown) -> None: ...

    def final(self, shown: Shown) -> None: ...


def follow(door: Door, handle: TaskHandle, screen: Screen) -> None:
    """Return when the execution has ended and been shown.

    The first KeyboardInterrupt asks for a pause (one that waits for a person ends at once and stays suspended), the
    second stops the open activities; the end shown is always the recorded one."""
    watch = _Watch(door, handle, screen)
    while not handle.done:
        try:
            watch.look()
        except KeyboardInterrupt:
            watch.presses += 1
    screen.final(_end(door, handle))


class _Watch:
    """One look after the other, so that an interrupt at any moment costs at most one of them."""

    def __init__(self, door: Door, handle: TaskHandle, screen: Screen) -> None:
        self.presses = 0
        self._door, self._handle, self._screen = door, handle, screen
        self._passed_on = 0
        self._shown_at = 0.0
        self._last = ""

    def look(self) -> None:
        """Wait a moment, pass on what was pressed, show what has changed."""
        self._handle.wait(0.05)
        if self._passed_on < self.presses and self._handle.interrupt(self._door.actor):
            self._passed_on += 1
            self._shown_at = 0.0
        self._screen.breathe()
        if self._handle.outcome is None and time.monotonic() - self._shown_at >= EVERY_S:
            picture = _picture(self._door, self._handle, note=_NOTES[min(self.presses, 2)])
            if picture.text != self._last:
                self._screen.update(picture)
                self._last = picture.text
            self._shown_at = time.monotonic()


_NOTES: Final = ("", "pausing: open activities finish first; interrupt again to stop them", "stopping the open activities")


def _end(door: Door, handle: TaskHandle) -> Shown:
    """The end of an execution: what the log has of it where it does not have all that this process knows."""
    taken_over = handle.outcome is not None and handle.outcome.state == "lease lost"
    if not taken_over and not isinstance(handle.trouble, PersistenceError):
        return _picture(door, handle, note="")
    with contextlib.suppress(IpyagentError, OSError):
        return show_card(door, card_of(door, handle.session))
    return Shown(f"{handle.task_id}  its log cannot be read now")


def _picture(door: Door, handle: TaskHandle, *, note: str) -> Shown:
    """The task as this process knows it."""
    run = handle.run
    if run is None:
        return Shown(f"{handle.task_id}  starting")
    live = handle.session.live() if not handle.done else None
    if run.degraded and not handle.done:  # what the disk does not take, the file cannot say
        live = live or Live(handle.task_id, run.appender.epoch, 0.0)
    if live is not None:
        live.degraded, live.durable_seq = run.degraded, run.appender.durable_seq
    with run.appender.frozen() as state:
        status = state.system_state.status
        shown = card(handle.session.id, state, live, status.value if status else "", door.store.clock.now())
    picture = show_card(door, shown)
    return Shown(f"{picture.text}\n  {note}", picture.html, picture.data) if note else picture
