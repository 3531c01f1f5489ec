"""Doors: who logs a request when nobody holds the lease, and what is refused as stale (DESIGN 9, R024, R161, [25], [36])."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.run.harness import PATIENCE, Engine, Gate, answer, bodies, checkpoints, of_type, running, until_asked

from ipyagent_sessions.errors import ControlPending, ControlRefused, LeaseHeld, NotFound, PersistenceError
from ipyagent_sessions.events import Event
from ipyagent_sessions.log import inbox
from ipyagent_sessions.log.appender import Appender
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.log.layout import Layout
from ipyagent_sessions.log.lease import Holder
from ipyagent_sessions.run import control
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FaultyDisk, wait_until
from ipyagent_sessions.views.card import card


@pytest.fixture
def waiting(gate: Gate) -> Workflow:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        await ctx.run(gate.passing)
        return "done"

    return flow


def outcomes(session: Session) -> list[tuple[str, str]]:
    return [(b["action"], b.get("outcome", "accepted")) for b in bodies(session, "ControlRequested")]


def put(session: Session, action: str, *, number: str = "r1", actor: str = "user:anna", task_id: str | None = None) -> Control:
    made = Control(number, action, actor, "2026-01-01T00:00:00.000Z", task_id)
    inbox.put(session.layout, made, session.place.disk)
    return made


def test_with_a_holder_the_request_is_logged_by_it_and_the_door_learns_the_outcome(
    engine: Engine, gate: Gate, waiting: Workflow
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    epoch = running(handle).appender.epoch
    outcome = control.request(handle.session, "checkpoint", actor="user:anna@terminal", label="before lunch")
    assert (outcome.action, outcome.outcome) == ("checkpoint", "accepted")
    assert ("manual", "before lunch") in checkpoints(handle.session)
    assert running(handle).appender.epoch == epoch == handle.session.layout.epoch()
    wait_until(lambda: list(handle.session.layout.inbox.iterdir()) == [], what="the request to be out of the inbox")


def test_without_a_holder_the_loss_is_recorded_first_and_then_the_request(
    engine: Engine, gate: Gate, waiting: Workflow
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    wait_until(lambda: handle.session.state().execution_state.active_activities, what="the start to be seen")
    session = engine.crash(handle)
    assert session.effective_state() == "lost"
    control.request(session, "cancel", actor="user:anna", reason="enough")
    told = [e for e in session.events() if e.event_type in ("TaskSuspended", "ControlRequested", "TaskCancelled")]
    assert [e.event_type for e in told] == ["TaskSuspended", "ControlRequested", "TaskCancelled"]
    lost = bodies(session, "TaskSuspended")[0]
    assert lost["reason"] == "worker_lost"
    assert "stopped at activity 0; outcome unknown: main/passing#1" in lost["detail"]
    assert "not restored: kernel variables" in lost["detail"]
    assert session.effective_state() == "cancelled"
    assert not session.held()
    assert session.summary().state == "cancelled"


def test_the_sweeper_records_a_lost_task_once(engine: Engine, gate: Gate, waiting: Workflow) -> None:
    handle = engine.start(waiting)
    gate.reached()
    session = engine.crash(handle)
    for _ in range(3):
        control.attend(session, by="sweeper")
    assert len(of_type(session, "TaskSuspended")) == 1
    assert session.effective_state() == "suspended"
    gate.open()
    assert engine.resume(session, waiting).result(10) == "done"
    assert bodies(session, "RecoveryCompleted")[0]["cause"] == "worker_lost"


def test_a_pause_of_a_lost_task_is_refused_with_what_it_is_now(engine: Engine, gate: Gate, waiting: Workflow) -> None:
    handle = engine.start(waiting)
    gate.reached()
    session = engine.crash(handle)
    with pytest.raises(ControlRefused, match="the task is suspended, not running"):
        control.request(session, "pause", actor="user:anna")
    assert outcomes(session) == [("pause", "refused")]


def test_a_request_whose_state_has_moved_on_is_refused_and_not_applied_to_the_next_thing(
    engine: Engine, gate: Gate, waiting: Workflow
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    with pytest.raises(ControlRefused, match=r"the task is running now .*, not suspended as when it was asked"):
        control.request(handle.session, "cancel", actor="user:anna", expects=["suspended"])
    assert running(handle).stopping is None
    gate.open()
    handle.result(10)


def test_a_request_for_a_task_that_is_over_does_not_reach_the_next_one(engine: Engine, gate: Gate, waiting: Workflow) -> None:
    @workflow(default_effect="none")
    async def first(ctx: Context) -> None:
        await ctx.run(abs, 1)

    before = engine.start(first)
    before.result(10)
    handle = engine.start(waiting, session=before.session)
    gate.reached()
    with pytest.raises(ControlRefused, match=f"task {before.task_id} is over; the session is at {handle.task_id}"):
        control.request(handle.session, "cancel", actor="user:anna", task_id=before.task_id)
    assert running(handle).stopping is None


@pytest.mark.parametrize("action", ["pause", "checkpoint"])
def test_what_was_logged_before_a_crash_is_not_done_again_when_its_file_is_still_there(
    engine: Engine, gate: Gate, waiting: Workflow, action: str
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    session = handle.session
    put(session, action)
    wait_until(lambda: of_type(session, "ControlRequested"), timeout=PATIENCE, what="the request to be logged")
    engine.crash(handle)
    put(session, action)  # as it is after a crash between logging and removing
    again = engine.resume(handle, waiting)
    wait_until(lambda: not list(session.layout.inbox.iterdir()), timeout=PATIENCE, what="the file to be removed")
    gate.open()
    assert again.result(10) == "done"
    assert outcomes(session) == [(action, "accepted")]
    assert len([c for c in checkpoints(session) if c[0] == "manual"]) == (action == "checkpoint")


def test_what_was_logged_at_rest_is_not_done_again(engine: Engine, gate: Gate, waiting: Workflow) -> None:
    handle = engine.start(waiting)
    gate.reached()
    session = engine.crash(handle)
    for _ in range(2):
        put(session, "checkpoint")
        control.attend(session, by="sweeper")
    assert outcomes(session) == [("checkpoint", "accepted")]
    assert [c for c in checkpoints(session) if c[0] == "manual"] == [("manual", "")]


def test_an_answer_is_not_counted_twice(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[bool]:
        return [bool(await ctx.approve("first?")), bool(await ctx.approve("second?"))]

    handle = engine.start(flow)
    session = handle.session
    until_asked(session)
    digest = session.state().execution_state.approvals["a1"].digest
    args = {"approval_id": "a1", "answer": "approved", "digest": digest}
    made = Control("r1", "answer", "user:anna", "2026-01-01T00:00:00.000Z", None, [], args)
    inbox.put(session.layout, made, session.place.disk)
    wait_until(lambda: "a2" in until_asked(session), timeout=PATIENCE, what="the second question")
    engine.crash(handle)
    inbox.put(session.layout, made, session.place.disk)
    control.attend(session, by="sweeper")
    assert until_asked(session) == ["a2"]
    assert len(of_type(session, "ApprovalResolved")) == 1


@pytest.mark.parametrize(
    ("action", "actor"), [("pause", "schedule"), ("pause", "robot"), ("cancel", "engine"), ("cancel", "")]
)
def test_who_may_not_is_refused_and_the_task_goes_on(
    engine: Engine, gate: Gate, waiting: Workflow, action: str, actor: str
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    with pytest.raises(ControlRefused, match="may not take a task from running to"):
        control.request(handle.session, action, actor=actor)
    gate.open()
    assert handle.result(10) == "done"
    assert outcomes(handle.session) == [(action, "refused")]


def test_what_nobody_knows_is_refused(engine: Engine, gate: Gate, waiting: Workflow) -> None:
    handle = engine.start(waiting)
    gate.reached()
    with pytest.raises(ControlRefused, match="nothing is known of 'explode'"):
        control.request(handle.session, "explode", actor="user:anna")
    with pytest.raises(ControlRefused, match="goes on by itself"):
        control.request(handle.session, "resume", actor="user:anna")


def test_an_unreadable_request_is_set_aside_and_the_others_are_answered(engine: Engine, gate: Gate, waiting: Workflow) -> None:
    handle = engine.start(waiting)
    gate.reached()
    layout = handle.session.layout
    layout.inbox.mkdir(exist_ok=True)
    (layout.inbox / "bad.json").write_bytes(b'{"id":')
    (layout.inbox / "a1.json").write_bytes(b'\xef\xbb\xbf{"id":"a1","action":"checkpoint","actor":"user:x","at":"yesterday"}')
    wait_until(lambda: ("manual", "") in checkpoints(handle.session), timeout=PATIENCE, what="the checkpoint")
    wait_until(lambda: not list(layout.inbox.iterdir()), timeout=PATIENCE, what="an empty inbox")
    assert (layout.damaged / "bad.json").exists()
    gate.open()
    handle.result(10)


def test_a_door_that_waits_in_vain_says_so_and_leaves_the_request(session: Session, me: Holder) -> None:
    appender = session.append(me)
    try:
        begun = time.monotonic()
        with pytest.raises(ControlRefused, match=r"was left for the holder of .*, which has not answered yet"):
            control.request(session, "pause", actor="user:anna", wait_s=0.1)
        assert time.monotonic() - begun < 3
        assert len(inbox.waiting(session.layout)) == 1
    finally:
        appender.close()


@pytest.mark.parametrize("action", ["pause", "cancel"])
def test_what_an_execution_did_not_answer_does_not_stop_the_next_one(
    engine: Engine, gate: Gate, waiting: Workflow, me: Holder, action: str
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    session = engine.crash(handle)
    stopped = session.append(me)  # a holder that answers nothing
    with pytest.raises(ControlPending):
        control.request(session, action, actor="user:anna", wait_s=0.1)
    stopped.close()
    again = engine.resume(session, waiting)
    wait_until(lambda: outcomes(session) == [(action, "refused")], what="the answer")
    assert "the task was resumed since it was asked" in bodies(session, "ControlRequested")[0]["reason"]
    gate.open()
    assert again.result(10) == "done"


@pytest.mark.parametrize("action", ["pause", "cancel"])
def test_a_request_that_failed_is_not_done_later(
    engine: Engine, gate: Gate, waiting: Workflow, disk: FaultyDisk, action: str
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    session = engine.crash(handle)
    disk.fail("before journal write", times=100)
    with pytest.raises(PersistenceError):
        control.request(session, action, actor="user:anna")
    assert inbox.waiting(session.layout) == []
    disk.mend()
    gate.open()
    assert engine.resume(session, waiting).result(10) == "done"


def test_a_running_task_is_not_resumed_a_second_time(engine: Engine, gate: Gate, waiting: Workflow) -> None:
    handle = engine.start(waiting)
    gate.reached()
    with pytest.raises(LeaseHeld, match=r"is held by user .pid \d+"):
        _ = engine.resume(handle, waiting)
    gate.open()
    assert handle.result(10) == "done"


def test_after_an_interrupted_approval_there_is_no_writer_left(engine: Engine) -> None:
    """[25] "Already has an active writer" for ever."""

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> bool:
        return bool(await ctx.approve("on?"))

    handle = engine.start(flow)
    until_asked(handle.session)
    session = engine.crash(handle)
    assert not session.held()
    handle = engine.resume(session, flow, headless=True)
    engine.ended(handle, "suspended")
    answer(session, "a1")
    assert engine.resume(session, flow).result(10) is True


def test_a_rename_needs_no_task(engine: Engine, session: Session) -> None:
    control.request(session, "rename", actor="user:anna", title="Migration")
    assert session.state().title == "Migration"
    assert session.summary().title == "Migration"


def test_what_was_refused_before_a_crash_stays_refused_whatever_fits_later(
    engine: Engine, gate: Gate, waiting: Workflow, me: Holder
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    session = engine.crash(handle)
    control.attend(session, by="sweeper")
    made = Control("r9", "cancel", "user:anna", "2026-01-01T00:00:00.000Z", None, ["running"])
    appender = session.append(me)
    refusal = control.judge(appender.state, made)
    control.log(appender, made, refusal)
    appender.close()
    assert "not running as when it was asked" in refusal
    inbox.put(session.layout, made, session.place.disk)  # as it is after a crash between logging and removing
    again = engine.resume(session, waiting)
    wait_until(lambda: not list(session.layout.inbox.iterdir()), timeout=PATIENCE, what="the file to be removed")
    assert running(again).stopping is None
    gate.open()
    assert again.result(10) == "done"
    inbox.put(session.layout, made, session.place.disk)
    control.attend(session, by="sweeper")
    assert outcomes(session) == [("cancel", "refused")]


def test_a_cancellation_accepted_for_a_task_that_is_over_does_not_reach_the_next_one(
    engine: Engine, gate: Gate, waiting: Workflow
) -> None:
    @workflow(default_effect="none")
    async def first(ctx: Context) -> None:
        await ctx.approve("on?")

    handle = engine.start(first, headless=True)
    session = engine.ended(handle, "suspended")
    made = put(session, "cancel")
    control.attend(session, by="sweeper")
    assert session.summary().state == "cancelled"
    following = engine.start(waiting, session=session)
    gate.reached()
    inbox.put(session.layout, made, session.place.disk)
    wait_until(lambda: not list(session.layout.inbox.iterdir()), timeout=PATIENCE, what="the file to be removed")
    assert running(following).stopping is None
    gate.open()
    assert following.result(10) == "done"


def test_the_pulse_goes_on_beside_what_cannot_be_read(engine: Engine, gate: Gate, waiting: Workflow) -> None:
    handle = engine.start(waiting)
    gate.reached()
    layout = handle.session.layout
    (layout.inbox / "x.json").mkdir(parents=True)
    wait_until(lambda: (layout.damaged / "x.json").exists(), timeout=PATIENCE, what="the folder to be set aside")
    control.request(handle.session, "checkpoint", actor="user:anna", label="after it")
    assert ("manual", "after it") in checkpoints(handle.session)
    gate.open()
    handle.result(10)


def test_trouble_of_one_beat_is_an_alarm_and_the_next_beat_comes(
    engine: Engine, gate: Gate, waiting: Workflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    real = inbox.waiting
    failed: list[int] = []

    def fails_twice(layout: Layout) -> list[Control]:
        if len(failed) < 2:
            failed.append(1)
            raise OSError(116, "Stale file handle")
        return real(layout)

    monkeypatch.setattr(inbox, "waiting", fails_twice)
    control.request(handle.session, "checkpoint", actor="user:anna", label="after it")
    wait_until(lambda: of_type(handle.session, "AlarmRaised"), timeout=PATIENCE, what="the alarm to be on disk")
    assert [b["kind"] for b in bodies(handle.session, "AlarmRaised")] == ["pulse"]
    gate.open()
    handle.result(10)


@pytest.mark.parametrize(
    ("action", "args", "why"),
    [
        ("answer", {"approval_id": "a1", "answer": "approved"}, "answer needs digest as text"),
        ("answer", {"approval_id": "a1", "answer": "approved", "digest": ""}, "what was shown is not what is asked now"),
        ("answer", {"approval_id": "a1", "answer": "approved", "digest": "d", "choice": 0}, "choice must be text, not int"),
        ("answer", {"approval_id": "a1", "answer": "approved", "digest": "d", "reason": []}, "reason must be text, not list"),
        ("answer", {"approval_id": ["a1"], "answer": "approved", "digest": "d"}, "answer needs approval_id as text"),
        ("checkpoint", {"label": {}}, "label must be text, not dict"),
        ("rename", {"title": 5}, "rename needs title as text"),
        ("rename", {}, "rename needs title as text"),
        ("redo", {"activities": 5}, "nothing is known of 'redo'"),
        ("cancel", {"reason": 1}, "reason must be text, not int"),
    ],
)
def test_arguments_of_another_form_are_refused_and_the_task_goes_on(
    engine: Engine, action: str, args: dict[str, Any], why: str
) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> bool:
        return bool(await ctx.approve("on?"))

    handle = engine.start(flow)
    until_asked(handle.session)
    with pytest.raises(ControlRefused, match=why):
        control.request(handle.session, action, actor="user:anna", **args)
    answer(handle.session, "a1")
    assert handle.result(10) is True


@pytest.mark.parametrize("held", [True, False])
def test_a_request_that_breaks_something_is_set_aside_and_those_behind_it_are_answered(
    engine: Engine, gate: Gate, waiting: Workflow, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    session = handle.session if held else engine.crash(handle)
    real = control.log

    def breaks(appender: Appender, made: Control, refusal: str) -> Event | None:
        if made.id == "r1":
            raise TypeError("nobody thought of this")
        return real(appender, made, refusal)

    monkeypatch.setattr(control, "log", breaks)
    put(session, "pause")
    control.request(session, "checkpoint", actor="user:anna", label="behind it")
    assert ("manual", "behind it") in checkpoints(session)
    wait_until(lambda: not list(session.layout.inbox.iterdir()), timeout=PATIENCE, what="both requests to be attended to")
    assert (session.layout.damaged / "r1.json").exists()
    wait_until(lambda: of_type(session, "AlarmRaised"), timeout=PATIENCE, what="the alarm to be on disk")
    assert ["nobody thought of this" in b["text"] for b in bodies(session, "AlarmRaised")] == [True]
    gate.open()
    assert (handle if held else engine.resume(session, waiting)).result(10) == "done"


def test_a_request_that_could_not_be_handled_for_now_is_handled_later(
    engine: Engine, gate: Gate, waiting: Workflow, disk: FaultyDisk
) -> None:
    handle = engine.start(waiting)
    gate.reached()
    disk.fail("before control logged")
    control.request(handle.session, "checkpoint", actor="user:anna", label="in the end")
    assert ("manual", "in the end") in checkpoints(handle.session)
    wait_until(lambda: of_type(handle.session, "AlarmRaised"), timeout=PATIENCE, what="the alarm to be on disk")
    assert [b["kind"] for b in bodies(handle.session, "AlarmRaised")] == ["control"]
    gate.open()
    handle.result(10)


@pytest.fixture
def asked(engine: Engine) -> Session:
    @workflow(default_effect="none")
    async def flow(ctx: Context, n: int) -> None:
        await ctx.gather(*[ctx.approve(f"{i}?", key=i) for i in range(n)])

    handle = engine.start(flow, 2)
    until_asked(handle.session, 2)
    return engine.crash(handle)


def test_an_approval_is_found_by_its_id_or_when_it_is_the_only_one(asked: Session) -> None:
    with pytest.raises(NotFound, match="2 approvals wait: a1, a2"):
        control.find_approval(asked.state(), None)
    with pytest.raises(NotFound, match="there is no approval 'a7'"):
        control.find_approval(asked.state(), "a7")
    assert control.find_approval(asked.state(), "a2") == "a2"
    answer(asked, "a2")
    assert control.find_approval(asked.state(), None) == "a1"
    answer(asked, "a1")
    with pytest.raises(NotFound, match="nothing waits"):
        control.find_approval(asked.state(), None)


def test_the_list_knows_a_new_title_while_the_task_runs(engine: Engine, gate: Gate, waiting: Workflow) -> None:
    handle = engine.start(waiting)
    gate.reached()
    control.request(handle.session, "rename", actor="user:anna", title="Sweep the court")
    wait_until(lambda: handle.session.summary().title == "Sweep the court", what="the summary to have the title")
    assert card(handle.session.id, handle.session.state(), None, "running", 0.0).title == "Sweep the court"
