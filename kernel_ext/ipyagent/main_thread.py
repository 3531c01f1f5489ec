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
        self._stopped = self._pressed = self._lent = False
        self._held: tuple[Future[Any], Any] | None = None
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
                self._stopped = True
                _thread.interrupt_main()
            raise

    def lend(self) -> None:
        """Do what waits, for a cell that follows a task.

        Raises KeyboardInterrupt when somebody pressed Ctrl-C meanwhile: it ended what ran here, and is meant for the task as
        well.  The task gets the value when the thread is lent again, so that it is asked to pause before.
        """
        self._lent, self._pressed = True, False
        try:
            self.work()
        finally:
            self._lent = False

    def was_interrupted(self) -> None:
        """Say that a KeyboardInterrupt ended what ran here: a person's, or that of `run` when it is cancelled."""
        self._pressed, self._stopped = not self._stopped, False

    def work(self) -> None:
        """Do what waits.  Main thread only."""
        self._give()
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
                value = context.run(function)
            except BaseException as error:  # noqa: BLE001  # it belongs to the task that waits for it
                self._end(future, error)
            else:
                self._held = future, value
                if self._lent and self._pressed:
                    raise KeyboardInterrupt
                self._give()
            finally:
                self._current = None

    def _give(self) -> None:
        """Let the task have the value that is held."""
        if self._held is not None:
            (future, value), self._held = self._held, None
            future.set_result(value)

    @staticmethod
    def _end(future: Future[Any], error: BaseException) -> None:
        with contextlib.suppress(Exception):  # cancelled meanwhile
            future.set_exception(error)
