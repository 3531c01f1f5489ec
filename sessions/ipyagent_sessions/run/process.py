"""Activities in a process of their own: work that can be killed, and whose memory is its own.

The child is a fresh interpreter in a session of its own (a Ctrl-C in the notebook does not reach it).  It ends by itself
when its standard input closes, so it does not outlive this process, however that one ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.run import keys
from ipyagent_sessions.run.child import end_tree


class ChildDied(IpyagentError):
    """The child process ended without an answer; `returncode` is negative for a signal."""

    def __init__(self, name: str, returncode: int) -> None:
        how = f"signal {signal_name(-returncode)}" if returncode < 0 else f"exit code {returncode}"
        super().__init__(f"the process of {name} ended with {how} and left no result")
        self.returncode = returncode


def signal_name(number: int) -> str:
    """As SIGKILL; the number where there is no name."""
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        return str(number)


async def call(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value of `function(*args, **kwargs)` in a child process.  Cancelling kills the child and everything it started.

    Raises what the function raised, or ChildDied.
    """
    import cloudpickle

    body = cloudpickle.dumps((function, args, kwargs))
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ipyagent_sessions.run.child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, **keys.environment(), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            child.stdin.write(struct.pack(">Q", len(body)) + body)
            await child.stdin.drain()
        head = await child.stdout.readexactly(8)
        answer = await child.stdout.readexactly(struct.unpack(">Q", head)[0])
    except asyncio.IncompleteReadError:
        raise ChildDied(name, await child.wait()) from None
    finally:
        await _end(child)
    ok, value = cloudpickle.loads(answer)
    if not ok:
        raise value
    return value


async def _end(child: asyncio.subprocess.Process) -> None:
    """Kill the child's whole session if it still runs, and reap it."""
    if child.stdin is not None:
        child.stdin.close()
    if child.returncode is None:
        end_tree(child.pid)  # not in a thread: a second cancel must not come between
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                child.kill()
            else:
                os.killpg(child.pid, signal.SIGKILL)
    await asyncio.shield(child.wait())
