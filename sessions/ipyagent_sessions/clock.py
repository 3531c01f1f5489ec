"""Time and chance come in as arguments, so that tests own them (`testing.FakeClock`, `testing.FakeIds`)."""

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
