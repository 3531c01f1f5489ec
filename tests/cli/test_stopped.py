"""A process that is stopped, or gone while its task waited: every door says so, and a resume what it cannot give back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from ipyagent_sessions.events import payload_of
from ipyagent_sessions.log import lease
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


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "flow.py").write_text(FLOW)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(folder), *(str(Path(p).resolve()) for p in sys.path if p)]))
    return folder


def _started(child: Child, store: Store, status: str) -> Session:
    session = store.session(child.expect("session"))
    wait_until(lambda: session.state().system_state.status == status, timeout=30, what=f"it is {status}")
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
