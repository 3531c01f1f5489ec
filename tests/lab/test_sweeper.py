"""The watchdog: lost holders, expired approvals, forgotten requests; and what must not disturb it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jupyter_server.serverapp import ServerApp

from ipyagent_lab import service as serving
from ipyagent_lab import sweeper as sweeping
from ipyagent_lab.index import Index
from ipyagent_lab.reading import read_entry
from ipyagent_lab.service import Service
from ipyagent_lab.sweeper import Seen, Sweeper
from ipyagent_lab.testing import ASKING, LONG, Api, finished, fleet, summarised, until
from ipyagent_sessions import payloads as p
from ipyagent_sessions.clock import SystemClock
from ipyagent_sessions.events import Stamper
from ipyagent_sessions.log import inbox, lease
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.run import control
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, FakeClock


class Watchdog:
    """A sweeper over a store, with an index of what is in it now; `sweep` looks once."""

    def __init__(self, store: Store) -> None:
        self.index = Index()
        self.seen: list[Seen] = []
        self.clock = FakeClock()
        self.store = store
        self.sweeper = Sweeper(store, self.index, self._look, self.seen.extend, self.clock, logging.getLogger("watchdog"))

    async def _look(self, work: Callable[[], list[Seen]]) -> list[Seen]:
        return await asyncio.to_thread(work)

    async def sweep(self) -> list[Seen]:
        for session_id in self.store.session_ids():
            entry = read_entry(self.store, session_id)
            assert entry is not None
            self.index.put(entry)
        return await self.sweeper.sweep()


def started(store: Store, me: Holder, title: str = "held") -> Session:
    """A session whose log says that its task runs, without anybody who runs it."""
    session = store.create(title=title)
    appender = session.append(me)
    appender.emit("TaskQueued", p.TaskQueued("lib:work"), task_id=f"{session.id}.1", actor="user")
    appender.emit("TaskStarted", p.TaskStarted(), task_id=f"{session.id}.1")
    appender.close()
    summarised(session)
    return session


async def test_a_killed_holder_is_recorded_within_two_heartbeats(real: Store, service: Service, api: Api) -> None:
    with Child(LONG, str(real.root)) as child:
        session = real.session(child.expect("session"))
        await until(lambda: (e := service.index.get(session.id)) and e.row.state == "running", "it is seen running")
        await asyncio.to_thread(child.kill)
        killed = time.monotonic()
        await until(
            lambda: (e := service.index.get(session.id)) and e.row.state in ("lost", "suspended"), "it is not running any more"
        )
        assert time.monotonic() - killed < 2 * lease.HEARTBEAT
    row = await until(
        lambda: (e := service.index.get(session.id)) and e.row.state == "suspended" and e.row, "the loss is written down"
    )
    assert row.reason == "worker_lost"
    [lost] = [e for e in session.events() if e.event_type == "TaskSuspended"]
    assert lost.actor == "engine"
    shown = (await api.get("sessions", session.id))["shown"]["card"]
    assert (shown["state"], shown["reason"]) == ("suspended", "worker_lost")


async def test_a_holder_that_is_only_stopped_is_shown_silent_and_keeps_its_lease(real: Store, service: Service) -> None:
    with Child(LONG, str(real.root)) as child:
        session = real.session(child.expect("session"))
        await until(lambda: (e := service.index.get(session.id)) and e.row.state == "running", "it is seen running")
        assert (entry := service.index.get(session.id)) is not None
        assert entry.row.silent_since is None
        child.stop()
        silent = await until(lambda: (e := service.index.get(session.id)) and e.row.silent_since, "its silence is seen")
        assert abs(time.time() - silent) < 30
        assert (entry := service.index.get(session.id)) is not None
        assert entry.row.state == "running"
        child.wake()
        await until(lambda: (e := service.index.get(session.id)) and e.row.silent_since is None, "it is heard again")
        assert session.layout.epoch() == 2, "nobody took its lease"


async def test_an_approval_whose_time_is_over_is_denied_while_nobody_runs_the_task(real: Store, service: Service) -> None:
    with Child(ASKING, str(real.root), "1s") as child:
        session = real.session(child.expect("session"))

    def answer() -> str | None:
        [asked] = session.state().execution_state.approvals.values()
        return asked.answer

    assert await until(answer, "it expires") == "denied"
    [resolved] = [e for e in session.events() if e.event_type == "ApprovalResolved"]
    assert resolved.actor == "rule:expiry"
    await until(lambda: (e := service.index.get(session.id)) and e.row.needs_you == 0, "it needs nobody any more")


async def test_a_request_whose_asker_died_is_answered(real: Store, service: Service) -> None:
    with Child(ASKING, str(real.root), "") as child:
        session = real.session(child.expect("session"))
    inbox.put(session.layout, Control("c1", "cancel", "user:anna@cli", Stamper()(time.time()), f"{session.id}.1"), real.disk)
    await until(lambda: session.state().system_state.status == "cancelled", "it is cancelled")
    await until(lambda: not list(session.layout.inbox.iterdir()), "its file is removed once that is durable")


async def test_a_request_to_an_ended_session_is_answered_in_its_turn(store: Store) -> None:
    session = finished(store)
    watchdog = Watchdog(store)
    inbox.put(
        session.layout,
        Control("c1", "rename", "user:anna@cli", Stamper()(time.time()), None, [], {"title": "late"}),
        store.disk,
    )
    [seen] = await watchdog.sweep()
    assert seen.attended
    assert session.state().title == "late"


async def test_a_running_task_with_a_holder_is_left_alone(store: Store, me: Holder) -> None:
    session = started(store, me)
    appender = session.append(me)
    appender.emit("TaskResumed", p.TaskResumed(2), task_id=f"{session.id}.1")
    appender.barrier()
    summarised(session)
    epoch = session.layout.epoch()
    found = await Watchdog(store).sweep()
    assert [(s.state, s.attended) for s in found] == [("running", False)]
    assert session.layout.epoch() == epoch
    appender.close()


async def test_losing_a_race_for_the_lease_is_nothing_to_report(
    store: Store, me: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = started(store, me)
    watchdog = Watchdog(store)
    held = lease.acquire(session.layout, me, now=0.0)  # locked, and holder.json is not there yet
    assert await watchdog.sweep() == []
    assert watchdog.sweeper.resting() == []
    held.release()
    assert [s.attended for s in await watchdog.sweep()] == [True]


async def test_a_damaged_session_is_left_alone_until_it_changes_and_the_others_are_served(
    store: Store, me: Holder, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = started(store, me, "bad"), started(store, me, "good")
    journal = bad.layout.journals()[-1].path
    journal.write_bytes(b"\0" * 200 + b"\n" + journal.read_bytes()[-150:])
    watchdog = Watchdog(store)
    watchdog.index.put(entry) if (entry := read_entry(store, good.id)) else None
    with caplog.at_level(logging.WARNING, "watchdog"):
        await watchdog.sweep()
        assert good.state().system_state.status == "suspended"
        before = len(caplog.records)
        await watchdog.sweep()
    assert len(caplog.records) == before, "it is not tried and told again each second"


async def test_whatever_one_session_does_the_others_are_looked_at_and_the_loop_goes_on(
    store: Store, me: Holder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = started(store, me, "bad"), started(store, me, "good")
    real_attend = control.attend

    def attend(session: Session, *, by: str) -> object:
        if session.id == bad.id:
            raise ZeroDivisionError("nobody foresaw this")
        return real_attend(session, by=by)

    monkeypatch.setattr(control, "attend", attend)
    watchdog = Watchdog(store)
    with caplog.at_level(logging.WARNING, "watchdog"):
        found = {seen.session_id: seen for seen in await watchdog.sweep()}
    assert found[good.id].attended
    assert (found[bad.id].state, found[bad.id].problem) == ("lost", "ZeroDivisionError")
    assert "nobody foresaw this" in caplog.text, "the log has what happened"


async def test_a_sweep_that_fails_is_logged_and_followed_by_the_next(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    sweeps: list[int] = []

    async def look(_: Callable[[], list[Seen]]) -> list[Seen]:
        sweeps.append(1)
        raise OSError("gone")

    index = Index()
    entry = read_entry(store, finished(store).id)
    assert entry is not None
    index.put(entry)
    sweeper = Sweeper(store, index, look, lambda _: None, SystemClock(), logging.getLogger("watchdog"))
    task = asyncio.ensure_future(sweeper.run())
    with caplog.at_level(logging.ERROR, "watchdog"):
        await until(lambda: len(sweeps) >= 2, "it sweeps again", within=10)
    task.cancel()
    assert "a sweep failed" in caplog.text


async def test_ten_thousand_resting_sessions_cost_a_sweep_a_few_looks(
    store: Store, jp_serverapp: ServerApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(store, 300, events=10, waiting=30)
    looked: list[str] = []

    def has_requests(session: Session) -> bool:
        looked.append(session.id)
        return False

    monkeypatch.setattr(sweeping, "_has_requests", has_requests)
    watchdog = Watchdog(store)
    await watchdog.sweep()
    assert len(looked) == len(set(looked)) <= 30 + 20, "those that wait, and a few in turn"
    looked.clear()
    monkeypatch.setattr(sweeping, "BUDGET", 8)
    turns = set[str]()
    for _ in range(4):
        before = len(looked)
        await watchdog.sweeper.sweep()
        assert len(looked) - before <= 8 + 20
        turns |= set(looked)
    assert set(watchdog.index.waiting()) <= turns, "all get their turn"


async def test_a_store_that_a_kernel_makes_after_the_server_has_started_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_STORE_S", 0.01)
    root = tmp_path / "made later"
    service = serving.Service(root, logging.getLogger("late"), notify=False)
    await service.start()
    try:
        assert not root.exists(), "a server by itself makes no store"
        store = Store(root)
        with Child(LONG, str(root)) as child:
            session = store.session(child.expect("session"))
            await until(lambda: session.state().system_state.status == "running", "it runs")
            child.kill()
        await until(lambda: session.state().system_state.reason == "worker_lost", "the loss is written down")
    finally:
        await service.stop()
