"""What a killed process may lose in each mode, and that it never loses more or in another order (R038-R040, R043).

The children are real processes, killed with SIGKILL; what really ran is told by a witness outside the store.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.run.harness import PATIENCE, Engine, Witness, bodies, of_type, refolded

from ipyagent_sessions.log import scribe
from ipyagent_sessions.log.appender import RISK
from ipyagent_sessions.run.definitions import Workflow
from ipyagent_sessions.run.launch import result_of
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")

PROGRAM = """
import asyncio, os, sys, time
from ipyagent_sessions import Context, workflow

def step(path, i, pause):
    fd = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(fd, f"{i} {time.time()}\\n".encode())
    os.close(fd)
    if pause:
        time.sleep(pause)
    return i

@workflow(default_effect="none")
async def flow(ctx: Context, path: str, n: int, pause: float, effect_at: int) -> int:
    total = 0
    for i in range(n):
        total += await ctx.run(step, path, i, pause, effect="idempotent" if i == effect_at else "none")
    return total
"""

MAIN = """
from ipyagent_sessions import Store, run_workflow
from ipyagent_sessions.run.task import RunOptions
store, path, n, pause, effect_at, mode = sys.argv[1:]
handle = run_workflow(Store(store), flow, (path, int(n), float(pause), int(effect_at)), options=RunOptions(durability=mode))
print("started", handle.session.id, flush=True)
handle.result()
print("done", flush=True)
"""


def the_workflow() -> Workflow:
    """The same definition in this process, as a notebook's cell run again is."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(PROGRAM, made)
    found: Workflow = made["flow"]
    return found


def ran(witness: Witness) -> list[tuple[int, float]]:
    return [(int(line.split()[0]), float(line.split()[1])) for line in witness.order]


def killed(
    store: Store, witness: Witness, mode: str, *, n: int = 100_000, pause: float = 0.0, effect_at: int = -1, at: int
) -> Session:
    """A task in a child that is killed once it has run `at` steps."""
    with Child(PROGRAM + MAIN, str(store.root), str(witness.path), str(n), str(pause), str(effect_at), mode) as child:
        session = store.session(child.expect("started"))
        wait_until(lambda: witness.path.stat().st_size and len(witness.order) >= at, timeout=PATIENCE, what=f"{at} steps")
        child.kill()
    return session


def recorded(session: Session) -> list[int]:
    """The results in the log, in its order."""
    return [b["result"] for b in bodies(session, "ActivityCompleted")]


def check_prefix(session: Session, witness: Witness) -> int:
    """Whatever was lost, it is the end: the log holds the first results, in order, once.  Returns how many are missing."""
    done = recorded(session)
    assert done == list(range(len(done)))
    assert [e.seq for e in session.events()] == list(range(1, session.last_seq() + 1))
    assert session.state() == refolded(session)
    return len({i for i, _ in ran(witness)}) - len(done)


def test_in_mode_sync_at_most_the_open_step_is_missing(store: Store, witness: Witness) -> None:
    session = killed(store, witness, "sync", at=100)
    assert check_prefix(session, witness) <= 1


def test_in_mode_async_at_most_the_window_is_missing(store: Store, witness: Witness) -> None:
    session = killed(store, witness, "async", pause=0.002, at=300)
    check_prefix(session, witness)
    times = [at for _, at in ran(witness)]
    lost = times[len(recorded(session)) :]
    slow = 0.5  # what a flush itself may take on a loaded machine
    assert not lost or lost[-1] - lost[0] <= scribe.WINDOW + slow
    assert "0.2 s" in RISK["async"]


def test_in_mode_exit_everything_since_the_last_effect_is_missing_and_nothing_before_it(
    store: Store, witness: Witness
) -> None:
    session = killed(store, witness, "exit", pause=0.002, effect_at=50, at=120)
    check_prefix(session, witness)
    assert recorded(session) == list(range(51))
    assert [b["name"] for b in bodies(session, "ActivityStarted")][-1] == "step"
    assert session.state().business_state.results["main/step#51"].effect == "idempotent"  # its result too, in every mode


@pytest.mark.parametrize("mode", ["sync", "async", "exit"])
def test_after_the_kill_the_rest_runs_and_nothing_recorded_runs_again(
    store: Store, engine: Engine, witness: Witness, mode: str
) -> None:
    session = killed(store, witness, mode, n=150, pause=0.003, effect_at=40, at=80)
    before = set(recorded(session))
    first = [i for i, _ in ran(witness)]
    assert session.effective_state() == "lost"
    assert engine.resume(session, the_workflow()).result(PATIENCE * 2) == sum(range(150))
    again = [i for i, _ in ran(witness)][len(first) :]
    assert before.isdisjoint(again)
    assert again == list(range(len(before), 150))
    assert bodies(session, "RecoveryCompleted")[0]["cause"] == "worker_lost"
    assert len(of_type(session, "TaskCompleted")) == 1


def test_a_kill_right_after_the_last_step_leaves_a_completed_task_with_its_result(store: Store, witness: Witness) -> None:
    """R152."""
    code = PROGRAM + MAIN + "time.sleep(600)\n"
    with Child(code, str(store.root), str(witness.path), "5", "0", "-1", "sync") as child:
        session = store.session(child.expect("started"))
        child.expect("done")
        child.kill()
    assert session.effective_state() == "completed"
    assert result_of(session) == 10
