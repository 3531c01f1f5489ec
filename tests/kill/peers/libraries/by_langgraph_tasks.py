"""LangGraph's SQLite saver, functional API: an entrypoint that calls a task for each step, durability `sync`.

Its documentation: side effects go into tasks; on resume the entrypoint runs again from its top and the results of tasks that
were recorded are given back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.func import entrypoint, task
from langgraph.types import interrupt
from tests.kill.peers.libraries.by_langgraph_nodes import drive
from tests.kill.peers.steps import AFTER, BEFORE, QUESTION, perform
from tests.kill.witness import Witness

PACKAGES: Final = ("langgraph", "langgraph-checkpoint-sqlite")


@task
def step(world: str, name: str) -> str:
    return perform(world, name, asks_first=True)


def run(folder: Path, witness: Witness) -> list[str]:
    folder.mkdir(exist_ok=True)
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:

        @entrypoint(checkpointer=saver)
        def errands(world: str) -> list[str]:
            results: list[str] = []
            for stage in BEFORE:
                results += finished(world, stage)
            if interrupt(QUESTION):
                for stage in AFTER:
                    results += finished(world, stage)
            return results

        return list(drive(errands, witness.path, witness))


def finished(world: str, stage: tuple[str, ...]) -> list[str]:
    """Start the steps of a stage together and wait for all."""
    results = []
    for name, future in [(name, step(world, name)) for name in stage]:
        results.append(future.result())
        Witness(world).note("seen", id=name)
    return results
