"""A recorded session answers the same requests again, costs nothing, and refuses another request with the difference."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from tests.agent.server import FakeProvider, Reply

from ipyagent_sessions.agent.models import cost_usd, resolve
from ipyagent_sessions.agent.models.cassette import CassetteModel, Exchange, normal
from ipyagent_sessions.agent.models.scripted import ScriptedModel
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.errors import UsageError

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
SCRIPT = """
- say: Adding.
  call: [{tool: add, args: {a: 2, b: 3}}]
  cost: 0.25
- say: Five.
- say: Bye.
"""


def add(a: int, b: int) -> int:
    """A tool."""
    return a + b


def fail(a: int, b: int) -> int:
    """A tool that must not run."""
    raise AssertionError


def exchanges(messages: list[ModelMessage], tools: list[str]) -> list[Exchange]:
    """What a session holds of a conversation: stored as JSON, so it comes back as other objects."""
    stored = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(messages))
    return [Exchange(stored[:i], message, tools) for i, message in enumerate(stored) if isinstance(message, ModelResponse)]


async def recorded(tmp_path: Path) -> list[Exchange]:
    path = tmp_path / "demo.yaml"
    path.write_text(SCRIPT)
    agent = Agent(ScriptedModel.from_file(path), tools=[add], instructions="Be short.")
    first = await agent.run("2 + 3?")
    second = await agent.run("Thanks", message_history=first.all_messages())
    return exchanges(second.all_messages(), ["add"])


async def test_the_same_conversation_gets_the_same_answers(tmp_path: Path) -> None:
    tape = CassetteModel("k3x", await recorded(tmp_path))
    agent = Agent(tape, tools=[add], instructions="Be short.")
    first = await agent.run("2 + 3?")
    second = await agent.run("Thanks", message_history=first.all_messages())
    assert (first.output, second.output) == ("Five.", "Bye.")
    answers = [message for message in second.all_messages() if isinstance(message, ModelResponse)]
    assert {(one.provider_name, one.model_name) for one in answers} == {("cassette", "cassette:k3x")}
    assert [cost_usd(one) for one in answers] == [0.0, 0.0, 0.0]
    assert answers[0].usage.output_tokens > 0


async def test_a_stream_says_the_same(tmp_path: Path) -> None:
    agent = Agent(CassetteModel("k3x", await recorded(tmp_path)), tools=[add], instructions="Be short.")
    said = ""
    async with agent.iter("2 + 3?") as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    said += "".join([repr(event) async for event in events])
    assert "Adding." in said
    assert "Five." in said


@pytest.mark.parametrize("name", ["gpt", "claude"])
async def test_a_conversation_with_a_real_client_can_be_played(name: str, settings: Settings, provider: FakeProvider) -> None:
    provider.plan = [Reply("Adding.", calls=(("add", {"a": 2, "b": 3}),)), Reply("Five.")]
    real = Agent(resolve(name, settings, folder=HERE, environ={}), tools=[add], instructions="Be short.")
    tape = exchanges((await real.run("2 + 3?")).all_messages(), ["add"])

    def recording(session: str) -> Iterable[Exchange]:
        assert session == "k3x"
        return tape

    model = resolve("cassette:k3x", settings, folder=HERE, recording=recording, environ={})
    assert (model.system, model.model_name) == ("cassette", "cassette:k3x")
    assert (await Agent(model, tools=[add], instructions="Be short.").run("2 + 3?")).output == "Five."


async def test_what_a_model_is_sent_may_be_recorded_too(settings: Settings, provider: FakeProvider) -> None:
    """A recording made where the model is called holds messages that pydantic-ai has already prepared for that model."""
    provider.plan = [
        Reply("x", calls=(("add", {"a": 2, "b": "many"}),)),
        Reply("y", calls=(("add", {"a": 2, "b": 3}),)),
        Reply("z"),
    ]
    tape: list[Exchange] = []

    class Recorder(AbstractCapability[object]):
        async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> ModelResponse:
            messages = list(request_context.messages)
            response: ModelResponse = await handler(request_context)
            tape.append(Exchange(messages, response, ["add"]))
            return response

    real = Agent(resolve("claude", settings, folder=HERE, environ={}), tools=[add], capabilities=[Recorder()])
    assert (await real.run("2 + 3?")).output == "z"
    assert (await Agent(CassetteModel("k3x", tape), tools=[add]).run("2 + 3?")).output == "z"


async def test_another_prompt_is_refused_with_the_difference(tmp_path: Path) -> None:
    agent = Agent(CassetteModel("k3x", await recorded(tmp_path)), tools=[add], instructions="Be short.")
    with pytest.raises(UsageError) as caught:
        await agent.run("2 + 4?")
    said = caught.value.message
    assert said.startswith("cassette:k3x: request 1 differs from the recorded one:\n--- recorded\n+++ asked now\n")
    assert '-     "content": "2 + 3?",' in said
    assert '+     "content": "2 + 4?",' in said


async def test_another_result_of_a_tool_is_refused(tmp_path: Path) -> None:
    def add(a: int, b: int) -> int:
        return a * b

    agent = Agent(CassetteModel("k3x", await recorded(tmp_path)), tools=[add], instructions="Be short.")
    with pytest.raises(UsageError, match=r'request 2 differs[\s\S]*-     "content": 5,\n\+     "content": 6,'):
        await agent.run("2 + 3?")


async def test_other_tools_are_a_difference(tmp_path: Path) -> None:
    tape = await recorded(tmp_path)
    with pytest.raises(UsageError, match=r'\+  "fail"'):
        await Agent(CassetteModel("k3x", tape), tools=[add, fail], instructions="Be short.").run("2 + 3?")


async def test_a_conversation_longer_than_the_recording_is_refused(tmp_path: Path) -> None:
    agent = Agent(CassetteModel("k3x", await recorded(tmp_path)), tools=[add], instructions="Be short.")
    second = await agent.run("Thanks", message_history=(await agent.run("2 + 3?")).all_messages())
    with pytest.raises(UsageError, match="holds 3 answers of this conversation, and request 4 was made"):
        await agent.run("One more", message_history=second.all_messages())


async def test_conversations_beside_each_other_are_told_apart_by_what_they_ask() -> None:
    def tape(prompt: str, answer: str) -> Exchange:
        return Exchange([ModelRequest([UserPromptPart(prompt)])], ModelResponse([TextPart(answer)]), [])

    agent = Agent(CassetteModel("k3x", [tape("a", "A"), tape("b", "B"), tape("a", "A2")]))
    assert (await agent.run("b")).output == "B"
    assert (await agent.run("a")).output == "A2"  # asked twice: the later answer is the one that was used


def test_an_empty_recording_is_refused() -> None:
    with pytest.raises(UsageError, match="the session holds no answer of a model"):
        CassetteModel("k3x", [])


async def test_a_secret_is_compared_and_shown_as_its_mark() -> None:
    kept = ModelRequest([UserPromptPart("the key is <secret KEY>")])
    tape = [Exchange([kept], ModelResponse([TextPart("ok")]), [])]
    environ = {"KEY": "canary-5e1f-0003"}
    settings = Settings(secrets=("KEY",))
    agent = Agent(resolve("cassette:k3x", settings, folder=HERE, recording=lambda _: tape, environ=environ))
    assert (await agent.run("the key is canary-5e1f-0003")).output == "ok"
    with pytest.raises(UsageError) as caught:
        await agent.run("my key is canary-5e1f-0003")
    assert "canary" not in str(caught.value)


def test_times_and_ids_are_no_difference() -> None:
    def request(some_id: str) -> list[ModelMessage]:
        asked = ModelRequest([UserPromptPart("x")], run_id=some_id, conversation_id=some_id)
        call = ModelResponse([ToolCallPart("t", "{}", tool_call_id=some_id)])
        return [asked, call, ModelRequest([ToolReturnPart("t", 5, tool_call_id=some_id)])]

    assert normal(request("a"), ["t", "s"]) == normal(request("b"), ["s", "t"])


class Sum(BaseModel):
    total: int


async def test_a_complaint_about_an_output_is_compared_as_the_model_sees_it(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text("""[{say: '{"total": "many"}'}, {say: '{"total": 7}'}]""")
    first = await Agent(ScriptedModel.from_file(path), output_type=NativeOutput(Sum)).run("x")
    tape = CassetteModel("k3x", exchanges(first.all_messages(), []))
    assert (await Agent(tape, output_type=NativeOutput(Sum)).run("x")).output == Sum(total=7)
