"""Tools that MCP servers offer, for one turn.

The protocol is pydantic-ai's.  Here servers get their places: one that does not start or answer is named with its reason and
the others work; what a server returns or raises never ends the turn; and its process ends with the turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ipyagent_sessions.agent.tools import processes
from ipyagent_sessions.agent.tools.declare import NAME, Approval
from ipyagent_sessions.agent.tools.mcp_config import Server, filled, servers
from ipyagent_sessions.agent.tools.results import explained
from ipyagent_sessions.agent.tools.workbench import Started, Workbench
from ipyagent_sessions.errors import PersistenceError, UsageError
from ipyagent_sessions.run.definitions import Effect
from ipyagent_sessions.run.threads import Threads
from ipyagent_sessions.textsafe import plain

if TYPE_CHECKING:
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.toolsets import AbstractToolset

CONNECT_S: Final = 15.0
"""How long a server has to start and to name its tools."""
_CLOSE_S: Final = 0.3
_GIVE_UP_S: Final = 5.0
_LAST_WORDS: Final = 300


class _Tool(NamedTuple):
    """A tool under the server's own name for it, with what the server says about its effect."""

    name: str
    description: str
    hints: dict[str, Any] | None


class Served(NamedTuple):
    """A tool of a server, under the name that the model knows it by."""

    name: str
    effect: Effect
    approval: Approval | None
    description: str


@dataclass
class Connected:
    """What the servers offer.  `unusable` are servers and tools that are not offered, each with the reason."""

    toolsets: list[AbstractToolset[Any]] = field(default_factory=list["AbstractToolset[Any]"])
    tools: list[Served] = field(default_factory=list[Served])
    unusable: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@dataclass
class _Line:
    """A connection; `mark` and `started` belong to the process at its other end, if it is one of ours."""

    name: str
    server: Server
    toolset: MCPToolset[Any]
    mark: str
    log: Path
    tools: list[_Tool] = field(default_factory=list[_Tool])
    started: list[Started] = field(default_factory=list[Started])


@contextlib.asynccontextmanager
async def connected(bench: Workbench, config: Mapping[str, Any]) -> AsyncGenerator[Connected]:
    """The tools of all servers of `config`, until the block ends.  Each time anew, so a server that was put right works.

    Raises ConfigError for a mapping that is none of servers, and PersistenceError when a process cannot be recorded.
    """
    known = servers(config)
    with tempfile.TemporaryDirectory(prefix="ipyagent-mcp-", ignore_cleanup_errors=True) as logs:
        tasks = [asyncio.ensure_future(_reached(bench, name, server, Path(logs))) for name, server in known.items()]
        try:
            answers = await asyncio.gather(*tasks, return_exceptions=True)
            yield _offered(dict(zip(known, answers, strict=True)))
        finally:
            lines = [line for line in map(_line, tasks) if line is not None]
            await asyncio.shield(asyncio.gather(*(_close(bench, line) for line in lines)))


def _line(task: asyncio.Future[_Line | str]) -> _Line | None:
    """The connection that was made, if one was."""
    if not task.done() or task.cancelled() or task.exception() is not None:
        return None
    answer = task.result()
    return answer if isinstance(answer, _Line) else None


def _offered(answers: Mapping[str, _Line | str | BaseException]) -> Connected:
    from ipyagent_sessions.agent.tools.mcp_toolset import Guarded, effect_of

    found = Connected()
    for name, answer in answers.items():
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, str):
            found.unusable.append((name, answer))
            continue
        named = {tool.name: tool for tool in answer.tools}
        for tool in named.values():
            full = f"{name}_{tool.name}"
            if not NAME.fullmatch(full):
                found.unusable.append((full, "providers of models do not take such a name"))
                continue
            effect = effect_of(answer.server, tool.name, tool.hints)
            found.tools.append(Served(full, effect, answer.server.approval, tool.description))
        missing = [tool for tool in answer.server.effects if tool not in named]
        found.unusable += [
            (f"{name}_{tool}", "the config gives its effect, and the server has no such tool") for tool in missing
        ]
        found.toolsets.append(Guarded(answer.toolset, name, answer.server).prefixed(name))
    return found


async def _reached(bench: Workbench, name: str, server: Server, logs: Path) -> _Line | str:
    """A connection to the server, or why there is none."""
    mark = processes.new_mark(bench.mark)
    log = logs / f"{name}.txt"
    try:
        toolset = _toolset(bench, name, filled(server, os.environ), mark, log)
    except (UsageError, ValueError) as error:
        return explained(error)
    line = _Line(name, server, toolset, mark, log)
    try:
        why = await _in_time(_greet(line), mark)
        if why is None:
            await _note(bench, line)
            return line
    except BaseException:
        await asyncio.shield(_close(bench, line))
        raise
    await _in_thread(lambda: processes.end_marked(mark))
    return f"{why}{_last_words(log)}"


async def _greet(line: _Line) -> None:
    await line.toolset.__aenter__()
    line.tools = [
        _Tool(tool.name, tool.description or "", tool.annotations.model_dump(by_alias=True) if tool.annotations else None)
        for tool in await line.toolset.list_tools()
    ]


async def _in_time(greeting: Any, mark: str) -> str | None:
    """Why `greeting` failed, None when it did not.  A silent server is ended first: it would not hear that we leave."""
    task = asyncio.ensure_future(greeting)
    try:
        done, _ = await asyncio.wait({task}, timeout=CONNECT_S)
        if not done:
            await _in_thread(lambda: processes.end_marked(mark))
            task.cancel()
            await asyncio.wait({task}, timeout=_GIVE_UP_S)
            return f"it did not answer within {CONNECT_S:g} s"
    finally:
        task.cancel()
    error = task.exception()
    return None if error is None else _why(error)


def _why(error: BaseException) -> str:
    """What is at the bottom of it, in one line."""
    while isinstance(error, BaseExceptionGroup) or error.__cause__ is not None:
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or error
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return plain(str(error) or type(error).__name__, 300)


def _last_words(log: Path) -> str:
    """The last line that the server wrote to its error output."""
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        return ""
    lines = [line for line in text.splitlines() if line.strip()]
    return f"; it said: {plain(lines[-1].strip(), _LAST_WORDS)}" if lines else ""


async def _note(bench: Workbench, line: _Line) -> None:
    """Record the server's processes, so that they are found when nobody is left to end them."""
    if line.server.command is None:
        return
    running = await _in_thread(lambda: processes.marked(line.mark))
    for process in running:
        entry = processes.noted(process.pid, f"mcp {line.name}: {line.server.command}", line.mark)
        line.started.append(entry)
        bench.started(entry)


async def _close(bench: Workbench, line: _Line) -> None:
    """Hang up, and end what does not end by itself."""
    closing = asyncio.ensure_future(line.toolset.__aexit__(None, None, None)) if line.toolset.is_running else None
    if closing is not None:
        await asyncio.wait({closing}, timeout=_CLOSE_S)
    if line.server.command is not None:
        await _in_thread(lambda: processes.end_marked(line.mark))
    if closing is not None:
        await asyncio.wait({closing}, timeout=_GIVE_UP_S)
        if closing.done() and not closing.cancelled():
            closing.exception()  # a server that dies while we hang up is no news
    for entry in line.started:
        with contextlib.suppress(PersistenceError):  # the next start looks for it, and finds that it is gone
            bench.ended(entry)


def _toolset(bench: Workbench, name: str, server: Server, mark: str, log: Path) -> MCPToolset[Any]:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    if server.url is not None:
        return MCPToolset(server.url, id=name, headers=server.headers or None, tool_error_behavior="failed")
    assert server.command is not None
    transport = StdioTransport(
        server.command,
        server.args,
        env={**server.env, processes.MARK: mark},
        cwd=server.cwd or os.fspath(bench.workspace.root),
        keep_alive=False,
        log_file=log,
    )
    return MCPToolset(transport, id=name, tool_error_behavior="failed")


async def _in_thread(function: Callable[[], Any]) -> Any:
    threads = Threads()
    try:
        return (await asyncio.shield(threads.submit(function))).value
    finally:
        threads.close()
