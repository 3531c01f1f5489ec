"""A task outlives its kernel: what the new kernel says, and that nothing completed runs twice."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from tests.kernel.notebook import DEADLINE_S, DEFINITIONS, Notebook

from ipyagent import hello
from ipyagent_lab.testing import LONG
from ipyagent_sessions.store import Store
from ipyagent_sessions.testing import Child, wait_until


def _killed_in_step_2(folder: Path) -> None:
    with Notebook(folder) as notebook:
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        notebook.send("%agent run audit --n 5")
        notebook.until_marked("begin 2")
        wait_until(lambda: "/step:2" in _open_activities(folder), timeout=DEADLINE_S, what="the start of step 2 on disk")
        notebook.kill()


def _open_activities(folder: Path) -> str:
    """The open activities of the only session, as far as its files say."""
    store = Store(folder / "store")
    return ",".join(store.session(store.session_ids()[0]).state().execution_state.active_activities)


def test_the_new_kernel_says_what_it_found(tmp_path: Path) -> None:
    _killed_in_step_2(tmp_path)
    with Notebook(tmp_path) as notebook:
        said = notebook.run("%load_ext ipyagent").text
        assert "audit" in said
        assert "stopped at activity 2 of 5" in said
        assert "%agent resume" in said


def test_running_the_same_cell_again_continues_and_repeats_nothing_completed(tmp_path: Path) -> None:
    _killed_in_step_2(tmp_path)
    with Notebook(tmp_path) as notebook:
        notebook.open_gate()
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        ran = notebook.run("%agent run audit --n 5")
        assert ran.error is None
        assert "continues task" in ran.text
        assert ran.text.rstrip().endswith("30")
        assert [notebook.marks().count(f"end {i}") for i in range(5)] == [1, 1, 1, 1, 1]
        assert [notebook.marks().count(f"begin {i}") for i in range(5)] == [1, 1, 2, 1, 1]


def test_resume_last_continues(tmp_path: Path) -> None:
    _killed_in_step_2(tmp_path)
    with Notebook(tmp_path) as notebook:
        notebook.open_gate()
        notebook.run("%load_ext ipyagent")
        notebook.run(DEFINITIONS)
        ran = notebook.run("r = %agent resume @last\nprint(r.value)")
        assert ran.error is None
        assert ran.text.rstrip().endswith("30")
        log = notebook.run("%agent log @last --type RecoveryCompleted").text
        assert "2 of 5 activities are done, 1 open activity runs again" in log


def test_a_resume_without_the_definitions_says_which_cell_to_run_and_loses_nothing(tmp_path: Path) -> None:
    _killed_in_step_2(tmp_path)
    with Notebook(tmp_path) as notebook:
        notebook.open_gate()
        notebook.run("%load_ext ipyagent")
        refused = notebook.run("%agent resume @last")
        assert refused.error == "UsageError"
        assert "run the cell that defines it, then the same again" in refused.message, "the notebook was never saved"
        cells = [new_markdown_cell("# Audit"), new_code_cell(DEFINITIONS), new_code_cell("%agent run audit")]
        nbformat.write(new_notebook(cells=cells), tmp_path / "a.ipynb")
        told = notebook.run("%agent resume @last").message
        assert "run the cell that defines it (cell 2: async def audit(ctx" in told
        notebook.run(DEFINITIONS)
        assert notebook.run("%agent resume @last").error is None


def test_a_lost_task_is_shown_as_lost_before_anybody_has_written_it(tmp_path: Path) -> None:
    _killed_in_step_2(tmp_path)
    with Notebook(tmp_path) as notebook:
        notebook.run("%load_ext ipyagent")
        assert "lost" in notebook.run("%agent ls").text
        assert "stopped at activity 2 of 5" in notebook.run("%agent status").text
        assert "TaskSuspended" not in notebook.run("%agent log").text


def test_work_that_runs_elsewhere_is_not_offered_to_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYAGENT_STORE", str(tmp_path / "store"))
    store = Store(tmp_path / "store")
    with Child(LONG, str(store.root)) as child:
        session = store.session(child.expect("session"))
        wait_until(lambda: "in another process" in hello.found(None), timeout=DEADLINE_S, what="it is told to run")
        assert "resume" not in hello.found(None)
        child.kill()
    assert f"%agent resume {session.id}" in hello.found(None)
