"""A person who knows what became of one call of several says so, and what it returned."""

from __future__ import annotations

from typing import Any

import pytest
from tests.run.harness import Engine, Gate, Witness, answer, bodies, until_asked

from ipyagent_sessions.errors import ControlRefused
from ipyagent_sessions.log import inbox
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.run import control
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow, workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import wait_until


def paying(witness: Witness, gate: Gate, calls: int) -> Workflow:
    async def pay(i: int) -> str:
        witness(f"pay {i}")
        await gate.passing()
        return f"paid {i}"

    @workflow
    async def flow(ctx: Context) -> list[Any]:
        return await ctx.gather(*[ctx.run(pay, i, key=i) for i in range(1, calls + 1)])

    return flow


def crashed(engine: Engine, flow: Workflow, gate: Gate, calls: int) -> Session:
    handle = engine.start(flow)
    gate.reached(by=calls)
    session = engine.crash(handle)
    gate.open()
    return session


@pytest.mark.parametrize("result", ["receipt 17", {"$": "tricky", "n": [1, None]}, None, "x" * 100_000])
def test_the_workflow_gets_the_result_that_a_person_gives(engine: Engine, witness: Witness, gate: Gate, result: Any) -> None:
    flow = paying(witness, gate, 1)
    session = crashed(engine, flow, gate, 1)
    handle = engine.resume(session, flow)
    (asked,) = until_asked(session)
    answer(session, asked, choice="happened", result=result)
    assert handle.result(10) == [result]
    assert witness.counts == {"pay 1": 1}
    assert bodies(session, "ActivityCompleted")[0]["verified"] == "person"
    assert all("result" not in body["args"] for body in bodies(session, "ControlRequested")), "it stands in the log once"


@pytest.mark.parametrize("at_rest", [False, True])
def test_an_answer_for_one_call_leaves_the_others_open(engine: Engine, witness: Witness, gate: Gate, at_rest: bool) -> None:
    flow = paying(witness, gate, 3)
    session = crashed(engine, flow, gate, 3)
    handle = engine.resume(session, flow, headless=at_rest)
    (asked,) = until_asked(session)
    if at_rest:
        engine.ended(handle, "suspended")
    answer(session, asked, choice="happened", activity="main/pay:2", result="by hand")
    answer(session, asked, choice="run_again", activity="main/pay:3")
    state = session.state()
    waiting = state.execution_state.approvals[asked]
    assert (waiting.answer, waiting.about) == (None, ["main/pay:1"])
    row = engine.store.sql("select state, answer from approvals").rows()
    assert row == [{"state": "pending", "answer": None}]
    with pytest.raises(ControlRefused, match="not about an open call 'main/pay:2'; it is about main/pay:1"):
        answer(session, asked, choice="happened", activity="main/pay:2")
    answer(session, asked, choice="happened", activity="main/pay:1", result=1)
    assert session.state().execution_state.approvals[asked].answer == "approved"
    if at_rest:
        handle = engine.resume(session, flow)
    assert handle.result(10) == [1, "by hand", "paid 3"]
    assert witness.counts == {"pay 1": 1, "pay 2": 1, "pay 3": 2}


def test_the_call_that_was_answered_goes_on_while_the_others_wait(engine: Engine, witness: Witness, gate: Gate) -> None:
    flow = paying(witness, gate, 2)
    session = crashed(engine, flow, gate, 2)
    handle = engine.resume(session, flow)
    (asked,) = until_asked(session)
    answer(session, asked, choice="run_again", activity="main/pay:2")
    wait_until(lambda: witness.counts["pay 2"] == 2, what="the second call to run again")
    assert not handle.done
    answer(session, asked, choice="happened", result="known")
    assert handle.result(10) == ["known", "paid 2"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"choice": "run_again", "result": 1, "activity": "main/pay:1"}, "a result belongs to a call that happened"),
        ({"choice": "happened", "result": 1}, "a result is that of one call; say of which: main/pay:1, main/pay:2"),
        ({"choice": "happened", "activity": "main/pay:9"}, "not about an open call 'main/pay:9'"),
        ({"choice": "happened", "activity": 7}, "activity must be text, not int"),
    ],
)
def test_an_answer_that_does_not_fit_is_refused(
    engine: Engine, witness: Witness, gate: Gate, said: dict[str, Any], why: str
) -> None:
    flow = paying(witness, gate, 2)
    session = crashed(engine, flow, gate, 2)
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    (asked,) = until_asked(session)
    with pytest.raises(ControlRefused, match=why):
        answer(session, asked, **said)
    assert session.state().execution_state.approvals[asked].about == ["main/pay:1", "main/pay:2"]


def test_an_answer_for_one_call_that_was_logged_before_a_crash_is_not_given_twice(
    engine: Engine, witness: Witness, gate: Gate
) -> None:
    flow = paying(witness, gate, 2)
    session = crashed(engine, flow, gate, 2)
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    (asked,) = until_asked(session)
    digest = session.state().execution_state.approvals[asked].digest
    args = {"approval_id": asked, "answer": "approved", "digest": digest, "choice": "happened", "activity": "main/pay:1"}
    left = Control("again1", "answer", "user:anna", session.state().updated_at, args=args)
    for _ in range(2):  # the second time as if the first had died before it removed the file
        inbox.put(session.layout, left, engine.store.disk)
        control.attend(session, by="test")
    assert len(bodies(session, "ApprovalResolved")) == 1
    assert [b["name"] for b in bodies(session, "ActivityCompleted")] == ["pay"]
