"""DBOS on SQLite: a workflow of steps; `DBOS.launch()` recovers what was left pending.

Its documentation: a step runs at least once and is not run again once it has been recorded; steps of a stage run through
`asyncio.gather`; a person's answer comes by `DBOS.send` to `DBOS.recv`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from dbos import DBOS, SetWorkflowID
from tests.kill.peers.child import asked
from tests.kill.peers.steps import AFTER, BEFORE, QUESTION, perform
from tests.kill.witness import Witness

PACKAGES: Final = ("dbos",)
RUN: Final = "errands"


@DBOS.step()
async def step(world: str, name: str) -> str:
    return await asyncio.to_thread(perform, world, name, asks_first=True)


@DBOS.workflow()
async def errands(world: str) -> list[str]:
    witness = Witness(world)

    async def one(name: str) -> str:
        result = await step(world, name)
        witness.note("seen", id=name)
        return result

    results = []
    for stage in BEFORE:
        results += await asyncio.gather(*[one(name) for name in stage])
    await DBOS.set_event_async("question", QUESTION)
    if await DBOS.recv_async("answer", timeout_seconds=60):
        for stage in AFTER:
            results += await asyncio.gather(*[one(name) for name in stage])
    return results


def run(folder: Path, witness: Witness) -> list[str]:
    folder.mkdir(exist_ok=True)
    DBOS(
        config={
            "name": RUN,
            "system_database_url": f"sqlite:///{folder / 'dbos.sqlite'}",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    DBOS.launch()
    try:
        if DBOS.get_workflow_status(RUN) is None:
            with SetWorkflowID(RUN):
                handle = DBOS.start_workflow(errands, witness.path)
        else:
            handle = DBOS.retrieve_workflow(RUN)
        if DBOS.get_event(RUN, "question", timeout_seconds=60):
            asked(witness)
            DBOS.send(RUN, "approved", topic="answer", idempotency_key="the answer")
        return list(handle.get_result())
    finally:
        DBOS.destroy()
