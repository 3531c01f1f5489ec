"""A process that is stopped, or gone while its task waited: every door says so, and a resume what it cannot give back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from ipyagent_sessions.events import payload_of
from ipyagent_sessions.log import lease
from ipyagent_sessions.run import control
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")

FLOW = """
import time
from ipyagent_sessions import workflow

def hold(name):
    while not __import__("os").path.exists(name):
        time.sleep(0.01)

@workflow(default_effect="none")
async def held(ctx, name: str):
    await ctx.run(hold, name)
    return 1

def gone(path):
    pass

@workflow(default_effect="none")
async def deletes(ctx):
    await ctx.run(gone, "a", effect="irreversible")
    await ctx.approve("And now?")

@workflow(default_effect="none")
async def asks(ctx):
    return bool(await ctx.approve("Go on?"))
"""

STARTED = """
import sys
from ipyagent_sessions import Store, run_workflow
import flow
handle = run_workflow(Store(sys.argv[1]), getattr(flow, sys.argv[2]), tuple(sys.argv[3:]))
print("session", handle.session.id)
handle.wait()
"""

IN_FOREGROUND = """
import os, sys
os.dup2(1, 2)
from ipyagent_sessions.cli import TerminalScreen, main
from ipyagent_sessions.commands import dispatch, parser
from ipyagent_sessions.commands.door import Door
from ipyagent_sessions.errors import IpyagentError
from ipyagent_sessions.run.launch import Origin
from ipyagent_sessions.store import Store
from pathlib import Path
door = Door(Store(sys.argv[1]), "user", Origin(), None, False, "ipyagent", Path.cwd())
try:
    dispatch.perform(door, TerminalScreen(), parser.parse("ipyagent", ["run", "flow:deletes"]))
except IpyagentError as error:
    print(error)
    sys.exit(1)
"""


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "flow.py").write_text(FLOW)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(folder), *(str(Path(p).resolve()) for p in sys.path if p)]))
    return folder


def _started(child: Child, store: Store, status: str) -> Session:
    session = store.session(child.expect("session"))
    wait_until(lambda: session.summary().state == status, timeout=30, what=f"the log and the list say {status}")
    return session


def _logged(session: Session, event_type: str) -> dict[str, object]:
    return payload_of([e for e in session.events() if e.event_type == event_type][-1])  # type: ignore[no-any-return]


def test_a_stopped_process_is_called_silent_and_taking_over_does_not_call_it_gone(
    here: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT", 0.2)
    store = Store(here / "store")
    with Child(STARTED, str(store.root), "held", "go") as child:
        session = _started(child, store, "running")
        child.stop()
        wait_until(lambda: session.silence() is not None, timeout=30, what="two heartbeats are missed")

        assert "running, silent for" in terminal("ls").out
        status = terminal("status", session.id).out
        assert "no sign of life for" in status
        assert f"resume {session.id} --take-over" in status
        (here / "go").touch()
        assert terminal("resume", session.id, "--take-over").status == 0
        detect = _logged(session, "RecoveryCompleted")["steps"]["detect"]  # type: ignore[index]
        assert f"process {child.pid} gave no sign of life" in detect
        assert "stopped, not gone" in detect
    assert "silent" not in terminal("ls").out


def test_a_task_whose_process_died_while_it_waited_says_what_is_not_restored(here: Path, terminal: Terminal) -> None:
    store = Store(here / "store")
    with Child(STARTED, str(store.root), "asks") as child:
        session = _started(child, store, "suspended")
        child.kill()

    assert terminal("approve", session.id).status == 0
    assert terminal("resume", session.id).status == 0

    assert _logged(session, "TaskResumed")["not_restored"] == ["kernel variables", "open connections", "child processes"]
    assert "not restored: kernel variables" in terminal("log", session.id).out


def test_the_log_has_each_of_the_six_steps_of_a_recovery_on_a_line(here: Path, terminal: Terminal) -> None:
    store = Store(here / "store")
    with Child(STARTED, str(store.root), "held", "go") as child:
        session = _started(child, store, "running")
        child.kill()
    (here / "go").touch()
    assert terminal("resume", session.id).status == 0

    log = terminal("log", session.id).out.splitlines()

    at = next(i for i, line in enumerate(log) if "RecoveryCompleted" in line)
    assert [line.split()[0] for line in log[at + 1 : at + 7]] == [
        "detect",
        "assess",
        "prepare",
        "restore",
        "continue",
        "verify",
    ]
    assert f"process {child.pid} is gone" in log[at + 1]
    assert "assess" in terminal("replay", session.id).out


def test_a_run_that_somebody_cancels_elsewhere_lists_what_it_leaves(here: Path) -> None:
    store = Store(here / "store")
    with Child(IN_FOREGROUND, str(store.root)) as child:
        wait_until(lambda: bool(store.exists() and store.session_ids()), timeout=30, what="its session")
        session = store.session(store.session_ids()[0])
        wait_until(lambda: session.state().system_state.status == "suspended", timeout=30, what="it waits")
        control.request(session, "cancel", actor="user")
        assert child.wait() == 1
        told = child.expect("still there, and not undone:") + child.line()
    assert "irreversible activity main/gone#1" in told


def test_a_fork_without_a_folder_of_its_own_says_so_whatever_happened_since(here: Path, terminal: Terminal) -> None:
    store = Store(here / "store")
    (here / "go").touch()
    assert terminal("run", "flow:held", "go").status == 0
    (found,) = store.sessions()
    assert "--isolate gives the fork a folder of its own" in terminal("fork", found.session_id).out
    assert "--isolate" not in terminal("fork", found.session_id, "--isolate").out
