"""A clock that a test owns."""

from __future__ import annotations

import asyncio
import threading
from typing import Final

START: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z"""


class FakeClock:
    """A `clock.Clock`.  Wall and monotonic time move only by `advance`, `set_back` and, unless `held`, by `sleep`.

    A sleep under a clock that is not held moves the time itself and returns at once; under a held clock it returns after
    somebody has advanced the time far enough.  Safe to use from several threads.
    """

    def __init__(self, now: float = START, *, held: bool = False) -> None:
        self.held = held
        self.slept: list[float] = []
        self._now = now
        self._monotonic = 0.0
        self._lock = threading.Lock()
        self._sleepers: list[tuple[float, asyncio.AbstractEventLoop, asyncio.Event]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self.held:
            self.advance(seconds)
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        with self._lock:
            self._sleepers.append((self._monotonic + seconds, asyncio.get_running_loop(), woken))
        await woken.wait()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass, and wake who has slept long enough."""
        with self._lock:
            self._now += seconds
            self._monotonic += seconds
            due = [s for s in self._sleepers if s[0] <= self._monotonic]
            self._sleepers = [s for s in self._sleepers if s[0] > self._monotonic]
        for _, loop, woken in due:
            loop.call_soon_threadsafe(woken.set)

    def set_back(self, seconds: float) -> None:
        """Turn the wall clock back, as a person or a time server does; monotonic time does not notice."""
        with self._lock:
            self._now -= seconds
