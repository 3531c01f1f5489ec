"""Notices: each transition once, to pages and beyond the browser; and what fails there disturbs nobody."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lab.test_live import Socket
from tornado.websocket import WebSocketClientConnection

from ipyagent_lab import herald as heralding
from ipyagent_lab.herald import Channels, Herald, filled, kind_of
from ipyagent_lab.reading import read_entry
from ipyagent_lab.service import Service
from ipyagent_lab.shapes import Notice
from ipyagent_lab.testing import ASKING, Api, finished, summarised, until
from ipyagent_sessions import payloads as p
from ipyagent_sessions.clock import SystemClock
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.run import control
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child

HOSTILE = "-x $(touch hacked) `id`\n\x1b[31m\u202e{title}"


class Told:
    """A herald over a store, and what it announced."""

    def __init__(self, store: Store, channels: Channels | None = None, since: float = 0.0) -> None:
        self.store = store
        self.notices: list[Notice] = []
        clock = SystemClock()
        self.herald = Herald(
            self._session, asyncio.to_thread, self.notices.append, channels or Channels(), clock, logging.getLogger("herald")
        )
        self.herald._since = since  # pyright: ignore[reportPrivateUsage]  # as if it had been there all the time

    async def _session(self, session_id: str) -> Session:
        return self.store.session(session_id)

    async def heed(self, session: Session, *, before: Any = None) -> list[Notice]:
        """Let it see the session as it is now; returns everything announced so far."""
        entry = read_entry(self.store, session.id)
        assert entry is not None
        self.herald.heed(before, entry)
        await self.herald.settled()
        return self.notices


def ended(store: Store, how: str, title: str = "clean up") -> Session:
    session = store.create(title=title)
    task = f"{session.id}.1"
    log = session.append(this_process(by="tests"))
    log.emit("TaskQueued", p.TaskQueued("lib:tidy"), task_id=task, actor="user")
    log.emit("TaskStarted", p.TaskStarted(), task_id=task)
    if how == "needs_you":
        log.emit("ApprovalRequested", p.ApprovalRequested("a1", "Delete it?"), task_id=task)
        log.emit("TaskSuspended", p.TaskSuspended("approval", "Delete it?"), task_id=task)
    elif how == "failed":
        log.emit("TaskFailed", p.TaskFailed("ValueError", "no such file"), task_id=task)
    elif how == "lost":
        log.emit("TaskSuspended", p.TaskSuspended("worker_lost", "stopped at activity 3"), task_id=task)
    elif how == "cancelled":
        log.emit("TaskCancelled", p.TaskCancelled(), task_id=task, actor="user")
    log.close()
    summarised(session)
    return session


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("needs_you", "needs you: Delete it?"),
        ("failed", "failed: ValueError: no such file"),
        ("lost", "stopped at activity 3"),
    ],
)
async def test_what_a_person_wants_to_know_is_told_once(real: Store, how: str, text: str) -> None:
    session = ended(real, how)
    told = Told(real)
    [notice] = await told.heed(session)
    assert (notice.kind, notice.text, notice.title) == (how, text, "clean up")
    seq = int(notice.id.removeprefix(f"{session.id}:"))
    assert session.event(seq).event_type == heralding._EVENTS[how]  # pyright: ignore[reportPrivateUsage]
    assert len(await told.heed(session)) == 1, "the same event again"
    assert len(await told.heed(session, before=read_entry(real, session.id))) == 1, "nothing has changed"


async def test_a_completed_task_is_told_and_a_cancelled_one_is_not(real: Store) -> None:
    told = Told(real)
    [notice] = await told.heed(finished(real))
    assert (notice.kind, notice.text) == ("completed", "done: 8 activities")
    assert len(await told.heed(ended(real, "cancelled"))) == 1
    assert kind_of(None) == ""


async def test_the_next_question_is_told_too(real: Store) -> None:
    session = ended(real, "needs_you")
    told = Told(real)
    await told.heed(session)
    known = read_entry(real, session.id)
    log = session.append(this_process(by="tests"))
    log.emit("ApprovalResolved", p.ApprovalResolved("a1", "approved"), task_id=f"{session.id}.1")
    log.emit("ApprovalRequested", p.ApprovalRequested("a2", "And this?"), task_id=f"{session.id}.1")
    log.close()
    summarised(session)
    assert [n.text for n in await told.heed(session, before=known)] == ["needs you: Delete it?", "needs you: And this?"]


async def test_what_happened_before_the_server_began_or_in_a_parent_is_no_news(real: Store) -> None:
    session = finished(real)
    assert await Told(real, since=SystemClock().now() + 60).heed(session) == []
    child = session.fork()
    assert await Told(real).heed(child) == [], "the end is the parent's"


async def test_a_command_is_run_without_a_shell_and_gets_the_notice(real: Store, tmp_path: Path) -> None:
    out = tmp_path / "told.json"
    code = "import json,sys; json.dump([sys.argv[2:], json.load(sys.stdin)], open(sys.argv[1], 'w'))"
    command = [sys.executable, "-c", code, str(out), "{title}", "kind={kind}"]
    session = ended(real, "failed", HOSTILE)
    await Told(real, Channels(command)).heed(session)
    (title, kind), body = json.loads(out.read_text())
    assert kind == "kind=failed"
    assert title.startswith(" -x $(touch hacked)"), "no option, no shell"
    assert not {"\n", "\x1b", "\u202e"} & set(title)
    assert body["session_id"] == session.id


async def test_a_kind_that_is_not_asked_for_goes_to_pages_only(real: Store, tmp_path: Path) -> None:
    out = tmp_path / "told"
    command = [sys.executable, "-c", f"open({str(out)!r}, 'w')"]
    assert len(await Told(real, Channels(command, kinds=("needs_you",))).heed(ended(real, "failed"))) == 1
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["/no/such/program"], "does not start"),
        ([sys.executable, "-c", "import sys; sys.exit('it broke')"], "it broke"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "was ended after"),
    ],
)
async def test_a_command_that_fails_or_hangs_is_logged_and_ended(
    real: Store, command: list[str], said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heralding, "_PATIENCE_S", 2.0)
    assert len(await Told(real, Channels(command)).heed(ended(real, "failed"))) == 1
    assert said in caplog.text


async def test_a_webhook_gets_the_notice_and_one_that_refuses_is_logged(real: Store, caplog: pytest.LogCaptureFixture) -> None:
    bodies: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(next(x for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")).split(b":")[1])
        bodies.append(await reader.readexactly(length))
        writer.write(b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n" if b"refuse" in head else b"HTTP/1.1 204 ok\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    session = ended(real, "failed")
    await Told(real, Channels(webhook=f"http://127.0.0.1:{port}/hook")).heed(session)
    assert json.loads(bodies[0])["session_id"] == session.id
    assert "did not take" not in caplog.text
    await Told(real, Channels(webhook=f"http://127.0.0.1:{port}/refuse")).heed(session)
    assert "did not take" in caplog.text
    await Told(real, Channels(urls=[f"json://127.0.0.1:{port}/service"])).heed(session)
    sent = json.loads(bodies[-1])
    assert sent["title"] == "clean up"
    assert "no such file" in sent["message"]
    assert "notify_urls" not in caplog.text
    await Told(real, Channels(urls=[f"json://127.0.0.1:{port}/refuse"])).heed(session)
    assert "not every service of notify_urls took" in caplog.text
    server.close()


@pytest.mark.parametrize(
    ("url", "why"), [("json://127.0.0.1/x", ""), ("nothing://secret@host", "no service is known by nothing:")]
)
def test_a_service_that_does_not_exist_is_told_without_its_address(url: str, why: str) -> None:
    assert heralding.unusable(url) == why


async def test_pages_that_follow_the_list_are_told_and_those_that_come_later_too(
    real: Store, service: Service, api: Api, jp_ws_fetch: Callable[..., Awaitable[WebSocketClientConnection]]
) -> None:
    async def page() -> Socket:
        opened = Socket(await jp_ws_fetch("ipyagent", "api", "live"))
        await opened.want(list=True)
        return opened

    first = await page()
    await service.store()
    with Child(ASKING, str(real.root), "") as child:
        session_id = child.expect("session")
    told = await first.told(lambda m: m["type"] == "notices", "a notice")
    assert [(n["kind"], n["session_id"]) for n in told["notices"]] == [("needs_you", session_id)]
    later = await page()
    again = await later.told(lambda m: m["type"] == "notices", "the notice again")
    assert again["notices"] == told["notices"]
    await service.settled(session_id)
    await service.herald.settled()
    assert sum(m["type"] == "notices" for m in first.seen) == 1
    assert await until(lambda: service.index.get(session_id), "the session in the list")
    await asyncio.to_thread(control.request, real.session(session_id), "cancel", actor="user:anna")
    await service.settled(session_id)
    answered = await page()
    nothing = await answered.told(lambda m: m["type"] == "notices", "what still holds")
    assert nothing["notices"] == [], "nobody is needed any more"


def test_placeholders_are_filled_and_other_braces_stay() -> None:
    notice = Notice("a:1", "failed", "a", "T", "{title}", "now", None)
    assert filled(["say", "{kind}: {title} {x}", "{notebook}", "--urgent"], notice) == ["say", "failed: T {x}", "", "--urgent"]
