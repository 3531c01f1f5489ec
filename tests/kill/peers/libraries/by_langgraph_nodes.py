"""LangGraph's SQLite saver, graph API: a node for each step, durability `sync`; `invoke(None)` on the same thread goes on.

Its documentation: a node that was interrupted runs again from its beginning, so its effects ought to be idempotent; of the
nodes of one superstep those that ended are kept as pending writes; a person is asked by `interrupt` and answers by
`Command(resume=...)`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from tests.kill.peers.child import asked
from tests.kill.peers.steps import AFTER, APPROVAL, BEFORE, QUESTION, STEPS, perform
from tests.kill.witness import Witness

PACKAGES: Final = ("langgraph", "langgraph-checkpoint-sqlite")
THREAD: Final = {"configurable": {"thread_id": "1"}}
STAGES: Final = (*BEFORE, (APPROVAL,), *AFTER)


class State(TypedDict):
    world: str
    results: Annotated[dict[str, str], operator.or_]


def name_of(step: str) -> str:
    """A node's name may not hold a colon."""
    return step.replace(":", "-")


def node_of(step: str, before: tuple[str, ...]) -> Callable[[State], dict[str, Any]]:
    def node(state: State) -> dict[str, Any]:
        witness = Witness(state["world"])
        for one in before:  # this node is what follows them
            witness.note("seen", id=one)
        if step == APPROVAL:
            return {"results": {step: str(interrupt(QUESTION))}}
        return {"results": {step: perform(state["world"], step, asks_first=True)}}

    return node


def graph() -> StateGraph:
    builder = StateGraph(State)
    for place, stage in enumerate(STAGES):
        before = STAGES[place - 1] if place else ()
        for step in stage:
            builder.add_node(name_of(step), node_of(step, before))
            builder.add_edge([name_of(one) for one in before] if before else START, name_of(step))
    for step in STAGES[-1]:
        builder.add_edge(name_of(step), END)
    return builder


def run(folder: Path, witness: Witness) -> list[str]:
    folder.mkdir(exist_ok=True)
    with SqliteSaver.from_conn_string(str(folder / "checkpoints.sqlite")) as saver:
        app = graph().compile(checkpointer=saver)
        results = drive(app, {"world": witness.path, "results": {}}, witness)["results"]
    return [results[step] for step in STEPS]


def drive(app: Any, start: Any, witness: Witness) -> Any:
    """Begin or go on, and answer, until the graph has ended; gives its last values."""
    while True:
        state = app.get_state(THREAD)
        if state.created_at is None:
            todo: Any = start
        elif any(task.interrupts and task.result is None for task in state.tasks):
            asked(witness)
            todo = Command(resume="approved")
        elif state.tasks:  # `next` is empty too while results are kept and the checkpoint after them is not
            todo = None
        else:
            return state.values
        app.invoke(todo, THREAD, durability="sync")
