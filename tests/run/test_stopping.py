"""Pause, abort, cancel: what a person asks for is no failure, and ended tasks never change (R163, R166-R168, R171, [54])."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.run.harness import PATIENCE, Engine, Gate, Witness, bodies, of_type, running, until_asked

from ipyagent_sessions.errors import ControlRefused, NotSerialisable, TaskNotCompleted, UsageError
from ipyagent_sessions.run import control
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Retry, Workflow, workflow
from ipyagent_sessions.testing import wait_until


def batch(witness: Witness, gate: Gate, *, sync: bool = False) -> Workflow:
    async def step(i: int) -> int:
        witness(i)
        await gate.passing()
        return i

    def step_sync(i: int) -> int:
        witness(i)
        gate.blocking()
        return i

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*[ctx.run(step_sync if sync else step, i, key=i, name="step") for i in range(6)], limit=3)

    return flow


@pytest.mark.parametrize("sync", [False, True])
def test_a_pause_waits_for_open_activities_begins_no_other_and_loses_nothing(
    engine: Engine, witness: Witness, gate: Gate, sync: bool
) -> None:
    flow = batch(witness, gate, sync=sync)
    handle = engine.start(flow)
    gate.reached(by=3)
    engine.ask(handle, "pause")
    assert not handle.wait(0.05)
    seen = handle.session.live
    wait_until(lambda: (now := seen()) is not None and len(now.now) == 3, timeout=PATIENCE, what="waiting for 3 to be shown")
    assert running(handle).state.system_state.pausing
    gate.open()
    session = engine.ended(handle, "interrupted")
    (told,) = bodies(session, "TaskInterrupted")
    assert sorted(told["drained"]) == ["main/step:0", "main/step:1", "main/step:2"]
    assert not told.get("aborted")
    assert of_type(session, "TaskInterrupted")[0].actor == "user:anna"
    assert of_type(session, "TaskFailed", "ActivityFailed") == []
    with pytest.raises(TaskNotCompleted, match="is interrupted"):
        handle.result(1)
    assert engine.resume(handle, flow).result(10) == list(range(6))
    assert witness.counts == {str(i): 1 for i in range(6)}


def test_a_second_press_aborts_what_is_open(engine: Engine, witness: Witness, gate: Gate) -> None:
    flow = batch(witness, gate)
    handle = engine.start(flow)
    gate.reached(by=3)
    engine.ask(handle, "pause")
    handle.ask("pause", "user:anna")
    session = engine.ended(handle, "interrupted")
    (told,) = bodies(session, "TaskInterrupted")
    assert sorted(told["aborted"]) == ["main/step:0", "main/step:1", "main/step:2"]
    assert session.state().system_state.error == ""
    gate.open()
    assert engine.resume(handle, flow).result(10) == list(range(6))
    assert witness.counts == {"0": 2, "1": 2, "2": 2, "3": 1, "4": 1, "5": 1}


def test_an_instruction_given_with_the_resume_is_recorded(engine: Engine, witness: Witness, gate: Gate) -> None:
    flow = batch(witness, gate)
    handle = engine.start(flow)
    gate.reached(by=3)
    engine.ask(handle, "pause")
    gate.open()
    engine.ended(handle, "interrupted")
    handle = engine.resume(handle, flow, say="be careful\ud800")
    handle.result(10)
    (told,) = bodies(handle.session, "TaskResumed")
    assert (told["instruction"], told["cause"], told["attempt"]) == ("be careful\ufffd", "paused", 2)


@pytest.mark.parametrize("what", ["async", "thread", "sleep", "approval", "loop", "back-off"])
def test_a_cancel_stops_within_five_seconds_whatever_it_waits_for(engine: Engine, gate: Gate, what: str) -> None:
    def broken() -> None:
        raise OSError

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        if what == "async":
            await ctx.run(gate.passing)
        elif what == "thread":
            await ctx.run(gate.blocking)
        elif what == "sleep":
            await ctx.sleep("1d")
        elif what == "approval":
            await ctx.approve("on?")
        elif what == "loop":
            while True:
                await asyncio.sleep(0.01)
        else:
            await ctx.run(broken, retry=Retry(3, initial_s=1000))

    engine.store.clock.held = True  # type: ignore[attr-defined]  # it is the fake one
    handle = engine.start(flow)
    if what in ("async", "thread"):
        gate.reached()
    elif what == "approval":
        until_asked(handle.session)
    else:
        wait_until(lambda: of_type(handle.session, "TaskStarted"), what="the start")
    begun = time.monotonic()
    handle.ask("cancel", "user:anna", reason="enough")
    session = engine.ended(handle, "cancelled")
    assert time.monotonic() - begun < 5
    (told,) = bodies(session, "TaskCancelled")
    assert told["reason"] == "enough"
    assert told.get("still_running", []) == (["main/blocking#1"] if what == "thread" else [])


def test_a_body_cleans_up_and_cannot_swallow_the_stop(engine: Engine, witness: Witness, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for i in range(5):
            try:
                await ctx.run(gate.passing, key=i)
            except Exception:  # noqa: BLE001  # what a user writes
                witness("swallowed")
            finally:
                witness("cleaned up")

    handle = engine.start(flow)
    gate.reached()
    handle.ask("cancel", "user:anna")
    engine.ended(handle, "cancelled")
    assert witness.order == ["cleaned up"]


def test_a_body_that_swallows_even_cancellation_is_stopped_at_its_next_call(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        try:
            await ctx.run(gate.passing)
        except BaseException:  # noqa: BLE001  # what a user must not write
            witness("swallowed")
        await ctx.run(witness, "went on")

    handle = engine.start(flow)
    gate.reached()
    handle.ask("cancel", "user:anna")
    engine.ended(handle, "cancelled")
    assert witness.order == ["swallowed"]


def test_a_second_pause_does_not_undo_an_accepted_cancel(engine: Engine, gate: Gate) -> None:
    """The first stop is a soft one, so that both requests are waiting when the cancel comes."""
    stubborn = Gate()

    async def slow_to_stop() -> None:
        try:
            await gate.passing()
        except asyncio.CancelledError:
            await stubborn.passing()
            raise

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(slow_to_stop)

    handle = engine.start(flow)
    gate.reached()
    engine.ask(handle, "cancel")
    stubborn.reached()
    handle.ask("pause", "user:bert")
    handle.ask("pause", "user:bert")
    wait_until(lambda: len(of_type(handle.session, "ControlRequested")) == 3, timeout=PATIENCE, what="the pauses to be logged")
    stubborn.open()
    engine.ended(handle, "cancelled")


def test_an_ended_task_never_changes(engine: Engine, witness: Witness, gate: Gate) -> None:
    gate.open()
    flow = batch(witness, gate)
    handle = engine.start(flow)
    handle.result(10)
    session = handle.session
    last = session.state().system_state
    for action in ("pause", "cancel", "checkpoint", "resume"):
        with pytest.raises(ControlRefused, match=r"completed since .*; an ended task never changes"):
            control.request(session, action, actor="user:anna")
    with pytest.raises(ControlRefused, match="ended tasks never change"):
        _ = engine.resume(handle, flow)
    assert session.state().system_state == last
    assert not session.held()


def test_a_cancelled_task_is_not_resumed_but_may_be_forked_before_it(engine: Engine, witness: Witness, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.run(witness, "first")
        await ctx.run(gate.passing)
        return "done"

    handle = engine.start(flow)
    gate.reached()
    handle.ask("cancel", "user:anna")
    session = engine.ended(handle, "cancelled")
    with pytest.raises(ControlRefused, match="is cancelled since"):
        _ = engine.resume(handle, flow)
    gate.open()
    first = of_type(session, "ActivityCompleted")[0]
    child = session.fork(first.seq)
    assert engine.resume(child, flow).result(10) == "done"
    assert witness.order == ["first"]


def test_files_are_kept_and_listed_however_it_ends(engine: Engine, tmp_path: Path, gate: Gate) -> None:
    path = tmp_path / "out.txt"
    path.write_text("x")

    @workflow(default_effect="none")
    async def flow(ctx: Context, ends: str) -> None:
        ctx.wrote(path)
        if ends == "cancel":
            await ctx.run(gate.passing)
        if ends == "fail":
            raise ValueError

    engine.start(flow, "").result(10)
    engine.ended(engine.start(flow, "fail"), "failed")
    handle = engine.start(flow, "cancel")
    gate.reached()
    handle.ask("cancel", "user:anna")
    engine.ended(handle, "cancelled")
    told = [b for h in engine.handles for t in ("TaskCompleted", "TaskFailed", "TaskCancelled") for b in bodies(h.session, t)]
    assert [b["artefacts"] for b in told] == [{"kept": [str(path)]}] * 3
    assert path.exists()


def test_a_pause_that_comes_when_nothing_is_left_to_do_does_not_unmake_the_result(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    async def last() -> str:
        await gate.passing()
        return "done"

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        return str(await ctx.run(last))

    handle = engine.start(flow)
    gate.reached()
    engine.ask(handle, "pause")
    gate.open()
    assert handle.result(10) == "done"


def test_a_pause_inside_a_task_group_is_a_pause(engine: Engine, witness: Witness, gate: Gate) -> None:
    async def step(i: int) -> int:
        witness(i)
        await gate.passing()
        return i

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        async def two(i: int) -> int:
            return int(await ctx.run(step, i, key=i)) + int(await ctx.run(step, i + 10, key=i + 10))

        async with asyncio.TaskGroup() as group:
            made = [group.create_task(two(i)) for i in range(3)]
        return sum(t.result() for t in made)

    handle = engine.start(flow)
    gate.reached(by=3)
    engine.ask(handle, "pause")
    gate.open()
    engine.ended(handle, "interrupted")
    assert engine.resume(handle, flow).result(10) == 36


@pytest.mark.parametrize("error", [UsageError("no"), NotSerialisable("no")])
def test_a_mistake_of_the_definition_inside_a_task_group_suspends_as_anywhere(engine: Engine, error: Exception) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async def wrong() -> None:
            raise error

        async with asyncio.TaskGroup() as group:
            group.create_task(wrong())

    session = engine.ended(engine.start(flow), "suspended")
    assert session.state().system_state.reason == "definition"


class Odd(BaseException):
    """Neither an Exception nor one of Python's own."""


@pytest.mark.parametrize("grouped", [False, True])
def test_whatever_else_a_body_raises_is_a_failure_of_the_task(engine: Engine, grouped: bool) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        raise BaseExceptionGroup("several", [Odd("x")]) if grouped else Odd("x")

    handle = engine.start(flow)
    session = engine.ended(handle, "failed")
    (failed,) = bodies(session, "TaskFailed")
    assert failed["error_type"] == "RuntimeError"
    assert ("the workflow raised BaseExceptionGroup" if grouped else "the workflow raised Odd: x") in failed["error"]
