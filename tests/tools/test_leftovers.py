"""What a killed engine had started is found again by pid and start time, and is ended; nobody else is."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from ipyagent_sessions.agent.tools import leftovers, processes
from ipyagent_sessions.agent.tools.workbench import Started
from ipyagent_sessions.testing import Child, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the commands are those of a Unix shell")

ENGINE = """
import asyncio, sys
from pathlib import Path
import msgspec
from ipyagent_sessions.agent.tools.run_shell import run_shell
from ipyagent_sessions.agent.tools.workbench import Workbench
def started(entry):
    print("started", msgspec.json.encode(entry).decode())
bench = Workbench(Path(sys.argv[1]), started=started, mark=sys.argv[2])
asyncio.run(run_shell(bench)("setsid sleep 300 & sleep 300 & wait"))
"""


@pytest.fixture
def mark() -> Iterator[str]:
    made = f"left-{os.getpid()}-{time.monotonic_ns()}"
    yield made
    processes.end_marked(made)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of somebody else's."""
    made = subprocess.Popen(["sleep", "300"])
    yield made
    made.kill()
    made.wait()


def test_what_a_killed_engine_left_is_found_and_ended(root: Path, mark: str) -> None:
    with Child(ENGINE, str(root), mark) as engine:
        entry = msgspec.json.decode(engine.expect("started"), type=Started)
        wait_until(lambda: len(processes.marked(mark)) == 3, what="three processes run")
        engine.kill()
    assert len(processes.marked(mark)) == 3
    found = leftovers.living([entry])
    assert len(found) == 3
    assert found[0] == entry
    assert {f.mark for f in found} == {entry.mark}
    assert leftovers.stop(found) == []
    assert leftovers.living([entry], mark) == []
    assert processes.marked(mark) == []


def test_what_was_started_and_not_recorded_is_found_by_the_session(root: Path, mark: str) -> None:
    with Child(ENGINE, str(root), mark) as engine:
        wait_until(lambda: len(processes.marked(mark)) == 3, what="three processes run")
        engine.kill()
    assert leftovers.living([]) == []
    assert len(leftovers.living([], mark)) == 3
    assert leftovers.living([], mark[:-1]) == []


def test_a_pid_that_is_used_again_is_not_ended(sleeper: subprocess.Popen[bytes]) -> None:
    true = psutil.Process(sleeper.pid).create_time()
    for entry in (Started(sleeper.pid, true - 100, "sleep", "m/1"), Started(sleeper.pid, true, "sleep", "m/1")):
        assert leftovers.living([entry]) == []
        assert leftovers.stop([entry]) == []
    assert sleeper.poll() is None


def test_a_process_that_has_ended_is_no_leftover() -> None:
    child = subprocess.Popen(["true"], env={**os.environ, processes.MARK: "m/2"})
    entry = processes.noted(child.pid, "true", "m/2")
    child.wait()
    assert leftovers.living([entry]) == []
    assert leftovers.stop([entry]) == []
