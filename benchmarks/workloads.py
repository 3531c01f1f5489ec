"""The workflows that are measured, and how one is run.  Activities do nothing, so that what is measured is the engine."""

from __future__ import annotations

import base64
import os
import random
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from ipyagent_sessions import Context, Session, Store, activity, run_workflow, workflow
from ipyagent_sessions.log.appender import Durability
from ipyagent_sessions.log.files import Disk
from ipyagent_sessions.run.definitions import Effect
from ipyagent_sessions.run.task import RunOptions


class Counting(Disk):
    """A real disk that counts what goes into journals."""

    def __init__(self) -> None:
        self.bytes = 0
        self.syncs = 0

    def append(self, fd: int, data: bytes) -> None:
        super().append(fd, data)
        self.bytes += len(data)

    def sync(self, fd: int) -> None:
        super().sync(fd)
        self.syncs += 1


class Quiet(Counting):
    """A disk that does not sync journals: what is left is the engine's own time."""

    def sync(self, fd: int) -> None:
        self.syncs += 1


@activity(effect="none")
async def step(number: int) -> dict[str, Any]:
    return {"number": number, "text": "a small result"}


@activity(effect="none")
async def entered() -> list[float]:
    """When the first activity after a resume is entered: by the clock, and by the CPU time of the process."""
    return [time.perf_counter(), time.process_time()]


@workflow
async def steps(ctx: Context, count: int, effect: Effect) -> list[float]:
    """`count` activities one after another; returns the seconds they took: of the clock, and of this thread's CPU."""
    begun, used = time.perf_counter(), time.thread_time()
    for number in range(count):
        await ctx.run(step, number, effect=effect)
    return [time.perf_counter() - begun, time.thread_time() - used]


@workflow
async def asking(ctx: Context, count: int) -> None:
    """`count` activities, and a question that nobody answers."""
    for number in range(count):
        await ctx.run(step, number)
    await ctx.approve("Go on?")


@workflow
async def growing(ctx: Context, count: int, stages: int) -> None:
    """`count` activities in `stages` stages, each followed by an item appended to one list of the state."""
    for stage in range(stages):
        async with ctx.stage(f"part {stage + 1}"):
            for number in range(stage * count // stages, (stage + 1) * count // stages):
                found = await ctx.run(step, number)
                ctx.append("found", found)


@workflow
async def interrupted(ctx: Context, count: int) -> Any:
    """`count` activities and then death, where the environment says so; run again it goes on from there."""
    for number in range(count):
        await ctx.run(step, number)
    if "IPYAGENT_BENCH_DIE" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return await ctx.run(entered)


@activity(effect="none")
async def read(number: int) -> str:
    """A text that hardly compresses: 64 KB, which becomes a blob, each tenth time, otherwise 6 KB."""
    return base64.b64encode(random.Random(number).randbytes(48_000 if number % 10 == 0 else 4_500)).decode()


@workflow
async def reading(ctx: Context, count: int) -> Any:
    """The same with large results."""
    for number in range(count):
        await ctx.run(read, number)
    if "IPYAGENT_BENCH_DIE" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return await ctx.run(entered)


class Ran(NamedTuple):
    """Seconds an activity took, starting and ending the task not counted, and the session it left."""

    wall: float
    cpu: float
    session: Session


def run(folder: Path, count: int, effect: Effect = "none", durability: Durability = "sync", disk: Disk | None = None) -> Ran:
    """Run `steps` in a new store in `folder`."""
    handle = run_workflow(Store(folder, disk=disk), steps, (count, effect), options=RunOptions(durability=durability))
    wall, cpu = handle.result()
    return Ran(wall / count, cpu / count, handle.session)
