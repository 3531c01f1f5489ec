"""Daemon threads for synchronous activities.

The standard pools join their threads when the interpreter ends, so one stuck call would hold up every kernel restart.  These
threads are daemons; an idle one is used again and ends after a while, and a stuck one is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

IDLE_S: Final = 1.0
"""Seconds that a thread waits for another call."""


class Ran(NamedTuple):
    """The value of a call and the CPU seconds its thread used for it, None where no thread was its own."""

    value: Any
    cpu_s: float | None


class Threads:
    """As many threads as calls are open at one time.  After `close` each ends with the call it is in."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Callable[[], None] | None]] = []
        self._count = 0
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, function: Callable[[], Any]) -> asyncio.Future[Ran]:
        """Call `function` in a thread, in a copy of the present context; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ran] = loop.create_future()
        context = contextvars.copy_context()
        with self._lock:
            inbox = self._idle.pop() if self._idle else self._new()

        def finish(value: Ran | None, error: BaseException | None) -> None:
            if future.done():  # nobody waits any more
                return
            if error is not None:
                future.set_exception(error)
            elif value is not None:
                future.set_result(value)

        def job() -> None:
            start = time.thread_time()
            value: Ran | None = None
            error: BaseException | None = None
            try:
                value = Ran(context.run(function), time.thread_time() - start)
            except StopIteration as stop:  # a future cannot carry it
                error = RuntimeError(f"activity raised StopIteration: {stop.value!r}")
            except BaseException as raised:  # noqa: BLE001  # whatever it is, it belongs to the caller
                error = raised
            self._rest(inbox)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(finish, value, error)

        inbox.put(job)
        return future

    def close(self) -> None:
        """Let idle threads end now, and the others when their call ends."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _rest(self, inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        """Called by a thread whose call has ended: it can be used again, or ends."""
        with self._lock:
            if not self._closed:
                self._idle.append(inbox)
                return
        inbox.put(None)

    def _new(self) -> queue.SimpleQueue[Callable[[], None] | None]:
        inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._count += 1
        threading.Thread(target=self._serve, args=(inbox,), name=f"ipyagent-activity-{self._count}", daemon=True).start()
        return inbox

    def _serve(self, inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
        while True:
            try:
                job = inbox.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if inbox not in self._idle:  # a call has just been given to it, or is about to be
                        continue
                    self._idle.remove(inbox)
                return
            if job is None:
                return
            job()
