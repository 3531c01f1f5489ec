"""`ipyagent ask` and the answers to its requests, as a terminal gives them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Terminal

from ipyagent_sessions.store import Store

CANARY = "canary-0123456789-7c1f"
SCRIPT = f"""
- say: it is {CANARY}
- call: [{{tool: run_shell, args: {{command: "true"}}}}]
- call: [{{tool: run_shell, args: {{command: "true"}}}}]
- say: done
"""


def test_a_secret_that_a_person_types_is_in_no_event_and_not_in_what_is_shown(
    folder: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    (folder / "play.yaml").write_text(SCRIPT)
    model = ("--model", "scripted:play.yaml")
    said = [
        terminal("ask", f"is it {CANARY}?", *model),
        terminal("ask", "go on", *model, "--session", "@last", "--title", CANARY),
        terminal("deny", "@last", "--reason", CANARY),
        terminal("resume", "@last", "--say", CANARY),
        terminal("approve", "@last", "--arguments", f'{{"command": "echo {CANARY}"}}'),
        terminal("checkpoint", CANARY, "@last"),
        terminal("resume", "@last"),
        terminal("rename", "@last", CANARY),
        terminal("fork", "@last", "--direction", f"try {CANARY}", "--title", CANARY),
        terminal("log", "@last"),
    ]
    assert [(one.status, one.err) for one in said if CANARY in one.out + one.err] == []
    found = [Store().session(listed.session_id) for listed in Store().sessions()]
    (session,) = (s for s in found if s.parent is None)
    (fork,) = (s for s in found if s.parent is not None)
    kinds = [event.event_type for event in session.events()]
    assert (kinds.count("ApprovalResolved"), kinds.count("TaskCompleted")) == (2, 2)
    assert [event for s in (session, fork) for event in s.events() if CANARY in str(event)] == []
    assert [path for path in (folder / "store").rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()] == []


def test_a_model_may_be_wrong_a_few_times_in_a_row(folder: Path, terminal: Terminal) -> None:
    wrong = "- call: [{tool: read_file, args: {name: a}}, {tool: no_such_tool, args: {}}]\n"
    (folder / "play.yaml").write_text(wrong * 4 + "- {expect: no_such_tool, say: now I see}\n")
    assert terminal("ask", "look", "--model", "scripted:play.yaml").out == "'now I see'\n"


def test_a_turn_whose_budget_is_used_up_says_how_to_allow_it_more(folder: Path, terminal: Terminal) -> None:
    (folder / "play.yaml").write_text("- say: hello\n")
    stopped = terminal("ask", "hi", "--model", "scripted:play.yaml", "--budget", "steps=0")
    assert "--budget steps=20" in stopped.err
    assert terminal("resume", "@last").status != 0
    assert terminal("resume", "@last", "--budget", "steps=20").out == "'hello'\n"


def test_a_conversation_goes_on_with_its_model_unless_another_is_named(folder: Path, terminal: Terminal) -> None:
    (folder / "play.yaml").write_text("- say: one\n- say: two\n- say: three\n")
    (folder / "other.yaml").write_text("- say: a\n")
    assert terminal("ask", "hi", "--session", "talk", "--model", "scripted:play.yaml").out == "'one'\n"
    assert terminal("ask", "hi", "--session", "talk").out == "'two'\n"
    assert "no model was chosen" in terminal("ask", "hi", "--session", "another").err
    (folder / "ipyagent.yaml").write_text("model: scripted:other.yaml\n")
    assert terminal("ask", "hi", "--session", "talk").out == "'a'\n"
    assert [listed.summary.title for listed in Store().sessions() if listed.summary] == ["talk"]


def test_a_turn_that_fails_its_check_is_tried_again_and_the_whole_house_says_so(folder: Path, terminal: Terminal) -> None:
    (folder / "a.txt").write_text("0")
    (folder / "play.yaml").write_text(
        """
- call: [{tool: write_file, args: {path: a.txt, content: "1"}}]
- say: done
- {expect: "The check `grep -q 2 a.txt` failed", call: [{tool: read_file, args: {path: a.txt}}]}
- call: [{tool: write_file, args: {path: a.txt, content: "2"}}]
- say: now it is 2
- say: I change nothing
- say: still nothing
"""
    )
    asked = ("ask", "--model", "scripted:play.yaml", "--approve", "auto", "--check", "grep -q 2 a.txt")
    assert terminal(*asked, "make it 2").out == "'now it is 2'\n"
    assert (folder / "a.txt").read_text() == "2"
    told = "grep -q 2 a.txt: the check failed in attempt 1 of 3: [exit code 1]; 1 file is as it was at event"
    assert told in terminal("log", "@last").out
    assert f"check: {told}" in terminal("status", "@last").out
    assert "rolled back" in terminal("effects", "@last").out
    (folder / "a.txt").write_text("3")
    failed = terminal(*asked, "--attempts", "2", "again", "--session", "@last")
    assert failed.status != 0
    assert "the check failed 2 times" in failed.err
    assert failed.err.count("go on from the last good checkpoint: ipyagent fork") == 1
    at = [line for line in terminal("checkpoints", "@last").out.splitlines() if "before grep" in line][-1].split()[0]
    assert f"at event {at} into" in terminal("fork", "@last").out
    model = ("ask", "x", "--model", "scripted:play.yaml")
    assert "--attempts goes with a check" in terminal(*model, "--attempts", "2").err
    assert "--files goes with a check" in terminal(*model, "--files", "*.py").err
    assert "--attempts 0 lets nothing run" in terminal(*model, "--check", "true", "--attempts", "0").err


def test_with_files_also_what_commands_changed_goes_back(folder: Path, terminal: Terminal) -> None:
    (folder / "a.txt").write_text("0")
    (folder / "play.yaml").write_text(
        """
- call: [{tool: write_file, args: {path: a.txt, content: "1"}}]
- call: [{tool: run_shell, args: {command: "echo more >> a.txt; echo new > new.txt; echo other > other"}}]
- say: done
- {expect: "and those that match *.txt are back", say: I give up}
"""
    )
    asked = ("ask", "go", "--model", "scripted:play.yaml", "--approve", "auto", "--check", "false", "--attempts", "2")
    assert "the check failed 2 times" in terminal(*asked, "--files", "*.txt").err
    assert (folder / "a.txt").read_text() == "0"
    assert not (folder / "new.txt").exists()
    assert (folder / "other").exists()
