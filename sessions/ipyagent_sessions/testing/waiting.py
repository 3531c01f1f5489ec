"""Waiting for a condition with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], *, timeout: float = 10.0, what: str = "") -> None:
    """Return as soon as `condition()` is true; raise TimeoutError naming `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    pause = 0.002
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout:g} s: {what or condition}")
        time.sleep(pause)
        pause = min(0.05, pause * 1.5)
