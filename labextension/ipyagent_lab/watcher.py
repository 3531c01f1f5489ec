"""Which sessions have changed, cheaply with many of them.

Two layers.  All sessions: one look at the time of each folder (every atomic replacement in it changes that), every two
seconds, and less often where that would cost more than a fiftieth of a core or a quarter of the time (a slow network disk).
The *hot* ones (watched by a page, running, or just made) and the folder of all sessions: the operating system tells, through
`watchfiles`.  Watching all would use up the user's inotify watches, which other programs need too.

Where watching does not work (it cannot be set up, or a look finds a change in a hot session that was not told), the hot ones
are looked at five times a second instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from ipyagent_lab.reading import stamp_of, stamps
from ipyagent_sessions.clock import Clock
from ipyagent_sessions.place import is_id

LOOK_S: Final = 2.0
_CPU_SHARE: Final = 50
_WALL_SHARE: Final = 4
_POLL_S: Final = 0.2
_DEBOUNCE_MS: Final = 100
_STEP_MS: Final = 20
HOT: Final = 128
"""How many sessions are watched closely at most."""

Look = Callable[[Callable[[], dict[str, int]]], Awaitable[dict[str, int]]]


class Watcher:
    """Calls `changed` on the event loop with the ids of sessions that changed, came or went.

    `look` runs a blocking function in a thread; `hot` gives the ids to watch closely, the most important ones first.
    """

    def __init__(
        self,
        folder: Path,
        changed: Callable[[set[str]], None],
        hot: Callable[[], list[str]],
        look: Look,
        clock: Clock,
        log: logging.Logger,
        *,
        notify: bool = True,
    ) -> None:
        self.mode = "notify" if notify else "polling"
        self.known: dict[str, int] = {}
        self._folder = folder
        self._changed = changed
        self._hot = hot
        self._look = look
        self._clock = clock
        self._log = log
        self._told: set[str] = set()
        self._suspect: set[str] = set()
        self._again = asyncio.Event()
        self._hot_now: tuple[str, ...] = ()
        self._cost = 0.0, 0.0
        self._watches = 0
        self._watches_then = -1

    def reheat(self) -> None:
        """Which sessions are hot may have changed."""
        if tuple(self._hot()[:HOT]) != self._hot_now:
            self._again.set()

    def heated(self) -> None:
        """From now on the hot sessions are these."""
        self._hot_now = tuple(self._hot()[:HOT])
        self._watches += 1

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(self._look_at_all(), self._watch_hot())

    async def _look_at_all(self) -> None:
        while True:
            await self.look_now()
            took, used = self._cost
            await self._clock.sleep(max(LOOK_S, _WALL_SHARE * took, _CPU_SHARE * used))

    async def look_now(self) -> None:
        """Compare the times of all folders with those of the last look."""
        try:
            found = await self._look(self._stamps)
        except OSError as error:
            self._log.warning("ipyagent: the sessions in %s cannot be listed: %s", self._folder, error.strerror)
            return
        changed = {i for i, stamp in found.items() if self.known.get(i) != stamp} | (self.known.keys() - found.keys())
        self.known = found
        self._doubt(changed)
        if changed:
            self._changed(changed)

    def _stamps(self) -> dict[str, int]:
        """In a thread; what it cost counts there, not how long the loop was busy with other things."""
        wall, cpu = time.perf_counter(), time.thread_time()
        found = stamps(self._folder)
        self._cost = time.perf_counter() - wall, time.thread_time() - cpu
        return found

    def _doubt(self, changed: set[str]) -> None:
        """A change of a hot session that is still untold at the second look says that watching does not work here."""
        missed = self._suspect - self._told
        if missed and self.mode == "notify":
            self._log.warning("ipyagent: changes of %s were not told by the system, so files are polled", ", ".join(missed))
            self._to_polling()
        undisturbed = self._watches == self._watches_then  # since the last look the same sessions were hot
        self._suspect = (changed & set(self._hot_now)) - self._told if undisturbed else set()
        self._told, self._watches_then = set(), self._watches

    def _to_polling(self) -> None:
        self.mode = "polling"
        self._again.set()

    async def _watch_hot(self) -> None:
        while True:
            self._again.clear()
            self.heated()
            if self.mode == "polling":
                await self._poll()
                continue
            try:
                await self._notified(self._hot_now)
            except FileNotFoundError:
                await self._clock.sleep(_POLL_S)  # a hot session, or the store, was just deleted
            except (OSError, RuntimeError) as error:
                self._log.warning("ipyagent: files cannot be watched here (%s), so they are polled", error)
                self._to_polling()

    async def _notified(self, hot: tuple[str, ...]) -> None:
        """Watch until the hot sessions are others."""
        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]  # it names types of trio, which is not here

        paths = [self._folder, *(self._folder / i for i in hot if (self._folder / i).is_dir())]
        ended = asyncio.Event()
        stopper = asyncio.create_task(self._stop_when_others(ended))
        if hot:
            self._changed(set(hot))  # what happened between two watches
        try:
            async for changes in awatch(
                *paths,
                recursive=False,
                watch_filter=None,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                rust_timeout=1000,
                stop_event=ended,
            ):
                told = {i for _, path in changes if (i := self._id_of(path)) is not None}
                self._told |= told
                if told:
                    self._changed(told)
        finally:
            stopper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stopper

    async def _stop_when_others(self, ended: asyncio.Event) -> None:
        await self._again.wait()
        ended.set()

    def _id_of(self, path: str) -> str | None:
        """The session that a changed path belongs to; None for temporary files."""
        rest = os.path.relpath(path, self._folder).split(os.sep)
        return rest[0] if is_id(rest[0]) and not path.endswith(".tmp") else None

    async def _poll(self) -> None:
        """Look at the hot sessions until they are others."""
        hot, before = self._hot_now, dict[str, int]()
        if not hot:
            await self._again.wait()
        while not self._again.is_set():
            found = await self._look(lambda: {i: s for i in hot if (s := _tail_stamp(self._folder / i)) is not None})
            changed = {i for i in hot if found.get(i) != before.get(i)}
            before = found
            if changed:
                self._changed(changed)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._again.wait(), _POLL_S)


def _tail_stamp(folder: Path) -> int | None:
    """A number that changes with the folder and with its newest journal, which grows without changing the folder."""
    stamp = stamp_of(folder)
    if stamp is None:
        return None
    try:
        return stamp + sum(e.stat().st_size for e in os.scandir(folder) if e.name.startswith("journal-"))
    except OSError:
        return stamp
