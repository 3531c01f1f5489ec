"""Compensation: in reverse order, once, and a person where it fails (R158, R159)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.run.harness import Engine, Gate, Witness, bodies, of_type

from ipyagent_sessions import events as ev
from ipyagent_sessions.run import control
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FaultyDisk
from ipyagent_sessions.views.story import line_of


class Crash(BaseException):
    """Ends the task's thread where it is: of the task nothing more is done, as after a kill."""


class Deploy:
    """Three steps with compensations, then a failure or a wait."""

    def __init__(self, witness: Witness, gate: Gate, ends: str, *, sync: bool = True) -> None:
        self.witness, self.gate, self.ends, self.sync = witness, gate, ends, sync
        self.broken: set[int] = set()
        self.crash_at: int | None = None

    def do(self, i: int) -> int:
        self.witness(f"do {i}")
        return i

    def undo(self, i: int) -> None:
        if self.crash_at == i:
            raise Crash
        self.witness(f"undo {i}")
        if i in self.broken:
            raise OSError(f"cannot undo {i}")

    async def undo_async(self, i: int) -> None:
        self.undo(i)

    def flow(self) -> Workflow:
        @workflow(default_effect="idempotent")
        async def flow(ctx: Context) -> None:
            await ctx.run(self.do, 0, name="first")  # nothing undoes this one
            for i in (1, 2, 3):
                await ctx.run(self.do, i, key=i, compensate=self.undo if self.sync else self.undo_async)
            if self.ends == "fail":
                await ctx.run(int, "x", name="broken", compensate=self.undo)
            else:
                await ctx.run(self.gate.passing, name="wait", effect="none")
            await ctx.run(self.do, 9, name="never")

        return flow


DONE = ["do 0", "do 1", "do 2", "do 3"]
UNDONE = ["undo 3", "undo 2", "undo 1"]


@pytest.mark.parametrize("sync", [True, False])
def test_a_failure_undoes_what_completed_in_reverse_order_and_once(
    engine: Engine, witness: Witness, gate: Gate, sync: bool
) -> None:
    session = engine.ended(engine.start(Deploy(witness, gate, "fail", sync=sync).flow()), "failed")
    assert witness.order == DONE + UNDONE
    (failed,) = bodies(session, "TaskFailed")
    assert failed["compensated"] == ["main/do:3", "main/do:2", "main/do:1"]
    assert [e.activity_id for e in of_type(session, "ActivityCompensated")] == failed["compensated"]
    assert all(session.state().business_state.results[i].compensated for i in failed["compensated"])


def test_a_cancel_undoes_what_completed_and_lists_what_cannot_be_undone(engine: Engine, witness: Witness, gate: Gate) -> None:
    deploy = Deploy(witness, gate, "wait")

    @workflow(default_effect="irreversible")
    async def flow(ctx: Context) -> None:
        await ctx.run(deploy.do, 1, key="mail")
        await ctx.run(deploy.do, 2, key=2, compensate=deploy.undo)
        await ctx.run(gate.passing, effect="none")

    handle = engine.start(flow)
    gate.reached()
    handle.ask("cancel", "user:anna", reason="wrong folder")
    session = engine.ended(handle, "cancelled")
    (told,) = bodies(session, "TaskCancelled")
    assert (told["reason"], told["compensated"], told["irreversible"]) == ("wrong folder", ["main/do:2"], ["main/do:mail"])
    assert of_type(session, "TaskCancelled")[0].actor == "user:anna"
    assert witness.order == ["do 1", "do 2", "undo 2"]


def test_after_a_resume_the_recalled_ones_are_undone_too(engine: Engine, witness: Witness, gate: Gate) -> None:
    deploy = Deploy(witness, gate, "wait")
    handle = engine.start(deploy.flow())
    gate.reached()
    engine.crash(handle)
    deploy.ends = "fail"
    engine.ended(engine.resume(handle, deploy.flow()), "failed")
    assert witness.order == DONE + UNDONE


def test_a_compensation_that_fails_raises_an_alarm_and_the_others_still_run(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    deploy = Deploy(witness, gate, "fail")
    deploy.broken = {2}
    session = engine.ended(engine.start(deploy.flow()), "failed")
    assert witness.order == DONE + UNDONE
    (failed,) = bodies(session, "TaskFailed")
    assert (failed["compensated"], failed["needs_person"]) == (["main/do:3", "main/do:1"], ["main/do:2"])
    (alarm,) = bodies(session, "AlarmRaised")
    assert alarm["kind"] == "compensation"
    assert "undoing main/do:2 failed: cannot undo 2; a person is needed" in alarm["text"]
    assert not session.state().business_state.results["main/do:2"].compensated


@pytest.mark.parametrize("ends", ["fail", "cancel"])
@pytest.mark.parametrize("crash_at", [3, 2, 1])
def test_a_crash_in_the_middle_undoes_the_rest_and_none_twice_and_does_not_go_forward(
    engine: Engine, witness: Witness, gate: Gate, ends: str, crash_at: int
) -> None:
    deploy = Deploy(witness, gate, ends)
    deploy.crash_at = crash_at
    handle = engine.start(deploy.flow())
    if ends == "cancel":
        gate.reached()
        handle.ask("cancel", "user:anna", reason="enough")
    with pytest.raises(Crash):
        handle.result(10)
    session = handle.session
    assert session.state().system_state.reason == "worker_lost"
    deploy.crash_at = None
    gate.open()
    engine.ended(engine.resume(handle, deploy.flow()), "failed" if ends == "fail" else "cancelled")
    assert witness.order == DONE + UNDONE
    if ends == "cancel":
        assert bodies(session, "TaskCancelled")[0]["reason"] == "enough"


def test_a_cancelled_task_whose_holder_was_lost_is_finished_by_the_next_holder(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    """Also when that is a door that cannot run the compensations: it lists them."""
    deploy = Deploy(witness, gate, "cancel")
    deploy.crash_at = 3
    handle = engine.start(deploy.flow())
    gate.reached()
    handle.ask("cancel", "user:anna")
    with pytest.raises(Crash):
        handle.result(10)
    session = handle.session
    control.attend(session, by="sweeper")
    (told,) = bodies(session, "TaskCancelled")
    assert told["compensations_pending"] == ["main/do:1", "main/do:2", "main/do:3"]


def test_what_was_undone_before_the_holder_was_lost_does_not_stand_as_irreversible(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    deploy = Deploy(witness, gate, "cancel")
    deploy.crash_at = 1

    @workflow(default_effect="irreversible")
    async def flow(ctx: Context) -> None:
        await ctx.run(deploy.do, 0, key="mail")
        for i in (1, 2):
            await ctx.run(deploy.do, i, key=i, compensate=deploy.undo)
        await ctx.run(gate.passing, effect="none")

    handle = engine.start(flow)
    gate.reached()
    handle.ask("cancel", "user:anna")
    with pytest.raises(Crash):
        handle.result(10)
    control.attend(handle.session, by="sweeper")
    (told,) = bodies(handle.session, "TaskCancelled")
    assert told["irreversible"] == ["main/do:mail", "main/do:1"], "the second was undone"
    assert told["compensations_pending"] == ["main/do:1"]
    assert "artefacts" not in told, "it wrote no file"


def test_an_effect_whose_result_was_lost_is_undone_as_well(engine: Engine, witness: Witness) -> None:
    def make(i: int) -> Any:
        witness(f"do {i}")
        return threading.Lock()

    @workflow(default_effect="irreversible")
    async def flow(ctx: Context) -> None:
        await ctx.run(make, 1, compensate=lambda i: witness(f"undo {i}"))

    engine.ended(engine.start(flow), "failed")
    assert witness.order == ["do 1", "undo 1"]


def test_a_completed_task_undoes_nothing(engine: Engine, witness: Witness, gate: Gate) -> None:
    gate.open()
    engine.start(Deploy(witness, gate, "wait").flow()).result(10)
    assert not [x for x in witness.order if x.startswith("undo")]


def test_a_task_that_is_only_suspended_or_interrupted_undoes_nothing(engine: Engine, witness: Witness, gate: Gate) -> None:
    handle = engine.start(Deploy(witness, gate, "wait").flow())
    gate.reached()
    engine.ask(handle, "pause")
    gate.open()
    engine.ended(handle, "interrupted")
    assert witness.order == DONE


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
def test_in_every_mode_an_undo_is_announced_on_disk_with_all_before_it(engine: Engine, mode: Any) -> None:
    """So that a crash inside of it is visible."""
    seen: list[tuple[str, str, Any]] = []
    sessions: list[Session] = []

    def undo() -> None:
        last = list(sessions[0].events())[-1]
        seen.append((last.event_type, last.activity_id or "", ev.payload_of(last)["text"]))

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        sessions.append(engine.store.session(ctx.session_id))
        await ctx.run(abs, 1, compensate=lambda x: undo())
        raise ValueError("no")

    engine.ended(engine.start(flow, durability=mode), "failed")
    assert seen == [("ActivityProgressed", "main/abs#1", "undoing")]


@pytest.mark.parametrize("ends", ["fail", "cancel"])
def test_while_the_disk_refuses_nothing_is_undone_and_a_resume_does_it_later(
    engine: Engine, witness: Witness, gate: Gate, disk: FaultyDisk, ends: str
) -> None:
    deploy = Deploy(witness, gate, "wait")
    real = deploy.undo

    def undo(i: int) -> None:
        real(i)
        disk.fail("before journal sync", at=2, times=2)  # the undo's own event is still made durable

    deploy.undo = undo  # type: ignore[method-assign]  # one that fills the disk
    handle = engine.start(deploy.flow())
    gate.reached()
    if ends == "fail":
        deploy.ends = "fail"
        engine.crash(handle)
        handle = engine.resume(handle, deploy.flow())
    else:
        handle.ask("cancel", "user:anna", reason="enough")
    session = engine.ended(handle, "suspended")
    system = session.state().system_state
    assert (system.reason, witness.order) == ("persistence", [*DONE, "undo 3"])
    assert ("it failed with ValueError" if ends == "fail" else "it was cancelled") in system.detail
    deploy.undo = real  # type: ignore[method-assign]  # as it was
    disk.mend()
    gate.open()
    engine.ended(engine.resume(session, deploy.flow()), "failed" if ends == "fail" else "cancelled")
    assert witness.order == DONE + UNDONE


def test_a_holder_that_is_fenced_while_it_undoes_leaves_at_once_and_writes_nothing_more(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    deploy = Deploy(witness, gate, "fail")
    real = deploy.undo
    found: list[bytes] = []

    def undo(i: int) -> None:
        real(i)
        run = engine.handles[0].run
        assert run is not None
        run.session.layout.lease(run.appender.epoch + 1).touch()
        found.append(run.session.layout.summary.read_bytes())

    deploy.undo = undo  # type: ignore[method-assign]  # during which another takes over
    handle = engine.start(deploy.flow())
    session = engine.ended(handle, "lease lost")
    assert witness.order == [*DONE, "undo 3"]
    assert list(session.events())[-1].event_type == "ActivityProgressed"
    assert session.layout.summary.read_bytes() == found[0]


def test_a_compensation_that_fails_in_a_cancel_is_named_in_its_end_and_told(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    deploy = Deploy(witness, gate, "wait")
    deploy.broken = {2}
    handle = engine.start(deploy.flow())
    gate.reached()
    handle.ask("cancel", "user:anna", reason="enough")
    session = engine.ended(handle, "cancelled")
    (told,) = bodies(session, "TaskCancelled")
    assert (told["compensated"], told["needs_person"]) == (["main/do:3", "main/do:1"], ["main/do:2"])
    said = line_of(of_type(session, "TaskCancelled")[0])
    assert said == "enough; undone: main/do:3, main/do:1; undoing failed, a person is needed: main/do:2"
