"""A real limit of memory and the system's own killer: an alarm comes first, the loss is told as what it was, and nothing runs
twice (R014, R129, R135)."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
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
def group() -> Iterator[Path]:
    """A control group with a limit of memory, of version 1 or 2."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    top, inside, limit = Path("/sys/fs/cgroup"), own.get("", "/"), "memory.max"
    if "memory" in own:
        top, inside, limit = top / "memory", own["memory"], "memory.limit_in_bytes"
    made = next((p for p in (top / inside.lstrip("/"), top) if p.is_dir()), top) / f"ipyagent-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / limit).write_text(str(LIMIT))
        with contextlib.suppress(OSError):  # no swap to flee to
            (made / "memory.swap.max").write_text("0")
    except OSError as error:
        pytest.skip(f"NOT TESTED: the system's own killer, since no control group can be made here: {error}")
    yield made
    made.rmdir()


def warned(session: Session) -> bool:
    return any(alarm["kind"] == "memory" for alarm in bodies(session, "AlarmRaised"))


@pytest.mark.skipif(sys.platform != "linux", reason="NOT TESTED here: control groups are Linux's")
def test_a_task_ended_by_the_killer_was_warned_before_and_goes_on_where_there_is_more(group: Path, tmp_path: Path) -> None:
    store, witness = Store(tmp_path / "store"), Witness(tmp_path / "witness")
    enter = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n"
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
