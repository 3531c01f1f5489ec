"""Tells a widget when its sessions change: from a thread of its own, so that a busy kernel is not waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.serving.finding import session_of
from ipyagent_sessions.serving.following import Followed
from ipyagent_sessions.serving.problems import Problem
from ipyagent_sessions.serving.shapes import CardMessage, ProblemMessage, Shown
from ipyagent_sessions.store import Store

GAP_S: Final = 0.2
REST_S: Final = 1.0
"""How often the files are looked at while a task goes on, and when all have ended."""

PULSE_S: Final = 5.0
"""So often a page hears of its kernel although nothing changed: it takes silence for one that is gone."""

MOST: Final = 16
"""How many sessions are watched; of more the oldest go without."""

_ENDED: Final = frozenset(state.value for state in ENDED)


class _Seen(Struct):
    """A watched session; `told` is the state that was sent last and since when it is silent, or the error."""

    followed: Followed
    stamp: object = None
    sent_s: float = 0.0
    told: tuple[str, float | None] = "", None


class Watch:
    """Sends the messages of the live stream (`CardMessage`, `ProblemMessage`) about some sessions, and between them pulses.

    `send` is called in the thread of the watch, and so is `problem`, for what a page is told of an error.  It ends with
    `stop`, or when nothing is watched any more; after an error of `send` the next `look` begins anew.
    """

    def __init__(self, store: Store, send: Callable[[dict[str, Any]], None], problem: Callable[[Exception], Problem]) -> None:
        self._store = store
        self._send = send
        self._problem = problem
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._seen: dict[str, _Seen] = {}
        self._thread: threading.Thread | None = None
        self._over = False

    def look(self, session_ids: list[str]) -> None:
        """Watch these sessions too; a picture of each comes at once.  Raises NotFound."""
        sessions = [session_of(self._store, session_id) for session_id in session_ids]
        with self._lock:
            for session in sessions:
                known = self._seen.pop(session.id, None)
                self._seen[session.id] = _Seen(known.followed if known is not None else Followed(session))
            while len(self._seen) > MOST:
                self._seen.pop(next(iter(self._seen)))
            if self._thread is None and not self._over:
                self._thread = threading.Thread(target=self._run, name="ipyagent-widget", daemon=True)
                self._thread.start()
        self._wake.set()

    def stop(self) -> None:
        """Watch nothing any more."""
        with self._lock:
            self._over = True
            self._seen.clear()
        self._wake.set()

    def _run(self) -> None:
        try:
            while seen := self._watched():
                for each in seen:
                    self._tell(each)
                at_rest = all(each.told[0] in _ENDED for each in seen)
                self._wake.wait(REST_S if at_rest else GAP_S)
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None

    def _watched(self) -> list[_Seen]:
        """What is to be looked at now; with nothing the thread ends, and whoever looks next starts another."""
        self._wake.clear()
        with self._lock:
            if not self._seen:
                self._thread = None
            return list(self._seen.values())

    def _tell(self, each: _Seen) -> None:
        """Send a picture of a session if it has changed; the rest of the time a pulse.  That it is lost no file tells."""
        session = each.followed.session
        now = session.place.clock.now()
        stamp = _stamp(session.layout)
        if stamp == each.stamp and now - each.sent_s < PULSE_S:
            return
        found: Shown | Exception
        try:
            found = each.followed.shown()
            told = found.card.state, found.silent_since
        except Exception as error:  # noqa: BLE001  # the edge: the page is told, and what nobody foresaw goes to the log
            found, told = error, (repr(error), None)
        same = (stamp, told) == (each.stamp, each.told)
        each.stamp, each.sent_s, each.told = stamp, now, told
        if same:
            self._send({"type": "pulse"})
        elif isinstance(found, Shown):
            self._send(msgspec.to_builtins(CardMessage(found)))
        else:
            self._send(msgspec.to_builtins(ProblemMessage(session.id, self._problem(found))))


def _stamp(layout: Layout) -> object:
    """What differs when a session has changed: every append, every atomic replacement in its folder."""
    try:
        journals = tuple((j.path.name, j.path.stat().st_size) for j in layout.journals())
        return journals, layout.root.stat().st_mtime_ns
    except OSError:
        return None
