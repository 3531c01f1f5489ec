"""A completed activity is never executed again, and its result is what it was (DESIGN 7, R071, R073, R153, R156)."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pydantic
import pytest
from tests.run.harness import Engine, Gate, Witness, answer, bodies, of_type, until_asked

from ipyagent_sessions import codec
from ipyagent_sessions.errors import ActivityError, NotSerialisable, ResultLost, TaskNotCompleted
from ipyagent_sessions.folding import INLINE_RESULT
from ipyagent_sessions.log.blobs import THRESHOLD
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.run.beginning import queue, recorded_arguments
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, activity, workflow
from ipyagent_sessions.run.launch import result_of
from ipyagent_sessions.run.task import RunOptions


@dataclasses.dataclass
class Finding:
    path: Path
    lines: tuple[int, int]
    at: dt.datetime


class Colour(enum.Enum):
    RED = 1


class Model(pydantic.BaseModel):
    n: int
    text: str = "x"


VALUES: dict[str, Any] = {
    "none": None,
    "text": "a\u2028b\ud800\0",
    "dataclass": Finding(Path("a/b"), (1, 2), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    "tuple": (1, (2, "x"), [3]),
    "set": {1, 2},
    "bytes": b"\x00\xff",
    "int keys": {1: "a", (2, 3): "b"},
    "enum": Colour.RED,
    "nan": float("inf"),
    "pydantic": Model(n=3),
    "numpy": np.arange(12, dtype="int16").reshape(3, 4),
    "numpy scalar": np.float32(1.5),
    "pandas": pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=["r", "s"]),
    "polars": pl.DataFrame({"a": [1, 2], "when": [dt.date(2026, 1, 1), None]}),
}


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, pd.DataFrame):
        pd.testing.assert_frame_equal(a, b)
        return True
    if isinstance(a, pl.DataFrame):
        return bool(a.equals(b)) and a.schema == b.schema
    return bool(a == b)


@pytest.mark.parametrize("kind", VALUES)
def test_a_recorded_result_has_after_a_crash_the_value_and_the_type_it_had(
    engine: Engine, witness: Witness, gate: Gate, kind: str
) -> None:
    seen: list[Any] = []

    def make() -> Any:
        witness("make")
        return VALUES[kind]

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Any:
        value = await ctx.run(make)
        seen.append(value)
        await ctx.run(gate.passing, name="wait")
        return value

    handle = engine.start(flow)
    gate.reached()
    engine.crash(handle)
    gate.open()
    result = engine.resume(handle, flow).result(10)
    assert witness.counts["make"] == 1
    assert len(seen) == 2
    assert same(seen[0], VALUES[kind])
    assert same(seen[1], VALUES[kind])
    assert same(result, VALUES[kind])
    assert same(result_of(handle.session), VALUES[kind])


@pytest.mark.parametrize("size", [0, INLINE_RESULT - 2, INLINE_RESULT - 1, THRESHOLD - 2, THRESHOLD - 1, 200_000])
def test_large_results_live_by_reference_and_come_back_whole(engine: Engine, witness: Witness, size: int) -> None:
    def make() -> str:
        witness("make")
        return "x" * size

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        value = str(await ctx.run(make))
        await ctx.approve("on?")
        return value

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    stored = session.state().business_state.results["main/make#1"]
    assert stored.by_reference == (size + 2 > INLINE_RESULT)
    assert any(session.layout.blobs.glob("*")) or size < THRESHOLD
    assert bool(bodies(session, "ActivityCompleted")[0].get("result_blob")) == (size + 2 > THRESHOLD)
    answer(session, "a1")
    assert engine.resume(handle, flow).result(10) == "x" * size
    assert witness.counts["make"] == 1


def chain(witness: Witness, gate: Gate, hold_at: int, length: int = 5) -> Workflow:
    async def step(i: int) -> int:
        witness(i)
        if i == hold_at:
            await gate.passing()
        return i * i

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[int]:
        return [await ctx.run(step, i) for i in range(length)]

    return flow


@pytest.mark.parametrize("hold_at", [0, 2, 4])
def test_after_a_crash_only_what_had_no_result_runs(engine: Engine, witness: Witness, gate: Gate, hold_at: int) -> None:
    flow = chain(witness, gate, hold_at)
    handle = engine.start(flow)
    gate.reached()
    engine.crash(handle)
    gate.open()
    assert engine.resume(handle, flow).result(10) == [0, 1, 4, 9, 16]
    assert witness.counts == {str(i): 2 if i == hold_at else 1 for i in range(5)}


def test_after_a_pause_nothing_runs_again(engine: Engine, witness: Witness, gate: Gate) -> None:
    flow = chain(witness, gate, 2)
    handle = engine.start(flow)
    gate.reached()
    engine.ask(handle, "pause")
    gate.open()
    engine.ended(handle, "interrupted")
    assert engine.resume(handle, flow).result(10) == [0, 1, 4, 9, 16]
    assert witness.order == ["0", "1", "2", "3", "4"]


def test_a_completed_step_says_its_name_result_and_attempt(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        return int(await ctx.run(len, "abc", name="count"))

    session = engine.ended(engine.start(flow), "completed")
    (event,) = of_type(session, "ActivityCompleted")
    body = session.payload(event)
    assert (body["name"], body["result"], event.attempt, event.activity_id) == ("count", 3, 1, "main/count#1")
    assert event.execution_time_ms is not None
    assert event.cpu_s is not None


def test_a_recorded_failure_is_raised_again_alike_and_its_function_not_called(engine: Engine, witness: Witness) -> None:
    caught: list[ActivityError] = []

    def broken(x: int) -> None:
        witness("broken")
        raise KeyError("no such thing: é\u2028")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            await ctx.run(broken, 1)
        except ActivityError as error:
            caught.append(error)
        await ctx.approve("on?")
        return "went on"

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    answer(session, "a1")
    assert engine.resume(handle, flow).result(10) == "went on"
    first, second = caught
    assert type(first) is type(second) is ActivityError
    assert (first.name, first.error_type, first.error, str(first)) == (
        second.name,
        second.error_type,
        second.error,
        str(second),
    )
    assert first.error_type == "KeyError"
    assert "no such thing: é" in str(first)
    assert isinstance(first.__cause__, KeyError)
    assert witness.counts["broken"] == 1
    assert "Traceback" in bodies(session, "ActivityFailed")[0]["traceback"]


def test_an_uncaught_failure_is_durable_and_raised_once_more_by_the_handle(engine: Engine) -> None:
    """R154: state failed and the error durable, then the error raised."""

    def broken() -> None:
        raise ValueError("bad input")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(broken)

    handle = engine.start(flow)
    session = engine.ended(handle, "failed")
    system = session.state().system_state
    assert (system.error_type, "bad input" in system.error) == ("ValueError", True)
    with pytest.raises(TaskNotCompleted, match="failed: broken failed: ValueError: bad input") as raised:
        handle.result(1)
    assert isinstance(raised.value.__cause__, ActivityError)


@pytest.mark.parametrize("effect", ["irreversible", "idempotent"])
def test_a_result_lost_after_an_effect_is_raised_and_never_executed_again(
    engine: Engine, witness: Witness, effect: Any
) -> None:
    caught: list[ResultLost] = []

    def send() -> Any:
        witness("send")
        return threading.Lock()

    @workflow
    async def flow(ctx: Context) -> str:
        try:
            await ctx.run(send, effect=effect)
        except ResultLost as error:
            caught.append(error)
        await ctx.approve("on?")
        return "went on"

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    (logged,) = bodies(session, "ActivityCompleted")
    assert "no durable form" in logged["result_lost"]
    answer(session, "a1")
    assert engine.resume(handle, flow).result(10) == "went on"
    assert [e.name for e in caught] == ["send", "send"]
    assert all("will not run again" in e.hint for e in caught)
    assert witness.counts["send"] == 1


def test_an_effect_free_result_that_does_not_serialise_is_a_failure(engine: Engine) -> None:
    def make() -> Any:
        return {"open": [threading.Lock()]}

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(make)

    handle = engine.start(flow)
    session = engine.ended(handle, "failed")
    (failed,) = bodies(session, "ActivityFailed")
    assert failed["error_type"] == "NotSerialisable"
    assert "value['open'][0] is of type _thread.lock" in failed["error"]


def test_a_task_result_that_does_not_serialise_is_given_here_and_lost_later(engine: Engine) -> None:
    lock = threading.Lock()

    @workflow
    async def flow(ctx: Context) -> Any:
        return lock

    handle = engine.start(flow)
    assert handle.result(10) is lock
    with pytest.raises(ResultLost, match="no durable form"):
        result_of(handle.session)


class Odd:
    def __init__(self, x: int) -> None:
        self.x = x


def test_pickle_only_by_opt_in(engine: Engine) -> None:
    pytest.importorskip("cloudpickle")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> int:
        odd = await ctx.run(Odd, 3)
        await ctx.approve("on?")
        return int(odd.x)

    engine.ended(engine.start(flow, headless=True), "failed")
    handle = engine.start(flow, headless=True, pickle=True)
    session = engine.ended(handle, "suspended")
    answer(session, "a1")
    assert engine.resume(handle, flow).result(10) == 3
    with pytest.raises(NotSerialisable, match="was pickled"):
        codec.loads(session.state().business_state.results["main/Odd#1"].result)


@pytest.mark.parametrize("opted", ["task", "activity"])
def test_the_opt_in_to_pickle_is_recorded_and_holds_after_a_resume_and_in_a_fork(engine: Engine, opted: str) -> None:
    pytest.importorskip("cloudpickle")
    task = opted == "task"
    make: Any = Odd if task else activity(pickle=True)(Odd)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Any:
        await ctx.run(make, 3, key=1)
        await ctx.approve("on?")
        odd = await ctx.run(make, 4, key=2)
        return odd if task else odd.x

    session = engine.ended(engine.start(flow, headless=True, pickle=task), "suspended")
    assert session.state().system_state.pickle is task
    fork = session.fork()
    for place in (session, fork):
        answer(place, "a1")
        handle = engine.resume(place, flow)
        handle.result(10)
        assert (result_of(place).x if task else result_of(place)) == 4


def test_a_pickled_value_is_not_loaded_where_nobody_opted_in(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a log that came from somebody else."""
    pytest.importorskip("cloudpickle")

    @workflow(default_effect="none")
    async def flow(ctx: Context, *args: Any) -> Any:
        odd = await ctx.run(Odd, 3)
        await ctx.approve("on?")
        return odd

    dumps = codec.dumps
    with monkeypatch.context() as patched:
        patched.setattr(codec, "dumps", lambda value, **_: dumps(value, pickle=True))
        waits = engine.ended(engine.start(flow, headless=True), "suspended")
        waits_too = engine.ended(engine.start(flow, headless=True), "suspended")
        answer(waits_too, "a1")
        completed = engine.ended(engine.resume(waits_too, flow, pickle=True), "completed")
    handle = engine.resume(waits, flow, headless=True)
    engine.ended(handle, "suspended")
    assert waits.state().system_state.reason == "definition"
    assert handle.outcome is not None
    assert "was pickled" in str(handle.outcome.error)
    with pytest.raises(NotSerialisable, match="was pickled"):
        result_of(completed)
    appender = engine.store.create().append(this_process(by="tests"))
    session = engine.store.session(appender.layout.root.name)
    try:
        queue(appender, session, flow, dumps([[Odd(1)]], pickle=True), RunOptions(pickle=True), run_key="", cell=None)
        with pytest.raises(NotSerialisable, match="was pickled"):
            recorded_arguments(session, appender.state)
    finally:
        appender.close()


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), StopIteration(1)], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("sync", [False, True])
def test_whatever_an_activity_raises_is_its_failure_and_not_the_end_of_the_engine(
    engine: Engine, raised: BaseException, parallel: bool, sync: bool
) -> None:
    def broken() -> None:
        raise raised

    async def broken_async() -> None:
        raise raised

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        f: Callable[[], Any] = broken if sync else broken_async
        try:
            await (ctx.gather(ctx.run(f, key=1), ctx.run(len, "a")) if parallel else ctx.run(f, key=1))
        except ActivityError as error:
            return error.error_type
        return "nothing raised"

    said = engine.start(flow).result(10)
    assert said == ("RuntimeError" if isinstance(raised, StopIteration) else type(raised).__name__)


def test_an_activity_that_cancels_itself_has_failed(engine: Engine) -> None:
    async def gives_up() -> None:
        raise asyncio.CancelledError

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            await ctx.run(gives_up)
        except ActivityError as error:
            return error.error_type
        return "nothing raised"

    assert engine.start(flow).result(10) == "CancelledError"


def test_a_body_that_cancels_itself_has_failed(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        raise asyncio.CancelledError

    session = engine.ended(engine.start(flow), "failed")
    assert "cancelled itself" in session.state().system_state.error


def test_the_workflows_own_timeout_around_an_activity_works(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.02):
                await ctx.run(gate.passing)
        except TimeoutError:
            return "timed out"
        return "not"

    assert engine.start(flow).result(10) == "timed out"


def test_the_same_result_is_folded_from_events_and_from_a_snapshot(engine: Engine, witness: Witness, gate: Gate) -> None:
    flow = chain(witness, gate, 9)
    session = engine.ended(engine.start(flow), "completed")
    kinds = {r.kind for r in session.state().business_state.results.values()}
    assert kinds == {"step"}
    assert session.state().execution_state.done == 5
    assert until_asked(session, 0) == []
