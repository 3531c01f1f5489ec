"""A cancel of a task that nobody runs ends what its tools had left running, at every door: no resume will come (R256)."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import psutil
import pytest

from ipyagent_lab.service import Service
from ipyagent_lab.testing import Api, until
from ipyagent_sessions import cli
from ipyagent_sessions import payloads as p
from ipyagent_sessions.agent.tools import processes
from ipyagent_sessions.events import Stamper, payload_of
from ipyagent_sessions.log import inbox
from ipyagent_sessions.log.inbox import Control
from ipyagent_sessions.log.lease import this_process
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.undo.ledger import ledger

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")


@pytest.fixture
def left(real: Store) -> Iterator[tuple[Session, psutil.Process]]:
    """A session whose holder is gone and whose tool had started a process, which lives."""
    session = real.create(title="left")
    mark = processes.new_mark(session.id)
    sleeper = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], env={processes.MARK: mark}, start_new_session=True
    )
    appender = session.append(this_process(by="tests"))
    task = f"{session.id}.1"
    appender.emit("TaskQueued", p.TaskQueued("lib:talk", kind="agent"), task_id=task)
    appender.emit("TaskStarted", p.TaskStarted(1, appender.lease.holder.as_dict()), task_id=task)
    noted = processes.noted(sleeper.pid, "sleeper", mark)
    body = {"pid": noted.pid, "started": noted.started, "command": noted.command, "mark": mark}
    appender.emit("ProcessStarted", body, task_id=task, ignorable=True)
    appender.close()
    try:
        yield session, psutil.Process(sleeper.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            sleeper.kill()
        sleeper.wait(30)


def _gone(process: psutil.Process) -> bool:
    return not processes.lives(process)


async def test_a_cancel_in_a_terminal(left: tuple[Session, psutil.Process], capsys: pytest.CaptureFixture[str]) -> None:
    session, process = left
    assert await asyncio.to_thread(cli.main, ["--store", str(session.place.root), "cancel", session.id]) == 0
    assert f"sleeper (pid {process.pid}) was still running and was ended" in capsys.readouterr().out
    assert _gone(process)
    (ended,) = [payload_of(e) for e in session.events() if e.event_type == "ProcessEnded"]
    assert (ended["pid"], ended["stopped"]) == (process.pid, True)
    assert [(e.name, e.state) for e in ledger(session.events()) if e.what == "command"] == [("sleeper", "failed")]


async def test_a_cancel_on_a_page(left: tuple[Session, psutil.Process], api: Api) -> None:
    session, process = left
    await api.post("sessions", session.id, "control", action="cancel", task_id=f"{session.id}.1", expects=[], args={})
    await until(lambda: _gone(process), "its process is ended")


async def test_a_cancel_that_waits_in_the_inbox_for_the_watchdog(
    left: tuple[Session, psutil.Process], real: Store, idle: Service
) -> None:
    session, process = left
    asked = Control(uuid.uuid4().hex[:12], "cancel", "user:anna", Stamper()(time.time()), f"{session.id}.1", [], {})
    inbox.put(session.layout, asked, real.disk)
    await idle.start()
    await until(lambda: _gone(process), "its process is ended")
    assert session.state().system_state.status == "cancelled"
