"""A task that goes on under other settings says so in its log: who, when, and what differs (R099, R101)."""

from __future__ import annotations

from pathlib import Path

import msgspec
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
