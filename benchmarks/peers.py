"""The same kind of step in other libraries that keep it durably on one machine: LangGraph and DBOS, both on SQLite.

    python peers.py FOLDER BYTES

prints JSON: for each library the ratio of one bare write+fdatasync of BYTES to one of its steps (median of interleaved
samples), or null when it is not installed.
"""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from measure import SAMPLES, beside

STEPS = 300


def langgraph(folder: Path, durability: Any) -> float:
    """Seconds a superstep takes: one node that loops, state and checkpoint in SQLite."""
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    class Count(TypedDict):
        number: int
        text: str

    def step(state: Count) -> Count:
        return {"number": state["number"] + 1, "text": "a small result"}

    graph = StateGraph(Count)
    graph.add_node("step", step)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: END if state["number"] >= STEPS else "step")
    folder.mkdir()
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        app = graph.compile(checkpointer=saver)
        begun = time.perf_counter()
        settings = {"configurable": {"thread_id": "1"}, "recursion_limit": STEPS + 10}
        app.invoke({"number": 0, "text": ""}, settings, durability=durability)
        return (time.perf_counter() - begun) / STEPS


def dbos(folder: Path, _: Any) -> float:
    """Seconds a step takes in a workflow, system database in SQLite."""
    from dbos import DBOS

    folder.mkdir()
    DBOS(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}",
            "run_admin_server": False,
            "log_level": "CRITICAL",
        }
    )

    @DBOS.step()
    def step(number: int) -> dict[str, Any]:
        return {"number": number, "text": "a small result"}

    @DBOS.workflow()
    def steps() -> float:
        begun = time.perf_counter()
        for number in range(STEPS):
            step(number)
        return (time.perf_counter() - begun) / STEPS

    DBOS.launch()
    try:
        return steps()
    finally:
        DBOS.destroy()


def main() -> None:
    logging.disable(logging.CRITICAL)
    folder, size = Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True)
    kinds: dict[str, tuple[Callable[[Path, Any], float], Any]] = {
        "LangGraph, durability sync": (langgraph, "sync"),
        "LangGraph, durability async": (langgraph, "async"),
        "DBOS on SQLite": (dbos, None),
    }
    found: dict[str, dict[str, float] | None] = {}
    for name, (kind, option) in kinds.items():
        samples = []
        try:
            for i in range(SAMPLES):
                at = folder / f"{name.replace(' ', '-')}-{i}"
                samples.append(beside(folder, STEPS, size, lambda at=at, kind=kind, option=option: kind(at, option)))
        except ImportError:
            found[name] = None
            continue
        found[name] = {
            "ratio": statistics.median(floor / took for floor, took in samples),
            "per_s": statistics.median(1 / took for _, took in samples),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    sys.path.insert(0, os.fspath(Path(__file__).parent))
    main()
