"""One process at a time, for files that belong to the store and not to a session.

The same locks as the lease's: they die with their process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path

from ipyagent_sessions.errors import LeaseHeld


@contextlib.contextmanager
def exclusive(path: Path, *, what: str, wait_s: float = 0.0) -> Generator[None]:
    """Hold the lock on the file `path`.  Raises LeaseHeld, naming `what`, when another process has it for `wait_s` seconds."""
    import filelock

    lock = filelock.FileLock(path, timeout=wait_s, thread_local=False, is_singleton=False)
    try:
        lock.acquire(poll_interval=0.02)
    except filelock.Timeout:
        raise LeaseHeld(f"{what} is being done by another process", hint="try again in a moment") from None
    try:
        yield
    finally:
        lock.release()
