"""The awaitables that `ctx` hands out, and running several of them side by side."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Final

from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run.definitions import is_whole
from ipyagent_sessions.run.task import TaskRun

LIMIT: Final = 16

parallel: contextvars.ContextVar[bool] = contextvars.ContextVar("ipyagent_parallel", default=False)
"""Whether the running code is one of several coroutines side by side, where code order means nothing."""


class Call:
    """A durable step that has an identity and has not begun.  Await it once.

    A recorded result resolves without a task being made; `perform` is called for the rest.
    """

    __slots__ = ("_awaited", "_on_end", "_perform", "id", "name")

    def __init__(self, id: str, name: str, perform: Callable[[], Awaitable[Any]], on_end: Callable[[str], None]) -> None:
        self.id = id
        self.name = name
        self._perform = perform
        self._on_end = on_end
        self._awaited = False

    def __repr__(self) -> str:
        return f"<{self.id}>"

    def close(self) -> None:
        """Give up a call that will not begin; nothing happens to one that has."""
        if not self._awaited:
            self._awaited = True
            self._on_end(self.id)

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._awaited:
            raise UsageError(f"{self.id} was awaited twice", hint="keep its value in a variable")
        self._awaited = True
        try:
            return (yield from self._perform().__await__())
        finally:
            self._on_end(self.id)


async def gather(run: TaskRun, awaitables: Sequence[Awaitable[Any]], limit: int | None) -> list[Any]:
    """The values of all, in order, at most `limit` at a time.

    When one fails no further one begins, those under way finish (and are recorded), and then the first error in order is
    raised."""
    if limit is not None and not is_whole(limit, 1):
        raise UsageError(f"limit={limit!r} lets nothing run", hint="a whole number from 1")
    values: list[Any] = [None] * len(awaitables)
    errors: dict[int, BaseException] = {}
    queue = iter(enumerate(awaitables))

    async def work() -> None:
        parallel.set(True)
        for i, awaitable in queue:
            if errors:
                _drop(awaitable)
                continue
            try:
                values[i] = await awaitable
            except BaseException as error:  # TaskStop too: it is raised once all are at rest
                here = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and here is not None and here.cancelling():
                    raise  # else nobody cancelled: the awaitable raised it
                errors[i] = error

    workers = [run.spawn(work()) for _ in range(min(limit or LIMIT, len(awaitables)))]
    try:
        await asyncio.gather(*workers)
    except asyncio.CancelledError:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        for _, awaitable in queue:
            _drop(awaitable)
        run.check()
        raise
    if errors:
        raise errors[min(errors)]
    return values


def _drop(awaitable: Awaitable[Any]) -> None:
    """An awaitable that will not begin: closed, so that neither Python nor `check_awaited` complains about it."""
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()
