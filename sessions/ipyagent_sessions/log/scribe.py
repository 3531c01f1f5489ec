"""The thread that does the slow part of writing: flush windows, sealing, snapshots.

Nothing here is needed for a promise.  In mode async the window is what bounds the loss (at most `WINDOW` seconds); in mode sync it
only makes started activities visible early.  A job that fails because the disk refuses is reported through `on_trouble` and its
work is done at a later seal or checkpoint.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

from ipyagent_sessions.errors import IpyagentError

WINDOW: Final = 0.2
"""Seconds between flushes."""


class Scribe:
    """One daemon thread for one appender."""

    def __init__(self, flush: Callable[[], None] | None, on_trouble: Callable[[Exception], None]) -> None:
        self._flush = flush
        self._on_trouble = on_trouble
        self._jobs: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="ipyagent-scribe", daemon=True)
        self._thread.start()

    def later(self, job: Callable[[], object]) -> None:
        """Do `job` in this thread, after those asked for earlier."""
        self._jobs.put(job)

    def stop(self) -> None:
        """Finish the jobs that wait, then end."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=WINDOW)
            except queue.Empty:
                job = self._flush
            else:
                if job is None:
                    return
            if job is not None:
                try:
                    job()
                except (OSError, IpyagentError) as error:
                    self._on_trouble(error)
