"""Control groups of Linux for tests: a real limit of memory, kept by the system's own killer."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

import pytest


class Group:
    """A control group in `folder`, of version 1 or 2.  Who writes 0 into `entrance` is in it, with what it starts."""

    def __init__(self, folder: Path, limit: str) -> None:
        self.entrance = folder / "cgroup.procs"
        self.limit = folder / limit

    def at_most(self, size: int) -> None:
        """Let its processes have so many bytes together, and no swap to flee to."""
        self.limit.write_text(str(size))
        for swap in ("memory.swap.max", "memory.swappiness"):
            if (self.limit.parent / swap).exists():
                (self.limit.parent / swap).write_text("0")


@contextlib.contextmanager
def memory_group(size: int) -> Generator[Group]:
    """A group of at most `size` bytes, removed at the end; skips the test where none can be made."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    top, inside, limit = Path("/sys/fs/cgroup"), own.get("", "/"), "memory.max"
    if "memory" in own:
        top, inside, limit = top / "memory", own["memory"], "memory.limit_in_bytes"
    made = next((p for p in (top / inside.lstrip("/"), top) if p.is_dir()), top) / f"ipyagent-test-{os.getpid()}"
    group = Group(made, limit)
    try:
        made.mkdir()
        group.at_most(size)
    except OSError as error:
        with contextlib.suppress(OSError):
            made.rmdir()
        pytest.skip(f"NOT TESTED: the system's own killer, since no control group can be made here: {error}")
    try:
        yield group
    finally:
        made.rmdir()
