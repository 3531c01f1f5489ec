"""Stages: numbered in code order, checkpointed under their number, one after another (R206-R208)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.run.harness import Engine, Gate, Witness, bodies, checkpoints, refolded

from ipyagent_sessions.errors import IdentityError
from ipyagent_sessions.log import checkpoints as snapshots
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import wait_until

STAGED = ["1", "2.1", "2.2", "2.3", "2", "3", "4"]


def migration(witness: Witness, gate: Gate, folder: Path, hold: str) -> Workflow:
    """The documents' scenario in small: plan, batches, verification, report.  `hold` names what waits at the gate."""

    async def work(name: str) -> str:
        witness(name)
        path = folder / name.replace(":", "-")
        path.write_text(f"{name} {os.urandom(4).hex()}")
        if name == hold:
            await gate.passing()
        return name

    @workflow(default_effect="idempotent")
    async def flow(ctx: Context) -> str:
        async with ctx.stage("plan"):
            await ctx.run(work, "plan")
        async with ctx.stage("convert"):
            for batch in "abc":
                async with ctx.stage(f"batch {batch}"):
                    await ctx.gather(*[ctx.run(work, f"{batch}:{i}", key=i) for i in range(3)])
        async with ctx.stage("verify"):
            await ctx.run(work, "verify")
        async with ctx.stage("report"):
            return str(await ctx.run(work, "report"))

    return flow


def stage_labels(session: Session) -> list[str]:
    return [label for trigger, label in checkpoints(session) if trigger == "stage"]


def test_each_event_of_an_activity_says_what_caused_it(engine: Engine) -> None:
    """R096: the stage's start causes the activity's start, which causes its result; without a stage the task does."""

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(lambda: 0, name="before")
        async with ctx.stage("part"):
            await ctx.run(lambda: 1, name="inside")

    session = engine.ended(engine.start(flow), "completed")
    seqs = {(e.event_type, e.activity_id): e.seq for e in session.events()}
    parents = {(e.event_type, e.activity_id): e.parent_event for e in session.events()}
    assert parents["ActivityStarted", "main/before#1"] == seqs["TaskQueued", None]
    assert parents["ActivityStarted", "1/inside#1"] == seqs["ActivityStarted", "1"]
    for name in ("main/before#1", "1/inside#1"):
        assert parents["ActivityCompleted", name] == seqs["ActivityStarted", name]


def test_the_four_stages_create_exactly_the_named_checkpoints(
    engine: Engine, witness: Witness, gate: Gate, tmp_path: Path
) -> None:
    session = engine.ended(engine.start(migration(witness, gate, tmp_path, "")), "completed")
    assert stage_labels(session) == STAGED
    assert checkpoints(session)[-1] == ("end", "")
    assert session.state().business_state.completed_subtasks == [
        "1 plan",
        "2.1 batch a",
        "2.2 batch b",
        "2.3 batch c",
        "2 convert",
        "3 verify",
        "4 report",
    ]


def test_each_stages_checkpoint_has_a_verified_file_and_holds_the_state_of_its_seq(
    engine: Engine, witness: Witness, gate: Gate, tmp_path: Path
) -> None:
    session = engine.ended(engine.start(migration(witness, gate, tmp_path, "")), "completed")
    files = session.checkpoints()
    assert [f.label for f in files if f.trigger == "stage"] == STAGED
    assert all(f.complete for f in files)
    for file in files:
        state = snapshots.load(session.layout, file.seq)[0]
        assert state.seq == file.seq
    assert session.state() == refolded(session)


def test_a_crash_in_the_second_batch_leaves_the_first_untouched(
    engine: Engine, witness: Witness, gate: Gate, tmp_path: Path
) -> None:
    handle = engine.start(flow := migration(witness, gate, tmp_path, "b:1"))
    gate.reached()
    session = handle.session
    wait_until(lambda: len(session.state().business_state.results) == 6, what="the two others of the batch")
    engine.crash(handle)
    assert stage_labels(session) == ["1", "2.1"]
    assert session.state().execution_state.current_stage == "2.2"
    before = {
        p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in tmp_path.iterdir() if p.name[:1] == "a" or p.name == "plan"
    }
    assert len(before) == 4
    gate.open()
    assert engine.resume(handle, flow).result(10) == "report"
    assert {name: ((tmp_path / name).stat().st_mtime_ns, (tmp_path / name).read_bytes()) for name in before} == before
    assert {n: c for n, c in witness.counts.items() if c > 1} == {"b:1": 2}
    assert stage_labels(session) == STAGED


@pytest.mark.parametrize("hold", ["verify", "report"])
def test_a_crash_in_a_later_stage_does_not_run_the_earlier_ones(
    engine: Engine, witness: Witness, gate: Gate, tmp_path: Path, hold: str
) -> None:
    handle = engine.start(flow := migration(witness, gate, tmp_path, hold))
    gate.reached()
    engine.crash(handle)
    gate.open()
    assert engine.resume(handle, flow).result(10) == "report"
    assert {n: c for n, c in witness.counts.items() if c > 1} == {hold: 2}
    assert stage_labels(handle.session) == STAGED


def test_deeper_stages_are_numbered_in_code_order(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for _ in range(2):
            async with ctx.stage("outer"):
                for _ in range(2):
                    async with ctx.stage("middle"), ctx.stage("inner"):
                        pass

    session = engine.ended(engine.start(flow), "completed")
    assert stage_labels(session) == ["1.1.1", "1.1", "1.2.1", "1.2", "1", "2.1.1", "2.1", "2.2.1", "2.2", "2"]
    assert session.state().execution_state.current_stage == ""


def test_a_renamed_stage_is_refused_and_the_task_stays_resumable(engine: Engine) -> None:
    name = ["plan"]

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async with ctx.stage(name[0]):
            await ctx.approve("on?")

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    name[0] = "scan"
    again = engine.resume(handle, flow, headless=True)
    engine.ended(again, "suspended")
    assert again.outcome is not None
    assert "stage 1 was recorded as 'plan' and is now 'scan'" in str(again.outcome.error)
    name[0] = "plan"
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    assert session.state().system_state.reason == "approval"


@pytest.mark.parametrize("how", ["ctx.gather", "asyncio.gather"])
def test_parallel_stages_are_refused(engine: Engine, how: str) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async def part(name: str) -> None:
            async with ctx.stage(name):
                await asyncio.sleep(0)

        await (ctx.gather(part("a"), part("b")) if how == "ctx.gather" else asyncio.gather(part("a"), part("b")))

    handle = engine.start(flow)
    engine.ended(handle, "suspended")
    assert handle.outcome is not None
    assert isinstance(handle.outcome.error, IdentityError)
    assert "stages follow one another" in str(handle.outcome.error)


def test_a_stage_that_fails_is_not_done_and_takes_no_checkpoint(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async with ctx.stage("one"):
            await ctx.run(int, "x")

    session = engine.ended(engine.start(flow), "failed")
    assert stage_labels(session) == []
    assert not session.state().execution_state.stages["1"].done


def test_a_workflow_may_catch_the_failure_of_a_stage_and_begin_the_next(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            async with ctx.stage("one"):
                await ctx.run(int, "x")
        except Exception:  # noqa: BLE001  # what a user writes
            async with ctx.stage("two"):
                return str(await ctx.run(str, 1))
        return ""

    session = engine.ended(engine.start(flow), "completed")
    assert stage_labels(session) == ["2"]


def test_a_stage_is_logged_once_however_often_the_body_runs(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async with ctx.stage("one"):
            await ctx.run(str, 1)
        async with ctx.stage("two"):
            await ctx.approve("on?")

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    engine.ended(engine.resume(handle, flow, headless=True), "suspended")
    engine.ended(engine.resume(handle, flow, headless=True), "suspended")
    assert [b["name"] for b in bodies(session, "ActivityStarted") if b.get("kind") == "stage"] == ["one", "two"]
    assert stage_labels(session) == ["1"]
