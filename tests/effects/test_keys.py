"""An activity's outbound calls carry one key over all its attempts, resumes and processes; nobody else has that key."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pydantic_ai import ModelRetry
from tests.run.conftest import clock, engine, gate, witness
from tests.run.harness import PATIENCE, Engine, Gate, Witness
from tests.turn.play import Play, agent_of, talking

from ipyagent_sessions.agent.tools.run_shell import run_shell
from ipyagent_sessions.agent.tools.workbench import Workbench
from ipyagent_sessions.errors import UsageError
from ipyagent_sessions.run.context import Context
from ipyagent_sessions.run.definitions import Retry, workflow
from ipyagent_sessions.run.keys import VARIABLE, idempotency_key

__all__ = ["clock", "engine", "gate", "witness"]


def test_outside_of_an_activity_there_is_none() -> None:
    with pytest.raises(UsageError, match="outside of an activity"):
        idempotency_key()


def test_it_is_the_same_over_attempts_and_for_verify_and_compensation(engine: Engine, witness: Witness) -> None:
    tries = iter([True, True, False])

    def send() -> None:
        witness(f"send {idempotency_key()}")
        if next(tries):
            raise OSError("busy")

    async def take_back() -> None:
        witness(f"undo {idempotency_key()}")

    def fails() -> None:
        witness(f"fails {idempotency_key()}")
        raise ValueError("no")

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> None:
        policy = Retry(3, initial_s=0, jitter_s=0)
        await ctx.run(send, effect="irreversible", retry=policy, compensate=lambda: take_back())
        await ctx.run(fails)

    assert engine.start(flow).wait(PATIENCE)
    sent = [line.split()[1] for line in witness.order if line.startswith(("send", "undo"))]
    assert len(sent) == 4
    assert len(set(sent)) == 1
    assert len({line.split()[1] for line in witness.order}) == 2
    again = engine.start(flow)
    assert again.wait(PATIENCE)
    assert len({line.split()[1] for line in witness.order}) > 2


def test_it_is_the_same_after_a_crash_and_its_verify_sees_it(engine: Engine, witness: Witness, gate: Gate) -> None:
    async def send() -> str:
        witness(f"send {idempotency_key()}")
        await gate.passing()
        return "sent"

    async def look() -> str:
        witness(f"look {idempotency_key()}")
        await gate.passing()
        return "seen"

    def happened() -> bool:
        witness(f"verify {idempotency_key()}")
        return False

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[str]:
        return await ctx.gather(ctx.run(send, effect="irreversible", verify=happened), ctx.run(look))

    handle = engine.start(flow)
    gate.reached(2)
    engine.crash(handle)
    gate.open()
    assert engine.resume(handle, flow).result(PATIENCE) == ["sent", "seen"]
    by_name: dict[str, set[str]] = {}
    for line in witness.order:
        by_name.setdefault(line.split()[0], set()).add(line.split()[1])
    assert by_name["send"] == by_name["verify"]
    assert len(by_name["send"]) == len(by_name["look"]) == 1
    assert by_name["send"] != by_name["look"]


def key_and_pid() -> tuple[str, int]:
    return idempotency_key(), os.getpid()


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of Unix")
def test_a_process_of_the_activity_has_it_too(engine: Engine, tmp_path: Path) -> None:
    async def shell() -> list[str]:
        said = await run_shell(Workbench(tmp_path))(command=f"echo ${VARIABLE}")
        return [idempotency_key(), said.splitlines()[1]]

    @workflow(default_effect="none")
    async def flow(ctx: Context) -> list[object]:
        return [await ctx.run(key_and_pid, isolate="process"), await ctx.run(shell)]

    (child, pid), (inside, outside) = engine.start(flow).result(PATIENCE * 3)
    assert pid != os.getpid()
    assert len(child) == 32
    assert inside == outside != child


def test_a_tool_of_an_agent_has_one_a_call_and_a_second_call_another(engine: Engine) -> None:
    seen: list[str] = []

    def pay(amount: int) -> str:
        seen.append(idempotency_key())
        if amount == 0:
            raise ModelRetry("nothing to pay")
        return "paid"

    play = Play([("pay", {"amount": 0})], [("pay", {"amount": 1}), ("pay", {"amount": 1})], "done")
    assert engine.start(talking(agent_of(play, [pay])), "go").result(PATIENCE) == "done"
    assert len(seen) == len(set(seen)) == 3
