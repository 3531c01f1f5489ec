"""Recorded time and chance, own events, the business state, files, and how much there will be (R070-R075, R127)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.run.harness import Engine, Gate, Witness, bodies, of_type, refolded, running

from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import activity, workflow
from ipyagent_sessions.run.inside import progress
from ipyagent_sessions.testing import FakeClock, wait_until


def twice(engine: Engine, body: Callable[[Context], Any]) -> list[Any]:
    """What `body` gives in a first run, and again when it is recalled."""
    seen: list[Any] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        seen.append(body(ctx))
        await ctx.approve("on?")

    handle = engine.start(flow, headless=True)
    engine.ended(handle, "suspended")
    engine.ended(engine.resume(handle, flow, headless=True), "suspended")
    return seen


def test_now_random_and_uuid_are_the_same_when_the_body_runs_again(engine: Engine, clock: FakeClock) -> None:
    def body(ctx: Context) -> Any:
        out = [ctx.now(), ctx.random(), ctx.uuid(), ctx.now(), ctx.random(), ctx.uuid()]
        clock.advance(1000)
        return out

    first, second = twice(engine, body)
    assert first == second
    assert first[1] != first[4]
    assert first[2] != first[5]
    assert 0 <= first[1] < 1
    assert first[0].isoformat() == "2026-01-01T00:00:00+00:00"


def test_an_own_event_is_logged_once_with_its_payload(engine: Engine) -> None:
    def body(ctx: Context) -> None:
        ctx.emit("ReportPublished", {"url": "x"})
        ctx.emit("ReportPublished", {"url": "y"})
        ctx.emit("Noted", key="k")

    twice(engine, body)
    session = engine.handles[0].session
    assert [b["url"] for b in bodies(session, "ReportPublished")] == ["x", "y"]
    assert all(e.ignorable for e in of_type(session, "ReportPublished", "Noted"))


def test_the_types_of_the_documents_are_folded_into_the_state(engine: Engine) -> None:
    def body(ctx: Context) -> None:
        ctx.emit("CodeGenerated", {"files_generated": [{"path": "a.py", "lines": 3, "checksum": "sha256:0"}]})
        ctx.emit("TestExecuted", {"passed": 3, "failed": 0})
        ctx.emit("ErrorOccurred", {"error_type": "X"})
        ctx.emit("FileWritten", {"path": "b.txt", "checksum": "sha256:1", "size": 2})

    twice(engine, body)
    session = engine.handles[0].session
    assert [len(of_type(session, t)) for t in ("CodeGenerated", "TestExecuted", "ErrorOccurred", "FileWritten")] == [1] * 4
    assert not any(e.ignorable for e in of_type(session, "CodeGenerated", "TestExecuted"))
    files = session.state().business_state.files
    assert (files["a.py"]["lines"], files["b.txt"]["checksum"]) == (3, "sha256:1")
    assert session.state() == refolded(session)


@pytest.mark.parametrize(
    ("event_type", "payload", "said"),
    [
        ("TaskCompleted", {}, "written by the engine only"),
        ("ActivityX", {}, "written by the engine only"),
        ("StateChanged", {}, "written by the engine only"),
        ("AlarmRaised", {"kind": "mine", "text": "t"}, "written by the engine only"),
        ("ConfigChanged", {}, "written by the engine only"),
        ("EffectDeclared", {"what": "row", "name": "a"}, "written by the engine only"),
        ("FileRolledBack", {"path": "a", "undoes": []}, "written by the engine only"),
        ("CheckFailed", {"name": "n"}, "written by the engine only"),
        ("not pascal", {}, "is not an event type"),
        ("lower", {}, "is not an event type"),
        ("", {}, "is not an event type"),
        ("FileWritten", {"path": 3}, "FileWritten: "),
        ("Odd", {"x": object()}, "must be JSON-like"),
    ],
)
def test_an_event_that_must_not_be_written_is_refused(engine: Engine, event_type: str, payload: Any, said: str) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.emit(event_type, payload)

    handle = engine.start(flow)
    session = engine.ended(handle, "suspended")
    assert handle.outcome is not None
    assert said in str(handle.outcome.error)
    assert session.state() == refolded(session)


def test_goal_values_and_lists_of_the_business_state_are_set_once_each(engine: Engine) -> None:
    def body(ctx: Context) -> Any:
        ctx.goal("migrate")
        ctx.set("plan.batches", 3)
        for name in "ab":
            ctx.append("plan.done", name)
        ctx.set("plan.batches", 4)
        return dict(ctx.values)

    first, second = twice(engine, body)
    assert first == second == {"plan": {"batches": 4, "done": ["a", "b"]}}
    session = engine.handles[0].session
    assert session.state().business_state.current_goal == "migrate"
    assert len(of_type(session, "StateChanged")) == 5


def test_a_crash_between_events_repeats_none_and_loses_none(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Any:
        ctx.append("xs", 1)
        ctx.emit("Noted")
        await ctx.run(gate.passing)
        ctx.append("xs", 2)
        ctx.emit("Noted")
        return dict(ctx.values)

    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    assert engine.resume(handle, flow).result(10) == {"xs": [1, 2]}
    assert len(of_type(session, "Noted")) == 2


def test_state_is_written_from_parallel_coroutines_under_keys(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Any:
        async def branch(i: int) -> None:
            await ctx.run(abs, i, key=i)
            ctx.append("xs", i, key=i)
            ctx.emit("Noted", {"i": i}, key=i)

        await ctx.gather(*[branch(i) for i in range(3)])
        return sorted(ctx.values["xs"])

    assert engine.start(flow).result(10) == [0, 1, 2]


def test_a_written_file_is_noted_with_checksum_and_size_and_read_once(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "report é.md"
    path.write_text("first")

    def body(ctx: Context) -> None:
        ctx.wrote(path)
        path.write_text("changed since")

    twice(engine, body)
    session = engine.handles[0].session
    (noted,) = bodies(session, "FileWritten")
    assert noted == {"path": str(path), "checksum": f"sha256:{hashlib.sha256(b'first').hexdigest()}", "size": 5}
    assert session.state().business_state.files[str(path)]["checksum"] == noted["checksum"]


def test_how_much_there_will_be_is_said_once_and_counted_against(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.expect(3, "files")
        for i in range(2):
            await ctx.run(abs, i, key=i)
        await ctx.run(gate.passing)

    handle = engine.start(flow)
    gate.reached()
    wait_until(lambda: len(handle.session.state().execution_state.active_activities) == 1, what="the third to be seen")
    session = engine.crash(handle)
    state = session.state().execution_state
    assert (state.done, state.total, state.text) == (2, 3, "files")
    gate.open()
    engine.resume(handle, flow).result(10)
    state = session.state().execution_state
    assert (state.done, state.total) == (3, 3)
    assert len(bodies(session, "ActivityProgressed")) == 1


@pytest.mark.parametrize("sync", [False, True])
def test_progress_of_an_activity_survives_a_crash(engine: Engine, gate: Gate, sync: bool) -> None:
    async def counts() -> None:
        progress(3, 10, "files")
        await gate.passing()

    def counts_sync() -> None:
        progress(3, 10, "files")
        gate.blocking()

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(activity(name="counts")(counts_sync if sync else counts))

    handle = engine.start(flow)
    gate.reached()
    wait_until(lambda: bodies(handle.session, "ActivityProgressed"), what="progress to be durable")
    session = engine.crash(handle)
    active = session.state().execution_state.active_activities["main/counts#1"]
    assert (active.done, active.total, active.attempt) == (3, 10, 1)
    gate.open()


def test_progress_outside_an_activity_does_nothing(engine: Engine, witness: Witness) -> None:
    progress(1, 2)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        progress(1, 2)

    handle = engine.start(flow)
    handle.result(10)
    assert bodies(handle.session, "ActivityProgressed") == []
    assert running(handle).state.system_state.status == "completed"
