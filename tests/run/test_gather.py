"""Running side by side: lazy, limited, in order, and whole after a crash (R023, R077)."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from tests.run.harness import Engine, Gate, Witness, answer, bodies, of_type

from ipyagent_sessions.errors import ActivityError
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import workflow
from ipyagent_sessions.testing import wait_until

MANY = 200


def counting_tasks(made: list[str]) -> None:
    """From inside a loop: count the asyncio tasks that are made from now on."""

    def factory(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        made.append(getattr(work, "__qualname__", str(work)))
        return asyncio.Task(work, loop=loop, **more)

    asyncio.get_running_loop().set_task_factory(factory)


@pytest.mark.parametrize("how", ["one by one", "gather"])
def test_recorded_results_resolve_without_a_task_for_each(engine: Engine, how: str) -> None:
    made: list[str] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        counting_tasks(made)
        calls = [ctx.run(abs, i, key=i) for i in range(MANY)]
        values = await ctx.gather(*calls, limit=8) if how == "gather" else [await c for c in calls]
        if len(made) <= 8:
            asyncio.get_running_loop().set_task_factory(None)
        await ctx.approve("on?")
        return int(sum(values))

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    answer(session, "a1")
    made.clear()
    assert engine.resume(handle, flow).result(10) == sum(range(MANY))
    assert len(made) <= (8 if how == "gather" else 0), made[:20]


def test_a_call_that_is_not_awaited_has_not_begun(engine: Engine, witness: Witness) -> None:
    seen: list[list[str]] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        call = ctx.run(witness, "f")
        await asyncio.sleep(0.01)
        seen.append(witness.order)
        await call

    engine.start(flow).result(10)
    assert seen == [[]]
    assert witness.order == ["f"]


@pytest.mark.parametrize("limit", [1, 3, 16])
def test_no_more_run_at_once_than_the_limit(engine: Engine, limit: int) -> None:
    lock = threading.Lock()
    now, most = [0], [0]

    async def step(i: int) -> int:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        for _ in range(5):
            await asyncio.sleep(0)
        with lock:
            now[0] -= 1
        return i

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*[ctx.run(step, i, key=i) for i in range(30)], limit=limit)

    assert engine.start(flow).result(10) == list(range(30))
    assert most[0] == limit


def test_sync_functions_run_in_threads_at_the_same_time(engine: Engine) -> None:
    together = threading.Barrier(4, timeout=10)

    def step(i: int) -> int:
        together.wait()
        return threading.get_ident()

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*[ctx.run(step, i, key=i) for i in range(4)])

    assert len(set(engine.start(flow).result(10))) == 4


def test_values_come_in_the_order_of_the_calls_not_of_their_ends(engine: Engine, witness: Witness) -> None:
    ends = [threading.Event() for _ in range(4)]

    def step(i: int) -> int:
        if i < 3:
            assert ends[i + 1].wait(10)
        witness(i)
        ends[i].set()
        return i

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*[ctx.run(step, i, key=i) for i in range(4)])

    assert engine.start(flow).result(10) == [0, 1, 2, 3]
    assert witness.order == ["3", "2", "1", "0"]


def test_a_limit_of_zero_is_refused_and_gather_of_nothing_is_empty(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context, limit: int) -> list[Any]:
        return await ctx.gather(limit=limit)

    engine.ended(engine.start(flow, 0), "suspended")
    assert engine.start(flow, 1).result(10) == []


def test_a_failure_begins_no_new_call_lets_open_ones_end_and_raises_the_first(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    late_failure = threading.Event()

    async def step(i: int) -> int:
        witness(i)
        if i == 0:
            await gate.passing()
            return 0
        if i == 1:
            while not late_failure.is_set():
                await asyncio.sleep(0.002)
            raise ValueError("the second to fail is the first in order")
        late_failure.set()
        raise KeyError("the first to fail")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.gather(*[ctx.run(step, i, key=i) for i in range(10)], limit=3)

    handle = engine.start(flow)
    gate.reached()
    assert not handle.wait(0.1)  # it waits for what is open
    gate.open()
    session = engine.ended(handle, "failed")
    assert sorted(witness.order) == ["0", "1", "2"]
    assert [b["key"] for b in bodies(session, "ActivityStarted")] == ["0", "1", "2"]
    assert handle.outcome is not None
    assert isinstance(handle.outcome.error, ActivityError)
    assert handle.outcome.error.error_type == "ValueError"
    assert session.state().business_state.results["main/step:0"].ok


def test_an_awaitable_that_cancels_itself_is_one_failure_among_others(engine: Engine, gate: Gate) -> None:
    async def gives_up() -> None:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            await ctx.gather(ctx.run(gate.passing), gives_up())
        except asyncio.CancelledError:
            return "cancelled itself"
        return ""

    handle = engine.start(flow)
    gate.reached()
    gate.open()
    assert handle.result(10) == "cancelled itself"
    assert len(of_type(handle.session, "ActivityCompleted")) == 1, "the other one was under way and ended"


def test_a_workflow_may_catch_the_failure_of_a_gather_and_go_on(engine: Engine, witness: Witness) -> None:
    def step(i: int) -> int:
        witness(i)
        if i == 0:
            raise ValueError(i)
        return i

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        async def branch() -> None:
            await ctx.run(step, 5, key=5)

        async with ctx.stage("one"):
            try:
                await ctx.gather(*[ctx.run(step, i, key=i) for i in range(4)], branch(), limit=1)
            except ActivityError:
                await ctx.run(step, 9)
        return "went on"

    assert engine.start(flow).result(10) == "went on"
    assert witness.order == ["0", "9"]


def test_a_crash_with_two_of_five_branches_done_runs_only_three_again_and_joins_once(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    async def branch(i: int) -> int:
        witness(i)
        if i > 1:
            await gate.passing()
        return i

    def join(values: list[int]) -> int:
        witness("join")
        return sum(values)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        values = await ctx.gather(*[ctx.run(branch, i, key=i) for i in range(5)])
        return int(await ctx.run(join, values))

    handle = engine.start(flow)
    gate.reached(by=3)
    opened = handle.session.state
    wait_until(lambda: len(opened().execution_state.active_activities) == 3, what="the starts to be seen")
    session = engine.crash(handle)
    assert sorted(session.state().execution_state.active_activities) == ["main/branch:2", "main/branch:3", "main/branch:4"]
    gate.open()
    assert engine.resume(handle, flow).result(10) == 10
    assert witness.counts == {"0": 1, "1": 1, "2": 2, "3": 2, "4": 2, "join": 1}


def test_gather_inside_gather_works_and_is_recalled(engine: Engine, witness: Witness) -> None:
    def leaf(i: int, j: int) -> int:
        witness(f"{i}{j}")
        return 10 * i + j

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[list[int]]:
        async def branch(i: int) -> list[int]:
            return await ctx.gather(*[ctx.run(leaf, i, j, key=(i, j)) for j in range(3)], limit=2)

        values = await ctx.gather(*[branch(i) for i in range(3)])
        await ctx.approve("on?")
        return values

    handle = engine.start(flow, headless=True)
    answer(engine.ended(handle, "suspended"), "a1")
    assert engine.resume(handle, flow).result(10) == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]
    assert all(n == 1 for n in witness.counts.values())


def test_hundreds_of_recorded_calls_take_no_noticeable_time(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        for i in range(500):
            await ctx.run(abs, i)
        begun = time.perf_counter()
        await ctx.approve("on?")
        return int(begun)

    handle = engine.start(flow, headless=True, durability="exit")
    session = engine.ended(handle, "suspended")
    assert len(of_type(session, "ActivityCompleted")) == 500
    begun = time.perf_counter()
    engine.ended(engine.resume(handle, flow, headless=True), "suspended")
    assert time.perf_counter() - begun < 2
