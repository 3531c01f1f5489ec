"""Carries out what `serving.rescue` says is due: waits, looks again, and starts the process that goes on with a lost task.

That process holds the task's lease, is watched by a supervisor of its own, and outlives this server: so it is none of
asyncio's, which kills its processes when the loop goes, and has none on the loop that Jupyter Server runs on Windows.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from typing import IO, Any, Final

from ipyagent_sessions.clock import Clock
from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.serving.rescue import Rescue, due
from ipyagent_sessions.session import Session

_LOOK_S: Final = 0.5
"""Seconds between two looks whether a process has ended."""


class Rescuer:
    """`find` runs a blocking look-up in a thread, `session` opens one, `told` is called with an id and why nothing more is
    tried.  Belongs to the event loop."""

    def __init__(
        self,
        session: Callable[[str], Awaitable[Session]],
        find: Callable[[Callable[[], Rescue | None]], Awaitable[Rescue | None]],
        told: Callable[[str, str], None],
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._session = session
        self._find = find
        self._told = told
        self._clock = clock
        self._log = log
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def lost(self, session_id: str) -> None:
        """The task of this session was just recorded as lost."""
        if session_id not in self._tasks:
            task = self._tasks[session_id] = asyncio.create_task(self._rescue(session_id))
            task.add_done_callback(lambda _: self._tasks.pop(session_id, None))

    async def settled(self) -> None:
        """Return once everything that is under way has ended, the processes too."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def stop(self) -> None:
        """Begin nothing more.  Processes that were started go on."""
        for task in self._tasks.values():
            task.cancel()

    async def _rescue(self, session_id: str) -> None:
        try:
            session = await self._session(session_id)
            rescue = await self._find(lambda: due(session))
            if rescue is not None and rescue.command:
                await self._clock.sleep(rescue.wait_s)
                if await self._find(lambda: due(session)) != rescue:
                    return  # somebody else saw to it
                self._log.info("ipyagent: %s goes on by itself (%d of %d)", session_id, rescue.died, rescue.tries)
                await self._go_on(session_id, rescue)
            elif rescue is not None:
                self._told(session_id, rescue.why)
        except (IpyagentError, OSError) as error:
            self._log.warning("ipyagent: %s cannot go on by itself: %s", session_id, error)
            self._told(session_id, f"it could not go on by itself: {error}")

    async def _go_on(self, session_id: str, rescue: Rescue) -> None:
        """Run the process to its end, and tell why when it did not complete the task."""
        with tempfile.TemporaryFile() as said:
            process = _started(rescue, said)
            while process.poll() is None:
                await self._clock.sleep(_LOOK_S)
            if process.returncode:
                self._told(session_id, f"it went on by itself and did not complete: {_last_line(said)}")


def _started(rescue: Rescue, said: IO[Any]) -> subprocess.Popen[bytes]:
    """The process, which no signal of the server's terminal reaches.  Raises OSError."""
    return subprocess.Popen(
        rescue.command,
        cwd=rescue.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=said,
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),  # the same on Windows
    )


def _last_line(said: IO[Any]) -> str:
    """What a command said last, without the name of the program."""
    said.seek(0)
    lines = [line.strip() for line in said.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("ipyagent: ") if lines else "it said nothing"
