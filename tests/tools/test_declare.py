"""What a person declares, and what of it a model and the loop get to know."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import Tool as PydanticTool

from ipyagent_sessions.agent.tools.declare import Tool, declared, metadata, to_pydantic, tool
from ipyagent_sessions.errors import ConfigError, PersistenceError, UsageError


@tool(effect="idempotent", approval="ask", timeout="30s")
def convert(path: str, to: str = "parquet") -> str:
    """Convert a table in place.

    Args:
        path: where it is
        to: the format it shall have
    """
    return f"{path} is {to}"


class Point(BaseModel):
    x: int
    y: int


def _call(made: Tool, **arguments: Any) -> Any:
    """What the model gets."""
    function: Any = to_pydantic(made).function
    value = function(**arguments)
    return asyncio.run(value) if asyncio.iscoroutine(value) else value


def test_the_schema_comes_from_hints_and_docstring() -> None:
    assert convert.name == "convert"
    assert convert.description == "Convert a table in place."
    assert convert.schema["required"] == ["path"]
    assert convert.schema["properties"]["to"]["description"] == "the format it shall have"


def test_a_declared_tool_is_still_the_function_that_it_was() -> None:
    assert convert("a.csv") == "a.csv is parquet"
    assert convert.__doc__ is not None


def test_the_declaration_travels_as_metadata() -> None:
    made = to_pydantic(convert)
    assert made.timeout is None
    assert declared("convert", made.metadata) == ("idempotent", "ask", 30.0)
    assert declared("convert", made.tool_def.metadata) == declared("convert", metadata("idempotent", "ask", 30.0))


def test_what_is_not_declared_is_irreversible() -> None:
    @tool
    def send(to: str) -> str:
        return to

    assert send.effect == "irreversible"
    assert declared("send", to_pydantic(send).metadata).effect == "irreversible"
    assert declared("foreign", None) == ("irreversible", None, None)


def test_a_users_own_pydantic_tool_is_read_by_its_metadata() -> None:
    def look(name: str) -> str:
        return name

    assert declared("look", PydanticTool(look, metadata={"effect": "none", "mine": 1}).metadata).effect == "none"
    with pytest.raises(UsageError, match="look: metadata effect='harmless' is not known"):
        declared("look", {"effect": "harmless"})
    with pytest.raises(UsageError, match="approval='maybe'"):
        declared("look", {"approval": "maybe"})
    with pytest.raises(ConfigError, match="timeout_s"):
        declared("look", {"timeout_s": "soon"})


def test_a_parameter_without_a_hint_is_refused_at_the_declaration() -> None:
    with pytest.raises(UsageError, match="guess: no type hint for what, how") as caught:

        @tool(effect="none")
        def guess(what, how):  # type: ignore[no-untyped-def]  # pyright: ignore[reportMissingParameterType]
            return what, how

    assert "def guess(what: str)" in caught.value.hint


def test_a_parameter_that_no_model_can_give_is_one_clear_error() -> None:
    @tool(effect="none")
    def hold(lock: threading.Event) -> str:
        return str(lock)

    with pytest.raises(UsageError, match="hold cannot be offered to a model") as caught:
        to_pydantic(hold)
    assert "\n" not in caught.value.message


def test_a_hint_that_names_nothing_is_one_clear_error() -> None:
    @tool(effect="none")
    def hold(it: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
        return str(it)

    with pytest.raises(UsageError, match="Nowhere"):
        to_pydantic(hold)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"effect": "small"}, "effect='small'"),
        ({"approval": "sometimes"}, "approval='sometimes'"),
        ({"name": "has space"}, "no name for a tool"),
        ({"name": "x" * 65}, "no name for a tool"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], word: str) -> None:
    def f(x: int) -> int:
        return x

    with pytest.raises(UsageError, match=word):
        Tool(f, **options)
    with pytest.raises(UsageError, match="needs a function, not int"):
        tool(3)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]


def test_an_error_becomes_a_short_text_with_the_line_in_the_users_code() -> None:
    @tool(effect="none")
    def divide(by: int) -> float:
        return 1 / by

    with pytest.raises(ToolFailed) as caught:
        _call(divide, by=0)
    assert caught.value.message.startswith("ZeroDivisionError: division by zero (line ")
    assert caught.value.message.endswith(" of divide)")


def test_an_error_inside_of_a_library_names_the_users_line() -> None:
    @tool(effect="none")
    def parse(text: str) -> Any:
        import json

        return json.loads(text)

    with pytest.raises(ToolFailed, match=r"JSONDecodeError.* of parse\)"):
        _call(parse, text="{")


def test_what_steers_the_run_passes() -> None:
    @tool(effect="none")
    def again(what: str) -> str:
        raise ModelRetry(f"not {what}")

    @tool(effect="idempotent")
    async def full(what: str) -> str:
        raise PersistenceError(what)

    with pytest.raises(ModelRetry):
        _call(again, what="this")
    with pytest.raises(PersistenceError):
        _call(full, what="no space left")


@pytest.mark.parametrize("kind", ["sync", "async", "a function that gives a coroutine"])
def test_a_model_calls_a_tool_and_gets_its_bounded_result(kind: str) -> None:
    async def later(n: int) -> str:
        return "x" * n

    def now(n: int) -> str:
        return "x" * n

    def hidden(n: int) -> Any:
        return later(n)

    made = Tool({"sync": now, "async": later}.get(kind, hidden), effect="none", name="many", more="ask for fewer")

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) == 1:
            assert info.function_tools[0].metadata == metadata("none")
            return ModelResponse([ToolCallPart("many", {"n": 30_000})])
        part = messages[-1].parts[0]
        assert isinstance(part, ToolReturnPart)
        return ModelResponse([TextPart(str(part.content)[-90:])])

    agent: Agent[None, str] = Agent(FunctionModel(model), tools=[to_pydantic(made)])
    said = asyncio.run(agent.run("go")).output
    assert said.endswith("[cut here: 10,000 of 30,000 characters are left out; ask for fewer]")


def test_a_pydantic_model_is_taken_as_parameter() -> None:
    @tool(effect="none")
    def norm(point: Point) -> int:
        """Length."""
        return point.x + point.y

    assert set(norm.schema["properties"]) == {"x", "y"}
    assert _call(norm, point=Point(x=1, y=2)) == 3
