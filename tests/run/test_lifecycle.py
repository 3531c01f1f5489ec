"""Deadlines, the same call again, reruns, forks, and what a recovery tells (R078-R081, R123, R126-R150, R152)."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import msgspec
import pytest
from tests.run.harness import Engine, Gate, Witness, answer, bodies, of_type, refolded, running, until_status

from ipyagent_sessions.errors import ControlRefused, LeaseHeld, TaskNotCompleted, UsageError
from ipyagent_sessions.log import lease, live
from ipyagent_sessions.run import environment, identity, launch
from ipyagent_sessions.run.beginning import queue
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.run.launch import Origin
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FakeClock, wait_until


class Steps:
    """Two steps, a gate, a third step; `twin` is another workflow with the same body."""

    def __init__(self, witness: Witness, gate: Gate, **options: Any) -> None:
        async def body(ctx: Context, x: int) -> str:
            ctx.goal("count")
            for i in (1, 2):
                await ctx.run(witness, f"step {i}", key=i)
            await ctx.run(gate.passing)
            await ctx.run(witness, "step 3", key=3)
            return f"done {x}"

        @workflow(default_effect="none", **options)
        async def flow(ctx: Context, x: int = 1) -> str:
            return await body(ctx, x)

        @workflow(default_effect="none")
        async def other(ctx: Context, x: int = 1) -> str:
            return await body(ctx, x)

        self.flow, self.other = flow, other


@pytest.fixture
def steps(witness: Witness, gate: Gate) -> Steps:
    return Steps(witness, gate)


def crashed(engine: Engine, flow: Workflow, gate: Gate) -> Session:
    handle = engine.start(flow)
    gate.reached()
    wait_until(lambda: handle.session.state().execution_state.active_activities, what="the open activity to be seen")
    return engine.crash(handle)


# Deadlines


def test_a_task_that_runs_longer_than_its_time_fails_as_a_timeout(
    engine: Engine, witness: Witness, gate: Gate, clock: FakeClock
) -> None:
    handle = engine.start(Steps(witness, gate, timeout="1h").flow)
    gate.reached()
    clock.advance(3599)
    assert not handle.wait(0.25)
    clock.advance(1)
    session = engine.ended(handle, "failed")
    (failed,) = bodies(session, "TaskFailed")
    assert (failed["cause"], failed["error_type"]) == ("timeout", "TimeoutError")
    assert "the task's time was over at 2026-01-01T01:00:00.000Z" in failed["error"]


def test_the_deadline_counts_from_the_first_start_across_restarts_and_nothing_new_begins_after_it(
    engine: Engine, witness: Witness, gate: Gate, clock: FakeClock
) -> None:
    flow = Steps(witness, gate, timeout="1h").flow
    session = crashed(engine, flow, gate)
    first = session.state().system_state
    gate.open()
    clock.advance(1800)
    handle = engine.start(Steps(witness, gate, timeout="1h").flow)  # another task: its own hour
    handle.result(10)
    assert handle.session.state().system_state.deadline == "2026-01-01T01:30:00.000Z"
    clock.advance(1801)
    before = witness.order
    engine.ended(engine.resume(session, flow), "failed")
    system = session.state().system_state
    assert (system.deadline, system.started_at) == (first.deadline, first.started_at)
    assert system.reason == "timeout"
    assert witness.order == before


def test_a_deadline_that_passes_while_it_waits_for_a_person_ends_it(engine: Engine, clock: FakeClock) -> None:
    @workflow(default_effect="none", timeout="1h")
    async def flow(ctx: Context) -> None:
        await ctx.approve("on?")

    handle = engine.start(flow)
    until_status(handle.session, "suspended")
    clock.advance(3601)
    session = engine.ended(handle, "failed")
    assert session.state().system_state.reason == "timeout"


# The same call again


def call(
    engine: Engine, flow: Workflow, *args: Any, cell: str = "c1", notebook: str = "a.ipynb", **more: Any
) -> launch.Launched:
    found = launch.launch(engine.store, flow, args, options=RunOptions(), origin=Origin(notebook, cell), **more)
    if found.handle is not None:
        engine.handles.append(found.handle)
    return found


def test_the_same_call_continues_its_unfinished_task_and_says_so(
    engine: Engine, steps: Steps, gate: Gate, witness: Witness
) -> None:
    first = call(engine, steps.flow, 5)
    assert first.handle is not None
    gate.reached()
    engine.crash(first.handle)
    gate.open()
    again = call(engine, steps.flow, 5)
    assert again.handle is not None
    assert again.session.id == first.session.id
    assert again.note.startswith(f"continues task {first.handle.task_id} (lost, 2 activities done)")
    assert again.handle.result(10) == "done 5"
    assert set(witness.counts.values()) == {1}


@pytest.mark.parametrize("what", ["arguments", "cell", "notebook", "workflow"])
def test_another_call_starts_a_task_of_its_own(engine: Engine, steps: Steps, gate: Gate, what: str) -> None:
    first = call(engine, steps.flow, 5)
    assert first.handle is not None
    gate.reached()
    engine.crash(first.handle)
    gate.open()
    again = call(
        engine,
        steps.other if what == "workflow" else steps.flow,
        6 if what == "arguments" else 5,
        cell="c2" if what == "cell" else "c1",
        notebook="b.ipynb" if what == "notebook" else "a.ipynb",
    )
    assert again.session.id != first.session.id
    assert again.note == ""


def test_new_starts_another_and_a_completed_one_is_not_continued(
    engine: Engine, steps: Steps, gate: Gate, witness: Witness
) -> None:
    gate.open()
    ids = set()
    for new in (False, False, True):
        made = call(engine, steps.flow, 5, new=new)
        assert made.handle is not None
        assert made.handle.result(10) == "done 5"
        ids.add(made.session.id)
    assert len(ids) == 3


def test_once_gives_the_result_of_the_completed_one_and_runs_nothing(
    engine: Engine, steps: Steps, gate: Gate, witness: Witness
) -> None:
    gate.open()
    first = call(engine, steps.flow, 5, once=True)
    assert first.handle is not None
    first.handle.result(10)
    ran = witness.order
    again = call(engine, steps.flow, 5, once=True)
    assert (again.handle, again.value) == (None, "done 5")
    assert "nothing ran" in again.note
    assert witness.order == ran


def test_in_a_session_of_ones_own_the_same_call_goes_on_and_once_holds_too(
    engine: Engine, steps: Steps, gate: Gate, witness: Witness
) -> None:
    nightly, other = (engine.store.create(title=title, notebook="a.ipynb") for title in ("nightly", "other"))
    first = call(engine, steps.flow, 5, session=nightly)
    assert first.handle is not None
    gate.reached()
    engine.crash(first.handle)
    with pytest.raises(ControlRefused, match=f"session {nightly.id} has a task that is suspended"):
        call(engine, steps.flow, 6, session=nightly)
    known = live.read_summary(nightly.layout)
    assert known is not None
    assert (known.state, known.reason) == ("suspended", "worker_lost"), "the loss is in its summary too"
    gate.open()
    again = call(engine, steps.flow, 5, session=nightly)
    assert again.note.startswith(f"continues task {first.handle.task_id} (")
    assert again.handle is not None
    assert again.handle.result(10) == "done 5"
    assert call(engine, steps.flow, 5, session=nightly, once=True).value == "done 5"
    assert set(witness.counts.values()) == {1}
    elsewhere = call(engine, steps.flow, 5, session=other, once=True)
    assert elsewhere.handle is not None
    assert elsewhere.handle.result(10) == "done 5"
    assert elsewhere.session.id == other.id


def test_while_it_runs_the_same_call_is_told_who_holds_it(engine: Engine, steps: Steps, gate: Gate) -> None:
    call(engine, steps.flow, 5)
    gate.reached()
    with pytest.raises(LeaseHeld, match="is held by"):
        call(engine, steps.flow, 5)


@pytest.mark.parametrize("once", [False, True])
def test_a_crash_right_after_the_end_is_not_taken_for_an_unfinished_task(
    engine: Engine, steps: Steps, gate: Gate, witness: Witness, once: bool
) -> None:
    """R152: the event is durable, and the summary beside it still says running."""
    gate.open()
    first = call(engine, steps.flow, 5)
    assert first.handle is not None
    first.handle.result(10)
    summary = first.session.summary()
    stale = msgspec.structs.replace(summary, state="running", seq=summary.seq - 1)
    live.write_summary(first.session.layout, stale, engine.store.disk)
    again = call(engine, steps.flow, 5, once=once)
    if once:
        assert (again.handle, again.value) == (None, "done 5")
    else:
        assert again.handle is not None
        assert again.session.id != first.session.id
        again.handle.result(10)


def test_a_task_that_was_queued_and_never_began_is_found_again(
    engine: Engine, steps: Steps, gate: Gate, me: lease.Holder
) -> None:
    """The crash came before its first start."""
    session = engine.store.create(notebook="a.ipynb")
    arguments = identity.arguments("flow", (5,), {})
    key = launch.run_key(Origin("a.ipynb", "c1"), steps.flow, arguments)
    appender = session.append(me)
    queue(appender, session, steps.flow, arguments, RunOptions(), run_key=key, cell="c1")
    appender.close()
    gate.open()
    again = call(engine, steps.flow, 5)
    assert again.session.id == session.id
    assert again.handle is not None
    assert again.handle.result(10) == "done 5"


def test_an_engine_that_cannot_start_says_so_and_the_next_call_starts_anew(
    engine: Engine, steps: Steps, gate: Gate, monkeypatch: Any
) -> None:
    def fails() -> Any:
        raise OSError("no such folder")

    monkeypatch.setattr(environment, "snapshot", fails)
    first = call(engine, steps.flow, 5)
    assert first.handle is not None
    with pytest.raises(OSError, match="no such folder"):
        first.handle.result(10)
    assert not first.session.held()
    assert first.session.effective_state() == "failed"
    monkeypatch.undo()
    gate.open()
    again = call(engine, steps.flow, 5)
    assert again.handle is not None
    assert again.handle.result(10) == "done 5"


# Resume, rerun, fork


def test_a_resume_with_another_workflow_is_refused_and_changes_nothing(engine: Engine, steps: Steps, gate: Gate) -> None:
    session = crashed(engine, steps.flow, gate)
    last = session.last_seq()
    with pytest.raises(UsageError, match=r"runs .*flow, not .*other"):
        _ = engine.resume(session, steps.other)
    assert (session.last_seq(), session.held()) == (last, False)


def test_a_resume_of_a_session_without_a_task_is_refused(engine: Engine, steps: Steps, session: Session) -> None:
    with pytest.raises(ControlRefused, match="has no task to resume"):
        _ = engine.resume(session, steps.flow)
    assert not session.held()


def test_arguments_that_no_longer_fit_are_refused_and_the_task_stays_as_it_was(engine: Engine, gate: Gate) -> None:
    def version(parameters: int) -> Workflow:
        async def one(ctx: Context, a: int) -> None:
            await ctx.run(gate.passing, effect="none")

        async def two(ctx: Context, a: int, b: int) -> None:
            await ctx.run(gate.passing, effect="none")

        body: Any = one if parameters == 1 else two
        body.__qualname__ = "flow"
        return workflow(body)

    handle = engine.start(version(1), 5)
    gate.reached()
    session = engine.crash(handle)
    with pytest.raises(UsageError, match="missing a required argument: 'b'"):
        engine.resume(session, version(2)).result(10)
    gate.open()
    engine.resume(session, version(1)).result(10)


def test_a_rerun_is_a_new_task_for_real_that_names_the_old_one(
    engine: Engine, steps: Steps, gate: Gate, witness: Witness
) -> None:
    gate.open()
    first = engine.start(steps.flow, 7)
    first.result(10)
    again = launch.rerun(first.session, engine.store, steps.flow)
    engine.handles.append(again)
    assert again.result(10) == "done 7"
    assert again.session.id != first.session.id
    assert again.session.state().system_state.rerun_of == first.task_id
    assert witness.counts["step 1"] == 2
    assert len(of_type(first.session, "TaskQueued")) == 1


def test_a_rerun_of_what_takes_other_arguments_now_is_refused_before_a_session_is_made(engine: Engine) -> None:
    async def before(ctx: Context, n: int) -> int:
        return n

    async def after(ctx: Context, m: int, k: int) -> int:
        return m + k

    after.__qualname__ = before.__qualname__  # the same cell, edited
    first = engine.start(Workflow(before), 7)
    first.result(10)
    with pytest.raises(UsageError, match=r"so the task was started; .*undo that change to run it again"):
        _ = launch.rerun(first.session, engine.store, Workflow(after))
    assert engine.store.session_ids() == [first.session.id]


def test_a_rerun_with_another_workflow_is_refused(engine: Engine, steps: Steps, gate: Gate) -> None:
    gate.open()
    first = engine.start(steps.flow, 7)
    first.result(10)
    with pytest.raises(UsageError, match=r"runs .*flow, not .*other"):
        _ = launch.rerun(first.session, engine.store, steps.other)
    assert len(engine.store.session_ids()) == 1


def test_a_fork_goes_on_with_the_results_so_far_under_an_id_of_its_own(
    engine: Engine, steps: Steps, gate: Gate, witness: Witness
) -> None:
    handle = engine.start(steps.flow, 7)
    gate.reached()
    session = engine.crash(handle)
    point = of_type(session, "ActivityCompleted")[0]
    child = session.fork(point.seq)
    assert child.effective_state() == "suspended"
    gate.open()
    forked = engine.resume(child, steps.flow)
    assert forked.result(10) == "done 7"
    assert forked.task_id == f"{child.id}.1" != handle.task_id
    assert witness.counts == {"step 1": 1, "step 2": 2, "step 3": 1}
    assert engine.resume(session, steps.flow).result(10) == "done 7"  # the parent goes its own way
    assert witness.counts == {"step 1": 1, "step 2": 2, "step 3": 2}
    assert child.state() == refolded(child)


def test_tasks_of_one_session_follow_one_another(engine: Engine, steps: Steps, gate: Gate, witness: Witness) -> None:
    gate.open()
    first = engine.start(steps.flow, 1)
    first.result(10)
    second = engine.start(steps.flow, 2, session=first.session)
    assert second.result(10) == "done 2"
    assert second.task_id == f"{first.session.id}.2"
    assert witness.counts["step 1"] == 2  # results belong to a task, not to a session
    assert list(first.session.state().tasks) == [first.task_id, second.task_id]


def test_a_second_task_beside_an_unfinished_one_is_refused(engine: Engine, steps: Steps, gate: Gate) -> None:
    session = crashed(engine, steps.flow, gate)
    with pytest.raises(ControlRefused, match="has a task that is"):
        _ = engine.start(steps.flow, session=session)
    assert not session.held()


# What a recovery tells


def test_a_recovery_says_where_from_why_what_runs_again_and_what_needs_an_answer(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        ctx.expect(4)
        async with ctx.stage("one"):
            await ctx.run(abs, 1)
        await ctx.gather(ctx.run(gate.passing, key=1), ctx.run(gate.passing, key=2, effect="irreversible"))

    handle = engine.start(flow)
    gate.reached(by=2)
    session = engine.crash(handle)
    stopped_at = session.last_seq()
    gate.open()
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    (told,) = bodies(session, "RecoveryCompleted")
    assert told["cause"] == "worker_lost"
    assert told["from_seq"] == stopped_at + 1  # the event that records the loss
    assert (
        told["sentence"]
        == f"recovered at event {stopped_at + 1}: 1 of 4 activities is done, 1 open activity runs again, 1 needs an answer"
    )
    assert told["repeated"] == ["main/passing:1"]
    assert told["unknown"] == ["main/passing:2"]
    assert told["not_restored"] == ["kernel variables", "open connections", "running calls", "child processes"]
    assert told.get("lost_events", 0) == 0
    assert session.state().system_state.recoveries == 1
    resumed = bodies(session, "TaskResumed")[0]
    assert resumed["attempt"] == 2
    assert resumed["holder"]["pid"]


def test_a_call_that_verify_settles_is_not_told_to_need_a_person(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(gate.passing, effect="irreversible", verify=lambda: False)

    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    engine.resume(session, flow).result(10)
    (told,) = bodies(session, "RecoveryCompleted")
    assert told["sentence"].endswith(": 0 activities are done, 1 is verified first")
    assert (told.get("unknown", []), told["to_verify"]) == ([], ["main/passing#1"])


def test_a_recovery_names_the_snapshot_it_came_from_and_those_it_refused(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        for name in ("one", "two"):
            async with ctx.stage(name):
                await ctx.run(abs, 1)
        await ctx.run(gate.passing)

    handle = engine.start(flow)
    gate.reached()
    wait_until(lambda: len(handle.session.checkpoints()) == 2, what="both snapshots")
    session = engine.crash(handle)
    older, newer = (c.seq for c in session.checkpoints())
    (session.layout.checkpoints / f"{newer}.json.zst").write_bytes(b"rubbish")
    gate.open()
    engine.resume(session, flow).result(10)
    (told,) = bodies(session, "RecoveryCompleted")
    assert (told["checkpoint_seq"], told["checkpoints_refused"]) == (older, [newer])


def test_a_resume_without_a_loss_is_no_recovery(engine: Engine, steps: Steps, gate: Gate) -> None:
    handle = engine.start(steps.flow)
    gate.reached()
    engine.ask(handle, "pause")
    gate.open()
    engine.ended(handle, "interrupted")
    engine.resume(handle, steps.flow).result(10)
    assert of_type(handle.session, "RecoveryCompleted") == []
    assert bodies(handle.session, "TaskResumed")[0].get("not_restored", []) == []


def test_a_changed_environment_is_told_at_the_resume(engine: Engine, steps: Steps, gate: Gate, monkeypatch: Any) -> None:
    real = environment.snapshot
    session = crashed(engine, steps.flow, gate)

    def changed() -> dict[str, Any]:
        now = real()
        return {
            **now,
            "cwd": "/elsewhere",
            "python": "3.99.0",
            "packages": {**now["packages"], "msgspec": "99", "brand-new": "1"},
        }

    monkeypatch.setattr(environment, "snapshot", changed)
    gate.open()
    engine.resume(session, steps.flow).result(10)
    told = bodies(session, "TaskResumed")[0]["differences"]
    assert any(line.startswith("python: ") and line.endswith("-> 3.99.0") for line in told)
    assert any(line.startswith("cwd: ") for line in told)
    packages = next(line for line in told if line.startswith("packages: "))
    assert "brand-new absent -> 1" in packages
    assert "-> 99" in packages


def test_an_unchanged_environment_is_not_told(engine: Engine, steps: Steps, gate: Gate) -> None:
    session = crashed(engine, steps.flow, gate)
    gate.open()
    engine.resume(session, steps.flow).result(10)
    assert bodies(session, "TaskResumed")[0].get("differences", []) == []


def test_state_goal_progress_and_ids_are_those_of_before(engine: Engine, steps: Steps, gate: Gate) -> None:
    session = crashed(engine, steps.flow, gate)
    before = session.state()
    assert before.business_state.current_goal == "count"
    assert (before.execution_state.done, before.execution_state.last_activity) == (2, "main/passing#1")
    handle = engine.resume(session, steps.flow)
    now = running(handle).state
    wait_until(lambda: now.system_state.status == "running", what="the resume")
    assert now.business_state.results.keys() >= before.business_state.results.keys()
    assert handle.task_id == before.system_state.task_id
    gate.open()
    handle.result(10)
    assert session.state() == refolded(session)


def test_the_durability_of_the_start_is_kept_by_the_resume(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.approve("on?")

    handle = engine.start(flow, headless=True, durability="async")
    session = engine.ended(handle, "suspended")
    again = engine.resume(session, flow, durability="sync")
    assert again.options.durability == "async"
    answer(session, "a1")
    again.result(10)


def test_a_failed_task_names_its_last_good_checkpoint(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async with ctx.stage("one"):
            await ctx.run(abs, 1)
        await ctx.run(int, "x")

    session = engine.ended(engine.start(flow), "failed")
    stage = next(e.seq for e in of_type(session, "CheckpointCreated"))
    assert bodies(session, "TaskFailed")[0]["last_checkpoint"] == stage


@dataclasses.dataclass
class Result:
    n: int


def test_the_result_of_a_completed_task_is_there_after_everything_is_closed(engine: Engine) -> None:
    @workflow
    async def flow(ctx: Context) -> Result:
        return Result(3)

    handle = engine.start(flow)
    handle.result(10)
    fresh = engine.store.session(handle.session.id)
    assert fresh.effective_state() == "completed"
    assert launch.result_of(fresh) == Result(3)


def test_a_lost_lease_ends_the_execution_without_another_word(engine: Engine, gate: Gate, monkeypatch: Any) -> None:
    """Two kernels on one session: the one that was taken over acknowledges nothing more."""

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.run(gate.passing)
        await ctx.run(abs, 1)
        return "done"

    handle = engine.start(flow)
    gate.reached()
    session = handle.session
    monkeypatch.setattr(lease, "heartbeat_age", lambda layout: 100.0)  # as that of a stopped process
    other = session.append(lease.this_process(by="other"), force=True)
    try:
        gate.open()
        engine.ended(handle, "lease lost")
        assert [e.event_type for e in session.events(other.state.seq)] == []
        task = re.escape(f"task {handle.task_id} was taken over by ")
        with pytest.raises(TaskNotCompleted, match=rf"^{task}other.*; it goes on there, .*: ipyagent status {session.id}$"):
            handle.result(10)
    finally:
        other.close()
    assert engine.resume(session, flow).result(10) == "done"
