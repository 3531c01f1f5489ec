"""A real disk that counts what it is asked for, and fails at a named seam where a test tells it to."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ipyagent_sessions.log.files import SEAMS, SIDE_SEAMS, Disk


class FaultyDisk(Disk):
    """`passed` counts how often each seam was passed, `bytes_written` what went into journals and whole files.

    A fault is set for the n-th passing of a seam from now on, and happens once or, with `times`, so many times in a row.
    Seams are passed in any thread; the counts are exact.
    """

    def __init__(self) -> None:
        self.passed: Counter[str] = Counter()
        self.bytes_written = 0
        self.short_writes: list[int] = []
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()

    # Faults

    def fail(self, seam: str, *, at: int = 1, times: int = 1, code: int = errno.ENOSPC) -> None:
        """Raise OSError(`code`) at the `at`-th passing of `seam` from now, and at the `times` - 1 that follow."""

        def refuse() -> None:
            raise OSError(code, os.strerror(code))

        self.do(seam, refuse, at=at, times=times)

    def kill(self, seam: str, *, at: int = 1) -> None:
        """Kill this process with SIGKILL at the `at`-th passing of `seam` from now: for a child process of a test."""
        self.do(seam, lambda: os.kill(os.getpid(), signal.SIGKILL), at=at)

    def stop(self, seam: str, *, at: int = 1) -> None:
        """Stop this process with SIGSTOP at the `at`-th passing of `seam` from now, until somebody sends SIGCONT."""
        self.do(seam, lambda: os.kill(os.getpid(), signal.SIGSTOP), at=at)

    def do(self, seam: str, action: Callable[[], None], *, at: int = 1, times: int = 1) -> None:
        """Call `action` at the `at`-th passing of `seam` from now, and at the `times` - 1 that follow."""
        if seam not in (*SEAMS, *SIDE_SEAMS):
            raise ValueError(f"there is no seam {seam!r}; the seams are {', '.join((*SEAMS, *SIDE_SEAMS))}")
        with self._lock:
            self._faults.append(_Fault(seam, action, self.passed[seam] + at, times))

    def mend(self) -> None:
        """Forget the faults that have not happened."""
        with self._lock:
            self._faults.clear()
            self.short_writes.clear()

    # What the engine calls

    def seam(self, name: str) -> None:
        with self._lock:
            self.passed[name] += 1
            number = self.passed[name]
            due = [f.action for f in self._faults if f.seam == name and f.first <= number < f.first + f.times]
        for action in due:
            action()

    def append(self, fd: int, data: bytes) -> None:
        """As the real disk; while `short_writes` holds a number, write only so many bytes and raise ENOSPC."""
        if self.short_writes:
            self.seam("before journal write")
            os.write(fd, data[: self.short_writes.pop(0)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(fd, data)
        self.bytes_written += len(data)

    def write_whole(self, path: Path, data: bytes, *, what: str) -> None:
        super().write_whole(path, data, what=what)
        self.bytes_written += len(data)

    def replace(self, path: Path, data: bytes) -> None:
        super().replace(path, data)
        self.bytes_written += len(data)


class _Fault:
    def __init__(self, seam: str, action: Callable[[], None], first: int, times: int) -> None:
        self.seam = seam
        self.action = action
        self.first = first
        self.times = times
