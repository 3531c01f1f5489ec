"""Stops of a turn: while the model streams, while tools run, while somebody is asked; and the turn after (R101, R239)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from pydantic_ai import Tool
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.run.harness import PATIENCE, Engine, Gate, Witness, bodies, of_type, running
from tests.turn.play import Play, agent_of, talking

from ipyagent_sessions.agent.records import Records
from ipyagent_sessions.agent.secrets import nothing_secret
from ipyagent_sessions.run import control
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import FakeClock, wait_until


class Held(Play):
    """A model that streams some words, and then nothing until the gate opens."""

    def __init__(self, gate: Gate, *steps: Any, at: int = 0) -> None:
        super().__init__(*steps)
        self.model = FunctionModel(stream_function=self._held, model_name="held")
        self._gate, self._at = gate, at

    async def _held(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if self.number(messages) == self._at:
            yield "half of "
            yield "an answer"
            await self._gate.passing()
        async for piece in self._stream(messages, info):
            yield piece


def partials(session: Session) -> list[str]:
    return [b["text"] for b in bodies(session, "MessageAdded") if b.get("partial")]


def test_a_cancel_while_the_model_streams_takes_at_most_a_second_and_keeps_what_had_come(engine: Engine, gate: Gate) -> None:
    play = Held(gate, "the rest")
    flow = talking(agent_of(play))
    handle = engine.start(flow, "go")
    gate.reached()
    assert running(handle).partial == "half of an answer"
    began = time.monotonic()
    control.request(handle.session, "cancel", actor="user:anna")
    session = engine.ended(handle, "cancelled")
    assert time.monotonic() - began < 1.0
    assert partials(session) == ["half of an answer"]
    gate.open()
    assert engine.start(flow, "again", session=session).result(PATIENCE)
    assert play.faults == []
    assert play.sent[-1] == ["user-prompt:=go", "user-prompt:=again"]


def test_a_pause_waits_for_the_answer_and_a_second_press_does_not(engine: Engine, gate: Gate) -> None:
    play = Held(gate, "the rest")
    flow = talking(agent_of(play))
    first = engine.start(flow, "go")
    gate.reached()
    engine.ask(first, "pause")
    assert not first.wait(0.2)
    control.request(first.session, "pause", actor="user:anna")
    session = engine.ended(first, "interrupted")
    assert partials(session) == ["half of an answer"]
    gate.open()
    handle = engine.resume(session, flow)
    assert handle.result(PATIENCE) == "half of an answerthe rest"
    assert play.faults == []
    assert len(play.sent) == 1


def test_a_paused_turn_goes_on_after_its_answer_without_asking_again(engine: Engine, gate: Gate, witness: Witness) -> None:
    play = Held(gate, [("step", {})], "done", at=0)
    play.steps = ([("step", {})], "done")

    def step() -> str:
        witness("step")
        return "ok"

    flow = talking(agent_of(play, [Tool(step, metadata={"effect": "irreversible"})]))
    handle = engine.start(flow, "go")
    gate.reached()
    engine.ask(handle, "pause")
    gate.open()
    session = engine.ended(handle, "interrupted")
    assert witness.order == []
    assert engine.resume(session, flow, say="be quick").result(PATIENCE) == "done"
    assert witness.order == ["step"]
    assert len(play.sent) == 2
    assert "[The user adds:] be quick" in play.sent[-1][-1]
    assert play.faults == []


def slow_tool(gate: Gate, witness: Witness) -> Tool[Any]:
    async def slow() -> str:
        witness("slow")
        await gate.passing()
        witness("slow ended")
        return "slow done"

    return Tool(slow, metadata={"effect": "irreversible"})


def quick_tool(witness: Witness) -> Tool[Any]:
    async def quick() -> str:
        witness("quick")
        return "quick done"

    return Tool(quick, metadata={"effect": "irreversible"})


def test_a_pause_lets_the_calls_under_way_finish_and_they_are_not_made_again(
    engine: Engine, gate: Gate, witness: Witness
) -> None:
    play = Play([("slow", {}), ("quick", {})], "done")
    flow = talking(agent_of(play, [slow_tool(gate, witness), quick_tool(witness)]))
    handle = engine.start(flow, "go")
    gate.reached()
    engine.ask(handle, "pause")
    gate.open()
    session = engine.ended(handle, "interrupted")
    assert witness.counts == {"slow": 1, "quick": 1, "slow ended": 1}
    assert engine.resume(session, flow).result(PATIENCE) == "done"
    assert witness.counts == {"slow": 1, "quick": 1, "slow ended": 1}
    assert len(play.sent) == 2
    assert play.faults == []


def test_after_a_cancel_the_next_turn_is_told_what_happened_and_what_nobody_knows(
    engine: Engine, gate: Gate, witness: Witness
) -> None:
    play = Play([("quick", {}), ("slow", {}), ("fails", {})], "done")

    async def fails() -> str:
        await asyncio.sleep(0)
        return "no"

    tools = [slow_tool(gate, witness), quick_tool(witness), Tool(fails, metadata={"effect": "none"}, sequential=True)]
    flow = talking(agent_of(play, tools))
    handle = engine.start(flow, "go")
    session = handle.session
    gate.reached()
    wait_until(lambda: any(e.activity_id == "main/quick:1.1" for e in of_type(session, "ActivityCompleted")), timeout=PATIENCE)
    control.request(session, "cancel", actor="user:anna")
    engine.ended(handle, "cancelled")
    assert engine.start(flow, "what now?", session=session).result(PATIENCE) == "done"
    assert play.faults == []
    told = {part.partition("=")[0]: part.partition("=")[2] for part in play.sent[-1] if part.startswith("tool-return")}
    assert told["tool-return:quick"] == "quick done"
    assert "was stopped while this call was under way" in told["tool-return:slow"]
    assert play.sent[-1][-1] == "user-prompt:=what now?"


class Faulty(Play):
    """A model that fails so many times before each answer, or for ever."""

    def __init__(self, *steps: Any, error: Exception, times: int) -> None:
        super().__init__(*steps)
        self.model = FunctionModel(stream_function=self._fails, model_name="faulty")
        self.left, self.error, self.tried = times, error, 0

    async def _fails(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        self.tried += 1
        if self.left:
            self.left -= 1
            raise self.error
        async for piece in self._stream(messages, info):
            yield piece


def http(status: int, text: str = "it said so", retry_after: float | None = None) -> ModelHTTPError:
    return ModelHTTPError(status, "faulty", {"error": {"message": text}}, retry_after=retry_after)


def test_a_fault_that_passes_is_tried_again_with_growing_waits(engine: Engine, clock: FakeClock) -> None:
    play = Faulty("done", error=http(500), times=3)
    session = engine.ended(engine.start(talking(agent_of(play)), "go"), "completed")
    waits = [b["wait_s"] for b in bodies(session, "ActivityRetried")]
    assert len(waits) == 3
    assert 1 <= waits[0] < waits[1] < waits[2] < 10
    assert sum(clock.slept) >= sum(waits) - 0.01


def test_a_server_that_says_how_long_to_wait_is_believed(engine: Engine, clock: FakeClock) -> None:
    play = Faulty("done", error=http(429, retry_after=33.0), times=1)
    session = engine.ended(engine.start(talking(agent_of(play)), "go"), "completed")
    assert [b["wait_s"] for b in bodies(session, "ActivityRetried")] == [33.0]
    assert max(clock.slept) == pytest.approx(33.0)


@pytest.mark.parametrize(("status", "reason"), [(500, "network"), (429, "resources"), (401, "resources")])
def test_when_the_model_cannot_be_had_the_turn_waits_and_a_resume_asks_again(
    engine: Engine, witness: Witness, status: int, reason: str
) -> None:
    def step() -> str:
        witness("step")
        play.left = 99
        return "ok"

    play = Faulty([("step", {})], "done", error=http(status), times=0)
    flow = talking(agent_of(play, [Tool(step, metadata={"effect": "irreversible"})]))
    session = engine.ended(engine.start(flow, "go"), "suspended")
    system = session.state().system_state
    assert system.reason == reason
    assert "the model cannot be had" in system.detail
    assert "it said so" in system.detail
    assert play.tried == 1 + (5 if status != 401 else 1)
    engine.ended(engine.resume(session, flow), "suspended")
    play.left = 0
    assert engine.resume(session, flow).result(PATIENCE) == "done"
    assert witness.order == ["step"]
    assert play.faults == []


def test_with_auto_a_turn_waits_for_its_model_by_itself(engine: Engine, clock: FakeClock) -> None:
    play = Faulty("done", error=http(500), times=7)
    handle = engine.start(talking(agent_of(play)), "go", recover=2)
    assert handle.result(PATIENCE) == "done"
    assert [b["reason"] for b in bodies(handle.session, "TaskSuspended")] == ["network"]
    assert play.tried == 8
    refused = Faulty("done", error=http(401), times=9)
    other = engine.ended(engine.start(talking(agent_of(refused)), "go", recover=2), "suspended")
    assert (other.state().system_state.reason, refused.tried) == ("resources", 1)


def test_a_fault_that_stays_fails_the_turn_with_one_line_and_the_next_turn_works(engine: Engine) -> None:
    play = Faulty("done", error=http(400, "no such option"), times=1)
    flow = talking(agent_of(play))
    handle = engine.start(flow, "go")
    session = engine.ended(handle, "failed")
    assert play.tried == 1
    state = session.state().system_state
    assert (state.error_type, "no such option" in state.error) == ("ModelFailed", True)
    assert "\n" not in str(handle.outcome and handle.outcome.error)
    assert engine.start(flow, "again", session=session).result(PATIENCE) == "done"
    assert play.sent[-1] == ["user-prompt:=go", "user-prompt:=again"]


def test_a_cancel_while_it_waits_to_try_again_is_immediate(engine: Engine, clock: FakeClock) -> None:
    clock.held = True
    play = Faulty("done", error=http(500), times=99)
    handle = engine.start(talking(agent_of(play)), "go")
    wait_until(lambda: bool(of_type(handle.session, "ActivityRetried")), timeout=PATIENCE)
    control.request(handle.session, "cancel", actor="user:anna")
    engine.ended(handle, "cancelled")
    assert play.tried == 1


def test_text_of_an_attempt_that_broke_off_is_not_in_the_next_one(engine: Engine) -> None:
    class Breaks(Faulty):
        async def _fails(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            if self.left:
                self.left -= 1
                yield "broken "
                raise self.error
            async for piece in self._stream(messages, info):
                yield piece

    play = Breaks("done", error=ConnectionError("gone"), times=2)
    handle = engine.start(talking(agent_of(play)), "go")
    assert handle.result(PATIENCE) == "done"
    assert running(handle).partial == ""
    assert partials(handle.session) == []


class _Read:
    """A workbench of which a file was changed while the turn was stopped."""

    def __init__(self) -> None:
        self.now: list[str] = []

    scrub = staticmethod(nothing_secret)

    def changed(self) -> list[str]:
        return self.now

    stale = changed


def test_no_effect_begins_on_what_has_changed_since_it_was_read(engine: Engine, witness: Witness) -> None:
    gate = Gate()
    seen = _Read()

    def look() -> str:
        witness("look")
        return "small"

    async def slow() -> str:
        witness("slow")
        await gate.passing()
        return "ended"

    def send() -> str:
        witness("send")
        return "sent"

    play = Play([("look", {})], [("slow", {}), ("send", {})], [("look", {})], [("send", {})], "done")
    tools = [
        Tool(look, metadata={"effect": "none"}),
        Tool(slow, metadata={"effect": "none"}, sequential=True),
        Tool(send, metadata={"effect": "irreversible"}, sequential=True),
    ]
    flow = talking(agent_of(play, tools), records=cast(Records, seen))
    handle = engine.start(flow, "go")
    gate.reached()
    session = engine.crash(handle)
    gate.open()
    seen.now = ["data.csv is changed since you read it"]

    assert engine.resume(session, flow).result(PATIENCE) == "done"

    assert witness.order == ["look", "slow", "slow", "look", "send"]
    assert any("not called, since what you know is no longer so: data.csv is changed" in part for part in play.sent[2])
    assert [b["text"] for b in bodies(session, "AlarmRaised")] == ["data.csv is changed since you read it"]
