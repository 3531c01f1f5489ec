"""A script plays its turns; which one is next is read off the messages, so a resumed process goes on at the right one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_ai import Agent, ModelHTTPError, NativeOutput
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)

from ipyagent_sessions.agent.models import cost_usd, resolve
from ipyagent_sessions.agent.models.faults import classify
from ipyagent_sessions.agent.models.scripted import ScriptedModel, pieces
from ipyagent_sessions.agent.settings import Settings
from ipyagent_sessions.errors import ConfigError, UsageError

pytestmark = pytest.mark.anyio

WITH_TOOL = """
- expect: two and three
  think: I should add.
  say: "Adding  now.\\n"
  call: [{tool: add, args: {a: 2, b: 3}}]
  usage: {input: 120, output: 30}
  cost: 0.25
- expect: {regex: "^5$"}
  say: It is five.
- say: You are welcome.
"""


def add(a: int, b: int) -> int:
    """A tool."""
    return a + b


def model(folder: Path, text: str, **options: Any) -> ScriptedModel:
    path = folder / "demo.yaml"
    path.write_text(text)
    return ScriptedModel.from_file(path, **options)


async def test_turns_are_played_with_thinking_text_calls_and_usage(tmp_path: Path) -> None:
    result = await Agent(model(tmp_path, WITH_TOOL), tools=[add]).run("Add two and three.")
    assert result.output == "It is five."
    first = result.all_messages()[1]
    assert isinstance(first, ModelResponse)
    assert [part.part_kind for part in first.parts] == ["thinking", "text", "tool-call"]
    assert (first.usage.input_tokens, first.usage.output_tokens) == (120, 30)
    assert cost_usd(first) == 0.25
    last = result.all_messages()[-1]
    assert isinstance(last, ModelResponse)
    assert cost_usd(last) is None
    assert last.usage.output_tokens == 3


async def test_it_is_recognisable_as_scripted(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text("- say: Hi")
    made = resolve("scripted:demo.yaml", Settings(), folder=tmp_path, environ={})
    assert (made.system, made.model_name) == ("scripted", "scripted:demo")
    response = (await Agent(made).run("x")).all_messages()[-1]
    assert isinstance(response, ModelResponse)
    assert (response.provider_name, response.model_name, response.model_id) == ("scripted", "scripted:demo", "scripted:demo")


async def test_a_stream_comes_word_by_word_and_says_the_same_as_a_request(tmp_path: Path) -> None:
    agent = Agent(model(tmp_path, WITH_TOOL), tools=[add])
    whole = (await agent.run("Add two and three.")).all_messages()
    texts: list[str] = []
    async with agent.iter("Add two and three.") as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as events:
                    async for event in events:
                        if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                            texts.append(event.part.content)
                        elif isinstance(event, PartDeltaEvent) and event.delta.part_delta_kind == "text":
                            texts.append(event.delta.content_delta)
    assert texts == ["Adding", "  now.", "\n", "It", " is", " five."]
    assert run.result is not None
    streamed = run.result.all_messages()
    assert [message.parts for message in streamed if isinstance(message, ModelResponse)] == [
        message.parts for message in whole if isinstance(message, ModelResponse)
    ]
    assert [message.usage for message in streamed if isinstance(message, ModelResponse)] == [
        message.usage for message in whole if isinstance(message, ModelResponse)
    ]


async def test_a_conversation_goes_on_in_another_process(tmp_path: Path) -> None:
    result = await Agent(model(tmp_path, WITH_TOOL), tools=[add]).run("Add two and three.")
    (tmp_path / "history.json").write_bytes(ModelMessagesTypeAdapter.dump_json(result.all_messages()))
    code = (
        "import pathlib, sys; from pydantic_ai import Agent; from pydantic_ai.messages import ModelMessagesTypeAdapter;"
        "from ipyagent_sessions.agent.models.scripted import ScriptedModel; here = pathlib.Path(sys.argv[1]);"
        "history = ModelMessagesTypeAdapter.validate_json((here / 'history.json').read_bytes());"
        "print(Agent(ScriptedModel.from_file(here / 'demo.yaml')).run_sync('Thanks', message_history=history).output)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "You are welcome."


async def test_the_same_request_gets_the_same_turn_however_often_it_is_sent(tmp_path: Path) -> None:
    agent = Agent(model(tmp_path, WITH_TOOL), tools=[add])
    first = await agent.run("Add two and three.")
    again = await agent.run("Add two and three.")
    assert first.output == again.output
    assert [part.tool_call_id for part in calls(first.all_messages())] == [
        part.tool_call_id for part in calls(again.all_messages())
    ]


def calls(messages: list[ModelMessage]) -> list[ToolCallPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]


async def test_ids_of_calls_differ_between_turns_and_conversations(tmp_path: Path) -> None:
    text = "- call: [{tool: add, args: {a: 1, b: 1}}, {tool: add, args: {a: 2, b: 2}}]\n" * 2 + "- say: done"
    agent = Agent(model(tmp_path, text), tools=[add])
    ids = [part.tool_call_id for name in ("one", "two") for part in calls((await agent.run(name)).all_messages())]
    assert len(set(ids)) == 8


async def test_an_answer_that_was_cut_off_is_played_again(tmp_path: Path) -> None:
    scripted = model(tmp_path, "- say: one\n- say: two")
    partial = ModelResponse([TextPart("o")], model_name=scripted.model_name, state="interrupted")
    history: list[ModelMessage] = [ModelRequest([UserPromptPart("go")]), partial]
    assert (await Agent(scripted).run("go on", message_history=history)).output == "one"


async def test_a_script_that_takes_over_a_conversation_begins_with_its_first_turn(tmp_path: Path) -> None:
    other = ModelResponse([TextPart("hello")], model_name="gpt")
    history: list[ModelMessage] = [ModelRequest([UserPromptPart("hi")]), other]
    scripted = model(tmp_path, "- when: begin\n  turns: [{say: one}, {say: two}]\n- turns: [{say: wrong}]")
    first = await Agent(scripted).run("now begin", message_history=history)
    assert first.output == "one"
    assert (await Agent(scripted).run("and on", message_history=first.all_messages())).output == "two"


async def test_the_first_prompt_chooses_the_conversation(tmp_path: Path) -> None:
    text = "- when: cats\n  turns: [{say: meow}]\n- when: dogs\n  turns: [{say: woof}]"
    agent = Agent(model(tmp_path, text))
    assert (await agent.run("about dogs")).output == "woof"
    with pytest.raises(UsageError, match="no conversation begins with 'about birds'; the script has 'cats', 'dogs'"):
        await agent.run("about birds")


async def test_what_was_not_expected_is_shown(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="scripted:demo, turn 1: the last message should contain 'cats', but it is 'dogs'"):
        await Agent(model(tmp_path, "- expect: cats\n  say: meow")).run("dogs")


async def test_the_end_of_the_script_is_one_clear_error(tmp_path: Path) -> None:
    agent = Agent(model(tmp_path, "- say: one"))
    first = await agent.run("hi")
    with pytest.raises(UsageError, match="scripted:demo has 1 turns here, and one more was asked for after 'more'"):
        await agent.run("more", message_history=first.all_messages())


async def test_an_error_passes_after_its_times_and_the_turn_is_played(tmp_path: Path) -> None:
    agent = Agent(model(tmp_path, "- say: one\n  error: {status: 429, retry_after: 1.5, message: slow down, times: 2}"))
    for _ in range(2):
        with pytest.raises(ModelHTTPError) as caught:
            await agent.run("hi")
        meaning = classify(caught.value)
        assert (meaning.kind, meaning.retry_after_s, meaning.retryable) == ("rate_limited", 1.5, True)
        assert meaning.message == "429: slow down (scripted:demo, turn 1)"
    assert (await agent.run("hi")).output == "one"


async def test_an_error_alone_stays(tmp_path: Path) -> None:
    agent = Agent(model(tmp_path, "- error: {status: 401}"))
    for _ in range(3):
        with pytest.raises(ModelHTTPError):
            await agent.run("hi")


async def test_the_pace_is_what_the_script_says(tmp_path: Path) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    text = "- say: a b c d e\n  delay_s: 2\n  tokens_per_s: 10"
    scripted = model(tmp_path, text, sleep=sleep)
    async with Agent(scripted).run_stream("hi") as result:
        assert [piece async for piece in result.stream_text(delta=True, debounce_by=None)]
    assert slept[0] == 2
    # no time passes in this sleep, so each word waits for its own place on the line: 0.0, 0.1, 0.2, ...
    assert [round(one, 1) for one in slept[1:]] == [0.0, 0.1, 0.2, 0.3, 0.4]
    slept.clear()
    await Agent(scripted).run("hi")
    assert slept == [2.5]


async def test_a_stopped_stream_says_no_further_word(tmp_path: Path) -> None:
    async with Agent(model(tmp_path, "- say: one two three four")).iter("hi") as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        if isinstance(event, PartDeltaEvent):
                            await stream.cancel()
                    response = stream.response
                assert response.text == "one two"
                assert response.state == "interrupted"
                assert response.usage.output_tokens == 2
                return
    raise AssertionError("no request was made")


@given(st.text(max_size=30))
def test_the_words_of_a_text_are_the_text(text: str) -> None:
    assert "".join(pieces(TextPart(text))) == text


class Sum(BaseModel):
    total: int


async def test_a_typed_answer_comes_by_the_output_tool_or_as_json(tmp_path: Path) -> None:
    tool = model(tmp_path, "- call: [{tool: final_result, args: {total: 5}}]")
    assert (await Agent(tool, output_type=Sum).run("x")).output == Sum(total=5)
    text = model(tmp_path, yaml.safe_dump([{"say": json.dumps({"total": 6})}]))
    assert (await Agent(text, output_type=NativeOutput(Sum)).run("x")).output == Sum(total=6)


async def test_a_complaint_about_an_output_can_be_expected(tmp_path: Path) -> None:
    text = """
- call: [{tool: final_result, args: {total: many}}]
- expect: valid integer
  call: [{tool: final_result, args: {total: 7}}]
"""
    assert (await Agent(model(tmp_path, text), output_type=Sum).run("x")).output == Sum(total=7)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("say: hi", "(top): must be a list"),
        ("[]", "(top): a script has at least one turn"),
        ("- sya: hi", "(top)[0].sya: unknown key"),
        ("- expect: x", "(top)[0]: a turn that does nothing"),
        ("- turns: [{say: a}]\n- say: b", "(top)[1]: a turn among conversations"),
        ("- turns: [{say: a}]\n  if: x", "(top)[0].if: unknown key"),
        ("- call: {tool: x}", "(top)[0].call: must be a list"),
        ("- call: [{args: {}}]", "(top)[0].call[0]: tool is missing"),
        ("- call: [{tool: x, args: [1]}]", "(top)[0].call[0].args: must be a mapping"),
        ("- say: [a]", "(top)[0].say: must be a text"),
        ("- say: a\n  expect: {regex: '('}", "(top)[0].expect.regex: '(' is not a regular expression"),
        ("- error: {status: 200}", "(top)[0].error.status: 200 is not an HTTP error"),
        ("- error: {status: 500, times: 2}", "(top)[0].error.times: nothing follows the error"),
        ("- say: a\n  usage: {input: lots}", "(top)[0].usage.input: 'lots' is not a number"),
        ("- say: a\n  tokens_per_s: 0", "(top)[0].tokens_per_s: 0 is not a number"),
        ("- say: a\n  delay_s: soon", "(top)[0].delay_s: 'soon' is not a duration"),
        ("- [", "not valid YAML: line 1, column 4: "),
        ("[" * 5000, "nested too deeply to be read"),
    ],
)
async def test_what_is_wrong_in_a_script_is_named_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        model(tmp_path, text)
    assert "demo.yaml" in str(caught.value)
    assert says in str(caught.value)
