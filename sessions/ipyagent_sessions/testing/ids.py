"""Ids that a test can foretell."""

from __future__ import annotations

import itertools
import threading


class FakeIds:
    """A `clock.Ids`: `prefix` with 1, 2, 3, ...  Safe to use from several threads."""

    def __init__(self, prefix: str = "a") -> None:
        self._prefix = prefix
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            return f"{self._prefix}{next(self._numbers)}"
