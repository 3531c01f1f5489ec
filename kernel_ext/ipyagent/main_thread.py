"""The kernel's main thread, lent to tasks: what touches the notebook's variables runs there, as the notebook's own cells do.

A task has a thread and a loop of its own.  What it wants done here waits in a queue, which is emptied whenever the main thread
has time: by the kernel's loop between cells, and by the cell that follows a foreground task while it waits."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import contextvars
import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class MainThread:
    """Made in the main thread.  `submit` may be called from any other."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any], contextvars.Context]] = queue.SimpleQueue()
        self._current: Future[Any] | None = None
        try:
            self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:  # plain IPython has no loop between cells: only a following cell lends the thread
            self._loop = None

    async def run(self, function: Callable[[], T]) -> T:
        """The value of `function()`, called in the main thread as soon as it has time.

        When the caller is cancelled a function that has begun is interrupted, as Ctrl-C would.
        """
        future: Future[T] = Future()
        self._waiting.put((future, function, contextvars.copy_context()))
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the kernel is shutting down
                self._loop.call_soon_threadsafe(self.work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel() and self._current is future:
                _thread.interrupt_main()
            raise

    def work(self) -> None:
        """Do what waits.  Main thread only."""
        while True:
            try:
                future, function, context = self._waiting.get_nowait()
            except queue.Empty:
                return
            if self._current is not None or not future.set_running_or_notify_cancel():
                if self._current is not None:  # a cell that a task runs has come here itself: one after the other
                    self._waiting.put((future, function, context))
                    return
                continue
            self._current = future
            try:
                future.set_result(context.run(function))
            except BaseException as error:  # noqa: BLE001  # it belongs to the task that waits for it
                self._end(future, error)
            finally:
                self._current = None

    @staticmethod
    def _end(future: Future[Any], error: BaseException) -> None:
        with contextlib.suppress(Exception):  # cancelled meanwhile
            future.set_exception(error)
