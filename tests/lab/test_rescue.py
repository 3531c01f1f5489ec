"""A notebook's task with `--recover auto:N` goes on by itself when its kernel dies, and one without does not (R128)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from ipyagent_lab.service import Service
from ipyagent_lab.testing import until
from ipyagent_sessions import payloads as p
from ipyagent_sessions.commands import supervise
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.serving import rescue
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")

CELL = """
import os, time
from ipyagent_sessions import workflow

def step(i, hold):
    with open("witness", "a") as file:
        file.write(f"{i}\\n")
    while i == 2 and hold and os.environ.get("IPYAGENT_TEST_HOLD"):
        time.sleep(0.02)
    return i

@workflow(default_effect="none")
async def walk(ctx, hold: bool):
    return [await ctx.run(step, i, hold) for i in range(4)]
"""
"""What the notebook's cell defines.  In the process that stands for its kernel, step 2 does not end."""

KERNEL = """
import sys
from ipyagent_sessions import Store
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.run.launch import Origin, launch
from ipyagent_sessions.run.task import RunOptions

store, notebook, tries = sys.argv[1:]
origin = Origin(notebook, holder=this_process(kernel="k" * 32, by="kernel"))
handle = launch(Store(store), walk, (True,), options=RunOptions(recover=int(tries)), origin=origin).handle
print("session", handle.session.id)
handle.wait()
"""

SERVER = """
import asyncio, gc, logging, sys
from pathlib import Path
from ipyagent_lab.rescuer import Rescuer
from ipyagent_sessions.clock import SystemClock
from ipyagent_sessions.serving.rescue import Rescue

GOING_ON = "import sys, time; from pathlib import Path; here = Path(sys.argv[1]); (here / 'began').touch()\\n"
GOING_ON += "while not (here / 'go').exists(): time.sleep(0.02)\\n"
GOING_ON += "(here / 'ended').touch()"
here = sys.argv[1]
rescue = Rescue(1, 2, 0.0, (sys.executable, "-c", GOING_ON, here), here)

async def session(session_id):
    return None

async def find(look):
    return rescue

async def serve():
    if sys.platform == "linux" and sys.version_info < (3, 12):  # what later versions choose by themselves
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)
    rescuer = Rescuer(session, find, lambda *told: print(*told), SystemClock(), logging.getLogger())
    rescuer.lost("a session")
    while not Path(here, "began").exists():
        await asyncio.sleep(0.02)
    rescuer.stop()

asyncio.run(serve())
gc.collect()
"""
"""A server that ends while a process goes on with a task: until there is a file `go`."""


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cell = nbformat.v4.new_code_cell(CELL, metadata={"tags": ["agent-setup"]})
    path = tmp_path / "work" / "walk.ipynb"
    path.parent.mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("PYTHONPATH", ":".join(str(Path(p).resolve()) for p in sys.path if p))
    monkeypatch.setattr(supervise, "_FIRST_S", 0.1)
    return path


def killed(store: Store, notebook: Path, tries: int) -> Session:
    """A session whose kernel was killed in step 2."""
    with Child(CELL + KERNEL, str(store.root), str(notebook), str(tries), env={"IPYAGENT_TEST_HOLD": "1"}) as kernel:
        session = store.session(kernel.expect("session"))
        witness = notebook.with_name("witness")
        wait_until(lambda: witness.is_file() and "2" in witness.read_text(), timeout=30, what="step 2 to begin")
        kernel.kill()
    return session


async def test_the_task_of_a_dead_kernel_goes_on_in_a_process_of_its_own(
    real: Store, service: Service, notebook: Path
) -> None:
    session = await asyncio.to_thread(killed, real, notebook, 2)
    await until(lambda: session.state().system_state.status == "completed", "it goes on to its end")
    assert notebook.with_name("witness").read_text().split() == ["0", "1", "2", "2", "3"]
    events = [event.event_type for event in session.events()]
    assert events.count("RecoveryCompleted") == 1
    await service.rescuer.settled()
    assert (entry := service.index.get(session.id)) is not None
    assert entry.row.problem == ""


async def test_without_that_policy_a_person_is_asked(real: Store, service: Service, notebook: Path) -> None:
    session = await asyncio.to_thread(killed, real, notebook, 0)
    await until(lambda: session.state().system_state.reason == "worker_lost", "the loss is written down")
    await until(lambda: not session.held(), "whoever wrote it down lets go")
    await service.rescuer.settled()
    assert session.state().system_state.status == "suspended"


async def test_why_it_does_not_go_on_is_said_in_the_list(real: Store, service: Service, notebook: Path) -> None:
    untagged = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CELL)])
    nbformat.write(untagged, notebook)
    session = await asyncio.to_thread(killed, real, notebook, 2)

    def problem() -> str:
        entry = service.index.get(session.id)
        return entry.row.problem if entry is not None else ""

    said = await until(problem, "the list says why")
    assert "'walk'" in said
    assert "agent-setup" in said
    assert session.state().system_state.status == "suspended"


def test_the_process_that_goes_on_outlives_the_server(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SERVER, str(tmp_path)], check=True, timeout=60)
    assert not (tmp_path / "ended").exists()
    (tmp_path / "go").touch()
    wait_until((tmp_path / "ended").exists, timeout=30, what="the process to go on to its end")


def lost(store: Store, times: int, done_after: int | None = None) -> Session:
    """A session whose log says that its kernel was lost so often, with an activity completed after one of the losses."""
    session = store.create(title="lost")
    appender = session.append(this_process(kernel="k" * 32, by="kernel"))
    task = f"{session.id}.1"
    environment = b'{"executable":"%s","cwd":"%s"}' % (sys.executable.encode(), str(store.root).encode())
    name = appender.blobs.name(environment)
    appender.emit("TaskQueued", p.TaskQueued("lib:walk", recover=2), task_id=task)
    holder = appender.lease.holder.as_dict()
    appender.emit("TaskStarted", p.TaskStarted(1, holder, name), task_id=task, blobs={name: environment})
    for number in range(times):
        appender.emit("TaskSuspended", p.TaskSuspended("worker_lost", "gone"), task_id=task)
        if number + 1 < times:
            appender.emit("TaskResumed", p.TaskResumed(number + 2, "worker_lost", "", [], [], holder), task_id=task)
        if number == done_after:
            appender.emit("ActivityCompleted", p.ActivityCompleted("step"), task_id=task, activity_id="main/step#1")
    appender.close()
    return session


def test_losses_are_counted_in_the_log_and_waits_grow_until_a_person_is_needed(real: Store) -> None:
    first, second, third = (rescue.due(lost(real, times)) for times in (1, 2, 3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first.wait_s, second.wait_s) == (2, 8)
    assert first.command[0] == sys.executable
    assert first.command[-3:] == ("--setup-cells", "--recover", "auto:2")
    assert (third.command, third.why) == ((), "it was lost 3 times in a row without getting on; a person is needed")
    on = rescue.due(lost(real, 3, done_after=0))
    assert on is not None
    assert on.died == 2


def test_a_session_that_somebody_holds_is_left_alone(real: Store) -> None:
    session = lost(real, 1)
    appender = session.append(this_process(by="tests"))
    assert rescue.due(session) is None
    appender.close()
    assert rescue.due(session) is not None
