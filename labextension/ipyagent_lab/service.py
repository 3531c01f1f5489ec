"""One store as a server sees it: the index, the watcher, the sweeper and the pages that listen, put together.

Everything on the event loop is quick; files are read in a few threads, and requests that wait for a holder have threads of
their own, so that five silent holders do not stop the list.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from ipyagent_lab.audience import Audience, Listener
from ipyagent_lab.herald import Channels, Herald, kind_of
from ipyagent_lab.index import LIMIT, Index
from ipyagent_lab.reading import Entry, read_entry, stamps
from ipyagent_lab.rescuer import Rescuer
from ipyagent_lab.shelf import Shelf
from ipyagent_lab.sweeper import Seen, Sweeper
from ipyagent_lab.watcher import Watcher
from ipyagent_sessions import config
from ipyagent_sessions.clock import Clock, SystemClock
from ipyagent_sessions.errors import LeaseHeld
from ipyagent_sessions.serving.finding import session_of
from ipyagent_sessions.serving.following import Followed
from ipyagent_sessions.serving.problems import problem_of
from ipyagent_sessions.serving.shapes import Shown
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store

T = TypeVar("T")
_FIRST: Final = 200
_BATCH: Final = 250
_READERS: Final = 4
_CONTROLS: Final = 8
_MOST_CONTROLS: Final = 64
_STORE_S: Final = 1.0
"""How often it is looked whether there is a store by now."""


class Service:
    """Made when the extension is loaded; it opens the store at the first need, and makes none before that.

    `notify` False polls instead of asking the system for changes; `channels` are where notices go beyond the browser.
    """

    def __init__(
        self,
        root: Path | None,
        log: logging.Logger,
        *,
        clock: Clock | None = None,
        notify: bool = True,
        channels: Channels | None = None,
    ) -> None:
        self.root = root or config.store_path()
        self.log = log
        self.clock = clock or SystemClock()
        self.index = Index()
        self.shelf = Shelf()
        self.audience = Audience(self.index, self._picture, lambda error: problem_of(error, self.root), self.clock, log)
        self.herald = Herald(self.session, self.read, self.audience.announce, channels or Channels(), self.clock, log)
        self.rescuer = Rescuer(self.session, self.read, self._not_rescued, self.clock, log)
        self.watcher: Watcher | None = None
        self.sweeper: Sweeper | None = None
        self._notify = notify
        self._store: Store | None = None
        self._opening = asyncio.Lock()
        self._readers = ThreadPoolExecutor(_READERS, "ipyagent-read")
        self._controls = ThreadPoolExecutor(_CONTROLS, "ipyagent-control")
        self._asked = 0
        self._first = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._touched: set[str] = set()
        self._reading: asyncio.Task[None] | None = None
        self._awaiting: asyncio.Task[None] | None = None

    # Life

    async def start(self) -> None:
        """Begin to watch: now if there is a store, else once a kernel or a request has made one."""
        if (self.root / "store.json").is_file():
            with contextlib.suppress(Exception):  # told to whoever asks
                await self.store()
        else:
            self._awaiting = asyncio.create_task(self._await_store())

    async def _await_store(self) -> None:
        """Tasks of a first notebook need a watchdog too, when no page of ours is open that would ask for the store."""
        while not (self.root / "store.json").is_file():
            await self.clock.sleep(_STORE_S)
        with contextlib.suppress(Exception):  # told to whoever asks
            await self.store()

    async def stop(self) -> None:
        self.audience.stop()
        self.herald.stop()
        self.rescuer.stop()
        ours = [*self._tasks, *(task for task in (self._reading, self._awaiting) if task is not None)]
        for task in ours:
            task.cancel()
        await asyncio.gather(*ours, return_exceptions=True)
        for pool in (self._readers, self._controls):
            pool.shutdown(wait=False, cancel_futures=True)

    async def store(self) -> Store:
        """The store, opened when this is first asked.  Raises NewerFormat, IpyagentError or OSError, each time anew."""
        async with self._opening:
            if self._store is None:
                store = await self.read(self._opened)
                self._begin(store)
                self._store = store
        return self._store

    def _opened(self) -> Store:
        """The store, made when there is none: its folder is what is watched."""
        store = Store(self.root)
        _ = store.id
        return store

    def _begin(self, store: Store) -> None:
        self.watcher = Watcher(
            store.sessions_folder, self.touch, self._hot, self.read, self.clock, self.log, notify=self._notify
        )
        self.sweeper = Sweeper(store, self.index, self.read, self._swept, self.clock, self.log)
        self._tasks = [asyncio.create_task(self._fill(store, self.watcher)), asyncio.create_task(self.sweeper.run())]

    # Work in threads

    async def read(self, work: Callable[[], T]) -> T:
        """What `work` returns, which reads files and does not wait for anybody."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def ask(self, work: Callable[[], T]) -> T:
        """What `work` returns, which may wait for the holder of a lease.  Raises LeaseHeld when too many wait already."""
        if self._asked >= _MOST_CONTROLS:
            raise LeaseHeld(f"{self._asked} requests wait for their holders already", hint="try again in a few seconds")
        self._asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._controls, work)
        finally:
            self._asked -= 1

    async def session(self, session_id: str) -> Session:
        """The session of that id, which exists.  Raises NotFound."""
        store = await self.store()
        return await self.read(lambda: session_of(store, session_id))

    async def followed(self, session_id: str) -> Followed:
        """The same, with its state kept at hand."""
        return self.shelf.of(await self.session(session_id))

    async def _picture(self, session_id: str) -> Shown:
        followed = await self.followed(session_id)
        return await self.read(followed.shown)

    async def first_page(self) -> None:
        """Return once the newest sessions are in the index."""
        await self.store()
        await self._first.wait()

    # The index

    async def _fill(self, store: Store, watcher: Watcher) -> None:
        """Read all summaries, the sessions that changed last first, then watch."""
        try:
            found = await self.read(lambda: stamps(store.sessions_folder))
            order = sorted(found, key=found.__getitem__, reverse=True)
            self.index.left_out = max(0, len(order) - LIMIT)
            watcher.known = found
            start = 0
            while start < min(len(order), LIMIT):
                batch = order[start : start + (_FIRST if start == 0 else _BATCH)]
                self._take(batch, await self._entries(store, batch), quiet=True)
                start += len(batch)
                self._first.set()
        except OSError as error:
            self.log.warning("ipyagent: the sessions in %s cannot be listed: %s", store.sessions_folder, error.strerror)
        finally:
            self._first.set()
            self.index.filling = False
            self.audience.list_changed(set())
        await watcher.run()

    async def _entries(self, store: Store, ids: list[str]) -> list[Entry | None]:
        return await self.read(lambda: [read_entry(store, i) for i in ids])

    def touch(self, ids: set[str]) -> None:
        """These sessions may have changed, come or gone: read them again and tell whom it concerns."""
        self._touched |= ids
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_touched())

    async def _read_touched(self) -> None:
        store = self._store
        while store is not None and self._touched:
            ids = sorted(self._touched)[:_BATCH]
            self._touched.difference_update(ids)
            self._take(ids, await self._entries(store, ids))
            self.audience.session_changed(ids)

    async def settled(self, session_id: str) -> None:
        """Read one session now, so that the next list shows what was just done to it."""
        store = await self.store()
        self._take([session_id], await self._entries(store, [session_id]))
        self.audience.session_changed([session_id])

    def _take(self, ids: list[str], entries: list[Entry | None], *, quiet: bool = False) -> None:
        """Take entries into the index.  `quiet` tells the pages only how many there are."""
        changed = set[str]()
        for session_id, entry in zip(ids, entries, strict=True):
            if entry is None:
                self.shelf.forget(session_id)
            else:
                known = self.index.get(session_id)
                if known is not None and known.row.problem and not entry.row.problem:
                    # what the sweeper found out stays until the session changes
                    entry.row.problem = known.row.problem if known.stamp == entry.stamp else ""
                if not quiet:
                    self.herald.heed(known, entry)
                    if kind_of(entry) == "lost" and (known is None or known.seq != entry.seq):
                        self.rescuer.lost(session_id)
            if self.index.drop(session_id) if entry is None else self.index.put(entry):
                changed.add(session_id)
        if changed:
            self.audience.list_changed(set() if quiet else changed)
            if self.watcher is not None:
                self.watcher.reheat()

    def subscribe(self, page: Listener, ids: set[str]) -> None:
        """`page` watches these sessions and no others."""
        self.audience.subscribe(page, ids)
        if self.watcher is not None:
            self.watcher.reheat()

    def leave(self, page: Listener) -> None:
        """The page is gone."""
        self.audience.leave(page)
        if self.watcher is not None:
            self.watcher.reheat()

    def _hot(self) -> list[str]:
        """The sessions to watch closely: what pages show, then the few that are about to run, then what runs."""
        return list(dict.fromkeys([*self.audience.subscribed(), *self.index.starting(), *self.index.running()]))

    def _swept(self, found: list[Seen]) -> None:
        """Take over what the sweeper saw."""
        for seen in found:
            entry = self.index.get(seen.session_id)
            if seen.attended or entry is None:
                self.touch({seen.session_id})
                continue
            self._amend(entry, seen.state, seen.silent_since, seen.problem)

    def _amend(self, entry: Entry, state: str | None, silent_since: float | None, problem: str) -> None:
        row = entry.row
        if self.index.amend(row.session_id, state or row.state, silent_since, problem or row.problem):
            self.audience.list_changed({row.session_id})
            self.audience.session_changed([row.session_id])

    def _not_rescued(self, session_id: str, why: str) -> None:
        """A lost task that should have gone on by itself does not."""
        entry = self.index.get(session_id)
        if entry is not None:
            self._amend(entry, None, entry.row.silent_since, why)
