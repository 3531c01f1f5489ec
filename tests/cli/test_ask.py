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
        terminal("log", "@last"),
    ]
    assert [(one.status, one.err) for one in said if CANARY in one.out + one.err] == []
    (session,) = (Store().session(listed.session_id) for listed in Store().sessions())
    kinds = [event.event_type for event in session.events()]
    assert (kinds.count("ApprovalResolved"), kinds.count("TaskCompleted")) == (2, 2)
    assert [event for event in session.events() if CANARY in str(event)] == []
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
