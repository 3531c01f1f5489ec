"""run_shell: a command, with all that it starts, from its beginning to its end.

It is not confined: it may do what the user may do.  What it starts ends with it.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from ipyagent_sessions.agent.tools import processes
from ipyagent_sessions.agent.tools.declare import Tool
from ipyagent_sessions.agent.tools.list_files import no_folder
from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run import keys
from ipyagent_sessions.run.threads import Threads

LONGEST_S: Final = 3_600.0
_HEAD: Final = 6_000
_TAIL: Final = 10_000
"""Bytes of the output's beginning and end that are kept."""
_STREAMED: Final = 1_000_000
"""Bytes that are handed on as they come."""
_CHUNK: Final = 65_536
_LAST_WORDS_S: Final = 1.0


def run_shell(bench: Workbench) -> Tool:
    """The tool for this workbench.  Effect irreversible."""

    async def run_shell(command: str, timeout_s: float = 120.0) -> str:
        """Run a shell command in the workspace folder; gives its exit code and what it wrote.

        It gets no input, and it and everything it has started are ended when it returns or when the time is over.

        Args:
            command: the command line.
            timeout_s: seconds after which it is ended, at most 3600.
        """
        if not command.strip() or "\0" in command:
            raise UsageError("there is no command")
        return (await execute(bench, command, min(max(timeout_s, 0.1), LONGEST_S))).said

    return Tool(
        run_shell,
        effect="irreversible",
        unusable=lambda: no_folder(bench) or (None if _shell() else "there is no shell here"),
        more="write the output to a file and read parts of it",
    )


class Ended(NamedTuple):
    """A command that has ended: whether with exit code 0 and in time, and what is said of it, with its output."""

    good: bool
    said: str


async def execute(bench: Workbench, command: str, timeout_s: float) -> Ended:
    """Run a command to its end, which comes after `timeout_s` seconds at the latest.  Raises UsageError without a shell."""
    mark = processes.new_mark(bench.mark)
    threads = Threads()
    reading, writing = os.pipe()
    output = _Output(reading, bench.output)
    try:
        child = _start(bench, command, mark, writing)
    except OSError as error:
        os.close(reading)
        raise UsageError(f"the shell cannot be started: {error.strerror}") from error
    finally:
        os.close(writing)
    output.start()
    entry = processes.noted(child.pid, command, mark)
    in_time = False
    try:
        bench.started(entry)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await threads.submit(lambda: _exited(child))
                in_time = True
    finally:
        ended = threads.submit(lambda: _end(child, mark, output))
        try:
            left = (await asyncio.shield(ended)).value
        finally:
            threads.close()
        bench.ended(entry if in_time else msgspec.structs.replace(entry, stopped=True))
    said = _said(child.returncode, output, None if in_time else timeout_s, left if in_time else 0)
    return Ended(in_time and child.returncode == 0, said)


def _start(bench: Workbench, command: str, mark: str, writing: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*_shell(), command],
        cwd=bench.workspace.root,
        env={**processes.without_secrets(os.environ), **keys.environment(), processes.MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=writing,
        start_new_session=True,
    )


def _exited(child: subprocess.Popen[bytes]) -> None:
    """Return when it has ended.  Where that is possible it is not reaped, so that its pid stays the name of its group."""
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    else:
        child.wait()


def _end(child: subprocess.Popen[bytes], mark: str, output: _Output) -> int:
    """End what is left of the command, and hear it out; gives how many processes that were."""
    group = child.pid if sys.platform != "win32" and child.returncode is None else None
    count = processes.end_marked(mark, group=group)
    child.wait()
    output.finish()
    return count


def _shell() -> list[str]:
    """The shell and its options, empty when there is none."""
    if sys.platform == "win32":
        return [os.environ.get("COMSPEC", "cmd.exe"), "/d", "/s", "/c"]
    found = shutil.which("bash") or shutil.which("sh")
    return [found, "-c"] if found else []


def _said(code: int, output: _Output, timeout_s: float | None, left: int) -> str:
    how = f"exit code {code}" if code >= 0 else f"ended by signal {-code}"
    if timeout_s is not None:
        how = f"ended after {timeout_s:g} s, when its time was over"
    if left:
        how += f"; {left} process{'es' if left != 1 else ''} that it had left running were ended"
    return f"[{how}]\n{output.text()}"


class _Output:
    """Reads a pipe in a thread of its own, hands on what comes, and keeps the beginning and the end."""

    def __init__(self, fd: int, hand_on: Callable[[str], None]) -> None:
        self._fd = fd
        self._hand_on = hand_on
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._kept = 0
        self._total = 0
        self._thread = threading.Thread(target=self._read, name="ipyagent-shell-output", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Wait for the last words; somebody who holds the pipe for ever is not waited for."""
        self._thread.join(_LAST_WORDS_S)

    def text(self) -> str:
        tail = b"".join(self._tail)[-_TAIL:]
        left_out = self._total - len(self._head) - len(tail)
        middle = (
            f"\n[{left_out:,} of {self._total:,} bytes are left out here; write the output to a file and read parts of it]\n"
        )
        return self._head.decode("utf-8", "replace") + (middle if left_out else "") + tail.decode("utf-8", "replace")

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with os.fdopen(self._fd, "rb", buffering=0) as pipe:
            while data := pipe.read(_CHUNK):
                if self._total < _STREAMED:
                    self._hand_on(decoder.decode(data))
                self._keep(data)

    def _keep(self, data: bytes) -> None:
        self._total += len(data)
        room = _HEAD - len(self._head)
        self._head += data[:room]
        rest = data[room:] if room > 0 else data
        if rest:
            self._tail.append(rest)
            self._kept += len(rest)
            while self._kept - len(self._tail[0]) >= _TAIL:
                self._kept -= len(self._tail.popleft())
