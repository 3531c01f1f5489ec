"""A child process that a test may stop, wake and kill, by its own id."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping


class Child:
    """Python code running in a process of its own, which tells the test how far it is by printing lines.

        with Child(code, str(folder)) as child:
            child.expect("holding")
            child.kill()

    It is killed at the end of the block, whatever happens.
    """

    def __init__(self, code: str, *args: str, env: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", code, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._reader.join(5)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self._process.stdout:
                self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, *, timeout: float = 30.0) -> str:
        """The next line it prints.  Raises TimeoutError, and EOFError with what it wrote to stderr when it has ended."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"the child process said nothing for {timeout:g} s") from None
        if line is None:
            self._process.wait(timeout)
            assert self._process.stderr is not None
            raise EOFError(f"the child process ended with {self._process.returncode}: {self._process.stderr.read()[-2000:]}")
        return line

    def expect(self, beginning: str, *, timeout: float = 30.0) -> str:
        """Read lines until one begins so; returns the rest of it."""
        while not (line := self.line(timeout=timeout)).startswith(beginning):
            pass
        return line[len(beginning) :].strip()

    def send(self, number: int) -> None:
        """Send a signal to this process and no other."""
        self._process.send_signal(number)

    def stop(self) -> None:
        """Stop it as it stands; `wake` lets it go on."""
        self.send(signal.SIGSTOP)

    def wake(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self._process.wait(30)

    def wait(self, *, timeout: float = 30.0) -> int:
        """The exit code, negative for the signal that ended it."""
        return self._process.wait(timeout)
