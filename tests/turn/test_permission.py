"""Whether a tool may be called: by its name and effect, by what a person says, once and durably (R236, R239, R251)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.exceptions import ApprovalRequired
from tests.run.harness import PATIENCE, Engine, Gate, Witness, answer, bodies, of_type, until_asked, until_status
from tests.turn.play import Play, agent_of, cut, talking

from ipyagent_sessions.agent.permission import Permission, Rules
from ipyagent_sessions.errors import ControlRefused
from ipyagent_sessions.run import control, launch
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FakeClock


def tool(witness: Witness, name: str, effect: str | None, **metadata: Any) -> Tool[Any]:
    async def called(x: int) -> str:
        witness(f"{name} {x}")
        return f"{name} {x} done"

    declared = {} if effect is None else {"effect": effect}
    return Tool(called, name=name, metadata=declared | metadata)


def asked(session: Session) -> list[str]:
    return [b["tool"] for b in bodies(session, "ApprovalRequested")]


@pytest.mark.parametrize(
    ("rules", "effect", "expected"),
    [
        (Rules(), "none", "ran"),
        (Rules(), "idempotent", "asked"),
        (Rules(), "irreversible", "asked"),
        (Rules(), None, "asked"),
        (Rules(unknown="auto"), None, "ran"),
        (Rules(effects={"idempotent": "auto"}), "idempotent", "ran"),
        (Rules(effects={"none": "ask"}), "none", "asked"),
        (Rules(effects={"irreversible": "never"}), "irreversible", "refused"),
        (Rules(mode="auto"), "irreversible", "ran"),
        (Rules(mode="never"), "irreversible", "refused"),
        (Rules(mode="never"), "none", "ran"),
        (Rules(tools={"do": "never"}, mode="auto"), "none", "refused"),
        (Rules(tools={"do": "ask"}), "none", "asked"),
        (Rules(tools={"do": "auto"}), "irreversible", "ran"),
    ],
)
def test_what_is_asked_follows_the_name_the_effect_and_the_mode(
    engine: Engine, witness: Witness, rules: Rules, effect: str | None, expected: str
) -> None:
    play = Play([("do", {"x": 1})], "done")
    handle = engine.start(talking(agent_of(play, [tool(witness, "do", effect)]), rules), "go", headless=True)
    assert handle.wait(PATIENCE)
    assert handle.outcome is not None
    assert handle.outcome.state == ("suspended" if expected == "asked" else "completed")
    assert asked(handle.session) == (["do"] if expected == "asked" else [])
    assert witness.order == (["do 1"] if expected == "ran" else [])
    if expected == "refused":
        assert play.sent[-1][-1] == "tool-return:do=do may not be called here: it is not permitted"


def test_always_in_this_session_is_for_this_tool_alone_and_outlives_the_task(engine: Engine, witness: Witness) -> None:
    play = Play([("do", {"x": 1})], [("do", {"x": 2})], "done", [("do", {"x": 3}), ("other", {"x": 4})])
    tools = [tool(witness, "do", "irreversible"), tool(witness, "other", "irreversible")]
    flow = talking(agent_of(play, tools), Rules())
    handle = engine.start(flow, "go")
    session = handle.session
    answer(session, until_asked(session)[0], always=True)
    assert handle.result(PATIENCE) == "done"
    again = engine.start(flow, "on", session=session, headless=True)
    engine.ended(again, "suspended")
    assert witness.order == ["do 1", "do 2", "do 3"]
    assert asked(session) == ["do", "other"]
    assert engine.start(flow, "elsewhere").session.state().allowed_tools == []


def test_a_denied_call_is_told_to_the_model_with_the_reason(engine: Engine, witness: Witness) -> None:
    play = Play([("do", {"x": 1}), ("look", {"x": 2})], "as you wish")
    tools = [tool(witness, "do", "irreversible"), tool(witness, "look", "none")]
    handle = engine.start(talking(agent_of(play, tools), Rules()), "go")
    answer(handle.session, until_asked(handle.session)[0], "denied", reason="not on a friday")
    assert handle.result(PATIENCE) == "as you wish"
    assert play.sent[-1][-2:] == ["tool-return:do=a person denied this call: not on a friday", "tool-return:look=look 2 done"]
    assert witness.order == ["look 2"]


def test_changed_arguments_are_the_ones_that_run_once_and_the_model_is_told(
    engine: Engine, witness: Witness, tmp_path: Path
) -> None:
    def flow_of(play: Play, seen: Witness) -> Workflow:
        return talking(agent_of(play, [tool(seen, "do", "irreversible")]), Rules())

    play = Play([("do", {"x": 1})], "done")
    handle = engine.start(flow_of(play, witness), "go")
    session = handle.session
    answer(session, until_asked(session)[0], arguments={"x": 7})
    assert handle.result(PATIENCE) == "done"
    assert witness.order == ["do 7"]
    told = [part for part in play.sent[-1] if "changed the arguments" in part]
    assert play.sent[-1][-2] == "tool-return:do=do 7 done"
    assert len(told) == 1
    assert '{"x":7}' in told[0]
    assert len(play.sent) == 2
    for n in range(of_type(session, "ApprovalResolved")[0].seq, of_type(session, "TaskCompleted")[0].seq):
        seen, again = Witness(tmp_path / f"w{n}"), Play([("do", {"x": 1})], "done")
        copy = cut(session, tmp_path / f"cut{n}", n)
        started = [e for e in session.events(until=n) if e.event_type == "ActivityStarted" and e.activity_id == "main/do:1.1"]
        done = [e for e in session.events(until=n) if e.event_type == "ActivityCompleted" and e.activity_id == "main/do:1.1"]
        resumed = launch.resume_task(copy, flow_of(again, seen), options=RunOptions(headless=True))
        assert resumed.wait(PATIENCE)
        if started and not done:
            answer(copy, until_asked(copy)[0], choice="run_again")
            resumed = launch.resume_task(copy, flow_of(again, seen), options=RunOptions(headless=True))
        assert resumed.result(PATIENCE) == "done"
        assert seen.order == ([] if done else ["do 7"])
        assert not again.sent or sum("changed the arguments" in part for part in again.sent[-1]) == 1
        assert again.faults == []


@pytest.mark.parametrize("arguments", [{"x": "seven"}, {}, {"x": 1, "y": 2}])
def test_changed_arguments_that_do_not_fit_are_not_run_and_the_model_is_told(
    engine: Engine, witness: Witness, arguments: dict[str, Any]
) -> None:
    play = Play([("do", {"x": 1})], "done")
    handle = engine.start(talking(agent_of(play, [tool(witness, "do", "irreversible")]), Rules()), "go")
    answer(handle.session, until_asked(handle.session)[0], arguments=arguments)
    assert handle.result(PATIENCE) == "done"
    assert witness.order == []
    assert "the arguments that a person gave to do do not fit" in play.sent[-1][-1]


def test_when_nobody_answers_in_time_the_call_is_denied(engine: Engine, witness: Witness, clock: FakeClock) -> None:
    play = Play([("do", {"x": 1})], "well then")
    handle = engine.start(talking(agent_of(play, [tool(witness, "do", "irreversible")]), Rules(expires_s=60.0)), "go")
    until_asked(handle.session)
    until_status(handle.session, "suspended")
    clock.advance(61)
    assert handle.result(PATIENCE) == "well then"
    assert play.sent[-1][-1] == "tool-return:do=this call was denied: nobody answered in time"
    assert witness.order == []


def test_a_restart_shows_the_same_request_and_one_answer_runs_the_call_once(engine: Engine, witness: Witness) -> None:
    play = Play([("do", {"x": 1})], "done")
    flow = talking(agent_of(play, [tool(witness, "do", "irreversible")]), Rules())
    handle = engine.start(flow, "go")
    until_asked(handle.session)
    session = engine.crash(handle)
    for _ in range(2):
        again = engine.resume(session, flow)
        assert until_asked(session) == ["a1"]
        engine.crash(again)
    answer(session, "a1")
    assert witness.order == []
    with pytest.raises(ControlRefused, match="it was approved by user:anna"):
        answer(session, "a1", "denied", by="user:bert")
    assert engine.resume(session, flow).result(PATIENCE) == "done"
    assert witness.order == ["do 1"]
    assert asked(session) == ["do"]
    assert len(play.sent) == 2


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_that_wait_are_answered_in_either_order(engine: Engine, witness: Witness, order: tuple[int, int]) -> None:
    play = Play([("do", {"x": 1}), ("do", {"x": 2})], "done")
    handle = engine.start(talking(agent_of(play, [tool(witness, "do", "irreversible")]), Rules()), "go")
    ids = until_asked(handle.session, 2)
    for i in order:
        answer(handle.session, ids[i])
    assert handle.result(PATIENCE) == "done"
    assert sorted(witness.order) == ["do 1", "do 2"]
    assert play.sent[-1][-2:] == ["tool-return:do=do 1 done", "tool-return:do=do 2 done"]


def test_headless_the_siblings_of_a_pending_call_are_done_once(engine: Engine, witness: Witness, gate: Gate) -> None:
    play = Play([("do", {"x": 1}), ("slow", {}), ("look", {"x": 2}), ("do", {"x": 3})], "done")

    async def slow() -> str:
        for _ in range(20):
            await asyncio.sleep(0.005)
        witness("slow")
        return "slow done"

    tools = [tool(witness, "do", "irreversible"), tool(witness, "look", "none"), Tool(slow, metadata={"effect": "none"})]
    flow = talking(agent_of(play, tools), Rules())
    session = engine.ended(engine.start(flow, "go", headless=True), "suspended")
    assert sorted(witness.order) == ["look 2", "slow"]
    first, second = until_asked(session, 2)
    answer(session, second)
    engine.ended(engine.resume(session, flow, headless=True), "suspended")
    answer(session, first)
    assert engine.resume(session, flow, headless=True).result(PATIENCE) == "done"
    assert sorted(witness.order) == ["do 1", "do 3", "look 2", "slow"]
    assert [part.partition("=")[2] for part in play.sent[-1][5:9]] == ["do 1 done", "slow done", "look 2 done", "do 3 done"]
    assert play.faults == []


def asks_itself(witness: Witness) -> Tool[Any]:
    def maybe(ctx: RunContext[Any], x: int) -> str:
        if not ctx.tool_call_approved and x > 1:
            raise ApprovalRequired
        witness(f"maybe {x}")
        return f"maybe {x} done"

    return Tool(maybe)


def always_asks(witness: Witness) -> Tool[Any]:
    def maybe(x: int) -> str:
        witness(f"maybe {x}")
        return f"maybe {x} done"

    return Tool(maybe, requires_approval=True)


@pytest.mark.parametrize("make", [asks_itself, always_asks])
@pytest.mark.parametrize("said", ["approved", "denied", "changed"])
def test_a_tool_that_wants_approval_itself_gets_it_from_a_person_once(
    engine: Engine, witness: Witness, make: Callable[[Witness], Tool[Any]], said: str
) -> None:
    play = Play([("maybe", {"x": 5}), ("look", {"x": 2})], "done")
    tools = [make(witness), tool(witness, "look", "none")]
    flow = talking(agent_of(play, tools), Rules())
    session = engine.ended(engine.start(flow, "go", headless=True), "suspended")
    assert witness.order == ["look 2"]
    assert asked(session) == ["maybe"]
    (key,) = until_asked(session)
    engine.crash(_waits(engine, session, flow))
    if said == "changed":
        answer(session, key, arguments={"x": 8})
    else:
        answer(session, key, said, reason="why")
    assert engine.resume(session, flow, headless=True).result(PATIENCE) == "done"
    expected = {"approved": "maybe 5 done", "denied": "a person denied this call: why", "changed": "maybe 8 done"}[said]
    assert f"tool-return:maybe={expected}" in play.sent[-1]
    assert witness.order == ["look 2"] + ([] if said == "denied" else [expected.removesuffix(" done")])
    assert play.faults == []
    assert asked(session) == ["maybe"]


def _waits(engine: Engine, session: Session, flow: Workflow) -> Any:
    handle = engine.resume(session, flow)
    until_asked(session)
    until_status(session, "suspended")
    return handle


@pytest.mark.parametrize("mode", ["ask", "auto", "never"])
def test_never_holds_for_a_tool_that_wants_approval_itself(engine: Engine, witness: Witness, mode: Permission) -> None:
    play = Play([("maybe", {"x": 5})], "done")
    rules = Rules(mode=mode, tools={"maybe": "never"})
    handle = engine.start(talking(agent_of(play, [always_asks(witness)]), rules), "go", headless=True)
    assert handle.result(PATIENCE) == "done"
    assert asked(handle.session) == []
    assert witness.order == []


def test_a_cancel_rejects_what_waits_for_an_answer(engine: Engine, witness: Witness) -> None:
    play = Play([("do", {"x": 1})], "done")
    flow = talking(agent_of(play, [tool(witness, "do", "irreversible")]), Rules())
    handle = engine.start(flow, "go")
    until_asked(handle.session)
    control.request(handle.session, "cancel", actor="user:anna")
    session = engine.ended(handle, "cancelled")
    with pytest.raises(ControlRefused, match="it was denied by user:anna"):
        answer(session, "a1")
    assert witness.order == []
    assert session.summary().needs_you == 0
    again = engine.start(flow, "and now", session=session, headless=True)
    engine.ended(again, "completed")
    assert play.faults == []
    assert play.sent[-1][-2:] == ["tool-return:do=not run: the turn ended before this call", "user-prompt:=and now"]


def test_a_cancel_at_rest_rejects_what_waits_for_an_answer(engine: Engine, witness: Witness) -> None:
    play = Play([("do", {"x": 1})], "done")
    flow = talking(agent_of(play, [tool(witness, "do", "irreversible")]), Rules())
    session = engine.ended(engine.start(flow, "go", headless=True), "suspended")
    control.request(session, "cancel", actor="user:anna")
    with pytest.raises(ControlRefused, match="it was denied by user:anna"):
        answer(session, "a1")
    assert session.summary().needs_you == 0


@pytest.mark.parametrize("rules", [Rules(), Rules(mode="never"), Rules(tools={"do": "never"})])
def test_a_call_that_is_done_stays_done_under_stricter_rules(
    engine: Engine, witness: Witness, tmp_path: Path, rules: Rules
) -> None:
    play = Play([("do", {"x": 1})], "done")
    agent = agent_of(play, [tool(witness, "do", "irreversible")])
    whole = engine.ended(engine.start(talking(agent, Rules(mode="auto")), "go"), "completed")
    copy = cut(whole, tmp_path / "cut", of_type(whole, "ActivityCompleted")[1].seq)
    handle = launch.resume_task(copy, talking(agent, rules), options=RunOptions(headless=True))
    assert handle.result(PATIENCE) == "done"
    assert witness.order == ["do 1"]
    assert "tool-return:do=do 1 done" in play.sent[-1]


def test_an_agent_of_ones_own_with_a_schema_keeps_its_output_beside_an_edited_call(engine: Engine, witness: Witness) -> None:
    """A note of changed arguments must not ask the model once more when the turn has its output."""
    play = Play([("do", {"x": 1}), ("final_result", {"response": 4})])
    agent = Agent(play.model, output_type=[int], tools=[tool(witness, "do", "irreversible")], end_strategy="exhaustive")
    handle = engine.start(talking(agent, Rules()), "go")
    answer(handle.session, until_asked(handle.session)[0], arguments={"x": 7})
    assert handle.result(PATIENCE) == 4
    assert witness.order == ["do 7"]
    assert len(play.sent) == 1
