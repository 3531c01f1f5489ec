"""What a person wants to be told while they look elsewhere: a task needs them, is done, has failed, or lost its process.

A notice belongs to one event of the log and has its id, `<session>:<seq>`: whatever happens to connections, pages and this
server, who keeps the ids tells each transition once.  Beyond the browser a notice goes to a command or a web address of the
server's configuration; no shell reads it, and what fails there is logged and disturbs nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from asyncio.subprocess import DEVNULL, PIPE
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipyagent_lab.reading import Entry
from ipyagent_lab.shapes import Notice
from ipyagent_sessions.clock import Clock
from ipyagent_sessions.errors import IpyagentError, NotFound
from ipyagent_sessions.events import Event, payload_of, seconds_of
from ipyagent_sessions.lifecycle import TaskState
from ipyagent_sessions.session import Session
from ipyagent_sessions.textsafe import plain
from ipyagent_sessions.views import formats

KINDS: Final = ("needs_you", "completed", "failed", "lost")
_EVENTS: Final = {
    "needs_you": "ApprovalRequested",
    "completed": "TaskCompleted",
    "failed": "TaskFailed",
    "lost": "TaskSuspended",
}
_PLACE: Final = re.compile(r"\{([a-z_]+)\}")
_LOOK_BACK: Final = 500
"""How many events before the newest the one that made the difference may lie."""
_KNOWN: Final = 2000
_MOST: Final = 20
_TRIES: Final = 3
_PAUSE_S: Final = 0.5
_PATIENCE_S: Final = 30.0


class Channels(Struct):
    """Where notices go beyond the browser.  `command` is a program with its arguments, in which the fields of a notice,
    {title} or {text}, are replaced; it gets the notice as JSON on its standard input.  `webhook` is an address that
    the same JSON is posted to.  `urls` are services in apprise's words (mail, chat, telephone), told title and text."""

    command: list[str] = []
    webhook: str = ""
    urls: list[str] = []
    kinds: tuple[str, ...] = KINDS


def kind_of(entry: Entry | None) -> str:
    """What there is to tell of a session as it stands, empty when nothing is."""
    if entry is None:
        return ""
    row = entry.row
    if entry.logged in (TaskState.COMPLETED, TaskState.FAILED):
        return entry.logged
    if entry.logged == TaskState.CANCELLED or not entry.logged:
        return ""
    if row.needs_you:
        return "needs_you"
    return "lost" if entry.logged == TaskState.SUSPENDED and row.reason == "worker_lost" else ""


class Herald:
    """`find` runs a blocking look-up in a thread, `session` opens one, `announce` hands a notice to the pages.

    Belongs to the event loop.
    """

    def __init__(
        self,
        session: Callable[[str], Awaitable[Session]],
        find: Callable[[Callable[[], Notice | None]], Awaitable[Notice | None]],
        announce: Callable[[Notice], None],
        channels: Channels,
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._session = session
        self._find = find
        self._announce = announce
        self._channels = channels
        self._clock = clock
        self._log = log
        self._since = clock.now()
        self._told: OrderedDict[str, None] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()

    def heed(self, known: Entry | None, fresh: Entry) -> None:
        """A session has changed from `known` to `fresh`."""
        kind = kind_of(fresh)
        if kind and (kind_of(known) != kind or known is None or known.seq != fresh.seq):
            self._begin(self._look(fresh, kind))

    async def settled(self) -> None:
        """Return once everything that is under way has been told."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _look(self, entry: Entry, kind: str) -> None:
        notice = await self._found(entry, kind)
        if notice is None or notice.id in self._told:
            return
        self._told[notice.id] = None
        while len(self._told) > _KNOWN:
            self._told.popitem(last=False)
        self._announce(notice)
        if notice.kind not in self._channels.kinds:
            return
        if len(self._tasks) > _MOST:
            self._log.warning("ipyagent: too many notices wait; %s is told to pages only", notice.id)
            return
        if self._channels.command:
            self._begin(self._run(self._channels.command, notice))
        if self._channels.webhook:
            self._begin(self._post(self._channels.webhook, notice))
        if self._channels.urls:
            self._begin(self._send(self._channels.urls, notice))

    async def _found(self, entry: Entry, kind: str) -> Notice | None:
        """The notice, None when it is no news.  Files may be on the move just then, so a failure is tried again."""
        for tries_left in reversed(range(_TRIES)):
            try:
                session = await self._session(entry.row.session_id)
                return await self._find(lambda session=session: notice_of(session, entry, kind, self._since))  # type: ignore[misc]  # mypy cannot infer the default
            except (IpyagentError, OSError) as error:
                if not tries_left:
                    self._log.warning("ipyagent: what happened to %s cannot be told: %s", entry.row.session_id, error)
                else:
                    await self._clock.sleep(_PAUSE_S)
        return None

    async def _run(self, command: list[str], notice: Notice) -> None:
        body = msgspec.json.encode(notice)
        try:
            process = await asyncio.create_subprocess_exec(
                *filled(command, notice), stdin=PIPE, stdout=DEVNULL, stderr=PIPE, start_new_session=os.name == "posix"
            )
        except OSError as error:
            self._log.warning("ipyagent: the command for notices, %s, does not start: %s", command[0], error.strerror)
            return
        try:
            _, said = await asyncio.wait_for(process.communicate(body), _PATIENCE_S)
        except TimeoutError:
            self._log.warning("ipyagent: the command for notices, %s, was ended after %g s", command[0], _PATIENCE_S)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return
        if process.returncode:
            told = plain(said.decode("utf-8", "replace"), 300)
            self._log.warning("ipyagent: the command for notices, %s, ended with %s: %s", command[0], process.returncode, told)

    async def _post(self, address: str, notice: Notice) -> None:
        from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

        request = HTTPRequest(
            address,
            "POST",
            {"Content-Type": "application/json"},
            msgspec.json.encode(notice),
            connect_timeout=10,
            request_timeout=_PATIENCE_S,
            follow_redirects=False,
        )
        try:
            await AsyncHTTPClient().fetch(request)
        except (HTTPClientError, OSError, ValueError) as error:
            self._log.warning("ipyagent: the webhook for notices did not take %s: %s", notice.id, plain(str(error), 200))

    async def _send(self, urls: list[str], notice: Notice) -> None:
        from apprise import Apprise

        services = Apprise()
        for url in urls:
            services.add(url)
        telling = services.async_notify(plain(notice.text, 1000), plain(notice.title, 120))
        try:
            sent = bool(await asyncio.wait_for(telling, _PATIENCE_S))
        except TimeoutError:
            sent = False
        if not sent:  # which one it was, and why, is in the library's own log; an address may hold a password
            self._log.warning("ipyagent: not every service of notify_urls took %s", notice.id)


def unusable(url: str) -> str:
    """Why notices cannot be sent to `url`, empty when they can.  Says nothing of the address: it may hold a password."""
    try:
        from apprise import Apprise
    except ImportError:
        return "the package apprise is missing"
    return "" if Apprise().add(url) else f"no service is known by {url.partition(':')[0][:20]}:"


def filled(command: list[str], notice: Notice) -> list[str]:
    """The command with what it is told.  Texts of models are one harmless line, and never look like an option."""
    values = {name: plain(str(getattr(notice, name) or ""), 300) for name in Notice.__struct_fields__}
    out = command[:1]
    for word in command[1:]:
        given = _PLACE.sub(lambda found: values.get(found[1], found[0]), word)
        out.append(f" {given}" if given.startswith("-") and not word.startswith("-") else given)
    return out


def notice_of(session: Session, entry: Entry, kind: str, since: float) -> Notice | None:
    """The notice of the newest event of that kind, None when it happened before `since` or in an ancestor.

    Raises NotFound when the log does not show the event that the summary told of.
    """
    found: Event | None = None
    for event in session.events(after=max(session.first - 1, entry.seq - _LOOK_BACK)):
        if event.event_type == _EVENTS[kind]:
            found = event
    if found is None and session.header.parent is None:
        raise NotFound(f"session {session.id} has no {_EVENTS[kind]} near event {entry.seq}")
    if found is None or seconds_of(found.timestamp) < since:
        return None
    row = entry.row
    title = plain(row.title or row.target or session.id, 120)
    return Notice(f"{session.id}:{found.seq}", kind, session.id, title, _text(found, entry), found.timestamp, row.notebook)


def _text(event: Event, entry: Entry) -> str:
    body, row = payload_of(event), entry.row
    of = f" of {row.total}" if row.total is not None else ""
    told = {
        "ApprovalRequested": f"needs you: {body.get('question', '')}",
        "TaskCompleted": f"done: {row.done}{of} activities" + (f", {formats.money(row.cost_usd)}" if row.cost_usd else ""),
        "TaskFailed": f"failed: {body.get('error_type', '')}: {body.get('error', '')}",
        "TaskSuspended": body.get("detail") or "its process is gone",
    }[event.event_type]
    return plain(told, 300)
