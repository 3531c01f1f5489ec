"""What tests of the server part, and of pages that talk to it, start from.  Nothing here is imported by the extension.

ids = fleet(store, 10_000, events=300)             # many sessions, quickly
with Child(LONG, str(store.root)) as child:        # a task in a process of its own
    session = store.session(child.expect("session"))
api = Api(jp_fetch)                                # calls routes as a page does
await until(lambda: ..., "what should become true")
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

import msgspec

from ipyagent_sessions import payloads as p
from ipyagent_sessions.events import Stamper, as_raw
from ipyagent_sessions.log.layout import FORMAT
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.log.live import Summary
from ipyagent_sessions.place import Header
from ipyagent_sessions.session import Session, summarise
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import activities
from ipyagent_sessions.testing.clock import START

LONG: Final = """
import asyncio, sys
from ipyagent_sessions import Store, activity, run_workflow, workflow

@activity(effect="none")
async def step(n):
    await asyncio.sleep(0.02)
    return n

@workflow
async def long(ctx):
    for n in range(1_000_000):
        await ctx.run(step, n, key=n)

handle = run_workflow(Store(sys.argv[1]), long)
print("session", handle.session.id)
handle.wait()
print("ended", handle.session.summary().state)
"""
"""A task that goes on until somebody stops it.  Prints `session <id>`, and `ended <state>`."""

ASKING: Final = """
import sys
from ipyagent_sessions import Store, run_workflow, workflow
from ipyagent_sessions.run.task import RunOptions

@workflow
async def tidy(ctx):
    answer = await ctx.approve("Delete the originals?", details=["a.csv", "b.csv"], expires=sys.argv[2] or None)
    return bool(answer)

handle = run_workflow(Store(sys.argv[1]), tidy, options=RunOptions(headless=True))
handle.wait()
print("session", handle.session.id)
"""
"""A task that asks a person and suspends; its process gives up the lease and ends.  Prints `session <id>`."""


def fleet(store: Store, count: int, *, events: int = 300, waiting: int = 0) -> list[str]:
    """Make `count` completed sessions of about `events` events each, a second apart, oldest first; returns their ids.

    The journals are links to those of the first one, so that ten thousand take seconds and no space.  The last `waiting` are
    suspended with a question.
    """
    first = finished(store, events)
    journals = [j.path for j in first.layout.journals()]
    known = first.summary()
    stamp, encode = Stamper(), msgspec.json.encode
    ids = [first.id]
    for n in range(1, count):
        session_id = f"f{n:07d}"
        folder = store.sessions_folder / session_id
        folder.mkdir()
        notebook, at = f"notebooks/{n % 20}.ipynb", stamp(START + n)
        (folder / "session.json").write_bytes(encode(Header(FORMAT, session_id, at, notebook)))
        asks = n >= count - waiting
        state, reason = ("suspended", "approval") if asks else ("completed", "")
        summary = Summary(
            session_id,
            known.seq,
            f"Session {n} of the fleet",
            notebook,
            at,
            at,
            f"{session_id}.1",
            known.target,
            "",
            state,
            reason,
            "",
            known.done,
            known.total,
            0,
            int(asks),
            1,
            n / 1000,
        )
        (folder / "summary.json").write_bytes(encode(summary))
        for journal in journals:
            os.link(journal, folder / journal.name)
        ids.append(session_id)
    return ids


def finished(store: Store, events: int = 20, title: str = "finished") -> Session:
    """A session whose task has run to its end, with about `events` events."""
    session = store.create(title=title, notebook="notebooks/0.ipynb")
    task_id = f"{session.id}.1"
    appender = session.append(this_process(by="tests"))
    appender.emit("TaskQueued", p.TaskQueued("lib:audit", title=title), task_id=task_id, actor="user")
    appender.emit("TaskStarted", p.TaskStarted(), task_id=task_id)
    activities(appender, max(1, (events - 4) // 2), task_id=task_id)
    appender.emit("TaskCompleted", p.TaskCompleted(as_raw("done")), task_id=task_id)
    appender.close()
    summarised(session)
    return session


def summarised(session: Session) -> None:
    """Renew `summary.json`, as a holder does at each transition."""
    session.layout.summary.write_bytes(msgspec.json.encode(summarise(session.id, session.state())))


class Fetch(Protocol):
    """The `jp_fetch` of pytest-jupyter, as far as it is used."""

    def __call__(self, *parts: str, **kwargs: Any) -> Awaitable[Any]: ...


class Api:
    """The routes, called with the token of the test server.  Bodies are plain data."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    async def get(self, *path: str, **params: Any) -> Any:
        answer = await self._fetch("ipyagent", "api", *path, params=params)
        return msgspec.json.decode(answer.body)

    async def post(self, *path: str, **body: Any) -> Any:
        answer = await self._fetch("ipyagent", "api", *path, method="POST", body=msgspec.json.encode(body))
        return cast(dict[str, Any], msgspec.json.decode(answer.body)) | {"status": answer.code}

    async def refused(self, answer: Awaitable[Any]) -> dict[str, Any]:
        """The problem that an answer has to be.  Raises AssertionError when it is none."""
        from tornado.httpclient import HTTPClientError

        response: Any = None
        try:
            found = await answer
        except HTTPClientError as error:
            response = error.response
        else:
            raise AssertionError(f"it was answered: {found}")
        problem: dict[str, Any] = msgspec.json.decode(response.body)
        assert set(problem) == {"error", "message", "hint", "status"}, problem
        assert problem["status"] == response.code, "the body repeats the status"
        return problem


async def until(condition: Callable[[], Any], what: str, within: float = 20.0) -> Any:
    """What `condition` (a function, or one that gives an awaitable) returns once that is true; the loop goes on meanwhile.

    Raises AssertionError with `what` after `within` seconds.
    """
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        await asyncio.sleep(0.02)
