"""Time and chance come in as arguments, so that tests own them (`testing.FakeClock`, `testing.FakeIds`); how time is told."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Final, Protocol

_ALPHABET: Final = "abcdefghjkmnpqrstvwxyz23456789"


class Clock(Protocol):
    """Wall time for what people read, monotonic time for durations, and a sleep that a test can shorten."""

    def now(self) -> float:
        """Seconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""
        ...


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Ids(Protocol):
    """Where new ids come from."""

    def __call__(self) -> str:
        """A new id: lower-case letters and digits, first a letter, about 48 bits of chance."""
        ...


def random_id() -> str:
    """Ten characters without look-alikes; the first is a letter, so that an id is never taken for a number."""
    return secrets.choice(_ALPHABET[:22]) + "".join(secrets.choice(_ALPHABET) for _ in range(9))


def duration(seconds: float | None) -> str:
    """8 min 32 s; the two largest units, "unknown" for None."""
    if seconds is None:
        return "unknown"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    minutes, secs = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    if minutes:
        return f"{minutes} min {secs} s"
    return f"{secs} s"
