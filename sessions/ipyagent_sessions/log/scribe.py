"""The threads that do the slow part of writing: flush windows in one, sealing and snapshots in the other.

Nothing here is needed for a promise.  In mode async the window is what bounds the loss (at most `WINDOW` seconds); in mode
sync it only makes started activities visible early.  The window has a thread of its own, since sealing takes longer than it.
A job that fails is reported through `on_trouble` and its work is done at a later seal or checkpoint.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

WINDOW: Final = 0.2
"""Seconds between flushes."""


class Scribe:
    """Two daemon threads for one appender."""

    def __init__(self, flush: Callable[[], None] | None, on_trouble: Callable[[Exception], None]) -> None:
        self._on_trouble = on_trouble
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run_jobs, name="ipyagent-scribe", daemon=True)]
        if flush is not None:
            self._threads.append(threading.Thread(target=self._run_window, args=(flush,), name="ipyagent-window", daemon=True))
        for thread in self._threads:
            thread.start()

    def later(self, job: Callable[[], object]) -> None:
        """Do `job` in the scribe's thread, after those asked for earlier."""
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish the jobs that wait, then end."""
        self._stopping.set()
        self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._do(job)

    def _run_window(self, flush: Callable[[], None]) -> None:
        while not self._stopping.wait(WINDOW):
            self._do(flush)

    def _do(self, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001  # it is reported; a thread that died would stop sealing in silence
            self._on_trouble(error)
