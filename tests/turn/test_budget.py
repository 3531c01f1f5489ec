"""A limit stops a turn before its next request, counts across crashes and forks, and a resume adds to it (R237, R238)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Tool
from tests.run.harness import PATIENCE, Engine, Witness, bodies, of_type
from tests.turn.play import Play, agent_of, cut, talking

from ipyagent_sessions.agent.permission import Rules
from ipyagent_sessions.run import launch
from ipyagent_sessions.run.beginning import Resume
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.task import RunOptions
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FakeClock


def step(witness: Witness, clock: FakeClock | None = None, took: float = 0.0) -> Tool[Any]:
    def called(x: int) -> str:
        witness(x)
        if clock is not None:
            clock.advance(took)
        return "ok"

    return Tool(called, name="step", metadata={"effect": "none"})


def many(n: int) -> list[Any]:
    return [[("step", {"x": i})] for i in range(n)]


def spent(session: Session) -> tuple[int, int, int]:
    of = session.state().system_state.spent
    return of.requests, of.input_tokens, of.output_tokens


def more(session: Session, flow: Workflow, **budget: float) -> Any:
    return launch.resume_task(session, flow, options=RunOptions(headless=True), resume=Resume(more=budget))


def test_a_cap_of_steps_stops_before_the_next_request_and_a_resume_with_more_goes_on(engine: Engine, witness: Witness) -> None:
    play = Play(*many(4), "done")
    flow = talking(agent_of(play, [step(witness)]))
    session = engine.ended(engine.start(flow, "go", budget={"steps": 2.0}), "suspended")
    assert len(play.sent) == 2
    assert witness.order == ["0", "1"]
    system = session.state().system_state
    assert (system.reason, system.detail) == ("step_cap", "the task has used 2 steps of 2 steps")
    assert bodies(session, "BudgetExceeded") == [{"what": "steps", "scope": "task", "limit": 2.0, "spent": 2.0}]
    engine.ended(engine.resume(session, flow), "suspended")
    assert len(play.sent) == 2
    handle = more(session, flow, steps=2.0)
    assert handle.wait(PATIENCE)
    assert len(play.sent) == 4
    assert more(session, flow, steps=1.0).result(PATIENCE) == "done"
    assert witness.order == ["0", "1", "2", "3"]
    assert play.faults == []


def test_tokens_are_counted(engine: Engine, witness: Witness) -> None:
    play = Play(*many(4), "done")
    flow = talking(agent_of(play, [step(witness)]))
    session = engine.ended(engine.start(flow, "go", budget={"tokens": 60.0}), "suspended")
    requests, tokens_in, tokens_out = spent(session)
    assert tokens_in + tokens_out >= 60
    assert len(play.sent) == requests == 2
    assert session.state().system_state.reason == "budget"


def test_time_is_counted_while_the_task_runs_only(engine: Engine, witness: Witness, clock: FakeClock) -> None:
    play = Play(*many(4), "done")
    flow = talking(agent_of(play, [step(witness, clock, took=40.0)]))
    session = engine.ended(engine.start(flow, "go", budget={"time": 60.0}), "suspended")
    assert witness.order == ["0", "1"]
    clock.advance(100_000)
    assert more(session, flow, time=200.0).result(PATIENCE) == "done"


def priced(cost: float | None, *steps: Any) -> Play:
    from decimal import Decimal

    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import RequestUsage

    play = Play(*steps)

    def answer(messages: Any, info: Any) -> ModelResponse:
        number = play.number(messages)
        play.sent.append([])
        said = play.steps[number % len(play.steps)]
        parts = [TextPart(said)] if isinstance(said, str) else [ToolCallPart(n, a, f"c{i}") for i, (n, a) in enumerate(said)]
        usage = RequestUsage(input_tokens=10, output_tokens=5, cost=None if cost is None else Decimal(str(cost)))
        return ModelResponse(parts=parts, usage=usage)

    play.model = FunctionModel(answer, model_name="priced")
    return play


def test_money_is_counted(engine: Engine, witness: Witness) -> None:
    play = priced(0.25, *many(6), "done")
    flow = talking(agent_of(play, [step(witness)]))
    session = engine.ended(engine.start(flow, "go", budget={"usd": 0.5}), "suspended")
    assert len(play.sent) == 2
    assert session.state().system_state.detail == "the task has used $0.5 of $0.5"


@pytest.mark.parametrize("scope", ["task", "session"])
def test_a_limit_of_money_with_a_price_that_nobody_knows_stops_at_the_first_response(
    engine: Engine, witness: Witness, scope: str
) -> None:
    play = priced(None, *many(3), "done")
    rules = Rules(mode="auto", session_budget={"usd": 1.0} if scope == "session" else {})
    flow = talking(agent_of(play, [step(witness)]), rules)
    session = engine.ended(engine.start(flow, "go", budget={"usd": 1.0} if scope == "task" else {}), "suspended")
    assert len(play.sent) == 1
    system = session.state().system_state
    assert system.reason == "budget"
    assert f"nobody knows what 1 request of the {scope} cost, so its limit of $1.00 cannot be kept" in system.detail
    assert "limit tokens or steps" in system.detail
    engine.ended(engine.resume(session, flow), "suspended")
    assert len(play.sent) == 1
    assert more(session, flow, tokens=1000.0).result(PATIENCE) == "done"


def test_a_cost_of_nothing_is_a_price(engine: Engine, witness: Witness) -> None:
    play = priced(0.0, *many(2), "done")
    flow = talking(agent_of(play, [step(witness)]))
    assert engine.start(flow, "go", budget={"usd": 1.0}).result(PATIENCE) == "done"


def test_the_session_is_bounded_over_its_tasks(engine: Engine, witness: Witness) -> None:
    play = Play("one", "two", "three")
    flow = talking(agent_of(play), Rules(session_budget={"steps": 2.0}))
    session = engine.ended(engine.start(flow, "a"), "completed")
    engine.ended(engine.start(flow, "b", session=session), "completed")
    engine.ended(engine.start(flow, "c", session=session), "suspended")
    assert len(play.sent) == 2
    assert bodies(session, "BudgetExceeded")[0]["scope"] == "session"
    assert more(session, flow, steps=1.0).result(PATIENCE) == "three"
    engine.ended(engine.start(flow, "d", session=session), "suspended")


def test_what_is_spent_is_counted_across_a_crash_at_any_event(engine: Engine, witness: Witness, tmp_path: Path) -> None:
    play = Play(*many(4), "done")
    flow = talking(agent_of(play, [step(witness)]))
    whole = engine.ended(engine.start(flow, "go", budget={"steps": 3.0}), "suspended")
    for n in range(4, of_type(whole, "BudgetExceeded")[0].seq):
        session = cut(whole, tmp_path / str(n), n)
        play.sent.clear()
        before = spent(session)[0]
        handle = launch.resume_task(session, flow)
        assert handle.wait(PATIENCE)
        assert handle.outcome is not None
        assert (handle.outcome.state, handle.outcome.reason) == ("suspended", "step_cap")
        assert spent(session)[0] == before + len(play.sent) == 3


def test_a_fork_counts_what_it_shares_with_its_parent_once(engine: Engine, witness: Witness) -> None:
    play = Play(*many(8), "done")
    flow = talking(agent_of(play, [step(witness)]))
    session = engine.ended(engine.start(flow, "go", budget={"steps": 3.0}), "suspended")
    fork = session.fork()
    assert spent(fork) == spent(session)
    handle = more(fork, flow, steps=2.0)
    assert handle.wait(PATIENCE)
    assert (spent(session)[0], spent(fork)[0]) == (3, 5)
    engine.ended(engine.resume(session, flow), "suspended")
    assert len(play.sent) == 5


def test_a_turn_that_needs_no_further_request_is_not_stopped_by_its_limit(engine: Engine, tmp_path: Path) -> None:
    play = Play("done")
    flow = talking(agent_of(play))
    whole = engine.start(flow, "go", budget={"steps": 1.0})
    assert whole.result(PATIENCE) == "done"
    for n in range(of_type(whole.session, "MessageAdded")[1].seq, whole.session.last_seq()):
        assert launch.resume_task(cut(whole.session, tmp_path / str(n), n), flow).result(PATIENCE) == "done"
    assert len(play.sent) == 1
