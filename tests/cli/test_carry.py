"""`ipyagent export` and `ipyagent import` in a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tests.cli.conftest import Terminal

from ipyagent_sessions.store import Store


@pytest.fixture
def waits(terminal: Terminal, folder: Path) -> str:
    """The id of a session whose task waits for an answer."""
    terminal("run", "flows:audit")
    return Store(folder / "store").session_ids()[0]


def test_a_session_travels_to_another_store_and_is_in_replay_there(terminal: Terminal, folder: Path, waits: str) -> None:
    said = terminal("export", waits, "a.ipyagent.zip")
    assert (said.status, said.err) == (0, "")
    there = terminal("--store", "other", "import", "a.ipyagent.zip")
    assert (there.status, there.err) == (0, "")
    assert "in replay" in there.out
    assert "is here already" in terminal("--store", "other", "import", "a.ipyagent.zip").out
    refused = terminal("--store", "other", "resume", waits)
    assert refused.status == 2
    assert refused.err.count("\n") == 1
    assert "fork" in refused.err
    assert terminal("--store", "other", "approve", waits).status == 2
    assert terminal("--store", "other", "replay", waits).status == 0


@pytest.mark.parametrize("line", ["ID --jsonl a.jsonl", "--jsonl ID a.jsonl", "ID a.jsonl --jsonl"])
def test_options_may_stand_anywhere(terminal: Terminal, folder: Path, waits: str, line: str) -> None:
    said = terminal("export", *line.replace("ID", waits).split())
    assert (said.status, said.err) == (0, "")
    assert (folder / "a.jsonl").read_text("utf-8").startswith('{"')


def test_the_same_call_does_not_go_on_with_an_import(terminal: Terminal, folder: Path, waits: str) -> None:
    terminal("export", waits, "a.zip")
    terminal("--store", "other", "import", "a.zip")
    terminal("--store", "other", "run", "flows:audit")
    assert len(Store(folder / "other").session_ids()) == 2


def test_every_form_is_written_once_and_nothing_is_overwritten(terminal: Terminal, folder: Path, waits: str) -> None:
    for option, suffix in (
        ("--jsonl", ".jsonl"),
        ("--atif", ".atif.json"),
        ("--otel", ".otlp.jsonl"),
        ("--notebook", ".ipynb"),
    ):
        assert terminal("export", waits, option).status == 0
        assert (folder / f"{waits}{suffix}").stat().st_size > 0
        again = terminal("export", waits, option)
        assert again.status == 2
        assert "exists" in again.err
    assert json.loads((folder / f"{waits}.atif.json").read_text())["session_id"] == waits
    nbformat.read(folder / f"{waits}.ipynb", as_version=4)


@pytest.mark.parametrize("where", ["store", "other"], ids=["the default store", "another one"])
def test_the_notebook_runs_and_gives_what_was_recorded(terminal: Terminal, folder: Path, where: str) -> None:
    named = () if where == "store" else ("--store", where)
    terminal(*named, "run", "flows:audit")
    assert terminal(*named, "export", Store(folder / where).session_ids()[0], "story.ipynb", "--notebook").status == 0
    made = nbformat.read(folder / "story.ipynb", as_version=4)
    recorded = [c.outputs[0].data for c in made.cells if c.cell_type == "code" and c.outputs]
    (elsewhere := folder / "elsewhere").mkdir()
    ran = NotebookClient(made, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(elsewhere)}}).execute()
    again = [c.outputs[0].data for c in ran.cells if c.cell_type == "code" and c.outputs]
    assert again == recorded
    assert len(recorded) == 4


def test_a_transcript_of_another_agent_is_imported_and_queried(terminal: Terminal, folder: Path) -> None:
    transcript = Path(__file__).parents[1] / "exchange" / "codex.jsonl"
    (folder / "rollout.jsonl").write_bytes(transcript.read_bytes() + b"{torn\n")
    said = terminal("import", "rollout.jsonl")
    assert (said.status, said.err) == (0, "")
    assert "from codex: 22 events, 1 task;" in said.out
    assert "line 15: no JSON" in said.out
    assert "is here already" in terminal("import", "rollout.jsonl").out
    shown = terminal("replay", json.loads(terminal("import", "rollout.jsonl", "--json").out)["session_id"])
    assert "Do the tests pass?" in shown.out
    assert "apply_patch" in terminal("sql", "select tool from tool_calls").out
    refused = terminal("import", "flows.jsonl")
    assert (refused.status, refused.err.count("\n")) == (2, 1)


def test_a_conversation_that_another_program_began_goes_on_in_a_fork(terminal: Terminal, folder: Path) -> None:
    transcript = Path(__file__).parents[1] / "exchange" / "claude-code.jsonl"
    (folder / "play.yaml").write_text("- say: seven lines\n")
    told = json.loads(terminal("import", str(transcript), "--json").out)["session_id"]
    again = terminal("rerun", told, "--yes")
    assert again.status == 2
    assert again.err.endswith(f"nothing here can run them; go on with a fork of it: ipyagent fork {told}\n")
    ended = terminal("fork", told, "--title", "after the last turn")
    assert "or start a new one with ipyagent ask --session" in ended.out
    forked = terminal("fork", told, "--at", "13", "--title", "in the middle")
    fork = forked.out.split(" into ")[1].split(";")[0]
    ways = f"ipyagent cancel {fork}, then ipyagent ask --session {fork} ..."
    assert forked.out.endswith(f"its turn was claude-code's: go on with {ways}\n")
    own = ("--session", fork, "--model", "scripted:play.yaml")
    for words, status in ((("resume", fork), 2), (("rerun", fork, "--yes"), 2), (("ask", "and?", *own), 1)):
        refused = terminal(*words)
        assert (refused.status, refused.err.count("\n")) == (status, 1)
        assert ways in refused.err
    assert terminal("cancel", fork).status == 0
    assert "claude-x" not in terminal("ask", "and?", "--session", fork).err, "no name of a model of ours"
    assert terminal("ask", "and?", *own).out == "'seven lines'\n"
