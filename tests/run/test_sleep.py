"""Durable sleep: by the wall clock, and after a restart only what is left (R076)."""

from __future__ import annotations

import pytest
from tests.run.harness import Engine, Witness, bodies, of_type

from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import workflow
from ipyagent_sessions.testing import FakeClock, wait_until


@workflow(default_effect="none")
async def one_hour(ctx: Context) -> str:
    await ctx.sleep("1h")
    return "awake"


def test_it_sleeps_as_long_as_it_says(engine: Engine, clock: FakeClock) -> None:
    clock.held = True
    handle = engine.start(one_hour)
    wait_until(lambda: clock.slept, what="the sleep to begin")
    assert clock.slept == [3600]
    clock.advance(3599)
    assert not handle.wait(0.05)
    clock.advance(1)
    assert handle.result(10) == "awake"


def test_after_a_crash_it_waits_only_for_the_rest_and_fires_once(engine: Engine, clock: FakeClock) -> None:
    clock.held = True
    handle = engine.start(one_hour)
    wait_until(lambda: clock.slept, what="the sleep to begin")
    engine.crash(handle)
    clock.advance(3000)  # the notebook was closed for a while
    again = engine.resume(handle, one_hour)
    wait_until(lambda: len(clock.slept) == 2, what="the sleep to go on")
    assert clock.slept[1] == 600
    clock.advance(600)
    assert again.result(10) == "awake"
    assert len(of_type(handle.session, "ActivityStarted")) == 1
    assert len(of_type(handle.session, "ActivityCompleted")) == 1


def test_a_sleep_that_ended_while_nothing_ran_ends_at_once(engine: Engine, clock: FakeClock) -> None:
    clock.held = True
    handle = engine.start(one_hour)
    wait_until(lambda: clock.slept, what="the sleep to begin")
    engine.ask(handle, "pause")
    engine.ended(handle, "interrupted")
    clock.advance(10_000)
    assert engine.resume(handle, one_hour).result(10) == "awake"
    assert len(clock.slept) == 1


def test_a_clock_set_back_is_slept_out(engine: Engine, clock: FakeClock) -> None:
    """The end of a sleep is a point of wall time: a clock set back makes it longer, never shorter."""
    clock.held = True
    handle = engine.start(one_hour)
    wait_until(lambda: clock.slept, what="the sleep to begin")
    clock.set_back(100)
    clock.advance(3600)
    wait_until(lambda: len(clock.slept) == 2, what="the rest")
    assert clock.slept[1] == pytest.approx(100)
    clock.advance(100)
    assert handle.result(10) == "awake"


def test_the_wait_is_durable_and_told(engine: Engine, clock: FakeClock) -> None:
    clock.held = True
    handle = engine.start(one_hour)
    wait_until(lambda: clock.slept, what="the sleep to begin")
    (active,) = handle.session.state().execution_state.active_activities.values()
    assert (active.kind, active.until) == ("sleep", "2026-01-01T01:00:00.000Z")


def test_sleeps_side_by_side_need_keys_and_pass_together(engine: Engine, clock: FakeClock, witness: Witness) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.gather(*[ctx.sleep(60, key=i) for i in range(3)])

    clock.held = True
    handle = engine.start(flow)
    wait_until(lambda: len(clock.slept) == 3, what="three sleeps")
    clock.advance(60)
    handle.result(10)
    assert [b["name"] for b in bodies(handle.session, "ActivityCompleted")] == ["sleep"] * 3
