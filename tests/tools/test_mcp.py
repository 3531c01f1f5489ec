"""Tools of MCP servers, with a real server in a process of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ipyagent_sessions.agent.tools import leftovers, mcp, processes
from ipyagent_sessions.agent.tools.declare import declared
from ipyagent_sessions.agent.tools.mcp import connected
from ipyagent_sessions.agent.tools.mcp_config import servers
from ipyagent_sessions.agent.tools.workbench import Started, Workbench
from ipyagent_sessions.errors import ConfigError, PersistenceError
from ipyagent_sessions.testing import Child, wait_until

SCRIPT = str(Path(__file__).with_name("server.py"))


def entry(*options: str, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [SCRIPT, *options], **more}


@pytest.fixture
def bench(root: Path) -> Any:
    made = Workbench(root, mark=f"mcp-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    processes.end_marked(made.mark)


def say(*calls: tuple[str, dict[str, Any]]) -> tuple[FunctionModel, list[Any], list[dict[str, Any]]]:
    """A model that makes these calls one after another; what it got back, and the metadata of the tools it was offered."""
    got: list[Any] = []
    offered: list[dict[str, Any]] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        offered.append({t.name: t.metadata for t in info.function_tools})
        last = messages[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            got.append((last.outcome, last.content))
        if len(got) == len(calls):
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart(*calls[len(got)])])

    return FunctionModel(model), got, offered


def turn(bench: Workbench, config: dict[str, Any], *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], dict[str, Any]]:
    model, got, offered = say(*calls)

    async def main() -> None:
        async with connected(bench, config) as found:
            agent: Agent[None, str] = Agent(model, toolsets=found.toolsets)
            assert (await agent.run("go")).output == "done"

    asyncio.run(main())
    return got, offered[0]


def look(bench: Workbench, config: dict[str, Any]) -> mcp.Connected:
    async def main() -> mcp.Connected:
        async with connected(bench, config) as found:
            return found

    return asyncio.run(main())


def test_tools_carry_the_name_of_their_server_and_their_effect(bench: Workbench) -> None:
    config = {"t": entry(effects={"send": "none", "nosuch": "none"}, approval="ask")}
    got, metadata = turn(bench, config, ("t_add", {"a": 1, "b": 2}))
    assert got == [("success", 3)]
    assert declared("t_add", metadata["t_add"]) == ("none", "ask", None)
    assert declared("t_put", metadata["t_put"]).effect == "idempotent"
    assert declared("t_send", metadata["t_send"]).effect == "none"  # the config has the last word
    assert declared("t_die", metadata["t_die"]).effect == "irreversible"
    found = look(bench, config)
    assert {t.name: t.effect for t in found.tools} == {name: declared(name, m).effect for name, m in metadata.items()}
    assert dict(found.unusable) == {
        "t_dotted.name": "providers of models do not take such a name",
        "t_nosuch": "the config gives its effect, and the server has no such tool",
    }


def test_what_a_tool_returns_is_bounded_and_what_it_raises_is_told(bench: Workbench) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("t_long", {"n": 50_000}),
        ("t_fail", {"text": "no such ticket"}),
        ("t_add", {"a": "x"}),
        ("t_add", {"a": 1, "b": 1}),
    ]
    (long, failed, wrong, right), _ = turn(bench, {"t": entry()}, *calls)
    assert len(long[1]) < 21_000
    assert failed[0] == "failed"
    assert "no such ticket" in failed[1]
    assert wrong[0] == "failed"
    assert right == ("success", 2)


def test_a_server_that_dies_in_a_call_does_not_end_the_turn(bench: Workbench) -> None:
    (died, after), _ = turn(bench, {"t": entry(), "u": entry()}, ("t_die", {}), ("u_add", {"a": 1, "b": 1}))
    assert died[0] == "failed"
    assert after == ("success", 2)


def test_variables_of_the_environment_fill_the_config(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_WHO", "me")
    got, _ = turn(bench, {"t": entry(env={"WHO": "${TEST_WHO}"})}, ("t_send", {"text": "hello"}))
    assert got == [("success", "hello for me")]
    found = look(bench, {"t": entry(env={"WHO": "${TEST_NOBODY}"})})
    assert found.unusable == [("t", "the variable TEST_NOBODY is not set")]


def test_the_keys_of_the_user_do_not_reach_a_server_that_was_not_given_them(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHO", "canary")
    got, _ = turn(bench, {"t": entry()}, ("t_send", {"text": "hello"}))
    assert got == [("success", "hello for nobody")]


def test_a_server_that_does_not_work_is_named_with_its_reason_and_the_others_work(bench: Workbench) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        config = {
            "good": entry(),
            "missing": {"command": "no-such-program-anywhere"},
            "crash": {"command": sys.executable, "args": ["-c", "raise SystemExit('the config is missing')"]},
            "noise": {"command": sys.executable, "args": ["-c", "print('this is no protocol')"]},
            "away": {"url": f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"},
        }
        found = look(bench, config)
    assert {t.name for t in found.tools} >= {"good_add"}
    why = dict(found.unusable)
    assert set(why) == {"missing", "crash", "noise", "away", "good_dotted.name"}
    assert "no-such-program-anywhere" in why["missing"]
    assert "it said: the config is missing" in why["crash"]
    assert all("\n" not in text and len(text) < 700 for text in why.values())


def test_a_server_that_is_silent_is_given_up_and_ended(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp, "CONNECT_S", 0.5)
    found = look(bench, {"t": entry("--silent")})
    assert found.unusable == [("t", "it did not answer within 0.5 s")]
    assert processes.marked(bench.mark) == []


def test_a_check_sees_what_was_put_right_without_a_restart(bench: Workbench, root: Path) -> None:
    config = {"t": {"command": sys.executable, "args": ["server.py"]}}
    assert "server.py" in dict(look(bench, config).unusable)["t"]
    (root / "server.py").write_text(Path(SCRIPT).read_text())
    assert any(t.name == "t_add" for t in look(bench, config).tools)


def test_its_process_is_recorded_and_ends_with_the_turn(bench: Workbench) -> None:
    log: list[tuple[str, Started]] = []
    bench.started = lambda e: log.append(("started", e))
    bench.ended = lambda e: log.append(("ended", e))
    turn(bench, {"t": entry()}, ("t_add", {"a": 1, "b": 2}))
    assert [what for what, _ in log] == ["started", "ended"]
    assert log[0][1].mark.startswith(bench.mark)
    assert processes.marked(bench.mark) == []


def test_a_server_that_does_not_want_to_end_is_ended_soon(bench: Workbench) -> None:
    async def main() -> float:
        async with connected(bench, {"t": entry("--deaf")}) as found:
            assert found.tools
            assert len(processes.marked(bench.mark)) == 2
            before = time.monotonic()
        return time.monotonic() - before

    took = asyncio.run(main())
    assert processes.marked(bench.mark) == []
    assert took < 1.5, took  # a first wait for it to end by itself, a second one after it was asked to; then it is killed


@pytest.mark.parametrize("options", [("--deaf",), ("--silent",)], ids=["deaf", "while it connects"])
def test_stopping_the_turn_ends_its_servers(bench: Workbench, options: tuple[str, ...]) -> None:
    async def main() -> None:
        up = asyncio.Event()
        bench.started = lambda _: up.set()

        async def work() -> None:
            async with connected(bench, {"t": entry(), "u": entry(*options)}):
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await up.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert processes.marked(bench.mark) == []


def test_a_process_that_cannot_be_recorded_is_not_kept(bench: Workbench) -> None:
    def full(_: Started) -> None:
        raise PersistenceError("no space left")

    bench.started = full
    with pytest.raises(PersistenceError):
        look(bench, {"t": entry(), "u": entry()})
    assert processes.marked(bench.mark) == []


ENGINE = """
import asyncio, sys
from pathlib import Path
from ipyagent_sessions.agent.tools.mcp import connected
from ipyagent_sessions.agent.tools.workbench import Workbench
async def main():
    bench = Workbench(Path("."), mark=sys.argv[1])
    async with connected(bench, {"t": {"command": sys.executable, "args": [sys.argv[2], "--deaf"]}}):
        print("up")
        await asyncio.Event().wait()
asyncio.run(main())
"""


def test_a_server_whose_engine_was_killed_is_found_and_ended(bench: Workbench) -> None:
    with Child(ENGINE, bench.mark, SCRIPT) as engine:
        engine.expect("up")
        engine.kill()
    wait_until(lambda: len(processes.marked(bench.mark)) == 2, what="the deaf server and its child live on")
    assert leftovers.stop(leftovers.living([], bench.mark)) == []
    assert processes.marked(bench.mark) == []


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"a b": {"command": "x"}}, "'a b' is no name for a server"),
        ({"a": {}}, "mcp.a: one of command and url is needed"),
        ({"a": {"command": "x", "url": "http://x"}}, "mcp.a: one of command and url"),
        ({"a": {"command": "x", "effects": {"t": "small"}}}, "mcp.a: Invalid enum value 'small'"),
        ({"a": {"command": "x", "arguments": []}}, "mcp.a: Object contains unknown field `arguments`"),
        ({"a": "x"}, "mcp.a: Expected `object`"),
        ({"a": {"command": "x", "args": "-m x"}}, "mcp.a: Expected `array`"),
    ],
)
def test_a_wrong_config_names_its_key(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        servers(config)
    assert said in caught.value.message
