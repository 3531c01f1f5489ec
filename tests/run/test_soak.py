"""A task of 25 hours, with the clock wound on: memory, files and checkpoints stay within bounds, and a kill at its end costs
nothing (R011, R250)."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.run.harness import bodies, of_type

from ipyagent_sessions import Store
from ipyagent_sessions.run import launch
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import Child, wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")]
HOURS, AN_HOUR = 25, 1000
MIB = 2**20

PROGRAM = """
import asyncio, sys, time
from ipyagent_sessions import Context, Store, workflow

class Wound:
    \"\"\"Time that passes only while somebody sleeps.\"\"\"
    def __init__(self):
        self.slept = 0.0
    def now(self):
        return 1_790_000_000.0 + self.slept
    def monotonic(self):
        return self.slept
    async def sleep(self, seconds):
        await asyncio.sleep(0)
        self.slept += seconds

async def step(number):
    return {"number": number, "text": "a small result"}

@workflow(default_effect="none")
async def flow(ctx: Context, hours: int, an_hour: int) -> int:
    done = 0
    for hour in range(hours):
        async with ctx.stage(f"hour {hour + 1}"):
            for number in range(an_hour):
                done += bool(await ctx.run(step, number))
                if number % 10 == 9:
                    await ctx.sleep(3600 * 10 / an_hour)
            ctx.set("hours", hour + 1)
            LATER(hour)
    return done
"""

MAIN = """
import threading
import psutil
from ipyagent_sessions.run.launch import run_workflow
from ipyagent_sessions.run.task import RunOptions

def LATER(hour):
    appender = handle.run.appender  # the clock is wound, the disk is not: what an hour leaves to write is written within it
    while appender.durable_seq < appender.state.seq or any(t.name == "ipyagent-scribe" for t in threading.enumerate()):
        time.sleep(0.01)
    print("memory", psutil.Process().memory_info().rss, flush=True)
    if hour + 1 == int(sys.argv[2]):
        print("last", flush=True)
        time.sleep(600)

store = Store(sys.argv[1], clock=Wound())
hours, an_hour = int(sys.argv[2]), int(sys.argv[3])
handle = run_workflow(store, flow, (hours, an_hour), options=RunOptions(durability="async"))
print("session", handle.session.id, flush=True)
handle.wait()
"""


def size_of(session: Session, suffix: str) -> int:
    """Bytes of the session's files of a kind."""
    sizes = 0
    for path in session.layout.root.rglob(f"*{suffix}"):
        with contextlib.suppress(FileNotFoundError):  # sealed away meanwhile
            sizes += path.stat().st_size
    return sizes


def hours_on_disk(session: Session) -> Any:
    """How many hours are over, as far as the log says."""
    return session.state().business_state.values.get("hours")


def test_a_task_of_25_hours_stays_within_its_bounds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with Child(PROGRAM + MAIN, str(store.root), str(HOURS), str(AN_HOUR)) as child:
        session = store.session(child.expect("session"))
        memory = [int(child.expect("memory", timeout=60)) for _ in range(HOURS)]
        child.expect("last")
        wait_until(lambda: hours_on_disk(session) == HOURS, timeout=60, what="the last hour to be on disk")
        wait_until(lambda: size_of(session, ".jsonl") < 16 * MIB, timeout=60, what="journals to be sealed and removed")
        child.kill()
    # the least of some hours, since sealing and snapshots take working memory in between
    grown = f"in the last 20 hours, with what it keeps of 20,000 results; MiB by the hour: {[m // MIB for m in memory]}"
    assert min(memory[-5:]) - memory[4] < 48 * MIB, grown
    files = [path for path in session.layout.root.rglob("*") if path.is_file()]
    assert len(files) < 200
    assert size_of(session, ".parquet") < 200 * session.last_seq()
    before = len(of_type(session, "ActivityCompleted"))
    assert len(of_type(session, "CheckpointCreated")) >= HOURS * 60 // 5, "one each five minutes"
    assert session.state().seq >= 50_000

    made: dict[str, Any] = {"__name__": "__main__", "LATER": lambda hour: None}
    exec(PROGRAM, made)
    again = store.session(session.id)
    handle = launch.resume_task(again, made["flow"])
    assert handle.result(120) == HOURS * AN_HOUR
    assert bodies(again, "RecoveryCompleted")[0].get("repeated", []) == []
    steps = [b for b in bodies(again, "ActivityCompleted") if b["name"] == "step"]
    assert len(steps) == HOURS * AN_HOUR, "none twice"
    assert len(of_type(again, "ActivityCompleted")) - before <= 2
