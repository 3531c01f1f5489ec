"""With `--recover auto:N` a terminal's task goes on after a crash, and a crash loop ends suspended (R128, R134)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from ipyagent_sessions.commands import supervise
from ipyagent_sessions.store import Store

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
