"""Calls that began and left no result: run again, verified, or asked about, never just repeated ([33], R127, R151)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from tests.run.harness import Engine, Gate, Witness, answer, bodies, of_type, until_asked, until_status

from ipyagent_sessions.commands.start import before_end
from ipyagent_sessions.errors import ActivityError, ControlRefused, ResultLost
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Done, Retry, Workflow, activity, workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import wait_until


def sending(witness: Witness, gate: Gate, **options: Any) -> Workflow:
    """One call that is open when the task crashes."""

    async def send(to: str) -> str:
        witness("send")
        await gate.passing()
        return f"sent to {to}"

    @workflow
    async def flow(ctx: Context) -> str:
        try:
            return str(await ctx.run(send, "anna", **options))
        except ResultLost:
            return "it happened, its result is lost"

    return flow


def crashed(engine: Engine, flow: Workflow, gate: Gate, by: int = 1) -> Session:
    handle = engine.start(flow)
    gate.reached(by=by)
    session = engine.crash(handle)
    gate.open()
    return session


@pytest.mark.parametrize("effect", ["none", "idempotent"])
def test_what_may_be_repeated_is_run_again_and_nobody_asked(engine: Engine, witness: Witness, gate: Gate, effect: Any) -> None:
    flow = sending(witness, gate, effect=effect)
    session = crashed(engine, flow, gate)
    assert engine.resume(session, flow, headless=True).result(10) == "sent to anna"
    assert witness.counts["send"] == 2
    assert of_type(session, "ApprovalRequested") == []


@pytest.mark.parametrize("declared", [{}, {"effect": "irreversible"}])
def test_an_irreversible_or_undeclared_call_is_not_repeated_but_asked_about(
    engine: Engine, witness: Witness, gate: Gate, declared: Any
) -> None:
    flow = sending(witness, gate, **declared)
    session = crashed(engine, flow, gate)
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    assert session.state().system_state.reason == "approval"
    (asked,) = session.state().execution_state.approvals.values()
    assert asked.kind == "outcome"
    assert asked.question == "send: 1 call started and left no result. Did it happen?"
    [told] = msgspec.json.decode(asked.details)
    assert (told["activity"], told["arguments"]) == ("main/send#1", ["anna"]), "a person sees what it was called with"
    assert asked.choices == ["happened", "run_again"]
    assert witness.counts["send"] == 1


@pytest.mark.parametrize(
    ("args", "kwargs", "told"),
    [
        (("bob",), {"amount": 500}, {"arguments": ["bob"], "keywords": {"amount": 500}}),
        ((), {"to": "bob", "amount": 500}, {"arguments": {"to": "bob", "amount": 500}}),
        (("bob", 500), {}, {"arguments": ["bob", 500]}),
        ((), {}, {}),
    ],
)
def test_a_person_sees_all_that_an_open_call_was_given(
    engine: Engine, gate: Gate, args: tuple[Any, ...], kwargs: dict[str, Any], told: dict[str, Any]
) -> None:
    async def send(to: str = "", amount: int = 0) -> None:
        await gate.passing()

    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(send, *args, **kwargs)

    session = crashed(engine, flow, gate)
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    (asked,) = session.state().execution_state.approvals.values()
    [shown] = msgspec.json.decode(asked.details)
    assert {name: value for name, value in shown.items() if name not in ("activity", "since")} == told


@pytest.mark.parametrize(
    ("choice", "result", "runs"), [("happened", "it happened, its result is lost", 1), ("run_again", "sent to anna", 2)]
)
@pytest.mark.parametrize("at_rest", [False, True])
def test_a_person_decides_what_became_of_it(
    engine: Engine, witness: Witness, gate: Gate, choice: str, result: str, runs: int, at_rest: bool
) -> None:
    flow = sending(witness, gate)
    session = crashed(engine, flow, gate)
    handle = engine.resume(session, flow, headless=at_rest)
    (asked,) = until_asked(session)
    if at_rest:
        engine.ended(handle, "suspended")
    answer(session, asked, choice=choice)
    if at_rest:
        handle = engine.resume(session, flow)
    assert handle.result(10) == result
    assert witness.counts["send"] == runs
    assert len(of_type(session, "ApprovalRequested")) == 1


@pytest.mark.parametrize("said", ["approved", "denied"])
def test_an_answer_that_does_not_say_what_happened_is_refused(engine: Engine, witness: Witness, gate: Gate, said: str) -> None:
    """Neither "yes" nor "no" says whether it happened, and a "no" must never send it a second time."""
    flow = sending(witness, gate)
    session = crashed(engine, flow, gate)
    handle = engine.resume(session, flow)
    (asked,) = until_asked(session)
    with pytest.raises(ControlRefused, match="needs a choice: happened or run_again"):
        answer(session, asked, said)
    answer(session, asked, choice="happened")
    handle.result(10)
    assert witness.counts["send"] == 1


def test_all_open_calls_of_a_function_are_one_question_and_each_function_has_its_own(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    async def send(i: int) -> int:
        witness(f"send {i}")
        await gate.passing()
        return i

    async def pay(i: int) -> int:
        witness(f"pay {i}")
        await gate.passing()
        return i

    @workflow
    async def flow(ctx: Context) -> list[int]:
        return await ctx.gather(*[ctx.run(send, i, key=i) for i in range(3)], *[ctx.run(pay, i, key=i) for i in range(2)])

    session = crashed(engine, flow, gate, by=5)
    handle = engine.resume(session, flow)
    first, second = until_asked(session, 2)
    until_status(session, "suspended")
    approvals = session.state().execution_state.approvals
    assert {a.question: sorted(a.about) for a in approvals.values()} == {
        "send: 3 calls started and left no result. Did it happen?": ["main/send:0", "main/send:1", "main/send:2"],
        "pay: 2 calls started and left no result. Did it happen?": ["main/pay:0", "main/pay:1"],
    }
    for asked in (first, second):
        answer(session, asked, choice="run_again")
    assert handle.result(10) == [0, 1, 2, 0, 1]
    assert set(witness.counts.values()) == {2}


def test_a_second_crash_before_the_answer_asks_the_same_question_and_no_other(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    flow = sending(witness, gate)
    session = crashed(engine, flow, gate)
    handle = engine.resume(session, flow)
    asked = until_asked(session)
    engine.crash(handle)
    handle = engine.resume(session, flow)
    until_status(session, "suspended")
    assert until_asked(session) == asked
    answer(session, asked[0], choice="happened")
    handle.result(10)
    assert len(of_type(session, "ApprovalRequested")) == 1


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize(
    ("verdict", "result", "runs"),
    [(True, "it happened, its result is lost", 1), (False, "sent to anna", 2), (Done("sent before"), "sent before", 1)],
)
def test_a_verify_function_decides_with_the_calls_own_arguments(
    engine: Engine, witness: Witness, gate: Gate, verdict: Any, result: str, runs: int, sync: bool
) -> None:
    def verify(to: str) -> Any:
        witness(f"verify {to}")
        return verdict

    async def verify_async(to: str) -> Any:
        return verify(to)

    flow = sending(witness, gate, verify=verify if sync else verify_async)
    session = crashed(engine, flow, gate)
    assert engine.resume(session, flow, headless=True).result(10) == result
    assert (witness.counts["send"], witness.counts["verify anna"]) == (runs, 1)
    assert of_type(session, "ApprovalRequested") == []
    if verdict is not False:
        assert bodies(session, "ActivityCompleted")[0]["verified"] == "verify"


@pytest.mark.parametrize("verdict", [None, "yes", 1])
def test_a_verify_function_that_answers_anything_else_is_refused_and_nothing_runs(
    engine: Engine, witness: Witness, gate: Gate, verdict: Any
) -> None:
    flow = sending(witness, gate, verify=lambda to: verdict)
    session = crashed(engine, flow, gate)
    handle = engine.resume(session, flow, headless=True)
    engine.ended(handle, "suspended")
    assert session.state().system_state.reason == "definition"
    assert handle.outcome is not None
    assert "verify of send answered" in str(handle.outcome.error)
    assert witness.counts["send"] == 1


def test_a_verify_function_that_fails_leaves_the_question_to_a_person(engine: Engine, witness: Witness, gate: Gate) -> None:
    def verify(to: str) -> bool:
        raise ConnectionError("the server is down")

    flow = sending(witness, gate, verify=verify)
    session = crashed(engine, flow, gate)
    handle = engine.resume(session, flow)
    (asked,) = until_asked(session)
    assert "verify of main/send#1 failed: ConnectionError: the server is down" in session.state().alarms[-1]
    answer(session, asked, choice="happened")
    handle.result(10)
    assert witness.counts["send"] == 1


def test_an_async_verify_function_behind_a_decorator_is_awaited(engine: Engine, witness: Witness, gate: Gate) -> None:
    async def looked(to: str) -> Done:
        return Done(f"it was {to}")

    flow = sending(witness, gate, effect="irreversible", verify=lambda to: looked(to))
    session = crashed(engine, flow, gate)
    assert engine.resume(session, flow).result(10) == "it was anna"
    assert witness.counts["send"] == 1


def test_verify_is_not_asked_about_what_may_be_repeated_or_is_recorded(engine: Engine, witness: Witness, gate: Gate) -> None:
    def verify(to: str) -> bool:
        witness("verify")
        return True

    flow = sending(witness, gate, verify=verify, effect="idempotent")
    session = crashed(engine, flow, gate)
    assert engine.resume(session, flow).result(10) == "sent to anna"
    assert "verify" not in witness.counts


def test_an_aborted_irreversible_call_is_unknown_too(engine: Engine, witness: Witness, gate: Gate) -> None:
    flow = sending(witness, gate)
    handle = engine.start(flow)
    gate.reached()
    engine.ask(handle, "pause")
    handle.ask("pause")
    session = engine.ended(handle, "interrupted")
    gate.open()
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    assert until_asked(session) == ["a1"]
    assert witness.counts["send"] == 1


def test_a_function_declared_without_effect_by_its_workflow_is_not_asked_about(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    async def step() -> None:
        witness("step")
        await gate.passing()

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        await ctx.run(step)

    session = crashed(engine, flow, gate)
    engine.resume(session, flow, headless=True).result(10)
    assert witness.counts["step"] == 2


@pytest.mark.parametrize(("verdict", "runs"), [(None, 1), (True, 1), (False, 2)])
def test_a_fork_keeps_an_irreversible_call_of_unknown_outcome_open_and_never_just_repeats_it(
    engine: Engine, witness: Witness, gate: Gate, verdict: Any, runs: int
) -> None:
    flow = sending(witness, gate, verify=None if verdict is None else lambda to: verdict)
    handle = engine.start(flow)
    gate.reached()
    handle.ask("cancel", "user:anna")
    session = engine.ended(handle, "cancelled")
    gate.open()
    child = session.fork(before_end(session))
    assert list(child.state().execution_state.active_activities) == ["main/send#1"]
    handle = engine.resume(child, flow, headless=True)
    engine.ended(handle, "suspended" if verdict is None else "completed")
    assert witness.counts["send"] == runs
    asked = child.state().execution_state.approvals.values()
    assert [a.about for a in asked] == ([["main/send#1"]] if verdict is None else [])


def test_a_fork_of_a_sealed_log_keeps_it_open_too_and_drops_what_may_be_repeated(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    async def look() -> None:
        await gate.passing()

    async def send() -> None:
        witness("send")
        await gate.passing()

    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.gather(ctx.run(look, effect="none"), ctx.run(send))

    handle = engine.start(flow)
    gate.reached(by=2)
    handle.ask("cancel", "user:anna")
    session = engine.ended(handle, "cancelled")
    assert session.layout.segments(), "an ended task's log is sealed"
    child = session.fork(before_end(session))
    assert list(child.state().execution_state.active_activities) == ["main/send#1"]


def test_a_question_leaves_out_the_calls_that_certainly_did_not_happen(engine: Engine, witness: Witness, gate: Gate) -> None:
    """One is cut short while it is under way, the other between two attempts."""

    @activity(effect="irreversible", retry=Retry(3, initial_s=600, jitter_s=0))
    async def pay(i: int) -> int:
        witness(f"pay {i}")
        if i == 2 and witness.counts["pay 2"] == 1:
            raise ConnectionError("refused")
        await gate.passing()
        return i

    @workflow
    async def flow(ctx: Context) -> list[Any]:
        async def one(i: int) -> Any:
            try:
                return await ctx.run(pay, i, key=i)
            except ResultLost:
                return "lost"

        return await ctx.gather(*[one(i) for i in (1, 2)])

    resting = asyncio.Event()

    async def never(seconds: float) -> None:
        await resting.wait()

    clock = engine.store.clock
    real, clock.sleep = clock.sleep, never  # type: ignore[method-assign]  # the wait between the attempts does not end
    handle = engine.start(flow)
    gate.reached()
    wait_until(lambda: of_type(handle.session, "ActivityRetried"), what="the second to fail")
    session = engine.crash(handle)
    clock.sleep = real  # type: ignore[method-assign]  # as it was
    handle = engine.resume(session, flow)
    (asked,) = until_asked(session)
    assert session.state().execution_state.approvals[asked].about == ["main/pay:1"]
    answer(session, asked, choice="happened")
    gate.open()
    assert handle.result(10) == ["lost", 2]
    assert witness.counts == {"pay 1": 1, "pay 2": 2}


def test_an_answer_is_not_about_an_attempt_that_began_after_the_question(engine: Engine, witness: Witness, gate: Gate) -> None:
    """Asked about the first attempt, the call is run again since verify now says that it did not happen."""
    flow = sending(witness, gate)
    handle = engine.start(flow)
    gate.reached()
    session = engine.crash(handle)
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    (asked,) = until_asked(session)
    handle = engine.resume(session, sending(witness, gate, verify=lambda to: False))
    gate.reached(by=2)
    answer(session, asked, choice="happened")
    assert session.state().business_state.results == {}
    gate.open()
    assert handle.result(10) == "sent to anna"
    assert session.state().execution_state.done == 1
    assert witness.counts["send"] == 2


@pytest.mark.parametrize(("verdict", "result", "runs"), [(True, "lost", 1), (False, "paid", 2), (Done("before"), "before", 1)])
def test_an_irreversible_attempt_that_timed_out_is_verified_before_there_is_another(
    engine: Engine, witness: Witness, verdict: Any, result: str, runs: int
) -> None:
    def verify() -> Any:
        witness("verify")
        return verdict

    @activity(effect="irreversible", retry=Retry(3, initial_s=1, jitter_s=0), timeout=0.05, verify=verify)
    async def pay() -> str:
        witness("pay")
        if witness.counts["pay"] == 1:
            await asyncio.sleep(60)
        return "paid"

    @workflow
    async def flow(ctx: Context) -> str:
        try:
            return str(await ctx.run(pay))
        except ResultLost:
            return "lost"

    handle = engine.start(flow)
    assert handle.result(10) == result
    assert (witness.counts["pay"], witness.counts["verify"]) == (runs, 1)
    (cut,) = bodies(handle.session, "ActivityFailed")
    assert (cut["timed_out"], cut["aborted"]) == (True, True)
    assert [e.attempt for e in of_type(handle.session, "ActivityRetried")] == ([1] if verdict is False else [])


@pytest.mark.parametrize("crash", [False, True])
def test_an_irreversible_attempt_that_timed_out_is_asked_about_also_after_a_crash(
    engine: Engine, witness: Witness, crash: bool
) -> None:
    @activity(effect="irreversible", retry=Retry(2, initial_s=1, jitter_s=0), timeout=0.05)
    async def pay() -> str:
        witness("pay")
        if witness.counts["pay"] == 1:
            await asyncio.sleep(60)
        return "paid"

    @workflow
    async def flow(ctx: Context) -> str:
        return str(await ctx.run(pay))

    handle = engine.start(flow)
    session = handle.session
    (asked,) = until_asked(session)
    until_status(session, "suspended")
    assert witness.counts["pay"] == 1
    if crash:
        engine.crash(handle)
        handle = engine.resume(session, flow)
        assert until_asked(session) == [asked]
    answer(session, asked, choice="run_again")
    assert handle.result(10) == "paid"
    assert witness.counts["pay"] == 2


def test_the_last_attempt_that_times_out_is_a_failure_and_nobody_is_asked(engine: Engine, witness: Witness) -> None:
    async def pay() -> None:
        witness("pay")
        await asyncio.sleep(60)

    @workflow
    async def flow(ctx: Context) -> None:
        await ctx.run(pay, effect="irreversible", timeout=0.05)

    handle = engine.start(flow)
    session = engine.ended(handle, "failed")
    assert handle.outcome is not None
    assert isinstance(handle.outcome.error, ActivityError)
    assert of_type(session, "ApprovalRequested") == []


@pytest.mark.parametrize(
    ("begun", "now"), [("irreversible", "none"), ("irreversible", "idempotent"), ("idempotent", "irreversible")]
)
def test_a_call_is_held_to_the_stricter_of_the_effect_it_began_with_and_the_declared_one(
    engine: Engine, witness: Witness, gate: Gate, begun: Any, now: Any
) -> None:
    session = crashed(engine, sending(witness, gate, effect=begun), gate)
    flow = sending(witness, gate, effect=now)
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    (asked,) = session.state().execution_state.approvals.values()
    assert asked.about == ["main/send#1"]
    assert asked.question == "send: 1 call started and left no result. Did it happen?"
    assert witness.counts["send"] == 1
    assert f"effect_changed: main/send#1 was begun with effect {begun} and is declared {now} now" in session.state().alarms[-1]
