"""The slow part of writing, in threads that live only while there is some: flush windows in one, sealing and snapshots in the
other.

Nothing here is needed for a promise.  In mode async the window is what bounds the loss (at most `WINDOW` seconds); in mode
sync it only makes started activities visible early.  The window has a thread of its own, since sealing takes longer than it.
A job that fails is reported through `on_trouble` and its work is done at a later seal or checkpoint; so is a thread that
cannot be had, which is asked for again by the next job or event.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Literal

WINDOW: Final = 0.2
"""Seconds between flushes."""
Work = Literal["flush", "snapshot", "sealing"]


class Scribe:
    """At most two daemon threads for one appender, none while it rests.

    `flush` makes durable what `pending` says is not.
    """

    def __init__(
        self, flush: Callable[[], None], pending: Callable[[], bool], on_trouble: Callable[[Work, Exception], None]
    ) -> None:
        self._flush = flush
        self._pending = pending
        self._on_trouble = on_trouble
        self._lock = threading.Lock()
        self._jobs: deque[tuple[Work, Callable[[], object]]] = deque()
        self._worker: threading.Thread | None = None
        self._window: threading.Thread | None = None
        self._stopping = threading.Event()

    def later(self, work: Work, job: Callable[[], object]) -> None:
        """Do `job` in the scribe's thread, after those asked for earlier; after `stop` never."""
        with self._lock:
            if self._stopping.is_set():
                return
            self._jobs.append((work, job))
            if self._worker is not None:
                return
            self._worker = threading.Thread(target=self._run_jobs, name="ipyagent-scribe", daemon=True)
            refused = _refused(self._worker)
            if refused is not None:
                self._worker = None
        if refused is not None:
            self._on_trouble(work, refused)

    def soon(self) -> None:
        """See that a flush follows within a window.  Call it after something has become pending."""
        if self._window is None:  # a look without the lock: it is called with each event
            self._begin_window()

    def stop(self) -> None:
        """Finish the jobs that wait, then end."""
        with self._lock:
            self._stopping.set()
            threads = [self._worker, self._window]
        for thread in threads:
            if thread is not None:
                thread.join()

    def _begin_window(self) -> None:
        with self._lock:
            if self._window is not None or self._stopping.is_set():
                return
            self._window = threading.Thread(target=self._run_window, name="ipyagent-window", daemon=True)
            refused = _refused(self._window)
            if refused is not None:
                self._window = None
        if refused is not None:
            self._on_trouble("flush", refused)

    def _run_jobs(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._worker = None
                    return
                work, job = self._jobs.popleft()
            self._do(work, job)

    def _run_window(self) -> None:
        while not self._stopping.wait(WINDOW):
            self._do("flush", self._flush)
            self._window = None  # before the last look: whoever appends from here on begins another
            if not self._pending():
                return
            with self._lock:
                if self._window is not None:
                    return
                self._window = threading.current_thread()

    def _do(self, work: Work, job: Callable[[], object]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001  # it is reported; a thread that died would stop sealing in silence
            self._on_trouble(work, error)


def _refused(thread: threading.Thread) -> Exception | None:
    """Start `thread`; what the system says when it has none to give."""
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        return error
    return None
