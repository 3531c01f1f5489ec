"""Tells a widget when its sessions change: from a thread of its own, so that a busy kernel is not waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.lifecycle import ENDED
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.serving.finding import session_of
from ipyagent_sessions.serving.following import Followed
from ipyagent_sessions.serving.problems import problem_of
from ipyagent_sessions.serving.shapes import CardMessage, ProblemMessage
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
    followed: Followed
    stamp: object = None
    sent_s: float = 0.0
    state: str = ""
    silent_since: float | None = None


class Watch:
    """Sends the messages of the live stream (`CardMessage`, `ProblemMessage`) about some sessions, and between them pulses.

    `send` is called in the thread of the watch.  It ends with `stop`, or when nothing is watched any more.
    """

    def __init__(self, store: Store, send: Callable[[dict[str, Any]], None]) -> None:
        self._store = store
        self._send = send
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
        while True:
            self._wake.clear()
            with self._lock:
                if not self._seen:
                    self._thread = None
                    return
                seen = list(self._seen.values())
            for each in seen:
                self._tell(each)
            at_rest = all(each.state in _ENDED for each in seen)
            self._wake.wait(REST_S if at_rest else GAP_S)

    def _tell(self, each: _Seen) -> None:
        """Send a picture of a session if it has changed; the rest of the time a pulse.  That it is lost no file tells."""
        session = each.followed.session
        now = session.place.clock.now()
        stamp = _stamp(session.layout)
        same = stamp == each.stamp
        if same and now - each.sent_s < PULSE_S:
            return
        message: CardMessage | ProblemMessage
        try:
            shown = each.followed.shown()
            same = same and (shown.card.state, shown.silent_since) == (each.state, each.silent_since)
            message, each.state, each.silent_since = CardMessage(shown), shown.card.state, shown.silent_since
        except (IpyagentError, OSError) as error:
            message = ProblemMessage(session.id, problem_of(error, self._store.root))
        each.stamp, each.sent_s = stamp, now
        self._send({"type": "pulse"} if same else msgspec.to_builtins(message))


def _stamp(layout: Layout) -> object:
    """What differs when a session has changed: every append, every atomic replacement in its folder."""
    try:
        journals = tuple((j.path.name, j.path.stat().st_size) for j in layout.journals())
        return journals, layout.root.stat().st_mtime_ns
    except OSError:
        return None
