"""What durability adds to a model request, against bare pydantic-ai and pydantic-ai-harness with the same played model; and
how a long conversation is taken up again.

The model answers at once with a call of a tool that does nothing, so that the engine is what is measured.  The harness is
shown if it is installed (`pip install pydantic-ai-harness`).
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measure import Row, number, row
from pydantic_ai import Agent, Tool, UsageLimits
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from ipyagent_sessions import Context, Session, Store, run_workflow, workflow
from ipyagent_sessions.agent import turn
from ipyagent_sessions.agent.permission import Rules
from ipyagent_sessions.run.launch import resume_task
from ipyagent_sessions.run.task import RunOptions

REQUESTS = (100, 500)
TURNS = (100, 1_000)
SAMPLES = 3
NO_LIMIT = UsageLimits(request_limit=None)


def played(requests: int, said: Callable[[], None] = lambda: None) -> Agent[None, str]:
    """An agent whose turn makes so many requests; `said` is called before the first answer."""
    numbers = itertools.count(1)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        place = next(numbers)
        if place == 1:
            said()
        if place % requests == 0:
            return ModelResponse(parts=[TextPart("done")])
        return ModelResponse(parts=[ToolCallPart("look", {"at": place}, f"call{place}")])

    def look(at: int) -> str:
        return f"a small result {at}"

    return Agent(FunctionModel(answer), tools=[Tool(look, metadata={"effect": "none"})])


def bare(folder: Path, requests: int) -> float:
    """Seconds a turn of so many requests takes without anything kept."""
    agent = played(requests)
    begun = time.perf_counter()
    asyncio.run(agent.run("go", usage_limits=NO_LIMIT))
    return time.perf_counter() - begun


def ours(folder: Path, requests: int) -> float:
    agent = played(requests)

    @workflow
    async def talk(ctx: Context, prompt: str) -> float:
        begun = time.perf_counter()
        await turn.take(ctx, agent, prompt, Rules(mode="auto"))
        return time.perf_counter() - begun

    return float(run_workflow(Store(folder), talk, ("go",)).result())


def harness(kind: str) -> Callable[[Path, int], float]:
    def run(folder: Path, requests: int) -> float:
        from pydantic_ai_harness.step_persistence import FileStepStore, SqliteStepStore, StepPersistence

        agent = played(requests)
        folder.mkdir()
        store: Any = FileStepStore(folder) if kind == "files" else SqliteStepStore(database=folder / "steps.sqlite")
        begun = time.perf_counter()
        asyncio.run(agent.run("go", usage_limits=NO_LIMIT, capabilities=[StepPersistence(store=store)]))
        return time.perf_counter() - begun

    return run


def measure(work: Path) -> Iterator[Row]:
    kept: dict[str, Callable[[Path, int], float]] = {"ipyagent, sync": ours}
    if importlib.util.find_spec("pydantic_ai_harness") is not None:
        kept |= {f"pydantic-ai-harness StepPersistence, {kind}": harness(kind) for kind in ("files", "SQLite")}
    for library in (bare, *kept.values()):
        library(work / f"warm-{id(library)}", 3)
    for requests in REQUESTS:
        plain = [bare(work, requests) / requests for _ in range(SAMPLES)]
        yield row(f"bare pydantic-ai, a request of {requests} with its call", [t * 1e3 for t in plain], "ms")
        for name, library in kept.items() if requests == REQUESTS[0] else [("ipyagent, sync", ours)]:
            added = []
            for i in range(SAMPLES):
                before = bare(work, requests)
                took = library(work / f"{name[:8]}-{name[-5:]}-{requests}-{i}", requests)
                added.append((took - (before + bare(work, requests)) / 2) / requests * 1e3)
            yield row(f"  added by {name}", added, "ms", at_most=5 if library is ours else None)
    yield from conversations(work)


def conversations(work: Path) -> Iterator[Row]:
    """A session with so many turns, each a task of its own: from the resume of the newest, cut off, to its first request."""
    session: Session | None = None
    store, said = Store(work / "turns"), list[float]()
    agent = played(2, lambda: None)

    @workflow
    async def talk(ctx: Context, prompt: str) -> Any:
        return await turn.take(ctx, agent, prompt, Rules(mode="auto"))

    turns = 0
    for wanted in TURNS:
        begun = time.perf_counter()
        for _ in range(wanted - turns):
            handle = run_workflow(store, talk, (f"question {turns}",), session=session)
            session = handle.session
            handle.result()
            turns += 1
        assert session is not None
        yield row(f"a turn of 2 requests, as number {turns:,} of its session", [(time.perf_counter() - begun) / wanted], "s")
        resumed: list[float] = []
        for _ in range(SAMPLES):
            agent = played(2)
            run_workflow(store, talk, ("stop here",), session=session, options=RunOptions(budget={"steps": 0.0})).wait()
            said.clear()
            agent = played(2, lambda: said.append(time.perf_counter()))
            at = time.perf_counter()
            handle = resume_task(session, talk, resume=_more())
            handle.result()
            resumed.append((said[0] - at) * 1e3)
        yield row(f"resume of a turn in a session of {turns:,}, to its first request", resumed, "ms", at_most=1_000)
        newest = max(session.layout.checkpoints.glob("*.zst"), key=lambda path: int(path.name.partition(".")[0]))
        yield row(f"  its newest checkpoint, of {session.last_seq():,} events", [float(newest.stat().st_size)], "bytes")


def _more() -> Any:
    from ipyagent_sessions.run.beginning import Resume

    return Resume(more={"steps": 10.0})


if __name__ == "__main__":
    import sys
    import tempfile

    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as folder:
        for found in measure(Path(folder)):
            print(f"{found.what}: {number(found.measured)} {found.unit}", flush=True)
