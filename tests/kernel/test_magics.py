"""`%agent` in a real kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kernel.notebook import DEFINITIONS, Notebook


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with Notebook(tmp_path_factory.mktemp("notebook")) as opened:
        opened.open_gate()
        opened.run("%load_ext ipyagent")
        opened.run(DEFINITIONS)
        yield opened


def test_loading_imports_nothing_slow(tmp_path: Path) -> None:
    slow = ["duckdb", "pyarrow", "nbformat", "pydantic", "pydantic_ai", "ipywidgets", "anywidget", "tenacity", "cloudpickle"]
    with Notebook(tmp_path) as fresh:
        fresh.run("import sys; before = set(sys.modules)")
        fresh.run("%load_ext ipyagent")
        shown = fresh.run(f"print([m for m in {slow} if m in sys.modules and m not in before])")
        assert shown.text.strip() == "[]"


def test_a_run_shows_one_output_that_is_replaced_and_the_value(notebook: Notebook) -> None:
    ran = notebook.run("%agent run audit --n 3 --new")
    assert ran.error is None
    assert "completed" in ran.text
    assert "3 of 3, 100 %" in ran.text
    assert "sync: every result is on disk" in ran.text
    assert ran.text.rstrip().endswith("5")
    assert "<div" in ran.html
    assert "<script" not in ran.html


def test_headless_there_is_one_display_and_no_update(notebook: Notebook) -> None:
    ran = notebook.run("r = %agent run audit --n 3 --new", headless=True)
    assert ran.error is None
    assert (ran.displays, ran.updates) == (1, 0)


def test_errors_are_one_line_without_a_traceback(notebook: Notebook) -> None:
    ran = notebook.run("%agent run audti")
    assert ran.error == "UsageError"
    assert len(ran.traceback) == 1
    assert "workflows here: audit" in ran.message
    wrong = notebook.run("%agent status nosuchid")
    assert wrong.error == "NotFound"
    assert len(wrong.traceback) == 1


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("%agent run :x", "':x' names no workflow"),
        ("%agent delete", "usage: %agent delete [--yes] ID"),
        ("%agent log --last -5", "'-5' is not a whole number from 1"),
        ('%agent sql "select 1" --fromat csv', "'--fromat' is not known; usage: %agent sql"),
    ],
)
def test_a_mistake_in_a_line_is_told_in_one_line(notebook: Notebook, line: str, told: str) -> None:
    ran = notebook.run(line)
    assert (ran.error, len(ran.traceback)) == ("UsageError", 1)
    assert told in ran.message


def test_the_doctor_sees_a_store_that_is_damaged(notebook: Notebook) -> None:
    notebook.run("%agent run audit --n 1 --new")
    path = "__import__('pathlib').Path(os.environ['IPYAGENT_STORE'], 'store.json')"
    notebook.run(f"kept = {path}.read_text(); {path}.write_text('x')")
    try:
        assert "is damaged" in notebook.run("%agent doctor").text
        assert "is damaged" in notebook.run("%agent ls").message
    finally:
        notebook.run(f"{path}.write_text(kept)")
    assert notebook.run("%agent ls").error is None


def test_nothing_starts_under_settings_that_are_wrong_and_looking_works(notebook: Notebook) -> None:
    before = notebook.run("%agent ls --all").text.count("audit")
    (notebook.folder / "ipyagent.yaml").write_text("permissions: {effects: {irreversible: maybe}}\n")
    try:
        for line in ("%agent run audit --new", "%agent run audit --new --bg", "%%agent --model test\nhello", "%agent resume"):
            ran = notebook.run(line)
            assert (ran.error, len(ran.traceback)) == ("ConfigError", 1), line
            assert "ipyagent.yaml: permissions.effects.irreversible: 'maybe' is not known" in ran.message
        assert "wrong" in notebook.run("%agent doctor").text
        assert notebook.run("%agent ls --all").text.count("audit") == before
    finally:
        (notebook.folder / "ipyagent.yaml").unlink()


def test_a_full_disk_is_told_with_what_to_do(notebook: Notebook) -> None:
    notebook.run("%agent run audit --n 1 --new")
    notebook.run(
        "import errno\nfrom ipyagent_sessions.session import Session\nfork = Session.fork\n"
        "def full(*args, **named):\n    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))\n"
        "Session.fork = full"
    )
    ran = notebook.run("%agent fork")
    notebook.run("Session.fork = fork")
    assert (ran.error, len(ran.traceback)) == ("PersistenceError", 1)
    assert "the store: No space left on device; free some space, or mend the disk" in ran.message


def test_a_wrong_argument_is_refused_before_anything_is_written(notebook: Notebook) -> None:
    before = notebook.run("%agent ls --all").text.count("audit")
    ran = notebook.run("%agent run audit --n three")
    assert ran.error == "UsageError"
    assert "'three' is no int" in ran.message
    assert notebook.run("%agent ls --all").text.count("audit") == before


def test_the_variable_of_a_brace_is_passed_as_it_is_and_ipython_expands_nothing(notebook: Notebook) -> None:
    ran = notebook.run("count = 3\nr = %agent run audit --n {count} --new --out squares\nprint(squares)")
    assert ran.text.rstrip().endswith("5")
    said = notebook.run("%agent run audit --n {missing}")
    assert "there is no variable 'missing'" in said.message
    said = notebook.run("%agent status {count}")
    assert "{count}: it is of type int, not an id; an id of a session or a task, or @last" in said.message


def test_once_returns_the_result_of_the_completed_task_and_runs_nothing(notebook: Notebook) -> None:
    notebook.run("%agent run audit --n 4")
    marks = len(notebook.marks())
    ran = notebook.run("r = %agent run audit --n 4 --once\nprint(r.value)")
    assert "completed before" in ran.text
    assert ran.text.rstrip().endswith("14")
    assert len(notebook.marks()) == marks


def test_sql_over_the_history(notebook: Notebook) -> None:
    notebook.run("%agent run audit --n 3 --new")
    ran = notebook.run('%agent sql "select event_type, count(*) as n from events group by 1 order by 1"')
    assert ran.error is None
    assert "ActivityCompleted" in ran.text
    body = notebook.run("%%agent sql\nselect count(*) as n\nfrom events\nwhere event_type = 'TaskStarted'")
    assert body.error is None
    assert re.search(r"\d", body.text)


def test_a_foreground_task_inside_another_one_is_refused(notebook: Notebook) -> None:
    notebook.run(
        "@activity(effect='none')\n"
        "def nested():\n"
        "    return get_ipython().run_line_magic('agent', 'run audit --n 1 --new')\n"
        "@workflow\n"
        "async def outer(ctx):\n"
        "    return await ctx.run(nested)\n"
    )
    ran = notebook.run("%agent run outer")
    assert ran.error == "TaskNotCompleted"
    assert "cannot be started inside another one" in ran.message


def test_prints_of_activities_land_in_the_cell_that_started_them(notebook: Notebook) -> None:
    notebook.run(
        "@activity(effect='none')\n"
        "def loud():\n"
        "    print('hello from the activity')\n"
        "@workflow\n"
        "async def speak(ctx):\n"
        "    await ctx.run(loud)\n"
    )
    assert "hello from the activity" in notebook.run("%agent run speak --new").text


def test_help_states_prints_the_lifecycle(notebook: Notebook) -> None:
    shown = notebook.run("%agent help states").text
    assert "suspended" in shown
    assert "a lost worker" in shown


def test_unloading_takes_the_magics_away(tmp_path: Path) -> None:
    with Notebook(tmp_path) as fresh:
        fresh.run("%load_ext ipyagent")
        fresh.run("%unload_ext ipyagent")
        assert "not found" in fresh.run("%agent ls").text


def test_the_tab_key_offers_commands_then_workflows_ids_and_options(notebook: Notebook) -> None:
    assert "checkpoints" in notebook.complete("%agent ch")
    assert "audit" in notebook.complete("%agent run au")
    assert "--durability" in notebook.complete("%agent run audit --du")
    assert "@last" in notebook.complete("%agent status ")


def test_the_tab_key_offers_ids_where_the_command_takes_one_and_nowhere_else(notebook: Notebook) -> None:
    for taking in ("resume", "checkpoints", "checkpoint before", "rename", "export", "delete", "verify"):
        assert "@last" in notebook.complete(f"%agent {taking} "), taking
    for other in ("ask", "models", "tools", "checkpoint", "memory", "gc", "ls", "status @last", "rename @last"):
        assert "@last" not in notebook.complete(f"%agent {other} "), other
