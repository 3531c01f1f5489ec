"""Pause, interrupt, approve and cancel, from the cell and from a terminal beside a busy kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.kernel.notebook import DEADLINE_S, DEFINITIONS, Notebook

ASKING = """
@activity(effect="irreversible")
def delete(root):
    mark(f"delete {root}")
    return "deleted"

@workflow(default_effect="none")
async def clean(ctx, root: str = "x"):
    if await ctx.approve("Delete the originals?", details=["a", "b"]):
        return await ctx.run(delete, root)
    return "kept"
"""


def terminal(notebook: Notebook, *words: str) -> subprocess.CompletedProcess[str]:
    """`ipyagent` in a terminal, on the notebook's store."""
    env = {**os.environ, "IPYAGENT_STORE": str(notebook.folder / "store")}
    return subprocess.run(
        [sys.executable, "-m", "ipyagent_sessions.cli", *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def rows(notebook: Notebook) -> list[dict[str, Any]]:
    done = terminal(notebook, "ls", "--json")
    assert done.returncode == 0, done.stderr
    listed: list[dict[str, Any]] = json.loads(done.stdout)
    return listed


def until_state(notebook: Notebook, state: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not any(row["state"] == state for row in rows(notebook)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"no session is {state}: {rows(notebook)}")


def test_an_interrupt_drains_is_recorded_and_is_no_failure(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        request = notebook.send("%agent run audit --n 5")
        notebook.until_marked("begin 2")
        notebook.interrupt()
        time_to_see = time.monotonic() + DEADLINE_S
        while "pause" not in terminal(notebook, "log", "--type", "ControlRequested").stdout:
            assert time.monotonic() < time_to_see
        notebook.open_gate()
        ran = notebook.receive(request)
        assert ran.error == "TaskNotCompleted"
        assert "is interrupted" in ran.message
        assert len(ran.traceback) == 1
        assert notebook.marks().count("end 2") == 1
        assert notebook.marks().count("begin 3") == 0
        again = notebook.run("r = %agent resume\nprint(r.value)")
        assert again.text.rstrip().endswith("30")
        assert notebook.marks().count("begin 2") == 1


def test_a_terminal_pauses_a_busy_kernel_and_the_cell_ends(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        request = notebook.send("%agent run audit --n 5")
        notebook.until_marked("begin 2")
        paused = terminal(notebook, "pause")
        assert paused.returncode == 0, paused.stderr
        assert "open activities finish first" in paused.stdout
        notebook.open_gate()
        assert "interrupted" in notebook.receive(request).message


def test_a_background_task_leaves_the_kernel_free_and_is_cancelled_from_a_cell(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        notebook.run("h = %agent run audit --n 5 --bg")
        notebook.until_marked("begin 2")
        assert notebook.run("print(1 + 1)").text.strip() == "2"
        assert "running" in notebook.run("%agent status").text
        cancelled = notebook.run("%agent cancel --reason enough")
        assert cancelled.error is None
        until_state(notebook, "cancelled")
        refused = notebook.run("%agent resume")
        assert refused.error == "ControlRefused"
        assert "ended tasks never change" in refused.message
        notebook.open_gate()


def test_headless_an_approval_suspends_at_once_and_the_answer_runs_the_call_once(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS + ASKING)
        ran = notebook.run("%agent run clean", headless=True)
        assert ran.error == "TaskNotCompleted"
        assert "suspended (approval)" in ran.message
        assert "Delete the originals?" in ran.text
        assert '["a","b"]' in ran.text
    with Notebook(tmp_path) as notebook:
        said = notebook.run("%load_ext ipyagent").text
        assert "Delete the originals?" in said
        answered = terminal(notebook, "approve", "--reason", "checked")
        assert answered.returncode == 0, answered.stderr
        late = terminal(notebook, "deny")
        assert late.returncode == 1
        notebook.run(DEFINITIONS + ASKING)
        assert notebook.run("r = %agent resume\nprint(r.value)", headless=True).text.rstrip().endswith("deleted")
        assert notebook.marks() == ["delete x"]


def test_an_approval_is_answered_from_a_terminal_while_the_cell_waits(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS + ASKING)
        request = notebook.send("%agent run clean")
        until_state(notebook, "suspended")
        assert terminal(notebook, "deny", "--reason", "not today").returncode == 0
        ran = notebook.receive(request)
        assert ran.error is None
        assert "kept" in ran.text
        second = terminal(notebook, "approve", "--approval", "a1")
        assert second.returncode == 1
        assert "denied by" in second.stderr


def test_a_task_runs_on_when_its_kernel_is_asked_nothing_and_can_be_awaited(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        notebook.open_gate()
        assert notebook.run("h = %agent run audit --n 4 --bg\nprint(await h)").text.rstrip().endswith("14")


def test_a_cell_that_waits_for_an_approval_can_be_interrupted_and_the_request_stays(tmp_path: Path) -> None:
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS + ASKING)
        request = notebook.send("%agent run clean")
        until_state(notebook, "suspended")
        notebook.interrupt()
        ran = notebook.receive(request)
        assert ran.error == "TaskNotCompleted"
        assert "suspended (approval)" in ran.message
        notebook.run("%agent approve")
        assert notebook.run("r = %agent resume\nprint(r.value)").text.rstrip().endswith("deleted")
