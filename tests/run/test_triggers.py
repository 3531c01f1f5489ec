"""When checkpoints are taken: by time, event, state, hand, and at the end; and how many become files (R045-R054, R152)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.run.harness import PATIENCE, Engine, Gate, Witness, checkpoints, of_type, refolded, running

from ipyagent_sessions.config import CheckpointPolicy, checkpoint_policy
from ipyagent_sessions.log import checkpoints as snapshots
from ipyagent_sessions.log.checkpoints import KEEP_UNNAMED
from ipyagent_sessions.run import control
from ipyagent_sessions.run import triggers as module
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.state import State
from ipyagent_sessions.testing import FakeClock, wait_until

DOCUMENT = """
checkpoint:
  triggers:
    - type: time_interval
      interval: 5m
    - type: event
      events: [activity_completed, external_api_called, file_written]
    - type: state_change
      paths: [business_state.current_goal, execution_state.active_activities]
  include:
    - full_state: true
    - event_history: last_100
    - generated_artifacts: references
"""


@pytest.mark.parametrize("trigger", ["time", "volume", "stage", "ActivityCompleted"])
def test_while_snapshots_wait_only_those_that_somebody_asked_for_are_made(trigger: str) -> None:
    clock = FakeClock()
    watch = module.Triggers(CheckpointPolicy(), clock, State())
    clock.advance(module.MATERIALISE_S)
    assert not watch.taken(trigger, behind=True)
    assert watch.taken("manual", behind=True)
    clock.advance(module.MATERIALISE_S)
    assert watch.taken(trigger, behind=False)


def triggers(session: Session) -> list[str]:
    return [trigger for trigger, _ in checkpoints(session)]


def policy(**block: Any) -> CheckpointPolicy:
    given: dict[str, Any] = {"interval_s": None, **block}
    return CheckpointPolicy(**given)


def waiting(gate: Gate) -> Workflow:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(gate.passing)

    return flow


# By time


@pytest.mark.parametrize("interval", [300.0, 0.5, 3600.0])
def test_by_time_one_is_taken_at_the_interval_and_not_before(
    engine: Engine, gate: Gate, clock: FakeClock, interval: float
) -> None:
    handle = engine.start(waiting(gate), policy=policy(interval_s=interval))
    gate.reached()
    run = running(handle)
    ticks: list[int] = []
    for n in (1, 2, 3):
        clock.advance(interval - 0.01)
        run.call(lambda: ticks.append(1))
        wait_until(lambda: len(ticks) == run.state.checkpoints + 1, what="the loop to have had its turn")
        assert run.state.checkpoints == n - 1
        clock.advance(0.01)
        wait_until(lambda: run.state.checkpoints == len(ticks), timeout=PATIENCE, what="the checkpoint")
    gate.open()
    handle.result(10)
    assert triggers(handle.session) == ["time"] * 3 + ["end"]


def test_the_default_is_five_minutes_and_no_count_of_steps(engine: Engine, clock: FakeClock) -> None:
    assert CheckpointPolicy().interval_s == 300

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for i in range(1000):
            await ctx.run(abs, i)

    handle = engine.start(flow, durability="exit")
    handle.result(20)
    assert triggers(handle.session) == ["end"]


def test_a_clock_set_back_neither_stops_nor_hurries_it(engine: Engine, gate: Gate, clock: FakeClock) -> None:
    handle = engine.start(waiting(gate), policy=policy(interval_s=300))
    gate.reached()
    run = running(handle)
    clock.set_back(86_400)
    clock.advance(300)
    wait_until(lambda: run.state.checkpoints == 1, timeout=PATIENCE, what="the checkpoint")
    gate.open()
    handle.result(10)


def test_when_the_next_one_is_due_is_shown(engine: Engine, gate: Gate, clock: FakeClock) -> None:
    handle = engine.start(waiting(gate), policy=policy(interval_s=300))
    gate.reached()
    clock.advance(100)
    wait_until(
        lambda: (now := handle.session.live()) is not None and now.next_checkpoint == 200, timeout=PATIENCE, what="200 s"
    )


# By event


def test_after_each_completed_activity(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for i in range(3):
            await ctx.run(abs, i)
            ctx.now()
            ctx.emit("Noted")

    session = engine.ended(engine.start(flow, policy=policy(events=("ActivityCompleted",))), "completed")
    assert triggers(session) == ["ActivityCompleted"] * 3 + ["end"]
    follows = {e.seq: session.event(e.seq - 1).event_type for e in of_type(session, "CheckpointCreated")[:3]}
    assert set(follows.values()) == {"ActivityCompleted"}


def test_around_each_call_with_an_effect_and_no_other(engine: Engine) -> None:
    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(abs, 1, effect="none")
        await ctx.run(abs, 2, effect="idempotent")
        await ctx.run(abs, 3, effect="irreversible")

    session = engine.ended(engine.start(flow, policy=policy(events=("external_api_called",))), "completed")
    assert triggers(session) == ["external_api_called"] * 2 + ["end"]


def test_after_a_file_was_written_with_its_path_and_checksum(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.wrote(path)
        await ctx.run(abs, 1)

    session = engine.ended(engine.start(flow, policy=policy(events=("FileWritten",))), "completed")
    assert triggers(session) == ["FileWritten", "end"]
    at = session.state(of_type(session, "CheckpointCreated")[0].seq)
    assert at.business_state.files[str(path)]["checksum"].startswith("sha256:2d71")


# By state


def test_when_a_watched_path_changes_and_not_when_another_does(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.set("other", 1)
        ctx.goal("a")
        ctx.set("other", 2)
        await ctx.run(abs, 1)
        ctx.goal("b")
        ctx.emit("Noted")

    path = "business_state.current_goal"
    session = engine.ended(engine.start(flow, policy=policy(paths=(path,))), "completed")
    assert triggers(session) == [path, path, "end"]


def test_when_an_activity_begins_and_when_it_ends(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(abs, 1)
        await ctx.run(abs, 2)

    path = "execution_state.active_activities"
    session = engine.ended(engine.start(flow, policy=policy(paths=(path,))), "completed")
    assert triggers(session) == [path] * 4 + ["end"]


def test_a_watched_value_inside_the_workflows_own_state(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.append("plan.done", 1)
        ctx.append("plan.done", 2)

    path = "business_state.values.plan.done"
    session = engine.ended(engine.start(flow, policy=policy(paths=(path,))), "completed")
    assert triggers(session) == [path, path, "end"]


def test_the_documents_block_takes_each_of_its_checkpoints(engine: Engine, tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.goal("migrate")
        await ctx.run(abs, 1)
        ctx.wrote(path)
        clock.advance(301)
        ctx.emit("Noted")

    loaded = checkpoint_policy(yaml.safe_load(DOCUMENT))
    session = engine.ended(engine.start(flow, policy=loaded), "completed")
    assert set(triggers(session)) >= {
        "business_state.current_goal",
        "execution_state.active_activities",
        "ActivityCompleted",
        "FileWritten",
        "time",
        "end",
    }


# By hand and at the end


def test_by_hand_under_a_name_that_stays(engine: Engine, gate: Gate) -> None:
    handle = engine.start(waiting(gate))
    gate.reached()
    control.request(handle.session, "checkpoint", actor="user:anna", label="before lunch")
    wait_until(lambda: [c.label for c in handle.session.checkpoints()] == ["before lunch"], timeout=PATIENCE, what="its file")
    (event,) = of_type(handle.session, "CheckpointCreated")
    assert event.actor == "user:anna"
    gate.open()
    handle.result(10)
    assert [(c.trigger, c.label) for c in handle.session.checkpoints()] == [("manual", "before lunch"), ("end", "")]


@pytest.mark.parametrize("ends", ["completed", "failed", "cancelled", "interrupted"])
def test_at_the_end_and_at_a_pause(engine: Engine, gate: Gate, ends: str) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        if ends == "failed":
            await ctx.run(int, "x")
        if ends in ("cancelled", "interrupted"):
            await ctx.run(gate.passing)
            await ctx.run(abs, 1)

    handle = engine.start(flow)
    if ends in ("cancelled", "interrupted"):
        gate.reached()
        engine.ask(handle, "cancel" if ends == "cancelled" else "pause")
        gate.open()
    session = engine.ended(handle, ends)
    assert triggers(session)[-1] == ("interrupted" if ends == "interrupted" else "end")
    assert [c.trigger for c in session.checkpoints()][-1] == ("interrupted" if ends == "interrupted" else "end")


def test_with_the_events_behind_it_removed_a_checkpoint_still_gives_the_full_state(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.goal("migrate")
        async with ctx.stage("one"):
            await ctx.run(abs, 1)

    session = engine.ended(engine.start(flow), "completed")
    seq = next(c.seq for c in session.checkpoints() if c.label == "1")
    before = session.state(seq)
    for path in [*session.layout.root.glob("journal-*"), *session.layout.events.glob("*")]:
        path.unlink()
    state = snapshots.load(session.layout, seq)[0]
    assert state == before
    assert (state.business_state.current_goal, state.execution_state.stages["1"].done) == ("migrate", True)
    assert state.system_state.task_id == f"{session.id}.1"


@pytest.mark.parametrize("last", [100, 7])
def test_a_checkpoint_carries_the_last_events_and_no_more(engine: Engine, last: int) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for i in range(80):
            await ctx.run(abs, i)

    session = engine.ended(engine.start(flow, policy=policy(last_events=last), durability="exit"), "completed")
    end = session.checkpoints()[-1]
    carried = snapshots.load(session.layout, end.seq)[1].last_events
    seqs = [msgspec.json.decode(raw)["seq"] for raw in carried]
    assert seqs == list(range(end.seq - last, end.seq))


# How many become files


def test_files_of_unnamed_ones_are_written_at_a_bounded_rate_and_few_are_kept(engine: Engine, clock: FakeClock) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for i in range(200):
            clock.advance(1)
            await ctx.run(abs, i)

    handle = engine.start(flow, policy=policy(events=("ActivityCompleted",)))
    session = engine.ended(handle, "completed")
    assert triggers(session).count("ActivityCompleted") == 200
    files = session.checkpoints()
    assert [c.trigger for c in files][-1] == "end"
    bases = {c.base for c in files if c.base is not None}
    assert len([c for c in files if c.seq not in bases and c.trigger != "end"]) <= KEEP_UNNAMED
    assert all(c.complete for c in files)


def test_the_checkpoints_are_counted_in_the_state_that_the_log_gives(engine: Engine, witness: Witness) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for i in range(10):
            await ctx.run(witness, i)

    session = engine.ended(engine.start(flow, policy=policy(events=("ActivityCompleted",))), "completed")
    assert session.state().checkpoints == 11
    assert session.state() == refolded(session)


def test_by_volume_so_that_a_resume_stays_fast(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VOLUME", 50)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for i in range(200):
            await ctx.run(abs, i)

    session = engine.ended(engine.start(flow, policy=policy(), durability="exit"), "completed")
    found = triggers(session)
    assert 3 <= found.count("volume") <= 8
    assert found[-1] == "end"


def test_a_checkpoint_costs_no_sync_of_its_own(engine: Engine, disk: Any) -> None:
    spent: list[int] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(abs, -1)
        before = disk.passed["after journal sync"]
        for i in range(20):
            await ctx.run(abs, i)
        spent.append(disk.passed["after journal sync"] - before)

    engine.start(flow, policy=policy(events=("ActivityCompleted",), interval_s=None)).result(10)
    assert 20 <= spent[0] <= 22
