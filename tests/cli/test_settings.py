"""A task that goes on under other settings says so in its log: who, when, and what differs (R099, R101)."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.cli.conftest import Terminal

from ipyagent_sessions.events import payload_of
from ipyagent_sessions.session import Session
from ipyagent_sessions.store import Store


def waiting(terminal: Terminal) -> Session:
    said = terminal("run", "flows:audit")
    assert "Send it?" in said.out + said.err, said
    (listed,) = Store().sessions()
    return Store().session(listed.session_id)


def test_settings_that_changed_since_the_start_are_an_event_of_who_went_on(folder: Path, terminal: Terminal) -> None:
    session = waiting(terminal)
    (folder / "ipyagent.yaml").write_text("checkpoint:\n  retention:\n    failed: 3d\n")
    terminal("approve")
    assert terminal("resume").status == 0
    (event,) = [e for e in session.events() if e.event_type == "ConfigChanged"]
    changed = payload_of(event)["changed"]
    assert changed["checkpoint.failed_s"] == [30 * 86400.0, 3 * 86400.0]
    assert changed["settings.project"][0] == ""
    assert len(changed["settings.project"][1]) == 64
    assert set(changed) == {"checkpoint.failed_s", "settings.project"}
    (told,) = Store().sql("select who, why from audit where action = 'configure'").rows()
    assert told["who"] == event.actor
    assert "failed_s" in told["why"]


def test_the_same_settings_are_no_change_and_the_snapshot_has_them(folder: Path, terminal: Terminal) -> None:
    (folder / "ipyagent.yaml").write_text("checkpoint:\n  retention:\n    failed: 3d\n")
    session = waiting(terminal)
    terminal("approve")
    assert terminal("resume").status == 0
    assert not [e for e in session.events() if e.event_type == "ConfigChanged"]
    name = session.state().system_state.environment_blob
    assert name is not None
    kept = msgspec.json.decode(session.blobs.read(name))
    assert {"python", "packages", "cwd", "git"} <= set(kept)
    assert kept["config"]["checkpoint.failed_s"] == 3 * 86400.0
    assert len(kept["config"]["settings.project"]) == 64


WRONG = {
    "chekpoint:\n  interval: 5m\n": "(top).chekpoint: unknown key; did you mean checkpoint?",
    "permissions: {effects: {none: maybe}}": "permissions.effects.none: 'maybe' is not known; ask, auto, never",
    "budget: {task: {steps: many}}": "budget.task.steps: 'many' is not a number; write 100, 50k or 2M",
    "memory: {retention: soon}": "memory.retention: 'soon' is not a duration; write it as 60s, 5m, 2h or 7d",
    "checkpoint: {include: [{full_state: 7}]}": "checkpoint.include[0].full_state: 7 is not known; write true",
    "checkpoint: {triggers: [{type: state_change, paths: [business_state.nope]}]}": (
        "checkpoint.triggers: 'business_state.nope': business_state has no 'nope'; "
        "a workflow's own values are under business_state.values"
    ),
    "memory: {}\nmemory: {}": "line 2, column 1: 'memory' stands there again; it is in line 1 already",
    "checkpoint: [": "not valid YAML: line 1, column 14: expected the node content, but found '<stream end>'; mend it there",
    "[]": "must hold a mapping, not list; for example: model: openai:NAME",
    "[" * 5000: "nested too deeply to be read; look for brackets that are not closed",
}


@pytest.mark.parametrize("text", WRONG)
def test_nothing_starts_under_settings_that_are_wrong(folder: Path, terminal: Terminal, text: str) -> None:
    (folder / "ipyagent.yaml").write_text(text)
    wanted = f"ipyagent: {folder / 'ipyagent.yaml'}: {WRONG[text]}\n"
    for words in (["config"], ["run", "flows:audit", "--session", "mine"], ["ask", "--model", "test", "hello"]):
        assert terminal(*words) == (1, "", wanted), words
    assert not (folder / "store").exists()
    assert not (folder / "witness").exists()


@pytest.mark.parametrize("text", WRONG)
def test_doctor_says_what_is_wrong_with_the_settings_to_its_end(folder: Path, terminal: Terminal, text: str) -> None:
    (folder / "ipyagent.yaml").write_text(text)
    said = terminal("doctor")
    assert (said.status, said.err) == (0, "")
    (row,) = [line for line in said.out.splitlines() if line.startswith("config")]
    assert " wrong " in row
    assert row.endswith(f"{folder / 'ipyagent.yaml'}: {WRONG[text]}")
    assert "duckdb" in said.out


def test_doctor_has_a_row_for_a_variable_that_names_no_file(
    folder: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPYAGENT_CONFIG", str(folder / "absent.yaml"))
    said = terminal("doctor")
    assert (said.status, said.err) == (0, "")
    assert "absent.yaml, which is not a file; create it, or unset IPYAGENT_CONFIG" in said.out
    assert terminal("run", "flows:audit").status == 1


def test_doctor_names_every_file_that_settings_come_from(
    folder: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "user.yaml").write_text("checkpoint: {retention: {failed: 3d}}\n")
    (folder / "ipyagent.yaml").write_text("tools: {without: [run_shell]}\n")
    monkeypatch.setenv("IPYAGENT_CONFIG", str(folder / "user.yaml"))
    (row,) = [line for line in terminal("doctor").out.splitlines() if line.startswith("config")]
    assert f"{folder / 'user.yaml'}, {folder / 'ipyagent.yaml'}  ok" in row


def test_the_users_file_is_read_whole_also_where_the_project_s_block_counts(
    folder: Path, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "user.yaml").write_text("checkpoint: {retention: {failed: soon}}\n")
    (folder / "ipyagent.yaml").write_text("checkpoint: {retention: {failed: 3d}}\n")
    monkeypatch.setenv("IPYAGENT_CONFIG", str(folder / "user.yaml"))
    for words in (["run", "flows:audit"], ["config"]):
        said = terminal(*words)
        assert said.status == 1
        assert f"{folder / 'user.yaml'}: checkpoint.retention.failed: 'soon' is not a duration" in said.err


def test_a_task_neither_goes_on_nor_is_done_again_under_wrong_settings_but_can_be_looked_at(
    folder: Path, terminal: Terminal
) -> None:
    session = waiting(terminal)
    terminal("approve")
    before = len(list(session.events()))
    (folder / "ipyagent.yaml").write_text("chekpoint: {}\n")
    for words in (["resume"], ["resume", "--recover", "ask"], ["rerun", session.id, "--yes"]):
        said = terminal(*words)
        assert (said.status, said.out) == (1, ""), words
        assert "(top).chekpoint: unknown key" in said.err
    looks = ["ls", "status", "log", "state", "checkpoints", "effects", "replay", "verify", "doctor", "memory", "help"]
    for words in [*([look] for look in looks), ["sql", "select 1"], ["export", session.id]]:
        assert terminal(*words).status == 0, words
    assert len(Store().session_ids()) == 1
    assert len(list(session.events())) == before
    (folder / "ipyagent.yaml").unlink()
    assert terminal("resume").status == 0


def test_nothing_is_removed_under_settings_that_are_wrong(folder: Path, terminal: Terminal) -> None:
    waiting(terminal)
    (folder / "ipyagent.yaml").write_text("chekpoint: {retention: {failed: 365d}}\n")
    assert terminal("gc", "--yes").status == 1
    assert not (folder / "store" / "gc.jsonl").exists()


def test_settings_that_became_wrong_meanwhile_do_not_cost_a_task_its_result(folder: Path, terminal: Terminal) -> None:
    (folder / "spoils.py").write_text(
        "from pathlib import Path\nfrom ipyagent_sessions import activity, workflow\n"
        "@activity(effect='none')\ndef spoil():\n    Path('ipyagent.yaml').write_text('chekpoint: {}')\n    return 42\n"
        "@workflow\nasync def main(ctx):\n    return await ctx.run(spoil)\n"
    )
    said = terminal("run", "spoils:main")
    assert (said.status, said.out) == (0, "42\n")


def test_a_file_that_is_asked_about_is_read_whole(folder: Path, terminal: Terminal) -> None:
    (folder / "mine.yaml").write_text("permissions: {effects: {irreversible: maybe}}\n")
    said = terminal("config", "--file", "mine.yaml")
    assert said.status == 1
    assert "mine.yaml: permissions.effects.irreversible: 'maybe' is not known" in said.err


def test_a_folder_where_a_file_of_settings_has_to_be_is_told(folder: Path, terminal: Terminal) -> None:
    (folder / "ipyagent.yaml").mkdir()
    said = terminal("run", "flows:audit")
    assert (said.status, said.out) == (1, "")
    assert "ipyagent.yaml: cannot be read: it is no file" in said.err
    assert "it is no file" in terminal("doctor").out


def test_paths_that_a_state_has_are_accepted(folder: Path, terminal: Terminal) -> None:
    paths = "business_state, business_state.values.mine, system_state.spent"
    (folder / "ipyagent.yaml").write_text(f"checkpoint: {{triggers: [{{type: state_change, paths: [{paths}]}}]}}")
    assert terminal("config").status == 0
