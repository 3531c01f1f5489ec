"""With `--recover auto:N` a terminal's task goes on after a crash, and a crash loop ends suspended (R128, R134)."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from ipyagent_lab.testing import LONG
from ipyagent_sessions.commands import supervise
from ipyagent_sessions.events import payload_of
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")

FRAGILE = """
import os, signal
from ipyagent_sessions import workflow

def step(i, deaths):
    with open("witness", "a") as file:
        file.write(f"{i}\\n")
    with open("witness") as file:
        if i == 2 and file.read().split().count("2") <= deaths:
            os.kill(os.getpid(), signal.SIGKILL)
    return i

@workflow(default_effect="none")
async def walk(ctx, deaths: int = 1):
    return [await ctx.run(step, i, deaths) for i in range(4)]
"""


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (folder / "fragile.py").write_text(FRAGILE)
    monkeypatch.setenv("PYTHONPATH", ":".join(str(Path(p).resolve()) for p in sys.path if p))
    monkeypatch.setattr(supervise, "_FIRST_S", 0.01)
    return folder


def test_it_goes_on_after_a_crash_and_does_nothing_twice(here: Path, terminal: Terminal) -> None:
    said = terminal("run", "fragile:walk", "--recover", "auto:3", "--new", "--deaths", "2")
    assert said.status == 0, said.err
    assert (here / "witness").read_text().split() == ["0", "1", "2", "2", "2", "3"]
    (session_id,) = Store(here / "store").session_ids()
    events = [e.event_type for e in Store(here / "store").session(session_id).events()]
    assert events.count("RecoveryCompleted") == 2


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="real-time signals")
def test_a_signal_without_a_name_is_survived_too_and_told_by_its_number(here: Path, terminal: Terminal) -> None:
    (here / "fragile.py").write_text(FRAGILE.replace("signal.SIGKILL", "signal.SIGRTMIN + 1"))
    said = terminal("run", "fragile:walk", "--recover", "auto:1")
    assert said.status == 0, said.err
    assert f"it died of signal {signal.SIGRTMIN + 1} and goes on" in said.err


def test_a_crash_loop_ends_suspended(here: Path, terminal: Terminal) -> None:
    said = terminal("run", "fragile:walk", "--recover", "auto:2", "--deaths", "99")
    assert said.status == 1
    assert "died 3 times in a row" in said.err
    assert (here / "witness").read_text().split().count("2") == 3
    (found,) = Store(here / "store").sessions()
    assert (found.state, found.summary and found.summary.reason) == ("suspended", "worker_lost")


def test_the_same_commandgiven_again_is_what_is_given_again() -> None:
    words = ["run", "m:f", "--new", "--session", "new", "--recover", "auto:1", "--", "--new"]
    assert supervise.given_again(words) == ["run", "m:f", "--recover", "auto:1", "--", "--new"]


def test_the_signal_is_in_the_log_and_a_loss_of_somebody_else_is_left_to_others(here: Path, terminal: Terminal) -> None:
    store = Store(here / "store")
    with Child(LONG, str(store.root)) as child:
        other = store.session(child.expect("session"))
        wait_until(lambda: other.effective_state() == "running", timeout=30, what="the other task runs")
        child.kill()

    said = terminal("run", "fragile:walk", "--recover", "auto:1", "--deaths", "99")

    assert said.status == 1
    (ours,) = [store.session(i) for i in store.session_ids() if i != other.id]
    assert ours.id in said.err
    losses = [payload_of(e)["detail"] for e in ours.events() if e.event_type == "TaskSuspended"]
    assert len(losses) == 2
    assert all("was ended by SIGKILL: stopped at activity 2" in told for told in losses)
    assert other.effective_state() == "lost", "not the supervisor's business"


def test_a_resume_is_watched_as_its_task_was_run_before_and_not_where_ask_is_said(here: Path, terminal: Terminal) -> None:
    terminal("run", "fragile:walk", "--recover", "auto:1", "--deaths", "4")
    assert (here / "witness").read_text().split().count("2") == 2

    said = terminal("resume")

    assert said.status == 1
    assert "died 2 times in a row" in said.err
    assert (here / "witness").read_text().split().count("2") == 4
    assert terminal("resume", "--recover", "ask").status == 0
    (found,) = Store(here / "store").sessions()
    assert Store(here / "store").session(found.session_id).state().system_state.recover == 0
