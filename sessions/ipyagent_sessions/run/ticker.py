"""One thread for all tasks of a process: it calls what beats, ten times a second, while there is any.

Tasks belong to sessions and stores, and a process may open a store many times; the one thing they share is the process, so
the thread is the process's.  Nothing is kept in it but the list of who beats (decision 6).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Final

TICK_S: Final = 0.1


class Ticker:
    """A daemon thread from the first `add` to the last `remove`.  What is added must not raise, and should not wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beats: list[Callable[[], None]] = []
        self._running = False
        self._pid = os.getpid()

    def add(self, beat: Callable[[], None]) -> None:
        """Call `beat` at each tick from now on.  Raises RuntimeError when no thread can be had; nothing is added then."""
        with self._lock:
            if self._pid != os.getpid():  # a forked child has the list and not the thread; those tasks are its parent's
                self._pid, self._beats, self._running = os.getpid(), [], False
            if not self._running:
                threading.Thread(target=self._run, name="ipyagent-pulse", daemon=True).start()
                self._running = True
            self._beats.append(beat)

    def remove(self, beat: Callable[[], None]) -> None:
        """Call `beat` no more; a call that is under way goes on."""
        with self._lock:
            self._beats.remove(beat)

    def _run(self) -> None:
        while True:
            time.sleep(TICK_S)
            with self._lock:
                beats = list(self._beats)
                self._running = bool(beats)
            if not beats:
                return
            for beat in beats:
                beat()


TICKER: Final = Ticker()
"""The process's own."""
