"""A recovery says what each of its six steps came to, and goes on only from a state that can be (R126-R150)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.run.harness import Engine, Gate, bodies

from ipyagent_sessions.history.sql import query
from ipyagent_sessions.run import recovery
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.state import Active, Checkpointed, Recorded, State, TaskRecord
from ipyagent_sessions.store import Store


@pytest.fixture
def flow(gate: Gate) -> Workflow:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        ctx.goal("count the files")
        async with ctx.stage("one"):
            await ctx.run(abs, 1)
        await ctx.run(gate.passing, effect="idempotent")
        return "done"

    return flow


def test_the_log_tells_the_six_steps_and_the_view_counts_them(
    engine: Engine, gate: Gate, flow: Workflow, store: Store
) -> None:
    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    assert engine.resume(session, flow).result(10) == "done"
    (told,) = bodies(session, "RecoveryCompleted")
    assert list(told["steps"]) == ["detect", "assess", "prepare", "restore", "continue", "verify"]
    assert "is this one, and had let go" in told["steps"]["detect"]
    assert "after it" in told["steps"]["assess"]
    assert told["steps"]["prepare"].endswith("environment and files are as they were")
    assert told["steps"]["restore"].startswith("goal: count the files; 1 stage is done")
    assert "1 open activity runs again" in told["steps"]["continue"]
    assert told["steps"]["verify"] == "the state is consistent"
    (row,) = query(store, "SELECT cause, lost_events, repeated, unknown, duration_ms FROM recoveries").rows()
    assert (row["cause"], row["lost_events"], row["repeated"], row["unknown"]) == ("worker_lost", 0, 1, 0)
    assert row["duration_ms"] == told.get("duration_ms", 0)


def test_nothing_runs_on_a_state_that_cannot_be(
    engine: Engine, gate: Gate, flow: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "violations", lambda state: ["two and two are five"])
        assert engine.resume(session, flow).wait(10)
    system = session.state().system_state
    assert (system.status, system.reason) == ("suspended", "persistence")
    assert "two and two are five" in system.detail
    assert bodies(session, "RecoveryCompleted")[0]["steps"]["verify"] == "two and two are five"
    assert engine.resume(session, flow).result(10) == "done"


BREAKS: dict[str, Callable[[State], Any]] = {
    "has a result": lambda s: s.business_state.results.update({"a": Recorded(3)}),
    "began at event": lambda s: setattr(s.execution_state.active_activities["a"], "seq", 99),
    "has its result at event": lambda s: s.business_state.results.update({"b": Recorded(99)}),
    "is not among": lambda s: s.tasks.clear(),
    "checkpoint is at event": lambda s: setattr(s, "checkpoint", Checkpointed(99, "", "", "time")),
}


@given(st.sets(st.sampled_from(sorted(BREAKS))))
def test_each_violation_is_found_and_a_sound_state_has_none(broken: set[str]) -> None:
    state = State(seq=10, tasks={"t": TaskRecord("running", "m:f")})
    state.system_state.task_id = "t"
    state.execution_state.active_activities["a"] = Active(5, "a", "")
    for name in broken:
        BREAKS[name](state)
    found = recovery.violations(state)
    assert len(found) == len(broken)
    assert all(any(name in line for line in found) for name in broken)
