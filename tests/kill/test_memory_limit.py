"""A real limit of memory and the system's own killer: an alarm comes first, the loss is told as what it was, and nothing runs
twice (R014, R129, R135)."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.run.groups import Group, memory_group
from tests.run.harness import Witness, bodies

from ipyagent_sessions import Store
from ipyagent_sessions.run import launch
from ipyagent_sessions.session import Session
from ipyagent_sessions.testing import Child, wait_until

pytestmark = pytest.mark.timeout(120)
LIMIT = 400 * 10**6

PROGRAM = """
import os, sys, time
from pathlib import Path
from ipyagent_sessions import Context, Store, run_workflow, workflow
from ipyagent_sessions.run import resources

def step(witness, number):
    with open(witness, "a") as file:
        file.write(f"{number}\\n")
    if HUNGRY and number == 6:
        eat(Path(witness).parent, Path(witness + ".go"))
    return number

def eat(folder, go):
    held = []
    while not resources.room(folder).memory_short:
        held.append(bytearray(os.urandom(2**20)))
    print("nearly", flush=True)
    while not go.exists():
        time.sleep(0.02)
    while True:
        held.append(bytearray(os.urandom(2**20)))

@workflow(default_effect="none")
async def flow(ctx: Context, witness: str) -> list[int]:
    return [await ctx.run(step, witness, n, key=n) for n in range(10)]
"""

MAIN = """
HUNGRY = True
store, witness = sys.argv[1:]
handle = run_workflow(Store(store), flow, (witness,))
print("started", handle.session.id, flush=True)
handle.result()
"""


@pytest.fixture
def group() -> Iterator[Group]:
    with memory_group(LIMIT) as made:
        yield made


def warned(session: Session) -> bool:
    return any(alarm["kind"] == "memory" for alarm in bodies(session, "AlarmRaised"))


@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED here: control groups are Linux's")
def test_a_task_ended_by_the_killer_was_warned_before_and_goes_on_where_there_is_more(group: Group, tmp_path: Path) -> None:
    store, witness = Store(tmp_path / "store"), Witness(tmp_path / "witness")
    enter = f"open({str(group.entrance)!r}, 'w').write('0')\n"
    with Child(enter + PROGRAM + MAIN, str(store.root), str(witness.path)) as child:
        session = store.session(child.expect("started"))
        child.expect("nearly")
        wait_until(lambda: warned(session), timeout=30, what="the alarm")
        witness.path.with_name("witness.go").touch()
        assert child.wait() == -signal.SIGKILL
    assert session.effective_state() == "lost"
    assert [b["name"] for b in bodies(session, "ActivityCompleted")] == ["step"] * 6
    made: dict[str, Any] = {"__name__": "__main__", "HUNGRY": False}
    exec(PROGRAM, made)
    assert launch.resume_task(session, made["flow"]).result(60) == list(range(10))
    (told,) = bodies(session, "RecoveryCompleted")
    assert told["cause"] == "resources"
    assert "of the memory was in use then" in told["steps"]["detect"]
    assert "for lack of memory" in told["steps"]["detect"]
    assert witness.order == [*"0123456", *"6789"]
