"""What is too large for a line of the log is kept as a blob: values of the state and fields of a workflow's own events."""

from __future__ import annotations

import functools
import gc
import weakref
from typing import Any

import pytest
from tests.run.harness import Engine, Gate, answer, bodies, of_type, refolded

from ipyagent_sessions.errors import DamageError, TaskNotCompleted
from ipyagent_sessions.log.blobs import THRESHOLD
from ipyagent_sessions.run import large
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import workflow

BIG = [f"item {i}" for i in range(10_000)]


def test_a_large_value_is_a_blob_in_the_log_and_itself_in_the_workflow_also_after_a_crash(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Any:
        ctx.set("plan.files", BIG)
        ctx.append("found", {"text": "x" * 50_000})
        ctx.append("found", "small")
        await ctx.run(gate.passing)
        return [ctx.values["plan"]["files"] == BIG, ctx.values["found"] == [{"text": "x" * 50_000}, "small"]]

    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    assert engine.resume(session, flow).result(20) == [True, True]
    assert all(len(bytes(event.payload)) < 500 for event in of_type(session, "StateChanged"))
    state = session.state()
    assert state == refolded(session)
    assert set(state.business_state.values["plan"]["files"]) == {"$", "v"}, "no snapshot carries it"
    child = session.fork()
    assert child.state().business_state.large


def test_values_that_were_replaced_are_not_held(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_ROOM", 300_000)
    held: list[int] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Any:
        ctx.append("kept", "y" * 50_000)
        for number in range(40):
            ctx.set("state.text", f"{number}" + "x" * 50_000)
            held.append(len(ctx._large._read))  # pyright: ignore[reportPrivateUsage]  # nothing tells it but memory
            assert ctx.values["state"]["text"].startswith(f"{number}x")
        return ctx.values["kept"] == ["y" * 50_000]

    assert engine.start(flow).result(20)
    assert 3 < max(held) < 12


def test_a_function_that_was_made_for_one_call_is_let_go_with_it(engine: Engine) -> None:
    class Big:
        pass

    def size(big: Big) -> int:
        return 1

    alive: list[int] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        known = weakref.WeakSet[Big]()
        for number in range(5):
            big = Big()
            known.add(big)
            await ctx.run(functools.partial(size, big), key=number, name="size")
            del big
            gc.collect()
            alive.append(len(known))

    engine.start(flow).result(20)
    assert max(alive) <= 1


def test_what_fits_a_line_stays_in_it(engine: Engine) -> None:
    fits = "x" * (THRESHOLD - 2)

    @workflow
    async def flow(ctx: Context) -> Any:
        ctx.set("text", fits)
        return ctx.values

    handle = engine.start(flow)
    assert handle.result(10) == {"text": fits}
    assert "value_blob" not in bodies(handle.session, "StateChanged")[0]


def test_a_large_field_of_an_event_is_a_blob_and_is_given_back_with_its_payload(engine: Engine) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        ctx.emit("ReportMade", {"title": "short", "lines": BIG})

    handle = engine.start(flow)
    handle.result(10)
    (event,) = of_type(handle.session, "ReportMade")
    assert len(bytes(event.payload)) < 500
    assert handle.session.payload(event)["lines"] == BIG


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda ctx: ctx.emit("Noted", {"text_blob": "x"}), "text_blob ends in _blob"),
        (
            lambda ctx: ctx.emit("CodeGenerated", {"files_generated": [{"path": p} for p in BIG]}),
            r"at most 32,768 in each field",
        ),
        (lambda ctx: ctx.goal("x" * 50_000), r"current_goal has 50,002 bytes; at most 32,768"),
    ],
)
def test_what_can_be_no_blob_is_refused_with_the_bound(engine: Engine, made: Any, why: str) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        made(ctx)

    with pytest.raises(TaskNotCompleted, match=why):
        engine.start(flow).result(10)


def test_a_lost_blob_of_a_value_is_told_with_its_name(engine: Engine) -> None:
    looks = [BIG, BIG[1:]]  # the second run computes something else; what was recorded counts

    @workflow
    async def flow(ctx: Context) -> Any:
        ctx.set("big", looks.pop(0))
        if looks:
            assert ctx.values["big"] == BIG, "it is known before it is on disk"
        await ctx.approve("on?")
        return ctx.values["big"]

    session = engine.ended(engine.start(flow, headless=True), "suspended")
    (session.layout.blobs / bodies(session, "StateChanged")[0]["value_blob"]).unlink()
    answer(session, "a1")
    with pytest.raises(TaskNotCompleted, match=r"blob [0-9a-f]{12} is missing") as raised:
        engine.resume(session, flow).result(10)
    assert isinstance(raised.value.__cause__, DamageError)
