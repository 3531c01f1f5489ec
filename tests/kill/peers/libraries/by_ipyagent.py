"""ipyagent: each step an activity with its effect declared; the same call again goes on with the run."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

from tests.kill.peers.child import asked
from tests.kill.peers.steps import AFTER, BEFORE, QUESTION, kind_of, perform, result_of
from tests.kill.witness import Witness

from ipyagent_sessions import Context, Done, Store, activity, workflow
from ipyagent_sessions.errors import ControlRefused, ResultLost
from ipyagent_sessions.log import live
from ipyagent_sessions.payloads import HAPPENED, RUN_AGAIN
from ipyagent_sessions.run import control
from ipyagent_sessions.run.launch import Origin, launch
from ipyagent_sessions.session import Session

PACKAGES: Final = ("ipyagent",)


def charged(world: str, step: str) -> Done | bool:
    return Done(result_of(step)) if Witness(world).happened(step) else False


@activity(effect="none")
def look(world: str, step: str) -> str:
    return perform(world, step, asks_first=False)


@activity(effect="idempotent")
def put(world: str, step: str) -> str:
    return perform(world, step, asks_first=False)


@activity(effect="irreversible", verify=charged)
def charge(world: str, step: str) -> str:
    return perform(world, step, asks_first=False)


@activity(effect="irreversible")
def letter(world: str, step: str) -> str:
    return perform(world, step, asks_first=False)


KINDS: Final = {"look": look, "put": put, "charge": charge, "letter": letter}


@workflow
async def errands(ctx: Context, world: str) -> list[str]:
    witness = Witness(world)

    async def one(step: str) -> str:
        try:
            result = str(await ctx.run(KINDS[kind_of(step)], world, step, key=step))
        except ResultLost:  # a person said that it happened
            result = result_of(step)
        witness.note("seen", id=step)
        return result

    results = []
    for stage in BEFORE:
        results += await ctx.gather(*[one(step) for step in stage])
    if await ctx.approve(QUESTION):
        for stage in AFTER:
            results += await ctx.gather(*[one(step) for step in stage])
    return results


def run(folder: Path, witness: Witness) -> list[str]:
    launched = launch(Store(folder), errands, (witness.path,), origin=Origin("errands.ipynb", "c1"), once=True)
    handle = launched.handle
    if handle is None:
        return list(launched.value)
    while not handle.wait(0.005):
        known = live.read_summary(launched.session.layout)
        if known is not None and known.needs_you:
            answer(launched.session, witness)
    return list(handle.result())


def answer(session: Session, witness: Witness) -> None:
    """What a person says who has looked at the world."""
    for approval_id, question in session.state().execution_state.approvals.items():
        if question.answer is not None:
            continue
        choice: dict[str, Any] = {}
        if question.kind == "outcome":
            steps = [i.rpartition("/")[2].partition(":")[2] for i in question.about]
            choice = {"choice": HAPPENED if any(map(witness.happened, steps)) else RUN_AGAIN}
            witness.note("person", id=steps[0])
        else:
            asked(witness)
        with contextlib.suppress(ControlRefused):  # answered meanwhile, by a request that a killed process had left
            control.request(
                session,
                "answer",
                actor="user:person",
                approval_id=approval_id,
                answer="approved",
                digest=question.digest,
                **choice,
            )
