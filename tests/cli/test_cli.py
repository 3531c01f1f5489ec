"""The terminal command: what it says, and its exit status."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from ipyagent_sessions.commands.door import here


def marks(folder: Path) -> list[str]:
    return (folder / "witness").read_text().splitlines()


def test_a_task_runs_asks_is_answered_and_goes_on(folder: Path, terminal: Terminal) -> None:
    ran = terminal("run", "flows:audit", "--n", "4")
    assert ran.status == 1
    assert "suspended (approval): Send it?" in ran.err
    assert "ipyagent approve" in ran.err
    assert terminal("approve", "--reason", "fine").status == 0
    done = terminal("resume")
    assert (done.status, done.out.strip()) == (0, "'sent 14'")
    assert sorted(marks(folder)) == ["send 14", "square 0", "square 1", "square 2", "square 3"]


def test_the_same_call_continues_and_once_returns_the_recorded_result(folder: Path, terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    terminal("deny")
    again = terminal("run", "flows:audit")
    assert "continues task" in again.err
    assert again.out.strip() == "'kept'"
    once = terminal("run", "flows:audit", "--once")
    assert (once.status, once.out.strip()) == (0, "'kept'")
    assert once.err.count("nothing ran") == 1
    assert len(marks(folder)) == 4


def test_a_second_answer_is_told_who_answered_first(terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    terminal("approve")
    late = terminal("deny", "--approval", "a1")
    assert late.status == 1
    assert "it was approved by user:" in late.err


def test_what_is_an_option_here_reaches_the_workflow_behind_two_dashes(terminal: Terminal) -> None:
    terminal("run", "flows:audit", "--title", "ours", "--", "--title", "theirs", "--n", "2")
    listed = json.loads(terminal("ls", "--json").out)
    assert listed[0]["title"] == "ours"
    assert "theirs" in terminal("sql", "select payload from events where event_type = 'TaskQueued'", "--json").out


def test_usage_errors_are_one_line_and_status_two(terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    for words in (
        ["run", "nosuch:flow"],
        ["run", "flows:audit", "--wrong", "1"],
        ["status", "--wrong"],
        ["nosuch"],
        ["--wrong"],
        ["resume", "a", "b"],
        ["run", "flows:square"],
        ["sql", "drop table events"],
        ["sql"],
    ):
        said = terminal(*words)
        assert said.status == 2, words
        assert said.err.startswith("ipyagent: ")
        assert "Traceback" not in said.err


def test_nothing_is_written_for_a_call_that_cannot_run(folder: Path, terminal: Terminal) -> None:
    terminal("run", "flows:audit", "--n", "many")
    assert not (folder / "store").exists()


def test_ids_may_be_shortened_and_an_ambiguous_one_is_refused(terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    session = json.loads(terminal("ls", "--json").out)[0]["id"]
    assert terminal("status", session[:4]).status == 0
    assert terminal("status", f"{session}.1").status == 0
    assert "there is no session" in terminal("status", "zzzz").err


def test_log_state_checkpoints_and_replay_only_look(folder: Path, terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    before = {p: p.read_bytes() for p in (folder / "store").rglob("*") if p.is_file()}
    assert "ApprovalRequested" in terminal("log").out
    state = json.loads(terminal("state", "--at", "5", "--json").out)
    assert state["seq"] == 5
    assert state["system_state"]["status"] == "running"
    assert "squares" in terminal("replay").out
    assert "complete" in terminal("checkpoints").out
    assert {p: p.read_bytes() for p in (folder / "store").rglob("*") if p.is_file()} == before
    assert len(marks(folder)) == 4


def test_a_fork_goes_on_with_what_was_recorded_and_tells_what_still_exists(folder: Path, terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    terminal("approve")
    terminal("resume")
    forked = terminal("fork", "--at", "cp:1", "--direction", "do not send", "--json")
    made = json.loads(forked.out)
    assert made["still_there"] == ["irreversible activity main/send#1"]
    assert terminal("resume", made["session_id"]).status == 1
    assert terminal("deny", made["session_id"]).status == 0
    assert terminal("resume", made["session_id"]).out.strip() == "'kept'"
    assert marks(folder).count("square 0") == 1
    assert marks(folder).count("send 14") == 1


def test_a_rerun_needs_a_yes_and_is_a_new_task(folder: Path, terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    terminal("deny")
    terminal("resume")
    refused = terminal("rerun")
    assert refused.status == 2
    assert "results may differ" in refused.err
    assert terminal("rerun", "--yes").status == 1
    assert marks(folder).count("square 0") == 2
    assert len(json.loads(terminal("ls", "--json").out)) == 2


def test_a_failed_task_says_why_and_a_fork_goes_on_with_everything_that_completed(folder: Path, terminal: Terminal) -> None:
    (folder / "broken").touch()
    ran = terminal("run", "flows:audit")
    assert ran.status == 1
    assert "ValueError: three is broken" in ran.err
    assert "ipyagent fork" in ran.err
    assert "ended tasks never change" in terminal("resume").err
    (folder / "broken").unlink()
    forked = terminal("fork").out
    assert "--redo square:3" in forked
    child = forked.split(" into ")[1].split(";")[0]
    assert "three is broken" in terminal("status", child).out or terminal("resume", child).status == 1
    fresh = json.loads(terminal("fork", json.loads(terminal("ls", "--json").out)[-1]["id"], "--json").out)["session_id"]
    assert "suspended (approval)" in terminal("resume", fresh, "--redo", "square:3").err
    assert marks(folder).count("square 0") == 1
    assert marks(folder).count("square 3") == 2


def test_redo_runs_a_completed_activity_again_on_purpose(folder: Path, terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    terminal("resume", "--redo", "square:2")
    assert marks(folder).count("square 2") == 2
    assert marks(folder).count("square 1") == 1
    wrong = terminal("resume", "--redo", "nosuch")
    assert "no recorded activity" in wrong.err
    assert "suspended" in terminal("status").out


def test_config_names_file_and_key_of_what_is_wrong(folder: Path, terminal: Terminal) -> None:
    (folder / "ipyagent.yaml").write_text("checkpoint:\n  triggers:\n    - type: time_interval\n      intervall: 5m\n")
    said = terminal("config")
    assert said.status == 1
    assert "ipyagent.yaml: checkpoint.triggers[0].intervall: unknown key" in said.err
    (folder / "ipyagent.yaml").write_text("checkpoint:\n  storage:\n    backend: s3\n    replication: 3\n")
    shown = terminal("config").out
    assert "not in force" in shown
    assert "checkpoint.storage.replication: 3" in shown


def test_doctor_names_store_locks_and_who_started_it(folder: Path, terminal: Terminal) -> None:
    shown = terminal("doctor").out
    assert str(folder / "store")[:30] in shown
    assert "started by" in shown
    assert "locks" in shown


def test_text_from_outside_cannot_move_the_cursor(terminal: Terminal) -> None:
    terminal("run", "flows:audit", "--title", "evil \x1b[2J\u202e title")
    for words in (["ls"], ["status"], ["log"]):
        shown = terminal(*words).out
        assert "\x1b" not in shown
        assert "\u202e" not in shown


EVIL = "ok\x1b]0;HACK\x07\x9b2J\u202e?"


def test_a_question_from_outside_cannot_move_the_cursor_by_any_way_out(folder: Path, terminal: Terminal) -> None:
    (folder / "evil.py").write_text(
        f"from ipyagent_sessions import workflow\n@workflow\nasync def ask(ctx):\n    await ctx.approve({EVIL!r})\n"
    )
    said = [terminal("run", "evil:ask"), terminal("run", EVIL)]
    listed = json.loads(terminal("ls", "--json").out)
    data = terminal("state", "--json")
    ways = (["status"], ["log"], ["state"], ["replay"], ["log", "--json"], ["status", EVIL], ["approve"])
    said += [data, *(terminal(*words) for words in ways)]
    for one in said:
        assert not set((one.out + one.err).replace("\n", "")) & set("\x1b\x07\x9b\u202e"), one
    assert json.loads(data.out)["execution_state"]["approvals"]["a1"]["question"] == EVIL
    assert listed[0]["state"] == "suspended"


def test_a_damaged_session_breaks_no_listing(folder: Path, terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    broken = folder / "store" / "s" / "brokenone"
    broken.mkdir()
    (broken / "session.json").write_text("{")
    listed = json.loads(terminal("ls", "--json").out)
    assert {row["state"] for row in listed} == {"suspended", "damaged"}


def test_a_notebooks_tagged_cells_define_what_a_terminal_resumes(folder: Path, terminal: Terminal) -> None:
    from ipyagent_sessions.commands.code import run_setup_cells

    cell = {"cell_type": "code", "metadata": {"tags": ["agent-setup"]}, "source": ["answer_of_cell = 41 + 1\n"]}
    other = {"cell_type": "code", "metadata": {}, "source": ["raise SystemExit\n"]}
    (folder / "n.ipynb").write_text(json.dumps({"cells": [other, cell]}))
    assert run_setup_cells(folder / "n.ipynb") == 1
    import sys

    assert vars(sys.modules["__main__"]).pop("answer_of_cell") == 42


NOTEBOOK_FLOW = """
from ipyagent_sessions import workflow

@workflow
async def {name}(ctx):
    return await ctx.approve("on?")
"""


def of_notebook(folder: Path, name: str) -> tuple[Path, str]:
    """A notebook whose tagged cell defines a workflow, and a session of it that waits; the name is gone here."""
    import sys

    from ipyagent_sessions.run.launch import run_workflow
    from ipyagent_sessions.run.task import RunOptions
    from ipyagent_sessions.store import Store

    source = NOTEBOOK_FLOW.format(name=name) + f"open({str(folder / 'ran')!r}, 'w').close()\n"
    cell = {"cell_type": "code", "metadata": {"tags": ["agent-setup"]}, "source": source}
    path = folder / f"{name}.ipynb"
    path.write_text(json.dumps({"cells": [cell]}))
    exec(compile(NOTEBOOK_FLOW.format(name=name), "cell", "exec"), vars(sys.modules["__main__"]))  # as in its kernel
    store = Store(folder / "store")
    session = store.create(title=name, notebook=str(path))
    run_workflow(
        store, vars(sys.modules["__main__"]).pop(name), session=session, options=RunOptions(headless=True, actor="user:a")
    ).wait(10)
    return path, session.id


def test_a_terminal_runs_the_cells_of_a_notebook_only_when_told_so(folder: Path, terminal: Terminal) -> None:
    path, session = of_notebook(folder, "flow_of_cell")
    refused = terminal("resume", session)
    assert refused.status == 2
    assert str(path) in refused.err
    assert "--setup-cells" in refused.err
    assert not (folder / "ran").exists()
    assert terminal("approve", session).status == 0
    assert terminal("resume", session, "--setup-cells").status == 0
    assert (folder / "ran").exists()


def test_a_terminal_never_runs_cells_for_a_session_that_was_made_elsewhere(folder: Path, terminal: Terminal) -> None:
    _, session = of_notebook(folder, "flow_of_another")
    header = folder / "store" / "s" / session / "session.json"
    for other in ("elsewhere", None):
        header.write_text(json.dumps({**json.loads(header.read_text()), "store": other}))
        refused = terminal("resume", session, "--setup-cells")
        assert refused.status == 2
        assert "was not made in this store" in refused.err
        assert not (folder / "ran").exists()


DYING = """
import os
from ipyagent_sessions import workflow

def pay(i):
    open(f"paid {i}", "x").close()
    os._exit(9)

@workflow
async def flow(ctx):
    return await ctx.run(pay, 1, key=1)
"""


def test_what_a_call_of_unknown_outcome_returned_is_told_in_the_terminal(terminal: Terminal, folder: Path) -> None:
    (folder / "dying.py").write_text(DYING)
    paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "ipyagent_sessions.cli", "run", "dying:flow"]
    ran = subprocess.run(command, cwd=folder, check=False, env={**os.environ, **paths})
    assert ran.returncode == 9
    terminal("resume")
    wrong = terminal("approve", "--choice", "happened", "--result", "{receipt}")
    assert (wrong.status, "--result is not JSON" in wrong.err) == (2, True)
    wrong = terminal("approve", "--choice", "happened", "--activity", "main/pay:2")
    assert "it is about main/pay:1" in wrong.err
    said = terminal("approve", "--choice", "happened", "--activity", "main/pay:1", "--result", '{"receipt": 17}')
    assert (said.status, "happened for main/pay:1" in said.out) == (0, True)
    assert terminal("resume").out.strip() == "{'receipt': 17}"


@pytest.mark.parametrize(
    "words",
    [
        "ls",
        "status",
        "log",
        "state",
        "checkpoints",
        "replay",
        "sql select 1",
        "pause",
        "approve",
        "rename x y",
        "resume",
        "fork",
    ],
)
def test_looking_makes_no_store_and_says_how_to_name_another(terminal: Terminal, folder: Path, words: str) -> None:
    said = terminal(*words.split())
    assert (said.status == 0) == (words == "ls")
    assert f"there is no store at {folder / 'store'}" in said.out + said.err
    assert "IPYAGENT_STORE" in said.out + said.err
    assert not (folder / "store").exists()


@pytest.mark.parametrize("words", ["doctor", "config", "help", "ls --json"])
def test_what_needs_no_store_makes_none(terminal: Terminal, folder: Path, words: str) -> None:
    assert terminal(*words.split()).status == 0
    assert not (folder / "store").exists()


def test_a_hint_goes_on_the_sentence_and_is_written_for_its_door(terminal: Terminal) -> None:
    terminal("run", "flows:audit")
    said = terminal("status", "zzzz").err
    assert said.endswith("; list them with: ipyagent ls\n")
    assert "  " not in said
    assert here(said, "%agent").endswith("; list them with: %agent ls\n")
    assert here("the folder ipyagent is there", "%agent") == "the folder ipyagent is there"


def test_a_title_is_cut_wherever_it_is_given_and_the_whole_is_kept_nowhere(terminal: Terminal, folder: Path) -> None:
    cut = "x" * 199 + "…"
    terminal("run", "flows:audit", "--title", "x" * 5000)
    listed = json.loads(terminal("ls", "--json").out)
    assert [row["title"] for row in listed] == [cut]
    session = listed[0]["id"]
    terminal("fork", session)
    terminal("rename", session, "y" * 5000)
    assert {row["title"] for row in json.loads(terminal("ls", "--json").out)} == {"y" * 199 + "…", "x" * 192 + "… (fork)"}
    for file in (folder / "store").rglob("*"):
        assert not file.is_file() or (b"x" * 201 not in file.read_bytes() and b"y" * 201 not in file.read_bytes()), file


def test_json_gives_raw_fields_and_not_what_is_shown(terminal: Terminal) -> None:
    title = 'a "title"\twith <b>, \x1b[31m and 项目'
    terminal("run", "flows:audit", "--title", title)
    [row] = json.loads(terminal("ls", "--json").out)
    assert (row["title"], row["state"], row["done"], row["total"], row["needs_you"]) == (title, "suspended", 4, 5, 1)
    assert row["updated_at"].endswith("Z")
    assert datetime.fromisoformat(row["updated_at"]).tzinfo is not None
    events = json.loads(terminal("log", "--json", "--last", "1000").out)
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert events[0]["event_type"] == "SessionCreated"
    assert events[0]["payload"]["title"] == title
    done = next(e for e in events if e["event_type"] == "ActivityCompleted")
    assert isinstance(done["payload"]["result"], int)
    assert isinstance(done["execution_time_ms"], float)
    assert done["timestamp"].endswith("Z")


@pytest.mark.parametrize("words", ["checkpoint here", "fork"])
@pytest.mark.parametrize(
    ("code", "todo"),
    [(errno.ENOSPC, "; free some space, or mend the disk"), (errno.EACCES, "; see who may read and write there"), (99, "")],
)
def test_a_disk_that_refuses_is_told_with_what_to_do(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, words: str, code: int, todo: str
) -> None:
    terminal("run", "flows:audit")

    def refuse(*args: object, **named: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "mkdir" if words == "fork" else "replace", refuse)
    said = terminal(*words.split())
    assert (said.status, said.out) == (1, "")
    assert said.err.startswith("ipyagent: ")
    assert said.err.endswith(f": {os.strerror(code)}{todo}\n")


@pytest.mark.parametrize(
    ("target", "kind"), [("flows:square", "Activity"), ("flows:mark", "function"), ("sys:maxsize", "int")]
)
def test_what_is_no_workflow_is_named_with_its_type(terminal: Terminal, target: str, kind: str) -> None:
    said = terminal("run", target)
    assert f"{target} is of type {kind}, not a workflow; decorate the async function with @workflow" in said.err
