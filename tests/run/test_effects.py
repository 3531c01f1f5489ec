"""When the log is on disk: the syncs each mode pays, and what happens while the disk refuses (R039-R044, R245, DESIGN 4)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from tests.run.harness import PATIENCE, Engine, Gate, Witness, bodies, of_type, running

from ipyagent_sessions.errors import PersistenceError
from ipyagent_sessions.log import journal
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FaultyDisk, wait_until

N = 30
SYNC = "after journal sync"
WINDOWS = 0.2


@pytest.mark.parametrize(
    ("mode", "effect", "each"),
    [
        ("sync", "none", 1),
        ("sync", "idempotent", 2),
        ("sync", "irreversible", 2),
        ("async", "none", 0),
        ("async", "irreversible", 2),
        ("exit", "none", 0),
        ("exit", "irreversible", 2),
    ],
)
def test_an_activity_costs_the_syncs_of_its_mode_and_no_more(
    engine: Engine, disk: FaultyDisk, mode: Any, effect: Any, each: int
) -> None:
    spent: list[float] = []

    @workflow
    async def flow(ctx: Context) -> None:
        before, begun = disk.passed[SYNC], time.monotonic()
        for i in range(N):
            await ctx.run(abs, i, effect=effect)
        spent.extend((disk.passed[SYNC] - before, time.monotonic() - begun))

    engine.start(flow, durability=mode).result(20)
    syncs, took = spent
    slack = 0 if mode == "exit" else 1 + took / WINDOWS  # the window's thread may make a start durable early
    assert each * N <= syncs <= each * N + slack


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
def test_in_every_mode_the_intent_and_all_before_it_are_on_disk_before_an_effect(engine: Engine, mode: Any) -> None:
    seen: list[tuple[int, str]] = []
    sessions: list[Session] = []

    def send() -> None:
        events = list(sessions[0].events())
        seen.append((sum(e.event_type == "ActivityCompleted" for e in events), events[-1].event_type))

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        sessions.append(engine.store.session(ctx.session_id))
        for i in range(5):
            await ctx.run(abs, i)
        await ctx.run(send, effect="irreversible")

    engine.start(flow, durability=mode).result(10)
    assert seen == [(5, "ActivityStarted")]


def test_in_mode_sync_each_result_is_on_disk_before_the_next_step_sees_it(engine: Engine) -> None:
    seen: list[int] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        session = engine.store.session(ctx.session_id)
        for i in range(5):
            await ctx.run(abs, i)
            seen.append(sum(e.event_type == "ActivityCompleted" for e in session.events()))

    engine.start(flow).result(10)
    assert seen == [1, 2, 3, 4, 5]


def test_in_mode_async_steps_do_not_wait_for_a_slow_disk(
    engine: Engine, disk: FaultyDisk, gate: Gate, witness: Witness
) -> None:
    """R044, without measuring time: the disk hangs in one sync, and 200 steps pass."""
    hang = threading.Event()

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        disk.do("before journal sync", gate.blocking)
        hang.set()
        for i in range(200):
            await ctx.run(witness, i)

    handle = engine.start(flow, durability="async")
    wait_until(lambda: len(witness.order) == 200, timeout=PATIENCE, what="the steps")
    gate.open()
    handle.result(10)


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
@pytest.mark.parametrize("effect", ["idempotent", "irreversible"])
@pytest.mark.parametrize("seam", ["before journal write", "before journal sync"])
def test_an_effect_does_not_happen_while_the_disk_refuses_and_nothing_is_lost(
    engine: Engine, disk: FaultyDisk, witness: Witness, mode: Any, effect: Any, seam: str
) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.run(witness, "before")
        if not disk.passed["test"]:
            disk.passed["test"] += 1
            disk.fail(seam, times=100_000)
        await ctx.run(witness, "effect", effect=effect)
        return "done"

    handle = engine.start(flow, durability=mode)
    with pytest.raises(PersistenceError, match="could not be written"):
        handle.result(PATIENCE)
    assert handle.outcome is not None
    assert (handle.outcome.state, handle.outcome.reason) == ("suspended", "persistence")
    assert "effect" not in witness.order
    disk.mend()
    session = handle.session
    # What was written and not synced is there as long as the machine stays up; what was not written is not.
    # The summary says no more than the log does.
    assert session.effective_state() == ("suspended" if seam == "before journal sync" else "lost")
    assert session.state().system_state.status == ("suspended" if seam == "before journal sync" else "running")
    assert engine.resume(handle, flow, headless=True).result(10) == "done"
    assert witness.counts["effect"] == 1
    assert witness.counts["before"] == (1 if mode == "sync" or seam == "before journal sync" else 2)
    assert [e.seq for e in session.events()] == list(range(1, session.last_seq() + 1))


def test_a_disk_that_refused_once_leaves_a_suspended_task_whose_effect_is_known_not_to_have_run(
    engine: Engine, disk: FaultyDisk, witness: Witness
) -> None:
    @workflow
    async def flow(ctx: Context) -> str:
        if not disk.passed["test"]:
            disk.passed["test"] += 1
            disk.fail("before journal sync")
        await ctx.run(witness, "effect")
        return "done"

    handle = engine.start(flow)
    session = engine.ended(handle, "suspended")
    assert session.state().system_state.reason == "persistence"
    assert bodies(session, "TaskSuspended")[0]["resumes_when"] == "room on the disk, then resume"
    assert witness.order == []
    assert engine.resume(handle, flow, headless=True).result(10) == "done"
    assert of_type(session, "ApprovalRequested") == []  # nobody is asked about a call that never was
    assert witness.order == ["effect"]
    assert [e.attempt for e in of_type(session, "ActivityStarted")] == [1, 1]


def test_effect_free_work_goes_on_while_the_disk_refuses_and_is_written_in_order_later(
    engine: Engine, disk: FaultyDisk, witness: Witness
) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        for i in range(20):
            if i == 5:
                disk.fail("before journal sync", times=100_000)
            if i == 15:
                disk.mend()
            await ctx.run(witness, i)
        return "done"

    handle = engine.start(flow)
    assert handle.result(PATIENCE) == "done"
    assert witness.order == [str(i) for i in range(20)]
    session = handle.session
    done = [e.activity_id for e in of_type(session, "ActivityCompleted")]
    assert done == [f"main/Witness#{i + 1}" for i in range(20)] or len(done) == 20
    told = [b["text"] for b in bodies(session, "AlarmRaised") if b["kind"] == "persistence"]
    assert len(told) == 2
    assert "could not be written" in told[0]
    assert "nothing was lost" in told[1]
    assert [e.seq for e in session.events()] == list(range(1, session.last_seq() + 1))


def test_the_backlog_is_bounded_and_then_the_task_suspends(
    engine: Engine, disk: FaultyDisk, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "BACKLOG_EVENTS", 40)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        if not disk.passed["test"]:
            disk.passed["test"] += 1
            disk.fail("before journal sync", times=100_000)
        for i in range(1000):
            await ctx.run(witness, i)
        return "done"

    handle = engine.start(flow)
    assert handle.wait(PATIENCE)
    assert handle.outcome is not None
    assert (handle.outcome.state, handle.outcome.reason) == ("suspended", "persistence")
    assert 15 <= len(witness.order) <= 25
    disk.mend()
    monkeypatch.undo()
    assert engine.resume(handle, flow).result(PATIENCE) == "done"


def sleeping(gate: Gate) -> Workflow:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(abs, 1)
        await ctx.run(gate.passing)

    return flow


def test_in_mode_async_a_refusing_disk_is_an_alarm_within_moments_and_so_is_its_end(
    engine: Engine, disk: FaultyDisk, gate: Gate
) -> None:
    """Nobody waits for the disk there, so somebody has to look: the documented bound of the loss no longer holds."""
    handle = engine.start(sleeping(gate), durability="async")
    run = running(handle)
    gate.reached()
    disk.fail("before journal sync", times=100_000)
    run.call(lambda: run.emit("Noted", {}, ignorable=True))
    wait_until(lambda: run.degraded, timeout=PATIENCE, what="the alarm")
    wait_until(
        lambda: (seen := handle.session.live()) is not None and seen.degraded, timeout=PATIENCE, what="the alarm to be shown"
    )
    disk.mend()
    wait_until(lambda: not run.degraded, timeout=PATIENCE, what="the end of the alarm")
    gate.open()
    handle.result(10)
    assert len([b for b in bodies(handle.session, "AlarmRaised") if b["kind"] == "persistence"]) == 2


def test_a_task_whose_start_cannot_be_written_does_not_start(engine: Engine, disk: FaultyDisk, witness: Witness) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(witness, "f")

    session = engine.store.create()
    disk.fail("before journal write", times=100_000)
    with pytest.raises(PersistenceError):
        _ = engine.start(flow, session=session)
    disk.mend()
    assert witness.order == []
    assert not session.held()
    engine.start(flow, session=session).result(10)


def test_a_task_that_ends_while_the_disk_refuses_says_what_did_not_get_there(
    engine: Engine, disk: FaultyDisk, witness: Witness
) -> None:
    def look(number: int) -> int:
        witness(f"look {number}")
        if number == 1 and witness.counts["look 1"] == 1:
            disk.fail("before journal write", times=1000)
        return number

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for number in range(3):
            await ctx.run(look, number, key=number)
        await ctx.run(witness, "effect", effect="idempotent")

    handle = engine.start(flow)
    assert handle.wait(PATIENCE)
    last = handle.session.last_seq()
    with pytest.raises(PersistenceError, match=f"events {last + 1} to \\d+ did not get there, and a resume does again"):
        handle.result()
    assert "effect" not in witness.order
    disk.mend()
    engine.resume(handle.session, flow).result(PATIENCE)
    assert witness.order == ["look 0", "look 1", "look 2", "look 1", "look 2", "effect"]
