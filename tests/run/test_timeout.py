"""Timeouts, told truthfully: what was stopped, and what cannot be (R029, DESIGN 7)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.run.harness import PATIENCE, Engine, Gate, Witness, bodies, running

from ipyagent_sessions.errors import ActivityTimeout, ConfigError
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Retry, activity, workflow
from ipyagent_sessions.testing import wait_until


def test_an_async_activity_is_stopped_at_its_timeout(engine: Engine, gate: Gate) -> None:
    stopped: list[bool] = []

    async def slow() -> None:
        try:
            await gate.passing()
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            await ctx.run(slow, timeout=0.02)
        except ActivityTimeout as error:
            return f"{error.still_running} {error.error}"
        return ""

    handle = engine.start(flow)
    assert handle.result(10) == "False ran longer than 0.02 s and was stopped"
    assert stopped == [True]
    (failed,) = bodies(handle.session, "ActivityFailed")
    assert failed["timed_out"]
    assert not failed.get("still_running")


def test_an_async_function_behind_a_decorator_that_is_not_async_is_stopped_too(engine: Engine, gate: Gate) -> None:
    def decorated() -> Any:
        return gate.passing()

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            await ctx.run(decorated, timeout=0.05)
        except ActivityTimeout as error:
            return f"{error.still_running} {error.error}"
        return ""

    assert engine.start(flow).result(10) == "False ran longer than 0.05 s and was stopped"


def test_a_timeout_of_the_activitys_own_is_not_taken_for_ours(engine: Engine) -> None:
    async def impatient() -> None:
        raise TimeoutError("the server said so")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(impatient, timeout=60)

    session = engine.ended(engine.start(flow), "failed")
    (failed,) = bodies(session, "ActivityFailed")
    assert (failed["error_type"], failed["error"]) == ("TimeoutError", "the server said so")
    assert not failed.get("timed_out")


def test_an_async_activity_is_tried_again_after_a_timeout(engine: Engine, witness: Witness, gate: Gate) -> None:
    async def slow_once() -> str:
        witness("call")
        if witness.counts["call"] == 1:
            await gate.passing()
        return "done"

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        return str(await ctx.run(slow_once, timeout=0.02, retry=2))

    assert engine.start(flow).result(10) == "done"
    assert witness.counts["call"] == 2


def test_a_thread_that_cannot_be_stopped_is_named_as_still_running(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            await ctx.run(gate.blocking, timeout=0.02, name="slow")
        except ActivityTimeout as error:
            return f"{error.still_running} {error.error}"
        return ""

    handle = engine.start(flow)
    said = handle.result(10)
    assert said.startswith("True ran longer than 0.02 s; its thread cannot be stopped and is still running")
    assert 'isolate="process"' in said
    (failed,) = bodies(handle.session, "ActivityFailed")
    assert failed["still_running"]
    assert running(handle).stragglers == {"main/slow#1": "slow"}


def test_no_retry_begins_before_the_timed_out_thread_has_ended_and_its_late_value_is_used(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    def slow() -> str:
        witness("call")
        gate.blocking()
        return "late"

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        return str(await ctx.run(slow, timeout=0.02, retry=3))

    handle = engine.start(flow)
    session = handle.session
    wait_until(
        lambda: running(handle).state.seq and "waiting for its end" in str(bodies(session, "ActivityProgressed")),
        what="the timeout to be told",
    )
    assert witness.counts["call"] == 1
    gate.open()
    assert handle.result(10) == "late"
    assert witness.counts["call"] == 1
    (done,) = bodies(session, "ActivityCompleted")
    assert done["late"]


def test_a_late_failure_is_tried_again_after_its_end(engine: Engine, witness: Witness, gate: Gate) -> None:
    inside = [0]
    most = [0]

    def slow() -> str:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        witness("call")
        try:
            if witness.counts["call"] == 1:
                gate.blocking()
                raise ValueError("late")
            return "second"
        finally:
            inside[0] -= 1

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        return str(await ctx.run(slow, timeout=0.02, retry=Retry(2, initial_s=0, jitter_s=0)))

    handle = engine.start(flow)
    wait_until(lambda: bodies(handle.session, "ActivityProgressed"), what="the timeout to be told")
    gate.open()
    assert handle.result(10) == "second"
    assert most == [1]
    assert [b["error"] for b in bodies(handle.session, "ActivityRetried")] == ["late"]


def test_a_pause_waits_for_a_late_thread_as_for_every_open_activity(engine: Engine, gate: Gate) -> None:
    def slow() -> str:
        gate.blocking()
        return "late"

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        return str(await ctx.run(slow, timeout=0.02, retry=2))

    handle = engine.start(flow)
    wait_until(lambda: bodies(handle.session, "ActivityProgressed"), what="the timeout to be told")
    engine.ask(handle, "pause")
    gate.open()
    assert handle.result(10) == "late"


@pytest.mark.parametrize("after", ["abort", "timeout"])
def test_a_thread_left_behind_is_named_where_the_task_stops(engine: Engine, gate: Gate, after: str) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(gate.blocking, timeout=0.02 if after == "timeout" else None, retry=2, name="slow")

    handle = engine.start(flow)
    gate.reached()
    if after == "timeout":
        wait_until(lambda: bodies(handle.session, "ActivityProgressed"), what="the timeout to be told")
    engine.ask(handle, "pause")
    handle.ask("pause")
    session = engine.ended(handle, "interrupted")
    (told,) = bodies(session, "TaskInterrupted")
    assert told["still_running"] == ["main/slow#1"]
    assert told["aborted"] == ["main/slow#1"]


def test_a_recorded_timeout_is_raised_again_alike(engine: Engine, witness: Witness, gate: Gate) -> None:
    caught: list[ActivityTimeout] = []

    def slow() -> None:
        witness("slow")
        gate.blocking()

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        try:
            await ctx.run(slow, timeout=0.02)
        except ActivityTimeout as error:
            caught.append(error)
        await ctx.approve("on?")

    handle = engine.start(flow, headless=True)
    engine.ended(handle, "suspended")
    engine.ended(engine.resume(handle, flow, headless=True), "suspended")
    assert [(str(e), e.still_running) for e in caught] == [(str(caught[0]), True)] * 2
    assert witness.counts["slow"] == 1


@pytest.mark.parametrize(("written", "length"), [("60s", 60), ("500ms", 0.5), (2, 2), ("1.5 h", 5400), ("2d", 172800)])
def test_durations_are_written_as_people_write_them(written: Any, length: float) -> None:
    assert activity(timeout=written)(len).timeout_s == length


def test_a_duration_that_is_none_is_refused_where_it_is_declared() -> None:
    with pytest.raises(ConfigError, match="timeout of len: 'soon' is not a duration"):
        activity(timeout="soon")(len)


def test_a_stuck_thread_does_not_hold_up_the_end_of_the_process(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(gate.blocking, timeout=0.02)

    engine.ended(engine.start(flow), "failed")
    left = [t for t in threading.enumerate() if t.name.startswith("ipyagent-activity")]
    assert left
    assert all(t.daemon for t in left)


def test_a_thread_that_outlives_its_task_ends_with_its_call(engine: Engine, gate: Gate) -> None:
    before = set(threading.enumerate())

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(gate.blocking, timeout=0.02)

    def left() -> list[threading.Thread]:
        return [t for t in threading.enumerate() if t not in before and t.name.startswith("ipyagent-activity")]

    for _ in range(3):
        engine.ended(engine.start(flow), "failed")
    assert len(left()) == 3
    gate.open()
    wait_until(lambda: not left(), timeout=PATIENCE, what="the threads to end")
