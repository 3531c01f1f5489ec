"""Approvals: durable, asked once, answered once, from any door, bound to what was shown ([36], [37], R076, R251)."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import msgspec
import pytest
from tests.run.harness import Engine, Gate, Witness, answer, bodies, of_type, running, until_asked, until_status

from ipyagent_sessions.errors import ControlRefused
from ipyagent_sessions.run import control
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.run.waiting import Answer
from ipyagent_sessions.testing import FakeClock, wait_until
from ipyagent_sessions.views.card import card


def asking(**options: Any) -> Workflow:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Answer:
        got: Answer = await ctx.approve("Delete the originals?", details={"files": ["a", "b"]}, **options)
        return got

    return flow


@pytest.mark.parametrize(("said", "truth"), [("approved", True), ("denied", False)])
def test_an_answer_lets_it_go_on_and_says_by_whom_and_why(engine: Engine, said: str, truth: bool) -> None:
    handle = engine.start(asking())
    session = handle.session
    assert until_asked(session) == ["a1"]
    until_status(session, "suspended")
    answer(session, "a1", said, reason="looked at them", by="user:anna@card")
    got = handle.result(10)
    assert bool(got) is truth
    assert got == Answer(truth, None, "looked at them", "user:anna@card")
    assert [e.event_type for e in session.events() if e.event_type.startswith(("Task", "Approval"))] == [
        "TaskQueued",
        "TaskStarted",
        "ApprovalRequested",
        "TaskSuspended",
        "ApprovalResolved",
        "TaskResumed",
        "TaskCompleted",
    ]
    (resolved,) = of_type(session, "ApprovalResolved")
    assert resolved.actor == "user:anna@card"
    assert resolved.parent_event == of_type(session, "ControlRequested")[0].seq


def test_headless_it_suspends_at_once_and_an_answer_at_rest_is_found_by_the_resume(engine: Engine) -> None:
    handle = engine.start(asking(), headless=True)
    session = engine.ended(handle, "suspended")
    system = session.state().system_state
    assert (system.reason, system.detail) == ("approval", "Delete the originals?")
    answer(session, "a1")
    assert session.effective_state() == "suspended"  # answered, and nobody runs it yet
    assert engine.resume(handle, asking()).result(10)
    assert len(of_type(session, "ApprovalRequested")) == 1


def test_after_a_crash_it_is_the_same_request_with_the_same_id(engine: Engine) -> None:
    handle = engine.start(asking())
    until_asked(handle.session)
    session = engine.crash(handle)
    again = engine.resume(handle, asking())
    until_status(session, "suspended")
    assert until_asked(session) == ["a1"]
    answer(session, "a1")
    assert again.result(10)
    assert len(of_type(session, "ApprovalRequested")) == 1


def test_a_crash_right_after_the_answer_does_not_ask_again(engine: Engine, gate: Gate) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> Answer:
        got: Answer = await ctx.approve("Sure?")
        await ctx.run(gate.passing)
        return got

    handle = engine.start(flow)
    until_asked(handle.session)
    answer(handle.session, "a1", by="user:anna")
    gate.reached()
    engine.crash(handle)
    gate.open()
    assert engine.resume(handle, flow).result(10) == Answer(True, None, "", "user:anna")
    assert len(of_type(handle.session, "ApprovalRequested")) == 1


@pytest.mark.parametrize("at_rest", [False, True])
def test_a_second_answer_is_refused_and_told_by_whom_and_when(engine: Engine, gate: Gate, at_rest: bool) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> bool:
        got = await ctx.approve("Sure?")
        await ctx.run(gate.passing)
        return bool(got)

    handle = engine.start(flow, headless=at_rest)
    session = handle.session
    until_asked(session)
    if at_rest:
        engine.ended(handle, "suspended")
    answer(session, "a1", "denied", by="user:anna")
    with pytest.raises(ControlRefused, match=r"it was denied by user:anna at 2026-01-01T00:00"):
        answer(session, "a1", "approved", by="user:bert")
    if at_rest:
        handle = engine.resume(handle, flow)
    gate.open()
    assert handle.result(10) is False
    assert [b.get("outcome", "accepted") for b in bodies(session, "ControlRequested")] == ["accepted", "refused"]


@pytest.mark.parametrize("at_rest", [False, True])
def test_of_two_doors_that_answer_at_once_one_wins(engine: Engine, at_rest: bool) -> None:
    handle = engine.start(asking(), headless=at_rest)
    session = handle.session
    until_asked(session)
    if at_rest:
        engine.ended(handle, "suspended")
    together = threading.Barrier(2)
    refused: list[str] = []

    def door(by: str, said: str) -> None:
        together.wait()
        try:
            answer(engine.store.session(session.id), "a1", said, by=by)
        except ControlRefused as error:
            refused.append(str(error))

    doors = [threading.Thread(target=door, args=a) for a in (("user:anna", "approved"), ("user:bert", "denied"))]
    for thread in doors:
        thread.start()
    for thread in doors:
        thread.join(20)
    (resolved,) = bodies(session, "ApprovalResolved")
    assert len(refused) == 1
    assert f"it was {resolved['answer']} by {resolved['by']}" in refused[0]
    result = (engine.resume(handle, asking()) if at_rest else handle).result(10)
    assert bool(result) == (resolved["answer"] == "approved")


def test_an_answer_to_another_question_than_is_asked_is_refused(engine: Engine) -> None:
    handle = engine.start(asking(), headless=True)
    session = engine.ended(handle, "suspended")
    with pytest.raises(ControlRefused, match="what was shown is not what is asked now"):
        answer(session, "a1", digest="0" * 16)
    with pytest.raises(ControlRefused, match="there is no approval 'a9'"):
        control.request(session, "answer", actor="user:anna", approval_id="a9", answer="approved", digest="d")
    with pytest.raises(ControlRefused, match="an answer is one of approved, denied"):
        answer(session, "a1", "maybe")
    with pytest.raises(ControlRefused, match="has no choices"):
        answer(session, "a1", choice="always")
    with pytest.raises(ControlRefused, match="may not take a task"):
        answer(session, "a1", by="robot:r2")
    assert until_asked(session) == ["a1"]


@pytest.mark.parametrize("what", ["question", "details"])
def test_a_changed_question_is_refused_and_not_answered_by_the_old_answer(engine: Engine, what: str) -> None:
    given = {"question": "Delete a?", "details": "a"}

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> bool:
        return bool(await ctx.approve(given["question"], details=given["details"]))

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    answer(session, "a1")
    given[what] = "everything"
    again = engine.resume(handle, flow)
    engine.ended(again, "suspended")
    assert session.state().system_state.reason == "definition"
    assert again.outcome is not None
    assert "was asked with another question or other details" in str(again.outcome.error)


def test_when_nobody_answers_in_time_it_is_denied(engine: Engine, clock: FakeClock) -> None:
    handle = engine.start(asking(expires="10m"))
    session = handle.session
    until_status(session, "suspended")
    assert bodies(session, "ApprovalRequested")[0]["if_ignored"] == "denied at 2026-01-01T00:10:00.000Z"
    clock.advance(599)
    assert not handle.wait(0.25)
    clock.advance(1)
    got = handle.result(10)
    assert (bool(got), got.reason, got.by) == (False, "nobody answered in time", "expiry")
    assert of_type(session, "ApprovalResolved")[0].actor == "rule:expiry"


def test_an_approval_that_expired_at_rest_is_denied_by_whoever_takes_the_lease(engine: Engine, clock: FakeClock) -> None:
    handle = engine.start(asking(expires="10m"), headless=True)
    session = engine.ended(handle, "suspended")
    clock.advance(601)
    control.attend(session, by="sweeper")
    assert bodies(session, "ApprovalResolved")[0]["reason"] == "nobody answered in time"
    with pytest.raises(ControlRefused, match="it was denied by expiry"):
        answer(session, "a1")
    assert not engine.resume(handle, asking(expires="10m")).result(10)


def test_an_answer_given_too_late_is_refused_even_when_nobody_noted_the_expiry(engine: Engine, clock: FakeClock) -> None:
    """Fail closed (R251): what counts is when the answer came."""
    handle = engine.start(asking(expires="10m"), headless=True)
    session = engine.ended(handle, "suspended")
    clock.advance(601)
    with pytest.raises(ControlRefused, match=r"its time was over at 2026-01-01T00:10:00\.000Z"):
        answer(session, "a1")
    assert not engine.resume(handle, asking(expires="10m")).result(10)


def test_several_can_wait_and_each_gets_its_own_answer(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[bool]:
        return [bool(a) for a in await ctx.gather(*[ctx.approve(f"{i}?", key=i) for i in range(3)])]

    handle = engine.start(flow)
    session = handle.session
    assert until_asked(session, 3) == ["a1", "a2", "a3"]
    answer(session, "a3", "denied")
    until_status(session, "suspended")  # it still waits for the two others
    answer(session, "a1")
    answer(session, "a2")
    assert handle.result(10) == [True, True, False]


def test_headless_work_beside_the_question_is_done_before_it_suspends(engine: Engine, witness: Witness) -> None:
    async def step(i: int) -> None:
        witness(i)
        await asyncio.sleep(0)

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async def work() -> None:
            for i in range(4):
                await ctx.run(step, i, key=i)

        await ctx.gather(ctx.approve("Sure?"), work())

    session = engine.ended(engine.start(flow, headless=True), "suspended")
    assert witness.order == ["0", "1", "2", "3"]
    assert session.state().system_state.reason == "approval"


def test_headless_a_sleep_beside_the_question_ends_and_then_it_suspends(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.gather(ctx.approve("Sure?"), ctx.sleep(60))

    engine.ended(engine.start(flow, headless=True), "suspended")


def test_while_work_goes_on_beside_the_question_the_task_is_running(engine: Engine, gate: Gate, witness: Witness) -> None:
    async def step(i: int) -> None:
        witness(i)
        if i == 1:
            await gate.passing()

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        async def work() -> None:
            for i in range(3):
                await ctx.run(step, i, key=i)

        await ctx.gather(ctx.approve("Sure?"), work())

    handle = engine.start(flow)
    session = handle.session
    gate.reached()
    until_asked(session)
    assert running(handle).state.system_state.status == "running"
    assert of_type(session, "TaskSuspended") == []
    gate.open()
    until_status(session, "suspended")
    assert witness.order == ["0", "1", "2"]
    answer(session, "a1")
    handle.result(10)


def test_work_that_begins_beside_an_open_question_sets_the_task_running_again(
    engine: Engine, clock: FakeClock, gate: Gate
) -> None:
    wake = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        loops.append(asyncio.get_running_loop())

        async def work() -> None:
            await wake.wait()  # a wait the engine does not know
            await ctx.run(gate.passing, key=1)

        await ctx.gather(ctx.approve("Sure?"), work())

    handle = engine.start(flow)
    session = handle.session
    until_status(session, "suspended")
    loops[0].call_soon_threadsafe(wake.set)
    gate.reached()
    assert running(handle).state.system_state.status == "running"
    gate.open()
    until_status(session, "suspended")
    answer(session, "a1")
    handle.result(10)


def test_a_failure_beside_an_open_question_fails_the_task(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await asyncio.gather(ctx.approve("Sure?"), ctx.run(int, "x"))

    session = engine.ended(engine.start(flow), "failed")
    assert session.state().system_state.error_type == "ValueError"


def test_a_body_may_give_up_waiting_for_an_answer(engine: Engine, witness: Witness) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> str:
        try:
            async with asyncio.timeout(0.1):
                await ctx.approve("Sure?")
        except TimeoutError:
            await ctx.run(witness, "gave up")
        return "done"

    handle = engine.start(flow)
    assert handle.result(10) == "done"
    with pytest.raises(ControlRefused, match="the task is completed"):
        answer(handle.session, "a1")


def test_a_request_says_what_happens_if_it_is_ignored_and_carries_its_details(engine: Engine) -> None:
    handle = engine.start(asking(), headless=True)
    session = engine.ended(handle, "suspended")
    asked = session.state().execution_state.approvals["a1"]
    assert (asked.question, asked.if_ignored, bytes(asked.details)) == (
        "Delete the originals?",
        "waits for an answer",
        b'{"files":["a","b"]}',
    )
    assert session.summary().needs_you == 1


def test_large_details_are_a_blob_with_their_beginning_beside_and_an_answer_is_bound_to_all_of_them(engine: Engine) -> None:
    given = {"text": "é" * 500_000}

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> bool:
        return bool(await ctx.approve("Write it?", details=given))

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    (event,) = of_type(session, "ApprovalRequested")
    assert len(bytes(memoryview(event.payload))) < 4_000
    assert session.payload(event)["details"] == given
    asked = session.state().execution_state.approvals["a1"]
    assert asked.details_blob is not None
    assert msgspec.json.decode(session.blobs.read(asked.details_blob)) == given
    [shown] = card(session.id, session.state(), None, "suspended", 0.0).asks
    assert shown.details == asked.preview
    assert shown.details.startswith('{"text":"éé')
    assert shown.details_blob == asked.details_blob
    given["text"] += "!"
    assert engine.ended(engine.resume(handle, flow), "suspended").state().system_state.reason == "definition"
    given["text"] = given["text"][:-1]
    answer(session, "a1")
    assert engine.resume(handle, flow).result(10) is True


def test_an_answered_request_leaves_its_details_to_the_log(engine: Engine) -> None:
    handle = engine.start(asking(), headless=True)
    session = engine.ended(handle, "suspended")
    answer(session, "a1")
    asked = session.state().execution_state.approvals["a1"]
    assert (asked.answer, bytes(asked.details)) == ("approved", b"null")
    (event,) = of_type(session, "ApprovalRequested")
    assert session.payload(event)["details"] == {"files": ["a", "b"]}


def test_with_no_effect_on_others_a_question_with_odd_text_is_asked(engine: Engine) -> None:
    @workflow(default_effect="none")
    async def flow(ctx: Context) -> bool:
        return bool(await ctx.approve("\ud800 really\0?", details={"\ud800": "\0"}))

    handle = engine.start(flow, headless=True)
    session = engine.ended(handle, "suspended")
    answer(session, "a1")
    assert engine.resume(handle, flow).result(10) is True
    wait_until(lambda: session.summary().needs_you == 0)


def test_details_that_are_no_text_are_shown_cleaned_and_bound_as_they_are(engine: Engine) -> None:
    async def flow(ctx: Context) -> bool:
        return bool(await ctx.approve("Delete it?", details={"name": "n\udcff\0", "tagged": {"$": "text", "v": "eA=="}}))

    handle = engine.start(Workflow(flow), headless=True)
    session = engine.ended(handle, "suspended")
    (asked,) = session.state().execution_state.approvals.values()
    (shown,) = card(session.id, session.state(), None, "suspended", session.place.clock.now()).asks
    assert json.loads(shown.details)["name"] == "n\ufffd\ufffd"
    assert "eA==" in shown.details, "what only looks like such a text is shown as it is"
    assert b'"$":"text"' in bytes(asked.details)
    assert shown.digest == asked.digest
