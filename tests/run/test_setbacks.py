"""What fails behind the scenes of a task is told once and stops nothing."""

from __future__ import annotations

import errno

import pytest
from tests.run.harness import PATIENCE, Engine, Gate, bodies, running

from ipyagent_sessions.config import CheckpointPolicy
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FaultyDisk, wait_until


def alarms(session: Session) -> list[str]:
    return [str(body["kind"]) for body in bodies(session, "AlarmRaised")]


def walk(gate: Gate) -> Workflow:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        for name in "abc":
            async with ctx.stage(name):
                await ctx.run(abs, 1)
        await ctx.run(gate.passing)
        return "done"

    return flow


@pytest.mark.parametrize("events", [(), ("AlarmRaised", "ActivityCompleted")])
def test_snapshots_that_cannot_be_written_are_told_while_the_task_runs_and_once(
    engine: Engine, gate: Gate, disk: FaultyDisk, events: tuple[str, ...]
) -> None:
    disk.fail("before checkpoint rename", times=99, code=errno.EACCES)
    handle = engine.start(walk(gate), policy=CheckpointPolicy(events=events))
    wait_until(lambda: alarms(handle.session) == ["snapshot"], timeout=PATIENCE, what="the alarm")
    gate.open()
    assert handle.result(PATIENCE) == "done"
    assert alarms(handle.session) == ["snapshot"]
    assert handle.session.checkpoints() == []


def test_also_when_it_is_only_the_last_snapshot(engine: Engine, gate: Gate, disk: FaultyDisk) -> None:
    gate.open()
    disk.fail("before checkpoint rename", at=4, times=99, code=errno.EACCES)
    handle = engine.start(walk(gate))
    assert handle.result(PATIENCE) == "done"
    assert alarms(handle.session) == ["snapshot"]
    assert handle.session.effective_state() == "completed"


def test_a_full_disk_is_told_once_and_not_for_each_file_that_it_refuses(engine: Engine, gate: Gate, disk: FaultyDisk) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.run(abs, 1)
        disk.fail("before journal write", times=10**6)
        disk.fail("before checkpoint rename", times=10**6)
        for name in "abc":
            async with ctx.stage(name):
                await ctx.run(abs, 2)
        await ctx.run(gate.passing)
        return "done"

    handle = engine.start(flow)
    gate.reached()
    run = running(handle)
    wait_until(lambda: run.degraded, timeout=PATIENCE, what="the disk to be found refusing")
    disk.mend()
    gate.open()
    assert handle.result(PATIENCE) == "done"
    assert alarms(handle.session) == ["persistence", "persistence"], "that it refuses, and that it takes events again"
