"""The socket: what a page is told, how often, and what it may ask."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import logging
from collections.abc import Awaitable, Callable, Sized
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tornado.websocket import WebSocketClientConnection

from ipyagent_lab import stream, watcher
from ipyagent_lab.audience import Audience
from ipyagent_lab.index import Index
from ipyagent_lab.pace import Outbox, Paced
from ipyagent_lab.service import Service
from ipyagent_lab.testing import LONG, Api, finished, fleet, until
from ipyagent_lab.watcher import Watcher
from ipyagent_sessions.clock import SystemClock
from ipyagent_sessions.serving.problems import problem_of
from ipyagent_sessions.serving.shapes import Shown
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, FakeClock

Connect = Callable[..., Awaitable[WebSocketClientConnection]]


class Socket:
    """A page's socket.  `seen` holds all that came."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self.connection = connection
        self.seen: list[dict[str, Any]] = []
        self.closed = False
        self._task = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        while (message := await self.connection.read_message()) is not None:
            self.seen.append(json.loads(message))
        self.closed = True

    async def want(self, **wanted: Any) -> None:
        await self.connection.write_message(json.dumps(wanted))

    async def told(self, fits: Callable[[dict[str, Any]], Any], what: str) -> dict[str, Any]:
        """The first message that fits."""
        found: dict[str, Any] = await until(lambda: next((m for m in self.seen if fits(m)), None), what)
        return found


@pytest.fixture
def connect(service: Service, jp_ws_fetch: Connect) -> Callable[[], Awaitable[Socket]]:
    async def opened() -> Socket:
        return Socket(await jp_ws_fetch("ipyagent", "api", "live"))

    return opened


Opened = Callable[[], Awaitable[Socket]]


def card_of(session: Session, **fields: Any) -> Callable[[dict[str, Any]], bool]:
    def fits(message: dict[str, Any]) -> bool:
        if message["type"] != "card" or message["shown"]["session_id"] != session.id:
            return False
        shown = message["shown"]["card"]
        return all(shown[name] == value for name, value in fields.items())

    return fits


async def test_a_page_is_greeted_and_shown_at_once_what_it_asks_for(
    real: Store, service: Service, connect: Opened, api: Api
) -> None:
    session = finished(real)
    await until(lambda: service.index.get(session.id), "it is in the index")
    page = await connect()
    await page.want(subscribe=[session.id], list=True)
    hello = await page.told(lambda m: m["type"] == "hello", "a greeting")
    assert hello["api"] == (await api.get("status"))["api"]
    first = await page.told(card_of(session), "the card")
    assert first["shown"]["card"] == (await api.get("sessions", session.id))["shown"]["card"]
    listed = await page.told(lambda m: m["type"] == "list", "the list")
    assert listed["changed"] == []
    await page.told(lambda m: m["type"] == "list" and m["counts"]["total"] == 1, "how many there are")


async def test_a_running_task_is_followed_to_its_end_at_most_ten_times_a_second(
    real: Store, connect: Opened, api: Api
) -> None:
    page = await connect()
    with Child(LONG, str(real.root)) as child:
        session = real.session(child.expect("session"))
        began = asyncio.get_running_loop().time()
        await page.want(subscribe=[session.id], list=True)
        await page.told(lambda m: card_of(session)(m) and m["shown"]["card"]["done"] >= 20, "progress")
        took = asyncio.get_running_loop().time() - began
        cards = [m for m in page.seen if card_of(session)(m)]
        assert 2 <= len(cards) <= 10 * took + 2
        assert [m["shown"]["card"]["seq"] for m in cards] == sorted(m["shown"]["card"]["seq"] for m in cards)
        assert cards[-1]["shown"]["holder"].startswith("user")
        await api.post("sessions", session.id, "control", action="cancel", task_id=f"{session.id}.1")
        await asyncio.to_thread(child.expect, "ended cancelled")
    await page.told(card_of(session, state="cancelled"), "its end")
    await page.told(lambda m: m["type"] == "list" and any(r["state"] == "cancelled" for r in m["changed"]), "the row")


async def test_two_pages_share_one_picture_and_each_sees_what_it_asked_for(
    real: Store, connect: Opened, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = finished(real, title="one"), finished(real, title="two")
    first, second = await connect(), await connect()
    await first.want(subscribe=[one.id, two.id])
    await first.told(card_of(two), "the second card")
    await second.want(subscribe=[two.id])
    await second.told(card_of(two), "the same card, known already")
    assert sorted(service.audience.subscribed()) == sorted([one.id, two.id])
    await first.want(subscribe=[])
    await until(lambda: service.audience.subscribed() == [two.id], "the first page has left")
    second.connection.close()
    await until(lambda: service.audience.subscribed() == [], "a closed page watches nothing")
    assert not any(card_of(one)(m) for m in second.seen)


async def test_a_session_that_cannot_be_shown_is_told_and_the_others_go_on(real: Store, connect: Opened) -> None:
    good, bad = finished(real), finished(real)
    bad.layout.header.write_text("{")
    page = await connect()
    await page.want(subscribe=["nosuchsession", bad.id, good.id])
    await page.told(card_of(good), "the good one")
    damaged = await page.told(lambda m: m["type"] == "problem" and m["session_id"] == bad.id, "the damage")
    assert damaged["problem"]["error"] == "DamageError"
    missing = await page.told(lambda m: m["type"] == "problem" and m["session_id"] == "nosuchsession", "the missing one")
    assert missing["problem"]["status"] == 404


@pytest.mark.parametrize(
    "message",
    [
        "",
        "[]",
        "{",
        '{"subscribe": "all"}',
        '{"subscribe": ["../../etc"]}',
        '{"execute": "x"}',
        '{"list": 1}',
        "\u0000",
        json.dumps({"subscribe": [f"aaaa{n}" for n in range(65)]}),
        json.dumps({"subscribe": ["a" * 3000]}),
    ],
)
async def test_what_is_not_understood_is_answered_and_the_socket_stays_open(
    message: str, real: Store, connect: Opened, service: Service
) -> None:
    page = await connect()
    await page.connection.write_message(message)
    problem = await page.told(lambda m: m["type"] == "problem", "a reason")
    assert (problem["session_id"], problem["problem"]["error"]) == (None, "UsageError")
    assert service.audience.subscribed() == []
    session = finished(real)
    await page.want(subscribe=[session.id])
    await page.told(card_of(session), "it goes on")


async def test_a_message_that_is_too_long_closes_the_socket(connect: Opened) -> None:
    page = await connect()
    await page.connection.write_message("x" * (stream.MAX_MESSAGE + 1))
    await until(lambda: page.closed, "it is closed")
    assert page.connection.close_code == 1009


async def test_a_list_of_many_sessions_is_not_pushed_row_by_row_when_it_is_first_read(real: Store, idle: Service) -> None:
    fleet(real, 600, events=10)
    pushed: list[bytes] = []

    class Page:
        def tell(self, key: str, message: Callable[[], bytes]) -> None:
            pushed.append(message())

    page = Page()
    await idle.store()
    idle.audience.follow_list(page, wanted=True)
    await until(lambda: not idle.index.filling, "all are read")
    await until(lambda: any(msgspec.json.decode(b)["counts"]["total"] == 600 for b in pushed), "the count is told")
    assert sum(len(msgspec.json.decode(b)["changed"]) for b in pushed) == 0


# Pace, without a server


def longer(items: Sized, count: int) -> Callable[[], bool]:
    return lambda: len(items) > count


async def test_many_pokes_are_one_piece_of_work_each_gap() -> None:
    clock = FakeClock(held=True)
    done: list[float] = []

    async def work() -> None:
        done.append(clock.monotonic())

    paced = Paced(work, 0.1, clock, logging.getLogger())
    for _ in range(1000):
        paced.poke()
    await until(lambda: done, "the first")
    for step in range(10):
        for _ in range(50):
            paced.poke()
        await until(longer(clock.slept, step), "it rests")
        clock.advance(0.1)
        await until(longer(done, step + 1), "the next")
    assert [round(b - a, 3) for a, b in itertools.pairwise(done)] == [0.1] * 10
    paced.stop()


async def test_work_that_fails_is_logged_and_done_again_when_poked(caplog: pytest.LogCaptureFixture) -> None:
    done: list[int] = []

    async def work() -> None:
        done.append(1)
        if len(done) == 1:
            raise ValueError("once")

    paced = Paced(work, 0.1, FakeClock(), logging.getLogger("pace"))
    paced.poke()
    await until(lambda: done, "it fails")
    await until(lambda: "once" in caplog.text, "it is logged")
    paced.poke()
    await until(lambda: len(done) == 2, "it is done again")
    paced.stop()


async def test_a_slow_page_gets_the_newest_of_each_and_nothing_piles_up() -> None:
    sent: list[bytes] = []
    go_on = asyncio.Event()

    async def send(body: bytes) -> None:
        sent.append(body)
        await go_on.wait()

    outbox = Outbox(send)
    outbox.put("a", lambda: b"a0")
    await until(lambda: sent, "the first is being sent")
    for n in range(10_000):
        outbox.put("a", functools.partial(b"a%d".__mod__, n))
        outbox.put("b", functools.partial(b"b%d".__mod__, n))
    assert outbox.waiting == 2
    go_on.set()
    await until(lambda: len(sent) == 3, "the rest")
    assert sent == [b"a0", b"a9999", b"b9999"]
    outbox.stop()


async def test_a_topic_makes_one_picture_for_all_its_pages() -> None:
    made: list[str] = []
    told: list[str] = []

    async def picture(session_id: str) -> Shown:
        made.append(session_id)
        raise OSError("no such thing")

    class Page:
        def tell(self, key: str, message: Callable[[], bytes]) -> None:
            told.append(key)

    audience = Audience(Index(), picture, problem_of, FakeClock(held=True), logging.getLogger())
    pages = [Page() for _ in range(8)]
    for page in pages:
        audience.subscribe(page, {"abcd"})
    await until(lambda: len(told) >= 8, "all were told")
    assert made == ["abcd"]
    audience.stop()


# The watcher


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("aaaa", "bbbb"):
        (tmp_path / "s" / name).mkdir(parents=True)
    return tmp_path / "s"


def watching(folder: Path, hot: list[str], *, notify: bool = True) -> tuple[Watcher, set[str]]:
    told: set[str] = set()

    async def look(work: Callable[[], dict[str, int]]) -> dict[str, int]:
        return await asyncio.to_thread(work)

    return Watcher(folder, told.update, lambda: hot, look, SystemClock(), logging.getLogger("watcher"), notify=notify), told


async def noticed(told: set[str], path: Path) -> None:
    """A change of `path` is told.  When watching begins hot ones are told twice at most: the third time it is the change."""

    def told_after_a_change() -> bool:
        with open(path, "a") as file:
            file.write("more\n")
        return path.parent.name in told

    for _ in range(3):
        told.clear()
        await until(told_after_a_change, "the change is told")


@pytest.mark.parametrize("notify", [True, False])
async def test_a_line_added_to_a_hot_journal_is_noticed_with_and_without_the_system_telling(
    folder: Path, notify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "LOOK_S", 3600.0)
    journal = folder / "aaaa" / "journal-1-1.jsonl"
    journal.write_text("one\n")
    watched, told = watching(folder, ["aaaa"], notify=notify)
    task = asyncio.ensure_future(watched.run())
    await noticed(told, journal)
    task.cancel()


async def test_a_new_session_is_noticed_at_once_and_a_change_of_a_cold_one_at_the_next_look(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, told = watching(folder, [])
    task = asyncio.ensure_future(watched.run())
    await until(lambda: told == {"aaaa", "bbbb"}, "the first look")
    told.clear()
    (folder / "bbbb" / "summary.json").write_text("{}")
    await until(lambda: told == {"bbbb"}, "the cold one")
    (folder / "cccc").mkdir()
    await until(lambda: "cccc" in told, "the new one")
    task.cancel()


async def test_where_watching_cannot_be_set_up_files_are_polled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import watchfiles

    def full(*_: object, **__: object) -> None:
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(watchfiles, "awatch", full)
    watched, told = watching(folder, ["aaaa"])
    task = asyncio.ensure_future(watched.run())
    await until(lambda: watched.mode == "polling", "it polls")
    assert "watch limit" in caplog.text
    await noticed(told, folder / "aaaa" / "journal-1-1.jsonl")
    task.cancel()


async def test_a_change_that_the_system_did_not_tell_of_ends_the_trust_in_it(folder: Path) -> None:
    watched, told = watching(folder, ["aaaa"])
    watched.heated()
    await watched.look_now()
    (folder / "aaaa" / "live.json").write_text("1")
    await watched.look_now()
    assert watched.mode == "notify", "it may be told in a moment"
    await watched.look_now()
    assert watched.mode == "polling"
    assert told == {"aaaa", "bbbb"}
