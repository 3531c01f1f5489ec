"""Agents of a user's own, with whatever pydantic-ai lets them have (R112)."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, ModelRetry, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext
from tests.run.harness import PATIENCE, Engine, Witness, bodies, of_type
from tests.turn.play import Play, cut, talking

from ipyagent_sessions.run import launch

FREE = {"effect": "none"}


def test_an_event_stream_handler_gets_the_events_of_the_whole_turn(engine: Engine) -> None:
    seen: list[str] = []

    async def follow(ctx: RunContext[Any], events: AsyncIterable[Any]) -> None:
        seen.extend([event.event_kind async for event in events])

    def look() -> str:
        return "seen"

    play = Play([("look", {})], "well done")
    agent = Agent(play.model, tools=[Tool(look, metadata=FREE)])
    handle = engine.start(talking(agent, event_stream_handler=follow), "go")
    assert handle.result(PATIENCE) == "well done"
    assert {"part_start", "function_tool_call", "function_tool_result", "final_result"} <= set(seen)
    assert len(bodies(handle.session, "MessageAdded")) == 4
    assert len(play.sent) == 2


def test_an_agent_called_in_a_tool_is_part_of_that_call(engine: Engine, witness: Witness, tmp_path: Path) -> None:
    inner = Play([("count", {})], "inner says 1")

    def count() -> int:
        witness("count")
        return 1

    helper = Agent(inner.model, tools=[count])

    async def ask(question: str) -> str:
        return (await helper.run(question)).output

    outer = Play([("ask", {"question": "how many?"})], "outer says 1")
    flow = talking(Agent(outer.model, tools=[Tool(ask, metadata=FREE)]))
    handle = engine.start(flow, "go")
    assert handle.result(PATIENCE) == "outer says 1"
    assert witness.order == ["count"]
    assert [e.activity_id for e in of_type(handle.session, "ActivityStarted")] == [
        "main/model:1",
        "main/ask:1.1",
        "main/model:2",
    ]
    done = of_type(handle.session, "ActivityCompleted")[1]
    assert launch.resume_task(cut(handle.session, tmp_path / "cut", done.seq), flow).result(PATIENCE) == "outer says 1"
    assert witness.order == ["count"]
    assert len(inner.sent) == 2


def test_an_output_validator_that_asks_again_is_heard(engine: Engine, tmp_path: Path) -> None:
    play = Play("bad", "good")
    agent = Agent(play.model)

    @agent.output_validator
    def check(text: str) -> str:
        if text == "bad":
            raise ModelRetry("say good")
        return text

    flow = talking(agent)
    handle = engine.start(flow, "go")
    assert handle.result(PATIENCE) == "good"
    assert any("say good" in part for part in play.sent[-1])
    whole = handle.session
    for n in range(of_type(whole, "TaskStarted")[0].seq, whole.last_seq()):
        answered = sum(e.activity_id is not None for e in of_type(whole, "MessageAdded") if e.seq <= n)
        play.sent.clear()
        assert launch.resume_task(cut(whole, tmp_path / str(n), n), flow).result(PATIENCE) == "good"
        assert len(play.sent) == 2 - answered


def test_dynamic_instructions_and_toolsets_are_those_of_each_run(engine: Engine, tmp_path: Path) -> None:
    play = Play([("look", {})], "done")
    said: list[str] = []
    agent = Agent(play.model, toolsets=[FunctionToolset([Tool(lambda: "seen", name="look", metadata=FREE)])])

    @agent.instructions
    def today(ctx: RunContext[Any]) -> str:
        said.append(f"run {len(said)}")
        return said[-1]

    @agent.system_prompt(dynamic=True)
    def who() -> str:
        return f"you are number {len(said)}"

    flow = talking(agent)
    whole = engine.start(flow, "go")
    assert whole.result(PATIENCE) == "done"
    for n in range(of_type(whole.session, "TaskStarted")[0].seq, whole.session.last_seq()):
        session = cut(whole.session, tmp_path / str(n), n)
        assert launch.resume_task(session, flow).result(PATIENCE) == "done"
        assert launch.run_workflow(session.place, flow, ("on",), session=session).result(PATIENCE)  # type: ignore[arg-type]
        assert play.faults == []


def test_an_agent_whose_model_is_overridden_uses_that_model(engine: Engine) -> None:
    play, other = Play("mine"), Play("other")
    agent = Agent(play.model)
    flow = talking(agent, model=other.model)
    assert engine.start(flow, "go").result(PATIENCE) == "other"
    with agent.override(model=other.model):
        assert engine.start(talking(agent), "go").result(PATIENCE) == "other"
    assert play.sent == []


@pytest.mark.parametrize("strategy", ["early", "graceful", "exhaustive"])
def test_a_resume_in_the_last_response_does_not_ask_the_model_once_more(
    engine: Engine, witness: Witness, tmp_path: Path, strategy: Any
) -> None:
    def look(x: int) -> str:
        witness(f"look {x}")
        return f"saw {x}"

    play = Play([("look", {"x": 1}), ("final_result", {"response": 4}), ("look", {"x": 2})])
    agent = Agent(play.model, output_type=[int], tools=[Tool(look, metadata=FREE)], end_strategy=strategy)
    flow = talking(agent)
    whole = engine.start(flow, "go")
    assert whole.result(PATIENCE) == 4
    ran = witness.order
    asked = of_type(whole.session, "MessageAdded")[1].seq
    for n in range(asked, whole.session.last_seq()):
        assert launch.resume_task(cut(whole.session, tmp_path / str(n), n), flow).result(PATIENCE) == 4
        assert len(play.sent) == 1
    assert set(witness.order) == set(ran)


def test_a_plain_exception_of_a_tool_fails_the_turn_once_and_the_next_turn_is_told(engine: Engine, witness: Witness) -> None:
    def explode() -> str:
        witness("explode")
        raise ZeroDivisionError("by zero")

    play = Play([("explode", {})], "done")
    flow = talking(Agent(play.model, tools=[Tool(explode, metadata={"effect": "irreversible"})]))
    session = engine.ended(engine.start(flow, "go"), "failed")
    state = session.state().system_state
    assert (state.error_type, state.error) == ("ZeroDivisionError", "explode failed: ZeroDivisionError: by zero")
    assert engine.start(flow, "and now?", session=session).result(PATIENCE) == "done"
    assert play.sent[-1][-2:] == [
        "tool-return:explode=it failed with ZeroDivisionError: by zero",
        "user-prompt:=and now?",
    ]
    assert witness.order == ["explode"]


@dataclass
class Cached(AbstractCapability[Any]):
    """A capability of the user's own that answers the first request itself."""

    calls: list[int] = field(default_factory=list[int])

    async def wrap_model_request(self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any) -> Any:
        if len(request_context.messages) == 1:
            from pydantic_ai.messages import ToolCallPart

            return ModelResponse(parts=[ToolCallPart("look", {"x": 7}, "call0")])
        return await handler(request_context)


def test_an_answer_that_a_capability_gives_instead_of_the_model_is_part_of_the_conversation(
    engine: Engine, witness: Witness, tmp_path: Path
) -> None:
    def look(x: int) -> str:
        witness(f"look {x}")
        return f"saw {x}"

    play = Play("never", [("look", {"x": 8})], "done")
    flow = talking(Agent(play.model, tools=[Tool(look, metadata=FREE)], capabilities=[Cached()]))
    handle = engine.start(flow, "go")
    assert handle.result(PATIENCE) == "done"
    assert witness.order == ["look 7", "look 8"]
    assert play.faults == []
    for n in range(of_type(handle.session, "TaskStarted")[0].seq, handle.session.last_seq()):
        assert launch.resume_task(cut(handle.session, tmp_path / str(n), n), flow).result(PATIENCE) == "done"
        assert play.faults == []


def test_a_tool_that_takes_too_long_is_told_to_the_model(engine: Engine) -> None:
    import asyncio

    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    play = Play([("slow", {})], "well")
    flow = talking(Agent(play.model, tools=[Tool(slow, metadata={"effect": "irreversible", "timeout_s": 0.05})]))
    assert engine.start(flow, "go").result(PATIENCE) == "well"
    assert "slow ran longer than 0.05 s and was stopped. Whether it had an effect is not known." in play.sent[-1][-1]
