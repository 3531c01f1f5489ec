"""What fails behind the scenes, where nobody waits for it: flushes of the window, snapshots, sealing.

No promise hangs on these, so that one which fails stops nothing.  It must be known all the same: a resume that folds the whole
log because no snapshot was ever written should surprise nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from ipyagent_sessions import payloads as p
from ipyagent_sessions.errors import IpyagentError, LeaseLost, PersistenceError
from ipyagent_sessions.log.scribe import Work

_TOLD: Final[dict[Work, str]] = {
    "flush": "the log could not be written behind the scenes: {}; the next step that needs it on disk writes it",
    "snapshot": "the snapshot of a checkpoint could not be written: {}; the log holds the same, and a resume reads more of it",
    "sealing": "the log could not be sealed: {}; its journals stay and hold the same",
}


class Setbacks:
    """The alarms to raise, each text once, however often it fails.  Safe to use from several threads.

    `told` are the latest alarms of the session, as its state holds them: a later holder does not say again what stands there.
    While the disk refuses the log itself (`refused`), that is what is told, by whoever waits for it, and not that it takes no
    other file either.
    """

    def __init__(self, refused: Callable[[], bool], told: Iterable[str]) -> None:
        self._refused = refused
        self._waiting: deque[p.AlarmRaised] = deque()
        self._known = set(told)

    def add(self, work: Work, error: Exception) -> None:
        """Note that `work` failed; a refused flush and a lost lease have a telling of their own."""
        if isinstance(error, PersistenceError | LeaseLost) or (isinstance(error, OSError) and self._refused()):
            return
        alarm = p.AlarmRaised(work, _TOLD[work].format(_reason(error)))
        if _key(alarm) not in self._known:
            self._known.add(_key(alarm))
            self._waiting.append(alarm)

    def take(self) -> list[p.AlarmRaised]:
        """What was noted and not taken yet; nothing while the disk refuses, and what fails then may be told later."""
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        if self._refused():
            self._known.difference_update(map(_key, taken))
            return []
        return taken


def _key(alarm: p.AlarmRaised) -> str:
    return f"{alarm.kind}: {alarm.text}"


def _reason(error: Exception) -> str:
    """Why something failed, in words that are the same the next time: without the name of the file."""
    if isinstance(error, IpyagentError):
        return error.message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
