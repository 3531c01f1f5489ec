"""Many changes, few pushes: what was not yet done or sent is merged, never queued."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ipyagent_sessions.clock import Clock

CARD_GAP: Final = 0.1
LIST_GAP: Final = 0.25
"""Seconds between two pictures of a session, and between two messages about the list."""


class Paced:
    """Does `work` when poked, at most once in `gap` seconds; pokes that come meanwhile count as one.

    Made and used on the event loop.  What `work` raises is logged, and the next poke tries again.
    """

    def __init__(self, work: Callable[[], Awaitable[None]], gap: float, clock: Clock, log: logging.Logger) -> None:
        self._work = work
        self._gap = gap
        self._clock = clock
        self._log = log
        self._poked = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def poke(self) -> None:
        """Something has changed."""
        self._poked.set()

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._poked.wait()
            self._poked.clear()
            try:
                await self._work()
            except Exception:  # noqa: BLE001  # the loop outlives whatever one session does
                self._log.exception("ipyagent: a push failed")
            await self._clock.sleep(self._gap)


class Outbox:
    """What one page has still to be told: under each key only the newest message, so that a slow page costs no memory.

    `send` is awaited before the next message is taken.
    """

    def __init__(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: dict[str, Callable[[], bytes]] = {}
        self._filled = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def put(self, key: str, message: Callable[[], bytes]) -> None:
        """Send what `message` gives when its turn comes, in place of what waits under `key`."""
        self._waiting[key] = message
        self._filled.set()

    @property
    def waiting(self) -> int:
        """How many messages have not been sent yet."""
        return len(self._waiting)

    def stop(self) -> None:
        self._waiting.clear()
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._waiting:
                key = next(iter(self._waiting))
                await self._send(self._waiting.pop(key)())
