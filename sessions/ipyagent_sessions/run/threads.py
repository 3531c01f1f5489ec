"""Daemon threads for synchronous activities.

The standard pools join their threads when the interpreter ends, so one stuck call would hold up every kernel restart.  These
threads are daemons; an idle one is used again, and a stuck one is left behind.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple


class Ran(NamedTuple):
    """The value of a call and the CPU seconds its thread used for it, None where no thread was its own."""

    value: Any
    cpu_s: float | None


class Threads:
    """As many threads as calls are open at one time, kept while `close` has not been called."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Callable[[], None] | None]] = []
        self._count = 0

    def submit(self, function: Callable[[], Any]) -> asyncio.Future[Ran]:
        """Call `function` in a thread, in a copy of the present context; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Ran] = loop.create_future()
        context = contextvars.copy_context()
        inbox = self._idle.pop() if self._idle else self._new()

        def finish(value: Ran | None, error: BaseException | None) -> None:
            self._idle.append(inbox)
            if future.cancelled():
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
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish, value, error)

        inbox.put(job)
        return future

    def close(self) -> None:
        """Let idle threads end."""
        while self._idle:
            self._idle.pop().put(None)

    def _new(self) -> queue.SimpleQueue[Callable[[], None] | None]:
        inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._count += 1
        threading.Thread(target=_serve, args=(inbox,), name=f"ipyagent-activity-{self._count}", daemon=True).start()
        return inbox


def _serve(inbox: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := inbox.get()) is not None:
        job()
