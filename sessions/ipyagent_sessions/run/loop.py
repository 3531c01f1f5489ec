"""The event loop of a task: asyncio's own, with one file descriptor where the usual one has three.

A kernel may hold hundreds of tasks that wait, and a process has about a thousand descriptors.  `poll` needs none where `epoll`
needs one; and Linux wakes a loop with an eventfd where elsewhere a pair of sockets does.  Where either is missing, or asyncio
has changed inside, the usual one is used.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import sys


def new() -> asyncio.AbstractEventLoop:
    """A new event loop for a thread."""
    if sys.platform == "linux" and hasattr(asyncio.SelectorEventLoop, "_make_self_pipe"):
        return _Light(selectors.PollSelector())
    return asyncio.new_event_loop()


if sys.platform == "linux":

    class _Waker:
        """An eventfd with the few methods that a loop uses of its pair of sockets."""

        def __init__(self) -> None:
            self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

        def fileno(self) -> int:
            return self._fd

        def send(self, _: bytes) -> None:
            os.eventfd_write(self._fd, 1)

        def recv(self, _: int) -> bytes:
            """Raises BlockingIOError when there is nothing."""
            os.eventfd_read(self._fd)
            return b"\0"

        def close(self) -> None:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)

    class _Light(asyncio.SelectorEventLoop):
        def _make_self_pipe(self) -> None:
            self._ssock = self._csock = waker = _Waker()
            self._internal_fds = 1
            self._add_reader(waker.fileno(), self._read_from_self)  # type: ignore[attr-defined]  # asyncio's own, not in its stubs
