"""A secret value that a tool, a model, an error or a person lets slip is in no stored byte (R257)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import BinaryContent, ModelRetry, Tool, ToolReturn
from pydantic_ai.exceptions import ModelHTTPError, ToolFailed
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, FunctionModel
from tests.run.harness import PATIENCE, Engine, Gate, answer, bodies, of_type, running, until_asked
from tests.turn.play import Play, agent_of, cut

from ipyagent_sessions import workflow
from ipyagent_sessions.agent import turn
from ipyagent_sessions.agent.permission import Rules
from ipyagent_sessions.agent.secrets import Secrets
from ipyagent_sessions.run import control, launch
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import wait_until

CANARY = 'canary-"7c1f\\e0"-é/zz'
SECRETS = Secrets({"API_KEY": CANARY})


class Bench:
    """What a turn needs of the records of its tools: the scrubbing."""

    def __init__(self, ctx: Context) -> None:
        self.scrub = SECRETS.scrub
        ctx.task.appender.scrub = lambda body: SECRETS.scrub(body.decode()).encode()

    def changed(self) -> list[str]:
        return []

    stale = changed


def talking(agent: Any, rules: Rules) -> Workflow:
    @workflow
    async def talk(ctx: Context, prompt: str) -> Any:
        return await turn.take(ctx, agent, prompt, rules, Bench(ctx))  # type: ignore[arg-type]  # the part that is used

    return talk


def stored(session: Session) -> list[str]:
    """The stored files in which a piece of the canary stands, as it is or escaped, also inside Parquet and checkpoints."""
    found = [str(event) for event in session.events()] + [str(session.state()), str(session.live()), str(session.summary())]
    files = [path for path in session.layout.root.rglob("*") if path.is_file() and b"7c1f" in path.read_bytes()]
    return [text for text in found if "7c1f" in text] + [path.name for path in files]


def test_a_canary_of_tools_and_models_is_in_no_stored_byte_and_reaches_no_model(engine: Engine) -> None:
    def give() -> dict[str, Any]:
        return {"key": CANARY, CANARY: [f"xx{CANARY}xx"]}

    def draw() -> ToolReturn:
        return ToolReturn(CANARY, content=[CANARY, BinaryContent(b"png", media_type="image/png")], metadata={"k": CANARY})

    def fail(x: str) -> str:
        raise ToolFailed(f"the key {x} is wrong")

    def again(x: str) -> str:
        raise ModelRetry(f"the key {x} is wrong")

    def big() -> str:
        return f"{CANARY} " * 4000

    free = {"effect": "none"}
    tools = [Tool(give, metadata=free), Tool(draw, metadata=free), Tool(big, metadata=free)]
    tools += [Tool(fail, metadata={"effect": "irreversible"}), Tool(again, metadata=free)]
    play = Play(
        [("give", {}), ("draw", {}), ("fail", {"x": CANARY}), ("again", {"x": CANARY}), ("big", {})], f"it is {CANARY}"
    )
    handle = engine.start(talking(agent_of(play, tools), Rules()), "go")
    answer(handle.session, until_asked(handle.session)[0])
    handle.wait(PATIENCE)
    session = engine.ended(handle, "completed")
    assert stored(session) == []
    said = [part for request in play.sent for part in request if not part.startswith("tool-call")]
    assert [part for part in said if "7c1f" in part] == []


def test_a_canary_in_an_exception_of_a_tool_is_in_no_stored_byte(engine: Engine) -> None:
    def explode() -> str:
        raise RuntimeError(f"no access with {CANARY}")

    play = Play([("explode", {})], "done")
    handle = engine.start(talking(agent_of(play, [explode]), Rules(mode="auto")), "go")
    assert stored(engine.ended(handle, "failed")) == []
    assert "7c1f" not in str(handle.outcome)


def test_a_canary_in_an_error_of_a_provider_is_in_no_stored_byte(engine: Engine) -> None:
    async def refuse(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        raise ModelHTTPError(401, "m", {"error": {"message": f"Incorrect API key provided: {CANARY}"}})
        yield ""

    play = Play("x")
    play.model = FunctionModel(stream_function=refuse)
    handle = engine.start(talking(agent_of(play), Rules()), "go")
    session = engine.ended(handle, "suspended")
    assert "<secret API_KEY>" in session.state().system_state.detail
    assert "7c1f" not in str(handle.outcome)
    assert stored(session) == []


def test_a_canary_in_text_that_streams_is_in_no_stored_byte(engine: Engine, gate: Gate) -> None:
    seen: list[str] = []

    async def dribble(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for letter in f"the key is {CANARY} and":
            yield letter
            seen.append(running(handle).partial)
        await gate.passing()

    play = Play("x")
    play.model = FunctionModel(stream_function=dribble)
    handle = engine.start(talking(agent_of(play), Rules()), "go")
    gate.reached()
    assert running(handle).partial == "the key is <secret API_KEY> and"
    assert all("can" not in text and "7c1f" not in text for text in seen)
    wait_until(lambda: "<secret API_KEY>" in str(handle.session.live()), timeout=PATIENCE)
    assert stored(handle.session) == []
    control.request(handle.session, "cancel", actor="user:anna")
    session = engine.ended(handle, "cancelled")
    assert stored(session) == []


def test_the_beginning_of_a_canary_that_was_cut_off_is_not_stored(engine: Engine, gate: Gate) -> None:
    async def half(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        yield f"the key is {CANARY[:-1]}"
        await gate.passing()

    play = Play("x")
    play.model = FunctionModel(stream_function=half)
    handle = engine.start(talking(agent_of(play), Rules()), "go")
    gate.reached()
    control.request(handle.session, "cancel", actor="user:anna")
    session = engine.ended(handle, "cancelled")
    assert [b["text"] for b in bodies(session, "MessageAdded") if b.get("partial")] == ["the key is "]
    assert stored(session) == []


@pytest.mark.parametrize("after", ["ApprovalRequested", "ApprovalResolved", "ActivityCompleted"])
def test_after_a_crash_a_call_with_a_canary_is_known_again(engine: Engine, tmp_path: Path, after: str) -> None:
    used: list[str] = []

    def use(x: str) -> str:
        used.append(x)
        return f"used {x}"

    play = Play([("use", {"x": CANARY})], "done")
    flow = talking(agent_of(play, [Tool(use, metadata={"effect": "irreversible"})]), Rules())
    handle = engine.start(flow, "go")
    answer(handle.session, until_asked(handle.session)[0])
    assert handle.result(PATIENCE) == "done"
    assert used == [CANARY]
    copy = cut(handle.session, tmp_path / "cut", of_type(handle.session, after)[-1 if after != "ActivityCompleted" else 1].seq)
    resumed = launch.resume_task(copy, flow)
    if after == "ApprovalRequested":
        answer(copy, until_asked(copy)[0])
    assert resumed.result(PATIENCE) == "done"
    assert len(used) == (1 if after == "ActivityCompleted" else 2)
    assert stored(copy) == []
